"""`queue`: the order, and what is said of a job."""

from __future__ import annotations

from dataclasses import replace

from slurm_fairshare.core.booking import Booking, Kind
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.reports.queue import QueueRow, Wanted, queue_rows, select
from tests.reports.sample import JOBS, LADDER, NOW, ranking

ROWS = queue_rows(JOBS, ranking(), LADDER, NOW)


def row(number: int, **changes: object) -> QueueRow:
    found = next(row for row in ROWS if row.job.job_id == number)
    changed = replace(found.job, **changes)  # type: ignore[arg-type]
    return replace(found, job=changed, charged=LADDER.is_charged(changed.qos))


def test_pending_jobs_come_in_slurms_order_then_running_ones_oldest_first() -> None:
    assert [one.job.job_id for one in ROWS] == [1043, 1042, 1044, 1050, 1051, 1004, 1001, 1005, 1002, 1003, 1006]
    assert [one.position for one in ROWS[:6]] == [1, 2, 3, 4, 5, None]


def test_a_run_inside_its_minimum_runtime_is_protected_until_its_end() -> None:
    assert row(1003).note() == "until 15:20Z"
    assert not row(1003).may_yield


def test_a_run_past_its_minimum_may_yield() -> None:
    assert row(1001).note() == "may yield now"


def test_unallocated_work_may_yield_any_time() -> None:
    assert row(1004).note() == "may yield any time"
    assert row(1004).protected_until is None


def test_a_pending_job_shows_slurms_reason_in_brackets() -> None:
    assert row(1044).note() == "(Priority)"


def test_a_run_that_can_neither_be_requeued_nor_ended_is_left_alone() -> None:
    assert row(1001, requeueable=False).note() == "left alone"


def test_a_damaged_contract_is_never_read_as_no_protection() -> None:
    damaged = row(1001, contract=None)
    assert damaged.note() == "left alone: contract unreadable"
    assert not damaged.may_yield


def test_a_completing_job_is_leaving_whatever_its_contract_says() -> None:
    assert row(1005).note() == "leaving"
    assert not row(1005).may_yield


def test_a_job_of_an_account_outside_the_tree_has_no_rank_and_never_yields_to_a_ranking() -> None:
    assert row(1006).leaf is None
    assert not row(1006, contract=Contract(60)).may_yield


def test_jobs_are_chosen_by_account_user_and_state_as_in_squeue() -> None:
    def chosen(**wanted: tuple[str, ...]) -> list[int]:
        return [one.job.job_id for one in select(ROWS, Wanted(**wanted))]

    assert chosen(accounts=("SPEECH@lab",)) == [1002]
    assert chosen(users=("alice",)) == [1044, 1003]
    assert chosen(states=("cg",)) == [1005]
    assert chosen(states=("running",), users=("erin",)) == [1002]
    assert len(chosen(states=("all",))) == len(ROWS)


def test_nodes_that_are_kept_for_a_job_are_told_beside_slurms_reason() -> None:
    guard = Booking(Kind.GUARD, 1044, "ada", ("n1", "n2"), NOW)
    rows = queue_rows(JOBS, ranking(), LADDER, NOW, {1044: guard})
    notes = {one.job.job_id: one.note() for one in rows}
    assert notes[1044] == "(Priority; n1, n2 guarded for it)"
    assert notes[1042] == row(1042).note()
