"""Small workloads, and naive schedulers to hold the engine against."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from typing import Any

from slurm_fairshare.sim.engine import Policy, Result, Timing, simulate
from slurm_fairshare.sim.jobs import JobSpec, Machine, Workload
from slurm_fairshare.sim.scenario import Feed, Scenario, machine_of

SHARES = {"one": 2.0, "one/a": 1.0, "one/b": 2.0, "two": 1.0, "two/c": 1.0}


def random_jobs(seed: int, count: int = 60, largest: int = 16, span: int = 20_000) -> Workload:
    """Jobs with everything that can differ, by seed."""
    rng = random.Random(seed)
    jobs = []
    for number, submit in enumerate(sorted(rng.randrange(span) for _ in range(count))):
        gpus = min(largest, rng.choice([1, 1, 1, 2, 4, 8, 16]))
        work = rng.randrange(1, 9000)
        jobs.append(
            JobSpec(
                number,
                submit,
                work,
                gpus,
                rng.choice("abc"),
                user=rng.choice("uv"),
                limit=work + rng.randrange(1, 5000),
                min_runtime=rng.choice([0, 0, 900, 3600]),
                resumable=rng.random() < 0.7,
                priority=rng.randrange(3),
                checkpoint=600,
                notice=rng.random() < 0.3,
                klass=rng.choice(["x", "y"]),
            )
        )
    return Workload(tuple(jobs), SHARES)


def run(workload: Workload, policy: Policy, nodes: int = 4, timing: Timing | None = None, **more: Any) -> Result:
    return simulate(workload, Machine.uniform(nodes, 8), policy, timing or Timing.slurm(), **more)


def bytes_of(result: Result) -> bytes:
    """Everything a result says, as bytes."""
    runs = result.runs
    columns = (runs.job, runs.start, runs.end, runs.ended, runs.useful, result.first_start, result.finished)
    return b"|".join(column.tobytes() for column in columns) + repr(runs.place).encode()


TINY: dict[str, Any] = {
    "name": "tiny", "days": 1.0, "warmup": 0.5, "nodes": ({"count": 4, "gpus": 8},),
    "shares": {"one": {"weight": 2, "a": 1, "b": 2}, "two": {"c": 1}},
    "classes": {
        "debug": {"load": 0.05, "depth": 1, "gpus": {1: 1}, "work": {"median": "5m", "most": "1h"},
                  "min_runtime": {"15m": 1}},
        "train": {"load": 2, "depth": 3, "gpus": {2: 1, 8: 1, 16: 1}, "work": {"median": "2h"},
                  "min_runtime": {"1h": 1}, "notice": 0.5},
        "free": {"load": 0.5, "depth": 1, "gpus": {1: 1}, "work": {"median": "1h"}, "min_runtime": {"0": 1}},
    },
    "failures": {"every": "6h", "lasts": "1h"},
}  # fmt: skip


def tiny(policy: Policy, seed: int = 1) -> Result:
    scenario = Scenario(**TINY)
    feed = Feed(scenario, seed)
    return simulate(
        feed.workload(), machine_of(scenario, seed), policy, Timing.slurm(), until=scenario.until, feed=feed
    )


def naive(jobs: Sequence[JobSpec], capacity: int, rule: str) -> list[int]:
    """Starts on one pool of GPUs, by the book and without any index: the queue is walked job by job."""
    starts = [-1] * len(jobs)
    waiting: list[int] = []
    ends: list[tuple[int, int, int]] = []
    free, arriving = capacity, 0
    while arriving < len(jobs) or ends:
        coming = [jobs[arriving].submit] if arriving < len(jobs) else []
        now = min([*coming, *(end for end, _, _ in ends[:1])])
        while ends and ends[0][0] == now:
            free += heapq.heappop(ends)[2]
        while arriving < len(jobs) and jobs[arriving].submit == now:
            waiting.append(arriving)
            arriving += 1
        shadow = extra = None
        for number in list(waiting):
            job = jobs[number]
            limit = job.limit or job.work
            fits = job.gpus <= free
            if shadow is not None:
                assert extra is not None
                fits = fits and (now + limit <= shadow or job.gpus <= extra)
            if fits:
                if shadow is not None and extra is not None and now + limit > shadow:
                    extra -= job.gpus
                free -= job.gpus
                starts[number] = now
                waiting.remove(number)
                heapq.heappush(ends, (now + job.work, number, job.gpus))
            elif rule == "fifo":
                break
            elif rule == "easy" and shadow is None:
                shadow, extra = _shadow(jobs, starts, ends, free, job.gpus)
    return starts


def _shadow(
    jobs: Sequence[JobSpec], starts: Sequence[int], ends: Sequence[tuple[int, int, int]], free: int, gpus: int
) -> tuple[int, int]:
    # Of runs whose limits end at one moment those that started first count first: no more of them than the job needs.
    planned = sorted((starts[n] + max(1, jobs[n].limit or jobs[n].work), starts[n], n, g) for _, n, g in ends)
    for end, _, _, released in planned:
        free += released
        if free >= gpus:
            return end, free - gpus
    raise AssertionError("the job is larger than the machine")
