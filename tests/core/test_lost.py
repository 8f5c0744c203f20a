"""Work thrown away: counted from the last save that is known, and summed up by team and rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.decisions import Outcome, Recorded, Rule, Side
from slurm_fairshare.core.lost import Lost, Since, by_account, lost_work, work_lost
from slurm_fairshare.core.rebalance import decision_on
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.runs import Run
from tests.core.build import NOW, ago, contract, job

HALF_HOUR = timedelta(minutes=30)


def test_a_run_that_does_not_resume_loses_all_of_it() -> None:
    loss = work_lost(job(1, "a", 4, nodes=("n1",), started=5000, terms=contract(resumable=False)), NOW, HALF_HOUR)
    assert (loss.gpu_seconds, loss.since) == (20_000, Since.START)


def test_a_run_that_reported_a_checkpoint_loses_what_came_after_it() -> None:
    run = replace(job(1, "a", 4, nodes=("n1",), started=5000), checkpoint=ago(100))
    assert work_lost(run, NOW, HALF_HOUR).gpu_seconds == 400
    earlier = replace(run, checkpoint=ago(9000))
    assert work_lost(earlier, NOW, HALF_HOUR).gpu_seconds == 20_000, "of an earlier run: this one began from it"
    ahead = replace(run, checkpoint=ago(-60))
    assert work_lost(ahead, NOW, HALF_HOUR).since is Since.ASSUMED


def test_otherwise_a_save_is_assumed_at_every_interval() -> None:
    loss = work_lost(job(1, "a", 4, nodes=("n1",), started=1900), NOW, HALF_HOUR)
    assert (loss.gpu_seconds, loss.since) == (400, Since.ASSUMED)


def test_a_run_that_asked_for_a_notice_is_taken_to_save_on_it() -> None:
    run = job(1, "a", 4, nodes=("n1",), started=1900, terms=Contract(60, resumable=True, notice="USR1"))
    assert (work_lost(run, NOW, HALF_HOUR).gpu_seconds, work_lost(run, NOW, HALF_HOUR).since) == (0, Since.NOTICE)


def recorded(account: str, minimum: int, outcome: Outcome, *, dry_run: bool = False) -> Recorded:
    run = job(1, account, 4, nodes=("n1",), started=2000, terms=contract(minimum, resumable=False))
    victim = Side(1, "1", "u", account, f"lab/{account}", f"lab/{account}", 1.5, 4)
    made = decision_on(run, victim, Rule.UNDER_SERVED, NOW, work_lost(run, NOW, HALF_HOUR))
    return Recorded(replace(made, dry_run=dry_run), outcome, NOW)


def native(account: str, seconds: float, *, resumable: bool, state: str = "PREEMPTED") -> Run:
    return Run(
        "lab", f"k{seconds}{state}", 2, "2", account, "u", 1, "gpu", "fs-unallocated", state, ago(9000), ago(9000),
        ago(seconds), NOW, Resources({"h100": 2}), 2000, False, Contract(0, resumable),
    )  # fmt: skip


def test_stops_are_summed_by_account_rule_and_kind() -> None:
    decisions = [
        recorded("a", 60, Outcome.REQUEUED),
        recorded("A", 60, Outcome.ENDED),
        recorded("a", 60, Outcome.GONE),
        recorded("a", 60, Outcome.REQUEUED, dry_run=True),
    ]
    runs = [
        native("b", 100, resumable=False),
        native("b", 1900, resumable=True),
        native("b", 7, resumable=False, state="COMPLETED"),
    ]
    found = lost_work(decisions, runs, ago(3600), NOW + timedelta(seconds=1), HALF_HOUR)
    assert found == (
        Lost("a", "under-served", True, 2, 16_000),
        Lost("b", "native", False, 2, 200 + 200),
    )
    assert (by_account(found, charged=True), by_account(found, charged=False)) == ({"a": 16_000}, {"b": 400})


def test_what_lies_outside_the_period_does_not_count() -> None:
    assert lost_work([recorded("a", 60, Outcome.REQUEUED)], [], ago(3600), NOW, HALF_HOUR) == ()


@pytest.mark.parametrize("elapsed", [0, 1800])
def test_right_after_an_assumed_save_nothing_is_lost(elapsed: int) -> None:
    assert work_lost(job(1, "a", 8, nodes=("n1",), started=elapsed), NOW, HALF_HOUR).gpu_seconds == 0
