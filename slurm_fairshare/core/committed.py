"""What running jobs are still promised: the part of their minimum runtime that is to come. Shown with the shares.

As a setting it counts when leaves are put in order. A leaf that is behind gets all that comes free until its usage has
caught up; where its jobs are promised much of the lookback window, it then holds more than its due for as long, and
others fall behind in turn. Ratios, and so who yields to whom, stay by usage alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.fairshare import Ranking, ranked
from slurm_fairshare.core.resources import MILLI, ChargeRule, Resources
from slurm_fairshare.core.tree import account_key, ancestors
from slurm_fairshare.core.users import UserUsage


def committed_by_user(
    jobs: Collection[Job],
    ladder: Ladder,
    now: datetime,
    rule: ChargeRule | None = None,
    whole: Resources | None = None,
) -> UserUsage:
    """GPU-seconds that running jobs may still hold under protection, weighed as they will be charged (`whole` is the
    cluster's, for a rule that charges fractions of it). Every user with a job is in it, if with 0."""
    rule = rule or ChargeRule()
    found: dict[tuple[str, str], float] = {}
    for job in jobs:
        key = (account_key(job.account), job.user)
        until = job.protected_until() if job.holding and ladder.is_charged(job.qos) else None
        left = max(0.0, (until - now).total_seconds()) if until is not None else 0.0
        found[key] = found.get(key, 0.0) + left * rule.milli_gpus(job.wanted, whole) / MILLI
    return found


def counting(ranking: Ranking, committed: UserUsage) -> Ranking:
    """The same standings, with the leaves in the order that they had if what is committed were used already."""
    more: dict[str, float] = {}
    for (account, _), amount in sorted(committed.items()):
        leaf = ranking.leaf(account)
        for path in ancestors(leaf.path) if leaf is not None else ():
            more[path] = more.get(path, 0.0) + amount
    seen = {path: replace(one, usage=one.usage + more.get(path, 0.0)) for path, one in ranking.standings.items()}
    order = ranked(ranking.tree, seen)
    return replace(ranking, leaves=tuple(replace(one, standing=ranking.standings[one.path]) for one in order))
