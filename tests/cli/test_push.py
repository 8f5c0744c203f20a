"""`plan`, `apply` and `--remove` at the keyboard: rungs retired, what others set left alone, QOS in use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_fairshare.config import Config
from slurm_fairshare.core.booking import Booking, Kind
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.plan import Qos
from slurm_fairshare.errors import GpusNotTracked
from tests.cli.conftest import Site


@pytest.fixture
def applied(site: Site) -> Site:
    """A site with foreign settings, all of ours applied."""
    site.slurm.add_account("guests", "gina", priority=7)
    site.slurm.add_qos(Qos("long", priority=9, preempts=frozenset({"normal"})))
    site.load()
    site.says("tick")
    return site


def shorter(site: Site) -> None:
    """The settings lose the 2-hour rung."""
    site.config = Config(cluster="lab", contract={"rungs": ("15m", "1h", "4h", "8h")})  # type: ignore[arg-type]


def test_a_rung_the_settings_no_longer_have_is_retired_by_apply(applied: Site) -> None:
    shorter(applied)
    shown = applied.says("apply")
    assert "take fs-2h away from nlp, robotics, vision" in shown
    assert "remove QOS fs-2h" in shown
    held = applied.slurm.held()
    assert "fs-2h" not in held.qos
    assert held.accounts["vision"].qos >= {"fs-1h", "fs-4h"}
    assert held.accounts["vision"].priority is not None
    assert "Nothing to change" in applied.says("apply")


def test_a_rung_in_use_is_retired_only_when_its_jobs_have_left(applied: Site) -> None:
    running = applied.slurm.submit("vision", "alice", 1, contract=Contract(7200))
    applied.slurm.start(running)
    waiting = applied.slurm.submit("vision", "alice", 1, contract=Contract(7200))
    shorter(applied)
    assert "fs-2h stays for now, and the access to it: 2 jobs are still in it" in applied.says("apply")
    held = applied.slurm.held()
    assert (held.qos["fs-2h"].exempt, held.qos["fs-2h"].grace) == (7200, 7200)
    assert "fs-2h" in held.accounts["vision"].qos
    applied.slurm.finish(running)
    applied.slurm.finish(waiting, "CANCELLED")
    applied.says("apply")
    assert "fs-2h" not in applied.slurm.held().qos


def test_a_tick_leaves_a_retired_rung_to_apply(applied: Site) -> None:
    """The daemon may be an Operator, who may not remove a QOS."""
    shorter(applied)
    applied.says("tick")
    assert "fs-2h" in applied.slurm.held().qos


def test_removal_takes_ours_and_leaves_what_others_set(applied: Site) -> None:
    applied.slurm.add_qos(replace(applied.slurm.held().qos["long"], preempts=frozenset({"normal", "fs-1h"})))
    applied.says("apply", "--remove")
    held = applied.slurm.held()
    assert set(held.qos) == {"normal", "long"}
    assert held.qos["long"] == Qos("long", priority=9, preempts=frozenset({"normal"}))
    assert held.accounts["guests"].priority == 7
    assert all(has.priority is None for name, has in held.accounts.items() if name != "guests")
    assert all(not any(one.startswith("fs-") for one in has.qos) for has in held.accounts.values())
    assert "Nothing to take out" in applied.says("apply", "--remove")


def test_removal_needs_no_gpus_counted(applied: Site) -> None:
    """Whoever took gres/gpu out of AccountingStorageTRES first can take the ladder out all the same."""
    applied.slurm.fail("picture", GpusNotTracked("node n1 has GPUs but no gres/gpu in CfgTRES"))
    applied.says("apply", "--remove")
    assert set(applied.slurm.held().qos) == {"normal", "long"}


def test_removal_gives_booked_nodes_back_and_the_plan_shows_it(applied: Site) -> None:
    job = applied.slurm.submit("vision", "alice", 8)
    applied.slurm.book(Booking(Kind.GUARD, job, "alice", ("n1",), applied.slurm.now))
    assert f"release the nodes booked for job {job} (guard): n1" in applied.says("plan", "--remove")
    assert applied.slurm.bookings()
    applied.run("apply", "--remove")
    assert applied.slurm.bookings() == ()
    waiting = applied.slurm.job(job)
    assert waiting is not None
    assert (waiting.pending, waiting.constraints) == (True, ())


def test_removal_keeps_what_jobs_use_says_so_and_ends_with_1(applied: Site) -> None:
    job = applied.slurm.submit("nlp", "dan", 8, contract=Contract(4 * 3600))
    applied.slurm.start(job)
    result = applied.run("apply", "--remove")
    assert result.exit_code == 1
    assert "fs-4h stays for now, and the access to it: 1 job is still in it (squeue --qos=fs-4h)" in result.stdout
    assert "Take lua out of JobSubmitPlugins" in result.stdout
    assert "not everything could be taken out" in result.stderr
    held = applied.slurm.held()
    assert {name for name in held.qos if name.startswith("fs-")} == {"fs-4h"}
    assert held.qos["fs-4h"].exempt == 4 * 3600
    assert held.qos["fs-4h"].preempts == frozenset(), "what it may preempt is gone, and so is its name"
    assert "fs-4h" in held.accounts["nlp"].qos
    again = applied.run("apply", "--remove")
    assert again.exit_code == 1
    assert "fs-4h stays for now" in again.stdout
    applied.slurm.finish(job)
    assert applied.run("apply", "--remove").exit_code == 0
    assert set(applied.slurm.held().qos) == {"normal", "long"}


def test_nothing_is_taken_out_while_a_daemon_leads(applied: Site) -> None:
    with applied.store.lead():
        result = applied.run("apply", "--remove")
    assert result.exit_code == 1
    assert "stop the daemon first" in result.stderr
    assert "fs-4h" in applied.slurm.held().qos


def test_a_plan_of_removal_changes_nothing(applied: Site) -> None:
    before = applied.slurm.held()
    applied.says("plan", "--remove")
    applied.says("apply", "--remove", "--dry-run")
    assert applied.slurm.held() == before
