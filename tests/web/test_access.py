"""Who may look, and at what: the proxy's word, and the roles in Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import HTTPConnection

from slurm_fairshare.config import Config, WebSection
from slurm_fairshare.errors import StoreDenied, StoreError, StoreUnreachable
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.roles import MANAGER, READER, Readers
from slurm_fairshare.store.viewers import Sight, Viewers
from slurm_fairshare.web.access import AccessDenied, Door
from slurm_fairshare.web.app import Dashboard, Site
from slurm_fairshare.web.reading import seen
from slurm_fairshare.web.server import application
from tests.roles import Place, a_place, made_place
from tests.web.asking import Client
from tests.web.conftest import Desk
from tests.web.sample import CLUSTER, fill
from tests.web.test_answers import Counted

HEADER = "X-Remote-User"
PAGES = ("/", "/team/lab/vision", "/queue", "/cluster", "/budget", "/api/v1/tree")


def signed(desk: Desk, **section: Any) -> Desk:
    """The same dashboard behind a proxy."""
    web = WebSection(user_header=HEADER, **section)
    return Desk(desk.lab, desk.store, desk.config.model_copy(update={"web": web}))


class TestProxy:
    def test_whom_the_proxy_names_may_look(self, desk: Desk) -> None:
        client = signed(desk).client(headers={HEADER: "alice"})
        for path in PAGES:
            assert client.get(path).status_code == 200, path

    @pytest.mark.parametrize("path", PAGES)
    def test_whom_it_does_not_name_may_not(self, desk: Desk, path: str) -> None:
        assert signed(desk).client().get(path).status_code == 401
        assert signed(desk).client(headers={HEADER: "  "}).get(path).status_code == 401

    def test_the_header_of_anybody_else_is_not_believed(self, desk: Desk) -> None:
        client = signed(desk).client(peer="10.1.2.3", headers={HEADER: "alice", "X-Forwarded-For": "127.0.0.1"})
        for path in (*PAGES, "/metrics"):
            answer = client.get(path)
            assert answer.status_code == 403, path
            assert "lab/vision" not in answer.text

    def test_a_network_of_proxies_can_be_trusted(self, desk: Desk) -> None:
        trusted = signed(desk, trusted_proxies=("10.1.0.0/16",))
        assert trusted.client(peer="10.1.2.3", headers={HEADER: "alice"}).get("/").status_code == 200
        assert trusted.client(peer="10.2.2.3", headers={HEADER: "alice"}).get("/").status_code == 403

    def test_two_names_are_none(self, desk: Desk) -> None:
        door = Door(WebSection(user_header=HEADER), desk.roles, lambda: desk.now)
        scope = {
            "type": "http",
            "client": ("127.0.0.1", 1),
            "headers": [(b"x-remote-user", b"a"), (b"x-remote-user", b"b")],
        }

        with pytest.raises(AccessDenied, match="did not say who is signed in"):
            door.name_of(HTTPConnection(scope))

    def test_health_needs_no_name_and_tells_nothing_but_the_age(self, desk: Desk) -> None:
        answer = signed(desk).client(peer="10.1.2.3").get("/healthz")
        assert answer.status_code == 200
        assert set(answer.json()) == {"status", "computed", "age_seconds"}

    def test_open_pages_ask_for_no_name(self, desk: Desk) -> None:
        assert desk.client(peer="10.1.2.3").get("/").status_code == 200


class TestSettings:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"strangers": "nothing"},
            {"listen": "8080"},
            {"listen": "host:99999"},
            {"trusted_proxies": ("proxy.example",)},
            {"root_path": "fairshare"},
            {"refresh": "0s"},
            {"page_rows": 0},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            WebSection(**wrong)


class TestWarming:
    """What takes long is there before the first reader comes, as strangers are shown it and as managers are."""

    def warmed(self, desk: Desk, reader: Any) -> dict[Sight, Counted]:
        """The stores by sight after the warming; each counts what it is asked from then on."""
        stores = {sight: Counted(reader if sight is Sight.STRANGER else desk.store) for sight in Sight}
        site = Site(desk.config, stores.__getitem__, Strangers(), lambda: desk.now)
        site.warm()
        for store in stores.values():
            store.asked = 0
        for sight in (Sight.STRANGER, Sight.INSIDER):
            reading = site.source(sight).current(desk.now)
            reading.turns(desk.now)
            seen(lambda reading=reading: reading.past(desk.now))
        return stores

    def test_both_views_are_made(self, desk: Desk) -> None:
        stores = self.warmed(signed(desk), desk.store)
        assert {store.asked for store in stores.values()} == {0}

    def test_a_part_that_strangers_may_not_see_keeps_none_of_the_rest_cold(self, desk: Desk) -> None:
        stores = self.warmed(signed(desk), Budgets(desk.store))
        assert stores[Sight.STRANGER].asked <= 2  # it is refused again, which costs next to nothing
        assert stores[Sight.INSIDER].asked == 0


class Strangers:
    """Roles are set up, and whoever asks is in none of them."""

    def sight(self, _name: str) -> Sight:
        return Sight.STRANGER

    def close(self) -> None:
        pass


class Budgets:
    """A store of a site whose readers see how teams stand, and nobody's runs."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        if name in ("runs", "busy", "demand", "usage_by_hour"):
            raise StoreDenied("permission denied")
        return getattr(self.store, name)


