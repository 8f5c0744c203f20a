"""What Slurm does around a stop, a pass and a plan, as it was found on the container cluster and in Slurm's source."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.large import Large
from slurm_fairshare.sim.budget import Budget, Knobs
from slurm_fairshare.sim.engine import Ended, Timing
from slurm_fairshare.sim.jobs import InTeam, JobSpec, Workload
from tests.sim.build import run

EVEN = {"a": 1.0, "b": 1.0}
SLURM = Timing.slurm()


def test_nobody_starts_on_a_node_while_a_run_is_killed_there() -> None:
    """A node with a completing job takes nobody, on whichever GPU."""
    jobs = (
        JobSpec(0, 0, 5000, 4, "a"),
        JobSpec(1, 100, 500, 8, "a", min_runtime=900),
        JobSpec(2, 101, 500, 1, "b", min_runtime=900),
    )
    result = run(Workload(jobs, EVEN), Budget(), nodes=1)
    assert result.runs.ended[0] == Ended.PREEMPTED
    assert result.first_start[1] == result.runs.end[0] + SLURM.kill_wait
    assert result.first_start[2] > result.first_start[1]


@pytest.mark.parametrize("main_delay", [1, 100_000], ids=["main scheduler", "backfill"])
@pytest.mark.parametrize("kill_wait", [0, 10])
def test_whoever_runs_are_preempted_for_has_its_nodes_kept_in_that_pass(main_delay: int, kill_wait: int) -> None:
    """Or the next in the queue would start there, and be preempted again, for ever."""
    jobs = (
        JobSpec(0, 0, 5000, 1, "a"),
        JobSpec(1, 0, 1000, 8, "a", limit=2000, min_runtime=900),
        JobSpec(2, 100, 500, 16, "b", min_runtime=900, nodes=2),
        JobSpec(3, 110, 5000, 1, "a"),
    )
    timing = replace(SLURM, main_delay=main_delay, kill_wait=kill_wait)
    result = run(Workload(jobs, EVEN), Budget(Knobs(holds=False)), nodes=2, timing=timing)
    assert result.preempted == 1
    stopped = result.runs.ended.index(Ended.PREEMPTED)
    assert result.first_start[2] == result.runs.end[stopped] + kill_wait
    assert result.first_start[3] >= result.finished[2]


def test_killing_is_not_charged_and_a_run_that_does_not_resume_starts_anew() -> None:
    jobs = (JobSpec(0, 0, 5000, 8, "a"), JobSpec(1, 1000, 500, 8, "b", min_runtime=900))
    result = run(Workload(jobs, EVEN), Budget(), nodes=1)
    assert result.runs.end[0] == 1001
    assert result.first_start[1] == 1011
    assert [end - start for start, end in zip(result.runs.start, result.runs.end, strict=True)] == [1000, 500, 5000]
    assert result.runs.start[2] >= 1010 + SLURM.requeue_delay


def test_batch_jobs_wait_for_the_main_schedulers_turn() -> None:
    """It passes a second after a job has come, but three seconds after its last pass."""
    jobs = tuple(JobSpec(i, at, 500, 1, "a", min_runtime=900) for i, at in enumerate((101, 103, 104, 109)))
    result = run(Workload(jobs, EVEN), Budget(), nodes=1)
    assert list(result.first_start) == [102, 105, 105, 110]
    tenths = replace(SLURM, main_delay=10, main_gap=30, backfill=10_000)
    jobs = tuple(JobSpec(i, at, 5000, 1, "a", min_runtime=9000) for i, at in enumerate((1013, 1018, 1031, 1099)))
    assert list(run(Workload(jobs, EVEN), Budget(), nodes=1, timing=tenths).first_start) == [1020, 1020, 1050, 1100]


def test_unallocated_work_is_kept_off_planned_nodes_like_any_other() -> None:
    """What may be preempted at once is no exception: backfill looks at its time limit."""
    jobs = (
        JobSpec(0, 0, 900, 4, "a", limit=1200, min_runtime=900),
        JobSpec(1, 10, 900, 8, "a", limit=1200, min_runtime=900),
        JobSpec(2, 20, 100, 1, "b", limit=5000),
        JobSpec(3, 20, 100, 1, "b", limit=300),
    )
    result = run(Workload(jobs, EVEN), Budget(), nodes=1)
    assert result.first_start[3] < 40
    assert result.first_start[2] > result.first_start[1]


@pytest.mark.parametrize(("reservations", "blocked", "starts"), [(1, 1, 30), (0, 1, 22), (0, 100, 30)])
def test_with_no_nodes_kept_the_main_scheduler_passes_over_a_hundred_blocked_jobs(
    reservations: int, blocked: int, starts: int
) -> None:
    """bf_min_prio_reserve is its as well as backfill's; but for that it stops at the first of them."""
    ahead = tuple(JobSpec(1 + i, 10, 900, 8, "a", min_runtime=900) for i in range(blocked))
    behind = JobSpec(1 + blocked, 21, 100, 1, "a", min_runtime=900, priority=InTeam.LOW)
    jobs = (JobSpec(0, 0, 800, 4, "a", min_runtime=900), *ahead, behind)
    result = run(Workload(jobs, EVEN), Budget(Knobs(reservations=reservations, lane=None)), nodes=1)
    assert result.first_start[behind.number] == starts


