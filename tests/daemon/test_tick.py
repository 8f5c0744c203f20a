"""One tick: what it reads, computes and pushes, and that a bad day ends it cleanly."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.capacity import Outage, Past, Registration
from slurm_fairshare.core.plan import SetPriority
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.tree import Share
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import NotLeading, SlurmRefused, SlurmUnreachable
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.store.memory import MemoryStore
from tests.daemon.world import SETS, T0, terms, world


def test_a_first_tick_builds_the_ladder_and_ranks_by_path() -> None:
    it = world()
    report = it.tick()
    held = it.slurm.held()
    assert {"fs-unallocated", "fs-15m", "fs-8h"} <= held.qos.keys()
    assert held.qos["fs-4h"].exempt == held.qos["fs-4h"].grace == 14_400
    assert [leaf.account for leaf in report.ranking.leaves] == ["language", "robotics", "vision"]
    team = held.account("vision")
    assert team is not None
    assert team.default_qos == "fs-unallocated"


def test_a_second_tick_with_nothing_new_changes_nothing() -> None:
    it = world()
    it.tick()
    it.slurm.advance(60)
    before = it.slurm.calls["carry_out"]
    assert it.tick().changes == ()
    assert it.slurm.calls["carry_out"] == before


def test_usage_moves_a_team_behind_those_it_took_from() -> None:
    it = world()
    it.tick()
    it.run("robotics", 8, terms(3600))
    it.slurm.advance(600)
    report = it.tick()
    assert report.ranking.leaves[-1].account == "robotics"
    standing = report.ranking.standings["lab/robotics"]
    assert standing.usage == 8 * 600
    assert standing.entitlement == pytest.approx(16 * 600 * 0.2)
    assert standing.ratio == pytest.approx(2.5)


def test_a_job_that_blocks_a_nodes_memory_pays_for_the_node_where_the_site_wants_it() -> None:
    it = world(fairshare={"dominant": True})
    it.slurm = MemorySlurm("lab", it.config.ladder, it.config.charge_rule, T0)
    for node in ("n1", "n2"):
        it.slurm.add_node(node)
    it.slurm.add_account("robotics", "user-robotics")
    it.tick()
    job = it.slurm.submit("robotics", "user-robotics", 1, contract=terms(3600))
    it.slurm.alter(job, lambda one: replace(one, wanted=Resources({"h100": 1}, 1, 128_000)))
    it.slurm.start(job)
    it.slurm.advance(600)
    standing = it.tick().ranking.standings["lab/robotics"]
    assert standing.usage == 8 * 600
    assert standing.entitlement == pytest.approx(16 * 600 * 0.2)
    it.slurm.finish(job)
    it.slurm.advance(60)
    assert it.tick().ranking.standings["lab/robotics"].usage == 8 * 600


def test_unallocated_work_is_free() -> None:
    it = world()
    it.tick()
    it.run("robotics", 8, terms(0))
    it.slurm.advance(600)
    assert it.tick().ranking.standings["lab/robotics"].usage == 0.0


def test_a_dry_run_computes_everything_and_changes_nothing() -> None:
    it = world()
    report = it.tick(dry_run=True)
    assert report.changes
    assert not report.pushed
    assert it.slurm.calls["carry_out"] == 0
    assert it.store.last_tick() is None


def test_push_off_records_but_changes_nothing_in_slurm() -> None:
    it = world(daemon={"push": False})
    it.tick()
    assert it.slurm.calls["carry_out"] == 0
    assert it.store.last_tick() is not None


@pytest.mark.parametrize("method", ["runs", "picture", "held"])
def test_a_failed_read_ends_the_tick_with_nothing_pushed_and_the_next_goes_on(method: str) -> None:
    it = world()
    it.slurm.fail(method, SlurmUnreachable("slurmctld does not answer"))
    with pytest.raises(SlurmUnreachable, match="does not answer"):
        it.tick()
    assert it.slurm.calls["carry_out"] == 0
    assert [one.error for one in it.store.failures(T0)] == ["slurmctld does not answer"]
    it.slurm.heal()
    it.slurm.advance(60)
    assert it.tick().pushed


def test_a_refused_push_is_an_error_and_is_tried_again() -> None:
    it = world()
    it.slurm.fail("carry_out", SlurmRefused("permission denied: give it AdminLevel=Administrator"))
    with pytest.raises(SlurmRefused, match="AdminLevel"):
        it.tick()
    it.slurm.heal()
    assert it.tick().changes


def test_accounts_that_only_one_side_knows_are_named() -> None:
    it = world()
    it.slurm.add_account("strangers", "eve")
    sets = dict(it.store.changesets()[0].sets)
    it.store.add_changeset("ada", "a ghost", T0, {"lab": (*sets["lab"], Share("ghost", 1, "ghost"))}, created=T0)
    report = it.tick()
    assert report.unknown_accounts == ("ghost",)
    assert report.unbudgeted_accounts == ("strangers",)


def test_a_run_of_a_missed_week_is_caught_up_in_slices() -> None:
    it = world()
    it.tick()
    job = it.run("robotics", 8, terms(3600))
    it.slurm.advance(3600)
    it.slurm.finish(job)
    it.slurm.advance(6 * 86_400)
    before = it.slurm.calls["runs"]
    report = it.tick()
    assert it.slurm.calls["runs"] - before == 7
    assert report.ranking.standings["lab/robotics"].usage == 8 * 3600


def test_ticking_often_or_once_gives_the_same_standing() -> None:
    often, once = world(), world()
    for it in (often, once):
        it.tick()
        it.run("robotics", 8, terms(3600))
    for _ in range(10):
        often.slurm.advance(60)
        report = often.tick()
    once.slurm.advance(600)
    assert once.tick().ranking == report.ranking


def test_downtime_of_the_daemon_neither_forgives_nor_punishes() -> None:
    it = world()
    it.tick()
    job = it.run("robotics", 8, terms(3600))
    it.slurm.advance(6 * 3600)
    it.slurm.finish(job)
    it.slurm.advance(60)
    assert it.tick().ranking.standings["lab/robotics"].usage == 8 * 6 * 3600


def test_what_was_used_before_capacity_was_known_counts_for_nobody() -> None:
    it = world()
    it.run("robotics", 8, terms(3600))
    it.slurm.advance(3600)
    report = it.tick()
    assert report.window == Window(it.now, it.now)
    assert report.ranking.standings["lab/robotics"].usage == 0.0


def test_a_first_tick_on_a_cluster_that_has_been_running_ranks_by_its_real_history() -> None:
    it = world()
    everything = Resources({"h100": 16})
    it.slurm.history = Past(
        (Registration(T0 - timedelta(days=30), everything, frozenset({"n1", "n2"})),),
        (Outage("n2", T0, T0 + timedelta(hours=1), frozenset({"DRAIN"}), Resources({"h100": 8})),),
    )
    it.run("robotics", 8, terms(3600))
    it.slurm.advance(2 * 3600)
    report = it.tick()
    assert report.window == Window(it.now - timedelta(days=7), it.now)
    standing = report.ranking.standings["lab/robotics"]
    assert standing.usage == 8 * 2 * 3600
    assert standing.entitlement == pytest.approx(0.2 * (16 * 7 * 86_400 - 8 * 3600))
    assert report.ranking.leaves[-1].account == "robotics"


def test_the_past_is_asked_for_once() -> None:
    it = world()
    it.tick()
    it.slurm.advance(60)
    it.tick()
    assert it.slurm.calls["past"] == 1


def test_a_past_that_cannot_be_read_ends_the_first_tick_and_the_next_asks_again() -> None:
    it = world()
    it.slurm.fail("past", SlurmUnreachable("slurmdbd does not answer"))
    with pytest.raises(SlurmUnreachable):
        it.tick()
    assert it.store.first_capacity() is None
    it.slurm.heal()
    assert it.tick().pushed


def test_a_row_of_the_past_that_is_not_understood_is_kept_and_shown() -> None:
    it = world()
    row = RejectedRow("sacctmgr show event", "lab|n1|?", "3 fields where 7 were asked for")
    it.slurm.history = Past(rejected=(row,))
    it.tick()
    assert [one.row for one in it.store.rejected(T0)] == [row]
    assert it.store.watermark() == it.now


def test_before_the_first_budget_the_first_one_is_taken_to_have_held() -> None:
    it = world()
    it.store = MemoryStore("lab", it.config.charge_rule, it.config.ladder)
    it.tick()
    it.run("robotics", 8, terms(3600))
    it.slurm.advance(600)
    it.store.add_changeset("ada", "late", it.now, SETS, created=it.now)
    standing = it.tick().ranking.standings["lab/robotics"]
    assert standing.usage == 8 * 600
    assert standing.entitlement == pytest.approx(16 * 600 * 0.2)


def test_usage_leaves_the_window_and_is_forgiven() -> None:
    it = world(fairshare={"lookback": timedelta(hours=1)})
    it.tick()
    job = it.run("robotics", 8, terms(60))
    it.slurm.advance(600)
    it.slurm.finish(job)
    it.tick()
    it.slurm.advance(3600)
    assert it.tick().ranking.standings["lab/robotics"].usage == 0.0


def test_only_one_daemon_leads() -> None:
    it = world()
    with it.store.lead(), pytest.raises(NotLeading):
        it.tick()


@pytest.mark.parametrize(("counts", "first"), [(False, "vision"), (True, "language")])
def test_what_running_jobs_are_promised_counts_in_the_order_where_the_site_says_so(counts: bool, first: str) -> None:
    """Vision has used least of its due; by what its run is promised it will have had more than language."""
    it = world(fairshare={"count_committed": counts})
    it.tick()
    it.run("language", 4, terms(60))
    it.run("robotics", 4, terms(60))
    it.slurm.advance(3600)
    it.run("vision", 8, terms(28_800))
    it.slurm.advance(60)
    report = it.tick()
    assert report.ranking.leaves[0].account == first
    labels = it.store.labels()
    assert max(labels, key=lambda account: labels[account]) == first
    ratios = {leaf.account: round(leaf.standing.ratio, 2) for leaf in report.ranking.leaves}
    assert min(ratios, key=lambda account: ratios[account]) == "vision", "the standing itself stays by usage alone"


def test_only_leaves_that_moved_get_a_new_label() -> None:
    it = world()
    it.tick()
    it.run("language", 8, terms(3600))
    it.slurm.advance(600)
    changes = it.tick().changes
    assert [change.accounts for change in changes if isinstance(change, SetPriority)] == [("language",)]
