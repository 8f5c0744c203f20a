"""The web application: pages and the JSON API over one store, read-only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from threading import Lock, Thread
from typing import Annotated, Any
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Path, Query, Request
from fastapi.exception_handlers import request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from slurm_fairshare import __version__, metrics
from slurm_fairshare.config import Config
from slurm_fairshare.errors import FairshareError, StaleData, StoreDenied
from slurm_fairshare.store.viewers import Sight
from slurm_fairshare.web import views
from slurm_fairshare.web.access import AccessDenied, Door, Viewer
from slurm_fairshare.web.answers import Answer, Answers
from slurm_fairshare.web.headers import SecurityHeaders
from slurm_fairshare.web.models import (
    ChangesetView,
    ClusterView,
    Health,
    JobView,
    LogView,
    QueuePage,
    TeamView,
    Told,
    TreeView,
)
from slurm_fairshare.web.pages import Pages
from slurm_fairshare.web.ports import Roles, Stores
from slurm_fairshare.web.reading import Once, Reading, Source, seen
from slurm_fairshare.web.static_files import StaticFiles

log = structlog.get_logger(__name__)

API = "/api/v1"
ABOUT = """What the pages show, for programs. Read-only.

Everything comes from what the last tick recorded; nothing here asks Slurm. Answers carry an ETag: send it back as
If-None-Match and an unchanged answer costs nothing. GPU time is in GPU-hours, lengths of time in seconds, moments in
UTC; what is infinite or not known is null."""

CACHE = "private, no-cache"
"""A browser keeps the answer and asks each time whether it still holds: the ETag says so without another reading."""

KEPT_BACK = "This site shows jobs to managers and admins only; budgets and how the teams stand are open to you."
FAULT = "This page met a fault of the program; others may work. The log here says more."
UNREADABLE = "Postgres cannot be read at the moment. Slurm goes on with its last priorities. The log here says more."

Number = Annotated[int, Query(alias="page", ge=1, le=1_000_000, description="From 1")]
Make = Callable[[Reading, datetime], BaseModel]
MakeSome = Callable[[Reading, datetime], BaseModel | None]

ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Told, "description": "The proxy did not say who is signed in"},
    403: {"model": Told, "description": "Who asks may not see this"},
    503: {"model": Told, "description": "Nothing has been recorded yet, or Postgres cannot be read"},
}
MISSING = ERRORS | {404: {"model": Told, "description": "There is no such thing"}}


class Site:
    """What the routes share: who asks, the readings, the finished answers."""

    def __init__(self, config: Config, stores: Stores, roles: Roles, clock: Callable[[], datetime]) -> None:
        self.config, self.stores, self.clock = config, stores, clock
        self.door = Door(config.web, roles, clock)
        self.answers = Answers(config.web.refresh)
        self.files = StaticFiles()
        self.pages = Pages(config, self.files)
        self._sources: dict[str, Source] = {}
        self._lock = Lock()

    async def viewer(self, request: Request) -> Viewer:
        name = self.door.name_of(request)
        known = self.door.known(name)
        return known if known is not None else await run_in_threadpool(self.door.viewer, name)

    def source(self, sight: Sight) -> Source:
        """One for each role: its readings hold what that role may see."""
        with self._lock:
            if sight.role not in self._sources:
                self._sources[sight.role] = Source(self.stores(sight), self.config)
            return self._sources[sight.role]

    async def json(self, request: Request, key: object, make: Make) -> Response:
        """The answer of the API."""

        def answer(reading: Reading, now: datetime) -> Answer:
            return Answer.of(make(reading, now).model_dump_json().encode(), "application/json")

        return await self._answer(request, ("json", key), answer)

    async def html(self, request: Request, key: object, template: str, *makes: tuple[str, MakeSome]) -> Response:
        """The answer as a page, from one or more models by the names the template knows them under."""

        def answer(reading: Reading, now: datetime) -> Answer:
            values = {name: make(reading, now) for name, make in makes}
            return Answer.of(self.pages.page(template, now, **values).encode(), "text/html; charset=utf-8")

        return await self._answer(request, (template, key), answer)

    async def _answer(self, request: Request, key: object, make: Callable[[Reading, datetime], Answer]) -> Response:
        viewer = await self.viewer(request)
        now = self.clock()
        source = self.source(viewer.sight)
        answer = await self.answers.get((viewer.sight.role, key), now, lambda: make(source.current(now), now))
        return answer.response(request, CACHE)

    def error(self, request: Request, status: int, words: str, headers: dict[str, str] | None = None) -> Response:
        """An error as whoever asks can read it."""
        if request.scope["path"].startswith((API, "/healthz")):
            return JSONResponse({"detail": words}, status, headers)
        page = self.pages.page("error.html", self.clock(), status=status, words=words)
        return HTMLResponse(page, status, headers)

    def numbers(self) -> CollectorRegistry:
        """What Prometheus is told: sums by team, no jobs and no users, so it is read with an insider's rights."""
        sight = self.door.sight()
        store = self.source(sight if sight is Sight.OWN else Sight.INSIDER).store
        return metrics.registry(store, self.config, self.clock)

    def warm(self) -> None:
        """Make once what takes long, before the first reader waits for it: as a stranger is shown it, and managers."""
        try:
            stranger = self.door.sight()
        except FairshareError as error:
            log.info("nothing made beforehand", error=str(error))
            return
        signed_in = self.config.web.user_header is not None and stranger is not Sight.OWN
        for sight in (stranger, Sight.INSIDER) if signed_in else (stranger,):
            self._warm(sight)

    def _warm(self, sight: Sight) -> None:
        now = self.clock()
        try:
            reading = self.source(sight).current(now)
            for make in (reading.past, reading.turns):
                seen(partial(make, now))  # a role may see one and not the other
        except FairshareError as error:
            log.info("nothing made beforehand", role=sight.role, error=str(error))

    def close(self) -> None:
        self.door.roles.close()
        for source in self._sources.values():
            source.store.close()


