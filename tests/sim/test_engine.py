"""The loop: held against naive schedulers, and what must hold whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_fairshare.core.large import Large
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.sim.budget import Budget, Knobs
from slurm_fairshare.sim.engine import Ended, Job, Policy, Result, Timing, simulate
from slurm_fairshare.sim.gantt import bars
from slurm_fairshare.sim.jobs import JobSpec, Machine, NodeSpec, Outage, Workload
from slurm_fairshare.sim.policies import Easy, Fifo, FirstFit, SlurmFairTree, StrictPriority
from tests.sim.build import SHARES, bytes_of, naive, random_jobs, run, tiny

EVERY: list[Callable[[], Policy]] = [
    Fifo, FirstFit, Easy, StrictPriority, SlurmFairTree, lambda: SlurmFairTree(preempts=True), Budget,
    lambda: Budget(Knobs(pool=1)), lambda: Budget(Knobs(near=1, reservations=0)),
    lambda: Budget(Knobs(holds=False, reservations=100, tick=7)),
    lambda: Budget(Knobs(reservations=0, large=Large(8, timedelta(minutes=10), plan_ahead=timedelta(hours=2)))),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "rule"), [(Fifo, "fifo"), (FirstFit, "first-fit"), (Easy, "easy")])
@given(seed=st.integers(0, 10_000))
@example(seed=1870)  # two limits end at one moment, and the job needs one of them
@settings(max_examples=40, deadline=None)
def test_on_one_pool_it_starts_jobs_when_a_naive_scheduler_does(policy: type[Policy], rule: str, seed: int) -> None:
    workload = random_jobs(seed, 80)
    result = simulate(workload, Machine.uniform(1, 20), policy(), Timing.ideal())
    assert list(result.first_start) == naive(workload.jobs, 20, rule)


def held_within_size(result: Result) -> None:
    for node, spec in enumerate(result.machine.nodes):
        changes: list[tuple[int, int]] = []
        for run_, place in enumerate(result.runs.place):
            for where, gpus in place:
                if where == node:
                    changes += [(result.runs.start[run_], gpus), (result.runs.end[run_], -gpus)]
        level = 0
        for _, by in sorted(changes, key=lambda change: (change[0], change[1])):
            level += by
            assert 0 <= level <= spec.gpus


@pytest.mark.parametrize("make", EVERY)
@given(seed=st.integers(0, 10_000))
@example(seed=7119)  # once three jobs waited for ever, each for room that was kept for another of them
@settings(max_examples=12, deadline=None)
def test_whatever_the_policy(make: Callable[[], Policy], seed: int) -> None:
    """No GPU twice, no protected run stopped, nothing lost or made: every job gets its work exactly once."""
    workload = random_jobs(seed)
    result = run(workload, make())
    held_within_size(result)
    bars(result, 0, result.end + 1, range(4))
    useful = [0] * len(workload.jobs)
    lost = held = 0
    for i, number in enumerate(result.runs.job):
        spec, length = workload.jobs[number], result.runs.end[i] - result.runs.start[i]
        useful[number] += result.runs.useful[i]
        lost += (length - result.runs.useful[i]) * spec.gpus
        held += length * spec.gpus
        assert sum(gpus for _, gpus in result.runs.place[i]) == spec.gpus
        if result.runs.ended[i] in {Ended.PREEMPTED, Ended.EVICTED}:
            minimum = spec.min_runtime if result.charged[number] else 0
            assert length >= minimum
    assert lost == result.ledger.lost
    assert held == sum(useful[n] * workload.jobs[n].gpus for n in range(len(useful))) + lost
    finished = [n for n, at in enumerate(result.finished) if at >= 0]
    assert all(useful[n] == workload.jobs[n].work for n in finished)
    assert len(finished) == len(workload.jobs)
    meters = [*result.ledger.charged.values(), *result.ledger.unallocated.values()]
    assert sum(meter.until(result.end) for meter in meters) == held


@pytest.mark.parametrize("make", EVERY)
def test_the_same_input_gives_the_same_bytes(make: Callable[[], Policy]) -> None:
    workload = random_jobs(7)
    assert bytes_of(run(workload, make())) == bytes_of(run(workload, make()))


def test_the_same_seed_of_a_scenario_gives_the_same_bytes_and_another_seed_others() -> None:
    one, again, other = tiny(Budget()), tiny(Budget()), tiny(Budget(), seed=2)
    assert bytes_of(one) == bytes_of(again)
    assert bytes_of(one) != bytes_of(other)


def test_what_a_scenario_submitted_gives_the_same_result_as_a_plain_trace() -> None:
    first = tiny(Budget())
    again = simulate(first.workload, first.machine, Budget(), Timing.slurm(), until=first.end)
    assert bytes_of(again) == bytes_of(first)


def test_a_young_unallocated_run_goes_first_and_the_taker_starts_after_kill_wait() -> None:
    jobs = (
        JobSpec(0, 0, 50_000, 4, "a", resumable=True),
        JobSpec(1, 100, 50_000, 4, "b", resumable=True),
        JobSpec(2, 1000, 3000, 4, "c", min_runtime=3600),
    )
    result = run(Workload(jobs, {"a": 1, "b": 1, "c": 1}), Budget(), nodes=1)
    stopped = [result.runs.job[i] for i, how in enumerate(result.runs.ended) if how == Ended.PREEMPTED]
    assert stopped[:1] == [1]
    assert 1010 <= result.first_start[2] <= 1030


def test_a_run_past_its_minimum_yields_and_goes_on_from_its_checkpoint() -> None:
    jobs = (
        JobSpec(0, 0, 100_000, 8, "rich", min_runtime=3600, resumable=True, checkpoint=1800),
        JobSpec(1, 5000, 7200, 8, "poor", min_runtime=3600, resumable=True),
    )
    result = run(Workload(jobs, {"rich": 1, "poor": 1}), Budget(), nodes=1)
    assert result.evicted >= 1
    assert result.runs.ended[0] == Ended.EVICTED
    assert 5000 <= result.runs.end[0] <= 5100
    assert result.runs.useful[0] == 3600
    assert result.finished[0] > 0


def test_a_failed_node_stops_its_runs_and_a_drained_one_lets_them_end() -> None:
    jobs = (
        JobSpec(0, 0, 5000, 8, "a", resumable=True, min_runtime=3600),
        JobSpec(1, 0, 5000, 8, "a", min_runtime=3600),
    )
    outages = (Outage(0, 2000, 4000), Outage(1, 2000, 9000, drain=True))
    machine = replace(Machine.uniform(2, 8), outages=outages)
    result = simulate(Workload(jobs, {"a": 1}), machine, Budget(), Timing.slurm())
    assert result.runs.ended[0] == Ended.NODE_FAILED
    assert result.runs.end[0] == 2000
    assert result.finished[1] == 5001
    assert min(result.runs.start[i] for i, n in enumerate(result.runs.job) if n == 0 and i > 0) >= 4000


def test_gpu_types_cpus_and_memory_are_looked_at() -> None:
    machine = Machine((NodeSpec("n1", 8, "a100", 64, 1000), NodeSpec("n2", 8, "h100", 64, 1000)))
    jobs = (
        JobSpec(0, 0, 100, 1, "a", kind="h100", memory_mb=900),
        JobSpec(1, 0, 100, 1, "a", kind="h100", memory_mb=200),
        JobSpec(2, 0, 100, 8, "a", kind="a100"),
    )
    result = simulate(Workload(jobs), machine, FirstFit(), Timing.ideal())
    assert list(result.first_start) == [0, 100, 0]
    assert [place[0][0] for place in result.runs.place] == [1, 0, 1]


def test_the_lane_holds_no_more_than_its_limit_per_team() -> None:
    jobs = tuple(JobSpec(i, 0, 600, 8, "a", min_runtime=900) for i in range(8))
    result = run(Workload(jobs, {"a": 1}), Budget(), nodes=8)
    assert sum(1 for at in result.first_start if at < 60) == 5


class Counting(Easy):
    asked = 0

    def may_be_kept_off(self, job: Job) -> bool:
        self.asked += 1
        return super().may_be_kept_off(job)


def test_an_overloaded_queue_does_not_make_backfill_quadratic() -> None:
    """Ten times the jobs may cost fifteen times the work, not a hundred: counted, not timed."""
    counts = []
    for size in (400, 4000):
        jobs = tuple(JobSpec(i, i, 5000, 1 + 7 * (i % 5 == 0), "a", limit=5000 + i % 977) for i in range(size))
        policy = Counting()
        simulate(Workload(jobs), Machine.uniform(4, 8), policy, Timing.ideal())
        counts.append(policy.asked)
    assert counts[1] < 15 * counts[0]


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("change", [{"gpus": 33}, {"gpus": 1, "nodes": 5}, {"kind": "h100"}, {"memory_mb": 1 << 61}])
def test_a_job_the_machine_could_never_hold_is_refused(make: Callable[[], Policy], change: dict[str, Any]) -> None:
    jobs = random_jobs(1, count=5).jobs
    jobs = (*jobs[:4], replace(jobs[4], **change))
    with pytest.raises(FairshareError, match="more than this machine could ever give it"):
        run(Workload(jobs, SHARES), make())
