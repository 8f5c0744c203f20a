"""Interactive jobs under the contract: who is to be warned that its minimum runtime ends soon."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_fairshare.core.cluster import RUNNING, Job
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.rebalance import Rules, spared
from slurm_fairshare.units import duration, moment


@dataclass(frozen=True, slots=True)
class Warning:  # noqa: A001  the noun of the design: a session is warned
    """What a session is told, and the name by which it is remembered that it was."""

    job_id: int
    key: str
    words: str


def warnings(
    jobs: Sequence[Job], ladder: Ladder, rules: Rules, before: timedelta, warned: Collection[str], now: datetime
) -> tuple[Warning, ...]:
    """Sessions whose protection ends within `before`, each once a run. One that is never ended is not troubled."""
    found = []
    for job in jobs:
        until = job.protected_until()
        if job.batch or job.state != RUNNING or until is None or job.start is None or not ladder.is_charged(job.qos):
            continue
        key = f"{job.job_id}-{int(job.start.timestamp())}"
        if key in warned or spared(job, rules) or not now < until <= now + before:
            continue
        left = duration((until - now).total_seconds())
        words = (
            f"fairshare: the minimum runtime of this session ends in {left}, at {moment(until)}. After that it may be "
            "ended for a job of a team that is further behind, and what is not saved is lost"
        )
        found.append(Warning(job.job_id, key, words))
    return tuple(found)


def ending_words(label: str, user: str, account: str, seconds: float) -> str:
    """What a session is told that is about to be ended."""
    return (
        f"fairshare: this session is past its minimum runtime and ends in {duration(seconds)}, for job {label} of "
        f"{user} ({account}). Save your work now"
    )
