"""What each page says, and that nothing in it can be mistaken for markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from typing import NoReturn

import pytest
from click.testing import CliRunner

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.core.booking import reason
from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.booking import NAME as BOOKINGS
from slurm_fairshare.daemon.tick import tick
from slurm_fairshare.errors import StoreUnreachable
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.web.app import FAULT, UNREADABLE
from tests.web.conftest import Desk
from tests.web.sample import CLUSTER, TEAMS


def plain(page: str) -> str:
    """The text of a page without its tags, moments as exact as they are there for machines."""
    page = re.sub(r'<time datetime="([^"]*)">[^<]*</time>', r"\1", page)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


def said(desk: Desk, *command: str) -> list[str]:
    """What a command says about the same lab, line by line."""
    app = App(desk.config, desk.store, clock=lambda: desk.now)
    result = CliRunner().invoke(main, list(command), obj=app)
    assert result.exit_code == 0, result.output
    return [re.sub(r"\s+", " ", line).strip() for line in result.stdout.splitlines() if line.strip()]


class TestTree:
    def test_shows_every_node_with_its_standing_in_words(self, desk: Desk) -> None:
        page = desk.client().page("/")
        for path in TEAMS:
            assert f'href="/team/{path}"' in page
        assert re.search(r"(over|under) target by \d+%", page)
        assert "rank" in page.lower()

    def test_draws_a_line_of_usage_and_one_of_entitlement_for_each_node(self, desk: Desk) -> None:
        page = desk.client().page("/")
        assert page.count('class="spark"') == page.count('class="spark-due"') == 11

    def test_says_the_window_and_the_age(self, desk: Desk) -> None:
        assert "(7d, UTC), computed 17s ago." in desk.client().page("/")

    def test_says_stale_in_words_when_it_is(self, desk: Desk) -> None:
        assert "STALE" not in desk.client().page("/")
        desk.later(minutes=12)
        page = desk.client().page("/")
        assert "STALE: these numbers are 12m17s old" in page
        assert 'role="alert"' in page

    def test_says_what_the_commands_say_of_the_last_weeks(self, desk: Desk) -> None:
        found = re.search(r"GPU-hours owed were delivered \([\d.]+% hour by hour\); \d of 7", desk.client().page("/"))
        assert found is not None

    def test_before_the_first_tick_it_says_what_to_do(self, desk: Desk) -> None:
        empty = replace(desk, store=MemoryStore(CLUSTER))
        answer = empty.client().get("/")
        assert answer.status_code == 503
        assert "start the daemon" in answer.text
        assert answer.headers["retry-after"] == "60"


class TestTheFirstTick:
    """A site as it is a minute after it was switched on: nothing has run, nobody was owed anything."""

    @pytest.mark.parametrize("path", ["/", "/team/lab", "/team/lab/vision", "/queue", "/cluster", "/budget"])
    def test_every_page_is_there(self, fresh: Desk, path: str) -> None:
        assert fresh.client().page(path)

    def test_the_tree_says_that_teams_are_new(self, fresh: Desk) -> None:
        assert "new: nothing owed yet, comes first" in fresh.client().page("/")


@pytest.fixture
def fresh(make_desk: Callable[..., Desk]) -> Desk:
    desk = replace(make_desk(), store=MemoryStore(CLUSTER))
    slurm = MemorySlurm(CLUSTER, desk.config.ladder, now=desk.now)
    slurm.add_node("n1")
    slurm.add_account("vision")
    teams = {"": (Share("lab", 1),), "lab": (Share("vision", 1, "vision"),)}
    desk.store.add_changeset("ada", "the programme", desk.now, teams, created=desk.now)
    with desk.store.lead():
        tick(slurm, desk.store, desk.config, desk.now)
    return desk


class TestFaults:
    def test_a_fault_of_ours_is_a_page_too(self, desk: Desk) -> None:
        class Broken(MemoryStore):
            def changesets(self) -> NoReturn:
                raise ValueError("secret words")

        answer = replace(desk, store=Broken(CLUSTER)).client(faults=True).get("/")
        assert answer.status_code == 500
        assert FAULT in plain(answer.text)
        assert "secret words" not in answer.text


class TestTeam:
    def test_a_leaf_has_days_waits_protected_runs_and_its_queue(self, desk: Desk) -> None:
        page = desk.client().page("/team/lab/language/chat")
        for heading in ("Usage against entitlement", "Owed and delivered", "Waits", "Protected now", "Queue"):
            assert heading in page
        assert page.count("data-chart=") == 2

    def test_a_programme_has_what_is_below_it(self, desk: Desk) -> None:
        page = desk.client().page("/team/lab/vision")
        assert 'href="/team/lab/vision/images"' in page
        assert {"images", "video"} == set(re.findall(r'data-label="Team"><a[^>]*>([^<]+)<', page))

    def test_an_account_may_be_named_as_slurm_names_it(self, desk: Desk) -> None:
        assert "<h1>chat</h1>" in desk.client().page("/team/CHAT")

    def test_the_words_are_those_of_explain(self, desk: Desk) -> None:
        page = plain(desk.client().page("/team/lab/robotics"))
        for sentence in said(desk, "explain", "lab/robotics"):
            assert sentence in page

    def test_what_is_not_there_is_said(self, desk: Desk) -> None:
        answer = desk.client().get("/team/lab/nobody")
        assert answer.status_code == 404
        assert "There is no &#39;lab/nobody&#39; in the budget tree" in answer.text


class TestJob:
    def test_a_stopped_job_says_why_and_shows_its_runs(self, desk: Desk) -> None:
        page = desk.client().page(f"/job/{desk.lab.stopped}")
        assert "was told to yield at" in page
        assert "the two are further apart than the hysteresis of 0.10" in page
        assert {"running", "requeued"} <= set(re.findall(r'<span class="tag">(\w+)</span>', page))

    def test_the_words_are_those_of_why(self, desk: Desk) -> None:
        page = plain(desk.client().page(f"/job/{desk.lab.stopped}"))
        for sentence in said(desk, "why", str(desk.lab.stopped)):
            assert sentence in page

    def test_a_waiting_job_says_what_it_waits_for(self, desk: Desk) -> None:
        page = plain(desk.client().page(f"/job/{desk.lab.waiting}"))
        assert "It is number 1 among the pending jobs." in page

    def test_a_job_says_which_nodes_are_kept_for_it_and_the_queue_too(self, desk: Desk) -> None:
        for one, words in zip(
            desk.lab.kept,
            ("n02, n03 guarded for it", "n07, n12 planned for it at 2026-11-29T15:10:00Z"),
            strict=True,
        ):
            why = reason(one, desk.config.rebalance.settle)
            page = plain(desk.client().page(f"/job/{one.job_id}"))
            assert f"Kept for it: {words}." in page
            assert why in page
            assert f"; {words}) {why}" in plain(desk.client().page("/queue"))

    def test_the_search_field_leads_to_it(self, desk: Desk) -> None:
        answer = desk.client().get(f"/job?id=%20{desk.lab.stopped}")
        assert answer.status_code == 303
        assert answer.headers["location"] == f"/job/{desk.lab.stopped}"

    @pytest.mark.parametrize(("asked", "words"), [("12", "is not in the queue"), ("abc", "is no job number")])
    def test_what_is_not_there_is_said(self, desk: Desk, asked: str, words: str) -> None:
        answer = desk.client().get(f"/job/{asked}")
        assert answer.status_code == 404
        assert words in answer.text


class TestClusterAndBudget:
    def test_the_cluster_has_its_pyramid_its_capacity_and_its_drains(self, desk: Desk) -> None:
        page = plain(desk.client().page("/cluster"))
        for words in ("Availability", "Occupancy", "Impact", "Utilisation", "Capacity now", "row remapping pending"):
            assert words in page
        assert "being emptied" in page

    def test_nodes_kept_for_a_job_are_told_with_why_and_until_when(self, desk: Desk) -> None:
        guard, plan = desk.lab.kept
        page = plain(desk.client().page("/cluster"))
        kept = page[page.index("Kept for a job") : page.index("Out of service")]
        for words in (
            f"n02, n03 {guard.job_id} ",
            "Since 2026-11-29T14:19:20Z nobody else starts there, while those who yield to it leave: until it starts",
            f"n07, n12 {plan.job_id} ",
            "At 2026-11-29T15:10:00Z all that runs there has ended or may yield to it.",
        ):
            assert words in kept
        found = desk.client().json("/api/v1/cluster")["kept"]
        assert [(one["kind"], one["job"], one["start"]) for one in found] == [
            ("guard", str(guard.job_id), "2026-11-29T14:19:20Z"),
            ("plan", str(plan.job_id), "2026-11-29T15:10:00Z"),
        ]

    def test_where_nothing_is_kept_nothing_is_said_of_it(self, make_desk: Callable[..., Desk]) -> None:
        desk = make_desk()
        desk.store.remember(BOOKINGS, {}, desk.now)
        assert "Kept for a job" not in desk.client().page("/cluster")

    def test_capacity_adds_up(self, desk: Desk) -> None:
        (one,) = desk.client().json("/api/v1/cluster")["capacity"]
        assert one["installed"] == 128
        assert one["in_service"] == one["installed"] - one["drained"] - one["down"] == 120

    def test_occupancy_never_exceeds_what_is_installed(self, desk: Desk) -> None:
        found = desk.client().json("/api/v1/cluster")["occupancy"]
        for hour in zip(*(team["gpus"] for team in found["teams"]), strict=True):
            assert 0 < sum(hour) <= 130  # the run that came again was put on a node that was full

    def test_the_log_has_every_edit_and_each_its_difference(self, desk: Desk) -> None:
        page = desk.client().page("/budget")
        assert "until its new arms arrive" in page
        assert "scheduled" in page
        page = plain(desk.client().page("/budget/2"))
        assert "lab/robotics had 15% of lab" in page

    def test_a_changeset_that_is_not_there_is_said(self, desk: Desk) -> None:
        assert desk.client().get("/budget/77").status_code == 404
        assert desk.client().get("/budget/x").status_code == 404


class TestHostileNames:
    NASTY = "<script>alert(1)</script>\"'&"

    def test_names_are_text_wherever_they_stand(self, make_desk: Callable[..., Desk]) -> None:
        desk = make_desk()
        sets = {"": (Share("lab", 1),), "lab": (Share("a&b<i>", 1, "chat"), Share("q\"'uote", 1, "robotics"))}
        desk.store.add_changeset(self.NASTY, self.NASTY, desk.now, sets, created=desk.now)
        picture = desk.store.latest_queue()
        assert picture is not None
        jobs = tuple(replace(job, user=self.NASTY, reason="<b>x</b>") for job in picture.jobs)
        nodes = tuple(replace(node, reason=self.NASTY) for node in picture.nodes)
        desk.store.record_picture(replace(picture, jobs=jobs, nodes=nodes, at=desk.now), ())
        client = desk.client()
        waiting = next(job.label for job in jobs if job.pending)
        for path in (
            "/",
            "/queue",
            "/cluster",
            "/budget",
            "/budget/4",
            f"/job/{waiting}",
            "/team/chat",
            f"/team/{self.NASTY}",
        ):
            answer = client.get(path)
            assert "<script>alert" not in answer.text, path
            assert "<i>" not in answer.text, path
            assert "<b>x" not in answer.text, path

    def test_there_is_no_script_and_no_style_in_a_page(self, desk: Desk) -> None:
        for path in ("/", "/team/lab/vision", "/queue", "/cluster", "/budget"):
            page = desk.client().page(path)
            assert not re.findall(r"<script(?![^>]*\bsrc=)", page), path
            assert not re.findall(r"\s(style|on\w+)=", page), path


class TestManyJobs:
    def test_ten_thousand_jobs_come_in_pages(self, make_desk: Callable[..., Desk]) -> None:
        desk = make_desk(waiting=10_000)
        client = desk.client()
        first = client.page("/queue")
        assert "10,000 waiting" in first
        assert "Page 1 of 201" in first
        assert first.count('data-label="Job"') == 50
        last = client.page("/queue?page=201")
        assert 'rel="next"' not in last
        assert client.get("/queue?page=202").status_code == 404
        assert client.page("/team/lab/language/chat?page=3").count('data-label="Place"') == 50


class TestTrouble:
    def test_while_postgres_is_away_what_was_read_is_shown_and_said_to_be_old(
        self, make_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = make_desk()
        client = desk.client()
        client.page("/")

        def away() -> None:
            raise StoreUnreachable("Postgres at db.internal cannot be used")

        monkeypatch.setattr(desk.store, "last_tick", away)
        desk.later(minutes=5)
        page = client.page("/")
        assert "Postgres has not answered since 2026-11-29T14:25:00Z" in plain(page)
        assert "STALE" in page
        assert "db.internal" not in page
        monkeypatch.undo()
        desk.later(seconds=10)
        assert "Postgres has not answered" not in client.page("/")

    def test_what_was_never_read_is_said_without_where_postgres_is(
        self, make_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = make_desk()

        def away() -> None:
            raise StoreUnreachable("Postgres at db.internal cannot be used")

        monkeypatch.setattr(desk.store, "last_tick", away)
        answer = desk.client().get("/")
        assert answer.status_code == 503
        assert UNREADABLE in answer.text
        assert "db.internal" not in answer.text
        assert desk.client().get("/healthz").status_code == 503


def test_health_tells_the_age(desk: Desk) -> None:
    client = desk.client()
    assert client.json("/healthz") == {"status": "ok", "computed": "2026-11-29T14:19:43Z", "age_seconds": 17.0}
    desk.later(minutes=10)
    assert client.json("/healthz")["status"] == "stale"
    assert replace(desk, store=MemoryStore(CLUSTER)).client().json("/healthz")["status"] == "empty"


def test_metrics_are_served_beside_the_pages(desk: Desk) -> None:
    answer = desk.client().get("/metrics")
    assert answer.status_code == 200
    assert answer.text.count("slurm_fairshare_") > 20


def test_pages_stand_below_a_proxys_path(desk: Desk) -> None:
    web = desk.config.web.model_copy(update={"root_path": "/fairshare"})
    page = replace(desk, config=desk.config.model_copy(update={"web": web})).client().page("/")
    addresses = re.findall(r'(?:href|src|action)="([^"]+)"', page)
    assert all(one.startswith(("/fairshare/", "#")) for one in addresses), addresses


def test_an_edit_that_takes_effect_shows_the_next_time_it_is_asked(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    client = desk.client()
    client.page("/budget")
    desk.store.add_changeset(
        "ada", "a new word", desk.now, {"lab": (Share("robotics", 1, "robotics"),)}, created=desk.now
    )
    desk.later(seconds=5)
    assert "a new word" in client.page("/budget")