# --- roles ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(postgres_server: str) -> Iterator[Place]:
    with made_place(postgres_server) as made:
        yield made


@dataclass
class Behind:
    """A dashboard whose login is a member of the readers and the managers, as docs/howto says."""

    place: Place
    apps: list[Dashboard] = field(default_factory=list)

    def app(self, **section: Any) -> Dashboard:
        web = WebSection(user_header=HEADER, **section)
        self.apps.append(application(Config(cluster=CLUSTER, database_url=self.place.address("web"), web=web)))
        return self.apps[-1]

    def client(self, name: str, **section: Any) -> Client:
        return Client(self.app(**section), headers={HEADER: name})


@contextmanager
def dashboard(postgres_server: str, readers: Readers) -> Iterator[Behind]:
    logins = {"web": (READER, MANAGER), "mona": (MANAGER,), "rita": (READER,)}
    with a_place(postgres_server, logins, readers, inherit=False) as place:
        with PostgresStore(place.owner, CLUSTER) as store:
            fill(store, now=datetime.now(UTC), days=2, every=6)
        made = Behind(place)
        try:
            yield made
        finally:
            for app in made.apps:
                app.close()


@pytest.fixture(scope="module")
def closed(postgres_server: str) -> Iterator[Behind]:
    """A site that keeps people's jobs to itself: readers see budgets and how the teams stand."""
    with dashboard(postgres_server, Readers.BUDGETS) as made:
        yield made


class TestSight:
    def test_managers_admins_and_the_daemon_see_all_readers_what_readers_may(self, place: Place) -> None:
        with closing(Viewers(Database(place.owner))) as viewers:
            seen = {login: viewers.sight(place.role(login)) for login in ("anna", "mona", "otto", "dora", "rita")}
        assert [seen.pop(login) for login in ("anna", "mona", "otto", "dora")] == [Sight.INSIDER] * 4
        assert seen == {"rita": Sight.READER}

    @pytest.mark.parametrize("name", ["nobody", "", "anna'; drop role", "fairshare_manager", "fairshare_reader"])
    def test_a_name_without_a_role_is_a_strangers(self, place: Place, name: str) -> None:
        with closing(Viewers(Database(place.owner))) as viewers:
            assert viewers.sight(name) is Sight.STRANGER

    def test_without_roles_there_is_nothing_to_follow(self, postgres: str) -> None:
        with closing(Viewers(Database(postgres))) as viewers:
            assert viewers.sight("alice") is Sight.OWN