class Dashboard(SecurityHeaders):
    """The application with its security headers around it. A server closes it with its lifespan."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        super().__init__(app)
        self.close = site.close


def create_app(config: Config, stores: Stores, roles: Roles, clock: Callable[[], datetime]) -> Dashboard:
    """Nothing is read before the first page is asked for."""
    site = Site(config, stores, roles, clock)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        Thread(target=site.warm, daemon=True, name="warm").start()
        yield
        site.close()

    app = FastAPI(
        title="slurm-fairshare",
        version=__version__,
        description=ABOUT,
        servers=[{"url": config.web.root_path or "/"}],
        redirect_slashes=False,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_errors(app, site)
    _add_service(app, site)
    _add_api(app, site)
    _add_pages(app, site)
    return Dashboard(app, site)


def _add_errors(app: FastAPI, site: Site) -> None:
    def denied(request: Request, error: Exception) -> Response:
        assert isinstance(error, AccessDenied)  # noqa: S101  it is registered for that
        return site.error(request, error.status, str(error))

    def not_there(request: Request, error: Exception) -> Response:
        return site.error(request, 404, str(error))

    def kept_back(request: Request, error: Exception) -> Response:
        log.info("kept back", path=request.scope["path"], error=str(error))
        return site.error(request, 403, KEPT_BACK)

    def nothing_yet(request: Request, error: Exception) -> Response:
        return site.error(request, 503, str(error), {"Retry-After": "60"})

    def unreadable(request: Request, error: Exception) -> Response:
        log.error("cannot be read", path=request.scope["path"], error=str(error))
        return site.error(request, 503, UNREADABLE, {"Retry-After": "10"})

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101  it is registered for that
        words = "There is no such page." if error.status_code == 404 else str(error.detail)
        return site.error(request, error.status_code, words, dict(error.headers or {}))

    def fault(request: Request, _error: Exception) -> Response:
        return site.error(request, 500, FAULT)  # the server logs it in full

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101  it is registered for that
        if request.scope["path"].startswith(API):
            return await request_validation_exception_handler(request, error)
        return site.error(request, 404, "There is no such page: a number in its address cannot be read.")

    app.add_exception_handler(AccessDenied, denied)
    app.add_exception_handler(views.NotThere, not_there)
    app.add_exception_handler(StoreDenied, kept_back)
    app.add_exception_handler(StaleData, nothing_yet)
    app.add_exception_handler(FairshareError, unreadable)
    app.add_exception_handler(Exception, fault)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def _add_service(app: FastAPI, site: Site) -> None:
    @app.get("/healthz", response_model=Health, responses={503: ERRORS[503]}, tags=["service"])
    def healthz() -> Health:
        """Whether pages can be served (200) or not (503), and how old what they show is. Open to everybody."""
        now = site.clock()
        reading = site.source(site.door.sight()).current(now)
        if reading.trouble:
            raise FairshareError(reading.trouble)
        if reading.tick is None:
            return Health(status="empty", computed=None, age_seconds=None)
        basis = views.tick_basis(reading.tick, site.config, now)
        status = "stale" if basis.stale else "ok"
        return Health(status=status, computed=basis.at, age_seconds=basis.age.total_seconds())

    numbers = Once(site.numbers)

    @app.get("/metrics", include_in_schema=False)
    def prometheus(request: Request) -> Response:
        """For Prometheus: whom pages are open to, and without a name where the proxies stand."""
        site.door.admit_machine(request)
        return Response(generate_latest(numbers()), media_type=CONTENT_TYPE_LATEST)

    @app.get("/static/{name:path}", include_in_schema=False)
    def static(request: Request, name: str) -> Response:
        return site.files.response(request, name)


def _add_api(app: FastAPI, site: Site) -> None:
    @app.get(f"{API}/tree", response_model=TreeView, responses=ERRORS, tags=["budgets"])
    async def tree(request: Request) -> Response:
        """Every node of the budget tree: share, entitlement, usage, and how it stands."""
        return await site.json(request, "tree", views.tree_view)

    @app.get(f"{API}/teams/{{path:path}}", response_model=TeamView, responses=MISSING, tags=["budgets"])
    async def team(
        request: Request,
        path: Annotated[str, Path(description="Path of a node of the tree, or the name of an account")],
    ) -> Response:
        """A node and what is below it: owed and delivered by day, waits, who is protected until when."""
        return await site.json(request, ("team", path), lambda reading, now: views.team_view(reading, now, path))

    @app.get(f"{API}/queue", response_model=QueuePage, responses=MISSING, tags=["jobs"])
    async def queue(
        request: Request,
        page: Number = 1,
        team: Annotated[str | None, Query(description="Only jobs at or below this node (path or account)")] = None,
    ) -> Response:
        """The queue, page by page: pending jobs in the order in which Slurm takes them, then running ones."""
        return await site.json(
            request, ("queue", page, team), lambda reading, now: views.queue_of(reading, now, page, team)
        )

    @app.get(f"{API}/jobs/{{job}}", response_model=JobView, responses=MISSING, tags=["jobs"])
    async def job(
        request: Request,
        job: Annotated[str, Path(description="As squeue prints it: 123, 123_4 (array task), 123+1 (het part)")],
    ) -> Response:
        """A job: its contract, its runs, why it waits or was stopped."""
        return await site.json(request, ("job", job), lambda reading, now: views.job_view(reading, now, job))

    @app.get(f"{API}/cluster", response_model=ClusterView, responses=ERRORS, tags=["cluster"])
    async def cluster(request: Request) -> Response:
        """Capacity by state, the pyramid, occupancy by team over time, nodes out of service."""
        return await site.json(request, "cluster", views.cluster_view)

    @app.get(f"{API}/budget/changesets", response_model=LogView, responses=MISSING, tags=["budgets"])
    async def changesets(request: Request, page: Number = 1) -> Response:
        """Every edit of the tree, newest first: who, when, from when, what, why."""
        return await site.json(request, ("log", page), lambda reading, now: views.log_view(reading, now, page))

    @app.get(f"{API}/budget/changesets/{{number}}", response_model=ChangesetView, responses=MISSING, tags=["budgets"])
    async def changeset(request: Request, number: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
        """One edit and what it changed for each node."""
        return await site.json(
            request, ("changeset", number), lambda reading, now: views.changeset_view(reading, now, number)
        )


def _add_pages(app: FastAPI, site: Site) -> None:
    @app.get("/", include_in_schema=False)
    async def tree_page(request: Request) -> Response:
        return await site.html(request, "tree", "tree.html", ("tree", views.tree_view))

    @app.get("/team/{path:path}", include_in_schema=False)
    async def team_page(request: Request, path: str, page: Number = 1) -> Response:
        return await site.html(
            request,
            (path, page),
            "team.html",
            ("team", lambda reading, now: views.team_view(reading, now, path)),
            ("queue", lambda reading, now: seen(lambda: views.queue_of(reading, now, page, path))),
        )

    @app.get("/queue", include_in_schema=False)
    async def queue_page(request: Request, page: Number = 1) -> Response:
        return await site.html(
            request, page, "queue.html", ("queue", lambda reading, now: views.queue_of(reading, now, page, None))
        )

    @app.get("/job", include_in_schema=False)
    async def find_job(id: str = "") -> Response:  # noqa: A002  the name of the form's field
        """Where the search field leads."""
        return RedirectResponse(f"{site.config.web.root_path}/job/{quote(id.strip(), safe='')}", 303)

    @app.get("/job/{job}", include_in_schema=False)
    async def job_page(request: Request, job: str) -> Response:
        return await site.html(
            request, job, "job.html", ("job", lambda reading, now: views.job_view(reading, now, job))
        )

    @app.get("/cluster", include_in_schema=False)
    async def cluster_page(request: Request) -> Response:
        return await site.html(request, "cluster", "cluster.html", ("view", views.cluster_view))

    @app.get("/budget", include_in_schema=False)
    async def budget_page(request: Request, page: Number = 1) -> Response:
        return await site.html(
            request, page, "budget.html", ("budget", lambda reading, now: views.log_view(reading, now, page))
        )

    @app.get("/budget/{number}", include_in_schema=False)
    async def changeset_page(request: Request, number: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
        return await site.html(
            request,
            number,
            "changeset.html",
            ("changeset", lambda reading, now: views.changeset_view(reading, now, number)),
        )
