"""A pass beyond the plain case: het jobs and arrays, stuck runs, the lane's limit, what a site keeps out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import DebugLane
from slurm_fairshare.core.decisions import Outcome, Recorded
from slurm_fairshare.core.rebalance import Pass, Rules, Why, rebalance
from slurm_fairshare.core.scene import whole_jobs
from tests.core.build import LADDER, NOW, ago, contract, job, node, picture, ranking, tree

TREE = tree(poor=1, rich=1)
ORDER = ranking(TREE, poor=0.2, rich=1.8)
TWO = [node("n1"), node("n2")]
LONG = contract(3600)


def look(
    *jobs: Job, rules: Rules | None = None, recent: tuple[Recorded, ...] = (), lane: DebugLane | None = None
) -> Pass:
    return rebalance(picture(TWO, *jobs), ORDER, NOW, LADDER, lane, rules or Rules(), recent, NOW)


def stopped(result: Pass) -> list[int]:
    return sorted(one.victim.job_id for one in result.decisions)


def part(number: int, leader: int, account: str = "rich", **more: object) -> Job:
    one = job(number, account, 8, **more)  # type: ignore[arg-type]
    return replace(one, het_leader=leader, label=f"{leader}+{number - leader}")


# --- heterogeneous jobs ---------------------------------------------------------------------------


def test_a_heterogeneous_run_is_stopped_once_and_as_a_whole() -> None:
    parts = [part(1, 1, nodes=("n1",), started=120), part(2, 1, nodes=("n2",), started=120)]
    result = look(*parts, job(9, "poor", 8))
    assert [(one.victim.job_id, one.victim.label, one.victim.gpus) for one in result.decisions] == [(1, "1", 16)]


def test_a_heterogeneous_run_is_protected_as_long_as_its_longest_part() -> None:
    parts = [part(1, 1, nodes=("n1",), started=120), part(2, 1, nodes=("n2",), started=120, terms=contract(200))]
    assert stopped(look(*parts, job(9, "poor", 8))) == []
    joined = whole_jobs(parts, LADDER)
    assert [(one.job_id, one.contract and one.contract.min_runtime) for one in joined] == [(1, 200)]


@pytest.mark.parametrize(
    "odd", [{"contract": None}, {"account": "other"}, {"qos": "normal"}, {"by_node": {}}, {"state": "SUSPENDED"}]
)
def test_a_heterogeneous_run_with_a_part_that_is_not_understood_is_left_alone(odd: dict[str, object]) -> None:
    parts = [part(1, 1, nodes=("n1",), started=120), part(2, 1, nodes=("n2",), started=120)]
    parts[1] = replace(parts[1], **odd)  # type: ignore[arg-type]
    assert stopped(look(*parts, job(9, "poor", 8))) == []


def test_a_waiting_heterogeneous_job_gets_all_of_its_place_or_nobody_is_stopped() -> None:
    runs = [job(1, "rich", 8, nodes=("n1",), started=120), job(2, "rich", 8, nodes=("n2",), started=120)]
    parts = [part(8, 8, "poor"), part(9, 8, "poor")]
    result = look(*runs, *parts)
    assert stopped(result) == [1, 2]
    assert {one.preemptor.gpus for one in result.decisions if one.preemptor} == {16}
    kept = replace(runs[1], start=ago(5))
    blocked = look(runs[0], kept, *parts)
    assert (stopped(blocked), [one.job_id for one in blocked.declined]) == ([], [8])


def test_a_waiting_heterogeneous_job_one_part_of_which_meets_a_limit_stops_nobody() -> None:
    runs = [job(1, "rich", 8, nodes=("n1",), started=120), job(2, "rich", 8, nodes=("n2",), started=120)]
    parts = [part(8, 8, "poor"), replace(part(9, 8, "poor"), reason="AssocGrpGRES")]
    result = look(*runs, *parts)
    assert (stopped(result), [one.why for one in result.declined]) == ([], [Why.NOT_MODELLED])


# --- arrays ---------------------------------------------------------------------------------------


def array(count: int, size: int = 4, limit: int = 0) -> Job:
    waiting = job(20, "poor", size)
    return replace(waiting, label=f"20_[1-{count}]", array_size=count, array_limit=limit)


def runs_of_four() -> list[Job]:
    return [job(n, "rich", 4, nodes=(f"n{(n + 1) // 2}",), started=120) for n in (1, 2, 3, 4)]


def test_several_tasks_of_an_array_are_served_in_one_pass() -> None:
    assert len(stopped(look(*runs_of_four(), array(3)))) == 2
    assert len(stopped(look(*runs_of_four(), array(3), rules=Rules(preemptors=3)))) == 3
    assert len(stopped(look(*runs_of_four(), array(1)))) == 1


def test_no_more_tasks_than_may_run_at_once() -> None:
    running = replace(job(21, "poor", 4, nodes=("n1",), started=10), label="20_0")
    others = runs_of_four()[1:]
    assert len(stopped(look(running, *others, array(3, limit=2), rules=Rules(preemptors=3)))) == 1


def test_room_that_is_being_made_for_some_tasks_does_not_hold_up_the_others() -> None:
    first = look(*runs_of_four(), array(4))
    recent = tuple(Recorded(one, Outcome.NOTICED, NOW) for one in first.decisions)
    second = look(*runs_of_four(), array(4), recent=recent)
    assert not set(stopped(first)) & set(stopped(second))
    assert len(stopped(second)) == 2


# --- runs that stay -------------------------------------------------------------------------------


def told(result: Pass, outcome: Outcome, seconds: float) -> tuple[Recorded, ...]:
    return tuple(Recorded(replace(one, at=ago(seconds)), outcome, ago(seconds)) for one in result.decisions)


def test_a_run_that_slurm_refuses_to_stop_is_asked_by_nobody_until_the_cool_down_is_over() -> None:
    run, other = job(1, "rich", 8, nodes=("n1",), started=5000), job(2, "rich", 8, nodes=("n2",), started=5)
    first = look(run, other, job(8, "poor", 8))
    assert stopped(first) == [1]
    again = job(9, "poor", 8)
    assert stopped(look(run, other, again, recent=told(first, Outcome.REFUSED, 120))) == []
    assert stopped(look(run, other, again, recent=told(first, Outcome.REFUSED, 601))) == [1]


def test_a_run_that_was_requeued_and_does_not_leave_is_no_room() -> None:
    run = replace(job(1, "rich", 8, nodes=("n1",), started=5000), state="COMPLETING")
    others = job(2, "rich", 8, nodes=("n2",), started=5000)
    first = look(replace(run, state="RUNNING"), replace(others, start=ago(5)), job(8, "poor", 8))
    fresh = look(run, others, job(9, "poor", 8), recent=told(first, Outcome.REQUEUED, 30))
    late = look(run, others, job(9, "poor", 8), recent=told(first, Outcome.REQUEUED, 200))
    assert (stopped(fresh), stopped(late)) == ([], [2])


def test_a_new_run_of_a_job_that_was_told_to_go_is_not_taken_for_the_old_one() -> None:
    old = look(
        job(1, "rich", 8, nodes=("n1",), started=5000), job(2, "rich", 8, nodes=("n2",), started=5), job(8, "poor", 8)
    )
    again = job(1, "rich", 8, nodes=("n1",), started=300)
    result = look(
        again, job(2, "rich", 8, nodes=("n2",), started=5), job(9, "poor", 8), recent=told(old, Outcome.NOTICED, 10)
    )
    assert stopped(result) == [1]


def test_within_the_hour_no_job_stops_the_one_it_was_stopped_for() -> None:
    taker = job(1, "rich", 8, nodes=("n1",), started=1200)
    once = job(9, "poor", 8, nodes=("n1",), started=500), job(2, "rich", 8, nodes=("n2",), started=5), job(1, "rich", 8)
    turned = ranking(TREE, poor=1.8, rich=0.2)
    first = rebalance(picture(TWO, *once), turned, NOW, LADDER, None, Rules(), (), NOW)
    assert stopped(first) == [9]
    others = job(2, "rich", 8, nodes=("n2",), started=5)
    assert stopped(look(taker, others, job(9, "poor", 8), recent=told(first, Outcome.REQUEUED, 1300))) == []
    assert stopped(look(taker, others, job(9, "poor", 8), recent=told(first, Outcome.REQUEUED, 3700))) == [1]


# --- the queue ------------------------------------------------------------------------------------


def test_a_job_that_slurm_has_passed_over_without_a_reason_is_looked_at_after_a_while() -> None:
    runs = [job(1, "rich", 8, nodes=("n1",), started=120), job(2, "rich", 8, nodes=("n2",), started=5)]
    waiting = job(9, "poor", 8, reason="None")
    assert stopped(look(*runs, replace(waiting, eligible=ago(29)))) == []
    assert stopped(look(*runs, replace(waiting, eligible=ago(30)))) == [1]


def test_jobs_at_the_head_that_wait_for_something_else_hide_nobody() -> None:
    held = [job(100 + n, "poor", 8, reason="Dependency", priority=900_000) for n in range(20)]
    runs = [job(1, "rich", 8, nodes=("n1",), started=120), job(2, "rich", 8, nodes=("n2",), started=5)]
    assert stopped(look(*runs, *held, job(9, "poor", 8), rules=Rules(depth=5))) == [1]


def test_a_job_that_has_room_already_is_left_to_slurm_and_that_is_said() -> None:
    result = look(job(1, "rich", 8, nodes=("n1",), started=120), job(9, "poor", 8))
    assert (stopped(result), [one.why for one in result.declined]) == ([], [Why.FITS])


def test_debug_jobs_that_would_pass_their_teams_limit_stop_nobody() -> None:
    runs = [job(1, "rich", 4, nodes=("n1",), started=5000, terms=LONG), job(2, "rich", 8, nodes=("n2",), started=5)]
    mine = job(3, "poor", 4, nodes=("n1",), started=5, terms=contract(600))
    short = job(9, "poor", 4, terms=contract(600))
    assert stopped(look(*runs, mine, short, lane=DebugLane(max_gpus_per_team=8))) == [1]
    result = look(*runs, mine, short, lane=DebugLane(max_gpus_per_team=7))
    assert (stopped(result), [one.why for one in result.declined]) == ([], [Why.LANE_LIMIT])
    assert "limit of 7" in result.declined[0].words


# --- what a site keeps out ------------------------------------------------------------------------


def test_partitions_and_sessions_can_be_kept_out() -> None:
    run = job(1, "rich", 8, nodes=("n1",), started=120, terms=contract(60, resumable=False), batch=False)
    other = job(2, "rich", 8, nodes=("n2",), started=5)
    waiting = job(9, "poor", 8)
    assert stopped(look(run, other, waiting)) == [1]
    assert stopped(look(run, other, waiting, rules=Rules(end_sessions=False))) == []
    assert stopped(look(run, other, waiting, rules=Rules(kept_partitions=("gpu",)))) == []


def test_rates_count_what_was_carried_out_and_no_drain() -> None:
    runs = [job(1, "rich", 8, nodes=("n1",), started=5000), job(2, "rich", 8, nodes=("n2",), started=5)]
    before = look(*runs, job(8, "poor", 8))
    waiting = job(9, "poor", 8)
    strict = Rules(max_per_hour=1)
    other = tuple(
        replace(one, decision=replace(one.decision, started=ago(99_999))) for one in told(before, Outcome.REFUSED, 900)
    )
    assert stopped(look(*runs, waiting, rules=strict, recent=other)) == [1]
    done = tuple(replace(one, outcome=Outcome.REQUEUED) for one in other)
    assert stopped(look(*runs, waiting, rules=strict, recent=done)) == []