class TestRights:
    def test_a_store_told_to_read_only_writes_nothing(self, postgres: str) -> None:
        with PostgresStore(postgres, CLUSTER) as store:
            store.database.read_only()
            with pytest.raises(StoreError, match="read-only transaction"):
                store.remember("x", 1, datetime.now(UTC))

    def test_it_reads_with_the_rights_of_the_role(self, closed: Behind) -> None:
        with PostgresStore(closed.place.address("web"), CLUSTER) as store:
            store.database.read_only(READER)
            assert store.last_ranking() is not None
            with pytest.raises(StoreDenied):
                store.latest_queue()

    def test_managers_see_jobs_where_readers_do_not(self, closed: Behind) -> None:
        manager, reader = (closed.client(closed.place.role(who)) for who in ("mona", "rita"))
        assert 'data-label="Job"' in manager.page("/queue")
        answer = reader.get("/queue")
        assert answer.status_code == 403
        assert "managers and admins only" in answer.text

    def test_readers_see_the_tree_and_the_budgets_and_are_told_what_is_kept_back(self, closed: Behind) -> None:
        reader = closed.client(closed.place.role("rita"))
        page = reader.page("/")
        assert "to managers and admins only" in page
        assert "lab/vision" in page
        assert 'class="spark"' not in page
        assert "until its new arms arrive" in reader.page("/budget")
        for path in ("/team/lab/vision", "/cluster"):
            assert "to managers and admins only" in reader.page(path)
        for path in ("/api/v1/queue", "/api/v1/jobs/1"):
            assert reader.get(path).status_code == 403

    def test_no_name_of_a_user_reaches_a_reader(self, closed: Behind) -> None:
        reader = closed.client(closed.place.role("rita"))
        for path in (
            "/",
            "/team/lab/language/chat",
            "/cluster",
            "/api/v1/tree",
            "/api/v1/teams/chat",
            "/api/v1/cluster",
        ):
            text = reader.get(path).text
            assert not [user for user in ("alice", "bob", "dan", "erin", "frank") if user in text], path

    def test_strangers_see_what_readers_do_or_nothing_as_the_site_says(self, closed: Behind) -> None:
        assert closed.client("nobody").get("/").status_code == 200
        assert closed.client("nobody").get("/queue").status_code == 403
        answer = closed.client("nobody", strangers="nothing").get("/")
        assert answer.status_code == 403
        assert "has no role" in answer.text
        assert closed.client(closed.place.role("rita"), strangers="nothing").get("/").status_code == 200

    def test_everybody_sees_jobs_where_readers_may(self, postgres_server: str) -> None:
        with dashboard(postgres_server, Readers.ALL) as opened:
            assert 'data-label="Job"' in opened.client("nobody").page("/queue")

    def test_one_viewers_answer_is_never_anothers(self, closed: Behind) -> None:
        app = closed.app()
        for _ in range(2):
            assert Client(app, headers={HEADER: closed.place.role("mona")}).get("/queue").status_code == 200
            assert Client(app, headers={HEADER: closed.place.role("rita")}).get("/queue").status_code == 403


class TestWithoutAName:
    def test_health_and_metrics_are_served_where_no_roles_are_set_up(self, postgres: str) -> None:
        with PostgresStore(postgres, CLUSTER) as store:
            fill(store, now=datetime.now(UTC), days=1, every=6)
        app = application(Config(cluster=CLUSTER, database_url=postgres))
        with closing(app):
            assert Client(app).json("/healthz")["status"] == "ok"
            assert "slurm_fairshare_wait_seconds_count{" in Client(app).get("/metrics").text

    def test_and_where_they_are(self, closed: Behind) -> None:
        client = Client(closed.app())
        assert client.get("/healthz").status_code == 200
        metrics = client.get("/metrics")
        assert "slurm_fairshare_wait_seconds_count{" in metrics.text
        assert "alice" not in metrics.text


class TestPostgresAway:
    def test_what_a_role_may_see_holds_while_it_does_not_answer(self, desk: Desk) -> None:
        class Flaky:
            away = False

            def sight(self, _name: str) -> Sight:
                if self.away:
                    raise StoreUnreachable("away")
                return Sight.READER

            def close(self) -> None:
                pass

        roles, now = Flaky(), [desk.now]
        door = Door(WebSection(user_header=HEADER), roles, lambda: now[0])
        assert door.viewer("rita").sight is Sight.READER
        roles.away = True
        now[0] = desk.now.replace(hour=20)
        assert door.viewer("rita").sight is Sight.READER
        with pytest.raises(StoreUnreachable):
            door.viewer("somebody new")
