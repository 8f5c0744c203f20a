"""How long jobs waited: from the moment they could have started to their start."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from slurm_fairshare.core.classes import Classes, Kind
from slurm_fairshare.core.cluster import Job, Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.demand import could_start
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import account_key

STOPPED = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL"})
"""How a run ends that another run of its job follows."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait. `at` is when it ended, or for a job that still waits, up to when it is counted.

    `again`: the job had run before and was put back into the queue.
    """

    account: str
    user: str
    kind: Kind
    gpus: int
    at: datetime
    seconds: float
    again: bool = False
    waiting: bool = False


def waits_of_runs(runs: Iterable[Run], classes: Classes) -> tuple[Wait, ...]:
    """The waits that ended with a start. Give runs from before the period too: they tell which runs come again."""
    stopped: set[int] = set()
    found = []
    for run in sorted(runs, key=lambda run: (run.submit, run.key)):
        if run.start is not None and run.held.gpu_count and run.state != "RESIZING":
            ready = max(run.eligible, run.submit) if run.eligible is not None else run.submit
            kind = classes.kind(run.held.gpu_count, _declared(run), charged=run.charged)
            waited = max(0.0, (run.start - ready).total_seconds())
            again = run.job_id in stopped
            found.append(Wait(account_key(run.account), run.user, kind, run.held.gpu_count, run.start, waited, again))
        if run.state in STOPPED:
            stopped.add(run.job_id)
        else:
            stopped.discard(run.job_id)
    return tuple(found)


def _declared(run: Run) -> int:
    return run.contract.min_runtime if run.contract is not None else 0


def waits_of_queue(picture: Picture, classes: Classes, ladder: Ladder) -> tuple[Wait, ...]:
    """The waits that go on: as long as they are so far. Only jobs that wait for nothing but room."""
    return tuple(
        _so_far(job, picture, classes, ladder)
        for job in picture.jobs
        if job.wanted.gpu_count and could_start(job, picture)
    )


def _so_far(job: Job, picture: Picture, classes: Classes, ladder: Ladder) -> Wait:
    declared = job.contract.min_runtime if job.contract is not None else 0
    kind = classes.kind(job.wanted.gpu_count, declared, charged=ladder.is_charged(job.qos))
    ready = max(job.eligible, job.submit) if job.eligible is not None else job.submit
    return Wait(
        account_key(job.account),
        job.user,
        kind,
        job.wanted.gpu_count,
        picture.at,
        max(0.0, (picture.at - ready).total_seconds()),
        job.restarts > 0,
        waiting=True,
    )


def percentile(values: Sequence[float], part: float) -> float | None:
    """The smallest value that at least this part of the values do not exceed (nearest rank); None of none.

    >>> percentile([5, 1, 3, 2, 4], 0.5), percentile([1, 2], 0.9), percentile([], 0.5)
    (3, 2, None)
    """
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]
