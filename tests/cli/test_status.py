"""`status`: what monitoring reads of it."""

from __future__ import annotations

import json

import pytest

from slurm_fairshare.config import Config
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.loop import Daemon
from slurm_fairshare.daemon.ports import Batch
from slurm_fairshare.errors import SlurmUnreachable, StoreUnreachable
from tests.cli.conftest import Site


@pytest.fixture
def running(site: Site) -> Site:
    """A daemon has led and ticked ten seconds ago."""
    site.load()
    site.daemon = Daemon(site.slurm, site.store, site.config, lambda: site.slurm.now)  # type: ignore[attr-defined]
    site.daemon.tick()  # type: ignore[attr-defined]
    site.slurm.advance(10)
    return site


def told(site: Site, code: int, *words: str) -> str:
    result = site.run("status", *words)
    assert result.exit_code == code, result.output
    return result.stdout


def test_all_is_well(running: Site) -> None:
    words = told(running, 0)
    assert words.startswith("OK: all is as it should be\n")
    assert "Leader of lab: " in words
    assert "differs from what it should hold by 0 differences" in words
    assert [line.split()[0] for line in words.splitlines() if "10s" in line] == [
        "accounting",
        "queue",
        "ranking",
        "push",
    ]


def test_before_the_first_tick_it_is_critical(site: Site) -> None:
    words = told(site, 2)
    assert words.startswith("CRITICAL: accounting is not known yet")
    assert "nobody yet" in words


@pytest.mark.parametrize(("seconds", "code", "state"), [(181, 1, "WARNING"), (301, 2, "CRITICAL")])
def test_old_data_is_late_and_then_critical(running: Site, seconds: int, code: int, state: str) -> None:
    running.slurm.advance(seconds - 10)
    words = told(running, code)
    assert words.startswith(f"{state}: accounting is ")
    assert words.count(state) == 4


def test_accounting_that_is_held_says_why(running: Site) -> None:
    running.slurm.holds_back = True
    for _ in range(4):
        job = running.slurm.submit("vision", "alice")
        running.slurm.start(job)
        running.slurm.finish(job)
        running.slurm.advance(60)
        running.daemon.tick()  # type: ignore[attr-defined]
    words = told(running, 1)
    assert words.startswith("WARNING: accounting is 4m10s old: slurmctld keeps 8 messages for slurmdbd back\n")
    running.slurm.hand_over()
    running.daemon.tick()  # type: ignore[attr-defined]
    assert "messages" not in told(running, 0)


def test_failures_since_the_last_tick_are_told_with_their_step(running: Site) -> None:
    running.slurm.fail("runs", SlurmUnreachable("slurmdbd does not answer"))
    running.slurm.advance(50)
    running.daemon.tick()  # type: ignore[attr-defined]
    words = told(running, 1)
    assert "1 failure since, the last at read accounting: slurmdbd does not answer" in words
    found = json.loads(told(running, 1, "--json"))
    assert found["failures"][0]["phase"] == "read accounting"
    assert found["state"] == "WARNING"


def test_a_push_that_was_refused_leaves_differences(running: Site) -> None:
    running.store.remember("pending", 3, running.slurm.now)
    assert "3 differences not pushed" in told(running, 1)


def test_in_shadow_mode_differences_are_no_fault(site: Site) -> None:
    site.load()
    site.config = site.config.model_copy(update={"daemon": site.config.daemon.model_copy(update={"push": False})})
    Daemon(site.slurm, site.store, site.config, lambda: site.slurm.now).tick()
    words = told(site, 0)
    assert "daemon.push is off: everything is computed and shown, nothing is changed" in words


def test_rows_that_could_not_be_read_are_counted(running: Site) -> None:
    now = running.slurm.now
    running.store.record_runs(Batch(Window(now, now), (), (RejectedRow("sacct", "x|y", "too few fields"),)), now)
    words = told(running, 1)
    assert "1 new rows of Slurm could not be read" in words
    running.slurm.advance(2 * 86_400)
    running.daemon.tick()  # type: ignore[attr-defined]
    assert "1 rows of Slurm could not be read and count for nobody" in told(running, 0)


def test_a_postgres_that_does_not_answer_is_critical_in_one_line(
    running: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise StoreUnreachable("Postgres does not answer")

    monkeypatch.setattr(running.store, "last_tick", gone)
    assert told(running, 2) == "CRITICAL: Postgres does not answer\n"


def test_programs_get_the_sources_and_nothing_else(running: Site) -> None:
    lines = told(running, 0, "-P").splitlines()
    assert lines[0] == "Source|At|Age|State"
    assert lines[3] == "ranking|2026-10-08T06:00:00Z|10|OK"


def test_when_the_leader_has_gone_it_is_said(running: Site) -> None:
    running.daemon.close()  # type: ignore[attr-defined]
    assert "nobody at this moment (last " in told(running, 0)


def test_status_asks_slurm_nothing(running: Site) -> None:
    before = running.slurm.calls.copy()
    told(running, 0)
    assert running.slurm.calls == before


def test_the_pools_size_is_told_with_what_debug_jobs_ask_for(site: Site) -> None:
    site.config = Config(
        cluster="lab",
        debug_lane={"pool": "pool"},
        pool={"nodes": "n[1-2]", "elsewhere": ["gpu"]},  # type: ignore[arg-type]
    )
    site.load()
    site.slurm.submit("vision", "alice", 8, contract=Contract(900))
    Daemon(site.slurm, site.store, site.config, lambda: site.slurm.now).tick()
    assert "The pool has 1 of 2 nodes; debug jobs ask for 8 GPUs." in told(site, 0)


def test_what_unallocated_jobs_may_hold_is_told(site: Site) -> None:
    site.config = Config(cluster="lab", contract={"headroom": 0.25})  # type: ignore[arg-type]
    site.load()
    Daemon(site.slurm, site.store, site.config, lambda: site.slurm.now).tick()
    assert "Unallocated jobs may hold 12 GPUs together (contract.headroom)." in told(site, 0)