def test_nodes_are_kept_for_a_blocked_unallocated_job_too() -> None:
    jobs = (
        JobSpec(0, 0, 900, 4, "a", limit=1200),
        JobSpec(1, 10, 900, 8, "a", limit=1200),
        JobSpec(2, 20, 100, 1, "b", limit=5000),
    )
    result = run(Workload(jobs, EVEN), Budget(), nodes=1)
    assert result.first_start[2] > result.first_start[1] > 900


def test_a_new_job_has_the_last_ticks_standing_and_those_that_wait_follow_later() -> None:
    """The association's priority counts at submit; what is pending is recalculated every PriorityCalcPeriod."""
    jobs = (
        JobSpec(0, 0, 1000, 8, "a", min_runtime=900),
        JobSpec(1, 1, 50, 8, "a", min_runtime=900),
        JobSpec(2, 100, 50, 8, "b", min_runtime=900),
        JobSpec(3, 101, 50, 8, "a", min_runtime=900),
    )
    timing = replace(SLURM, priority_period=5000)
    quick, slow = (
        run(Workload(jobs, EVEN), Budget(Knobs(tick=tick, evicts=False)), nodes=1, timing=timing) for tick in (10, 5000)
    )
    assert sorted(range(4), key=lambda i: quick.first_start[i]) == [0, 2, 1, 3]
    assert sorted(range(4), key=lambda i: slow.first_start[i]) == [0, 1, 3, 2]


def test_a_run_that_ends_before_the_rebalancer_reaches_it_is_no_eviction() -> None:
    jobs = (
        JobSpec(0, 0, 4002, 8, "a", min_runtime=3600, resumable=True),
        JobSpec(1, 3900, 500, 8, "b", min_runtime=900),
    )
    at_once = run(Workload(jobs, EVEN), Budget(), nodes=1)
    late = run(Workload(jobs, EVEN), Budget(), nodes=1, timing=replace(SLURM, act=600))
    assert (at_once.evicted, late.evicted) == (1, 0)


def test_headroom_is_left_by_unallocated_jobs_and_taken_by_the_next_under_contract() -> None:
    jobs = (
        *(JobSpec(number, 100, 20_000, 1, "a") for number in range(8)),
        JobSpec(8, 3000, 500, 2, "b", min_runtime=900),
        JobSpec(9, 3000, 500, 1, "b", min_runtime=900),
    )
    result = run(Workload(jobs, EVEN), Budget(Knobs(headroom=0.25)), nodes=1)
    first = list(result.first_start)
    assert sorted(first[:8])[5] < 200, "six of them start"
    assert sorted(first[:8])[6] > 3500, "two wait, while two GPUs are free"
    assert first[8] < 3010, "for whoever is under contract"
    assert result.preempted == 1, "and one of them has to go for the third GPU"


@pytest.mark.parametrize("evicts", [True, False])
def test_what_running_jobs_are_promised_can_count_in_the_order(*, evicts: bool) -> None:
    """Team a has used nothing yet and holds the node for hours; of who waits then, b goes first only if that counts."""
    jobs = (
        JobSpec(0, 0, 200, 4, "b", min_runtime=900),
        JobSpec(1, 0, 1000, 4, "b", min_runtime=900),
        JobSpec(2, 190, 30_000, 4, "a", min_runtime=14_400),
        JobSpec(3, 191, 100, 4, "a", min_runtime=3600),
        JobSpec(4, 192, 100, 4, "b", min_runtime=3600),
    )
    first = {
        counts: run(Workload(jobs, EVEN), Budget(Knobs(count_committed=counts, evicts=evicts)), nodes=1).first_start
        for counts in (False, True)
    }
    assert first[False][3] < first[False][4], "b has used more"
    assert first[True][4] < first[True][3], "a is promised more"


def test_nodes_planned_for_a_large_job_take_only_what_ends_before() -> None:
    """One node comes free by itself at 3501 s, the other may yield at 7201: nobody is to outlast that on the first."""
    jobs = (
        JobSpec(0, 0, 3500, 8, "a", min_runtime=3600),
        JobSpec(1, 0, 50_000, 8, "a", min_runtime=7200, resumable=True),
        JobSpec(2, 100, 5000, 16, "b", nodes=2, min_runtime=3600),
        JobSpec(3, 200, 50_000, 8, "c", min_runtime=14_400, resumable=True),
        JobSpec(4, 3600, 600, 8, "a", min_runtime=900, limit=900),
    )
    first = {}
    for ahead in (timedelta(0), timedelta(hours=4)):
        large = Large(16, timedelta(minutes=10), plan_ahead=ahead)
        policy = Budget(Knobs(reservations=0, lane=None, large=large))
        first[ahead] = list(run(Workload(jobs, {"a": 1.0, "b": 1.0, "c": 1.0}), policy, nodes=2).first_start)
    bare, planned = first.values()
    assert bare[3] < 3600
    assert bare[2] > bare[3] + 14_400
    assert planned[4] < 3610
    assert 7201 < planned[2] < 7260
    assert planned[3] > planned[2]
