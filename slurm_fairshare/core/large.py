"""Large jobs that have waited long move to the first rank, by site factor, while their leaf is not far over target.

    priority = label of the leaf + site factor = FIRST_RANK + in-team priority

above every leaf's band and below the debug lane. The leaf's label moves from tick to tick, so the factor follows
it; when a job is no longer due it gets back what the plugin had set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import DebugLane, Ladder
from slurm_fairshare.core.decisions import Rule
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.plan import BAND, TOP_LABEL
from slurm_fairshare.core.precedence import in_lane
from slurm_fairshare.core.tree import account_key

FIRST_RANK = (TOP_LABEL + 1) * BAND
"""Above the largest label's band. A job of the lane has as much by its QOS alone, and its own label on top."""


@dataclass(frozen=True, slots=True)
class Large:
    """From how many GPUs on a job is large, after what wait it moves, and up to which ratio of its leaf. `plan_ahead`:
    how far ahead nodes are planned for one (0: not at all), and `plan_gpus` from which size on (0: for every one)."""

    gpus: int = 64
    wait: timedelta = timedelta(hours=12)
    max_ratio: float = 1.2
    plan_ahead: timedelta = timedelta(0)
    plan_gpus: int = 0

    def is_planned(self, gpus: int) -> bool:
        """Whether nodes are planned for a job of so many GPUs."""
        return gpus >= max(self.gpus, self.plan_gpus)


@dataclass(frozen=True, slots=True)
class Lift:
    """Set this job's site factor. `due`: to the first rank, else back to its place in its team."""

    job_id: int
    site_factor: int
    due: bool


def is_due(job: Job, ranking: Ranking, ladder: Ladder, large: Large, now: datetime) -> bool:
    """Whether the job has a right to the first rank now."""
    if not job.pending or job.contract is None or not ladder.is_charged(job.qos):
        return False
    if job.wanted.gpu_count < large.gpus or job.eligible is None or now - job.eligible < large.wait:
        return False
    leaf = ranking.by_account.get(account_key(job.account))
    return leaf is not None and leaf.standing.share > 0 and leaf.standing.ratio < large.max_ratio


def above_bands(
    job: Job, ranking: Ranking, ladder: Ladder, lane: DebugLane | None, large: Large | None, now: datetime
) -> Rule | None:
    """What lifts the job above its leaf's band, hence lets it take from more sides."""
    if in_lane(job, ladder, lane):
        return Rule.DEBUG_LANE
    return Rule.LARGE_JOB if large is not None and is_due(job, ranking, ladder, large, now) else None


def lifts(
    jobs: Sequence[Job],
    ranking: Ranking,
    labels: Mapping[str, int],
    ladder: Ladder,
    large: Large | None,
    last: Mapping[int, int],
    now: datetime,
) -> tuple[Lift, ...]:
    """What differs between the factors that should be and those set last. `labels` by account key, as Slurm holds them.

    A task of an array takes the factor of its array with it when it starts, and would bring it back when it is
    requeued: running members of a family that was lifted get their own place back too.
    """
    wanted: dict[int, Lift] = {}
    if large is not None:
        for job in jobs:
            label = labels.get(account_key(job.account))
            if label is not None and is_due(job, ranking, ladder, large, now):
                wanted[job.job_id] = Lift(job.job_id, FIRST_RANK - label + _own(job), due=True)
    families = {_family(job) for job in jobs if job.job_id in wanted or job.job_id in last}
    for job in jobs:
        concerned = job.job_id in last or (not job.pending and _family(job) in families)
        if job.job_id not in wanted and concerned:
            wanted[job.job_id] = Lift(job.job_id, _own(job), due=False)
    return tuple(lift for _, lift in sorted(wanted.items()) if last.get(lift.job_id) != lift.site_factor)


def kept(last: Mapping[int, int], done: Iterable[Lift], jobs: Sequence[Job]) -> dict[int, int]:
    """What was set last, after these lifts, of the jobs that are still in the queue."""
    there = {job.job_id for job in jobs}
    after = {**last, **{lift.job_id: lift.site_factor for lift in done}}
    return {job_id: factor for job_id, factor in sorted(after.items()) if job_id in there}


def at_first_rank(last: Mapping[int, int]) -> frozenset[int]:
    """Of the factors set last, by job: whose lift a job to the first rank. No place in a team is worth a band."""
    return frozenset(job_id for job_id, factor in last.items() if factor >= BAND)


def _own(job: Job) -> int:
    return job.contract.priority.site_factor if job.contract is not None else 0


def _family(job: Job) -> str:
    return job.label.partition("_")[0]
