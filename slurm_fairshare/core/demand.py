"""Demand: how many GPUs an account's contract jobs hold or could hold right now.

It is what an entitlement is compared with to say what was owed: nobody is owed GPUs that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from slurm_fairshare.core.cluster import Job, Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.resources import MILLI, ChargeRule
from slurm_fairshare.core.tree import account_key

EVERYBODY = ""
"""The key of all accounts together. No account has an empty name."""

LACKS_ROOM = frozenset({"", "Resources", "Priority", "JobArrayTaskLimit"})
"""Slurm's reasons of a job that would start if it were given room; the array's limit is counted by itself here."""


def demand(picture: Picture, ladder: Ladder, rule: ChargeRule) -> dict[str, float]:
    """Demand in GPUs (weighted as they are charged) by account key, and of EVERYBODY, which is always there.

    Counted are jobs under contract that hold GPUs, and those that wait for nothing but room: not held, not
    before their time, not behind a dependency, not stopped by a limit of their own. An array counts as many
    waiting tasks as it may run beside those that run.
    """
    whole = picture.whole
    milli: dict[str, int] = {EVERYBODY: 0}
    for job, times in counted(job for job in picture.jobs if ladder.is_charged(job.qos)):
        if job.holding or could_start(job, picture):
            amount = times * rule.milli_gpus(job.wanted, whole)
            for key in (account_key(job.account), EVERYBODY):
                milli[key] = milli.get(key, 0) + amount
    return {key: amount / MILLI for key, amount in sorted(milli.items())}


def could_start(job: Job, picture: Picture) -> bool:
    """Whether a pending job waits for nothing but room."""
    if not job.pending or job.eligible is None or job.eligible > picture.at:
        return False
    return job.reason in LACKS_ROOM or job.reason.startswith(("ReqNodeNotAvail", "Nodes_required"))


def counted(jobs: Iterable[Job]) -> Iterable[tuple[Job, int]]:
    """Each job with how often it counts: a line of a pending array for the tasks that its limit leaves room for."""
    waiting: list[Job] = []
    running: dict[str, int] = {}
    for job in jobs:
        if job.holding:
            running[array_of(job)] = running.get(array_of(job), 0) + 1
            yield job, 1
        else:
            waiting.append(job)
    for job in waiting:
        if job.array_limit == 0:
            yield job, job.array_size
        else:
            yield job, min(job.array_size, max(0, job.array_limit - running.get(array_of(job), 0)))


def array_of(job: Job) -> str:
    """The number of the array a task belongs to, as its label begins; its own label for a job that is no task."""
    return job.label.partition("_")[0]
