"""The pool: a partition over some nodes that take only debug and unallocated jobs, as many as are of use.

Its size follows the clock, or what debug jobs have asked for lately. It is always the first so many of a list of
nodes; the rest of the list is in the site's usual partitions. A node that joins keeps what runs on it until that ends:
nothing is ever stopped for the pool, and only partitions change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from slurm_fairshare.core.cluster import Node, Picture
from slurm_fairshare.core.contract import DebugLane, Ladder
from slurm_fairshare.core.demand import could_start, counted
from slurm_fairshare.core.precedence import in_lane


@dataclass(frozen=True, slots=True)
class Pool:
    """`nodes` in the order in which they join; `elsewhere`: the partitions of those that are not in it.

    `clock`: from which time of day on it has how many nodes. Empty: it follows demand, between `least` and all of the
    nodes, growing at once and shrinking when less has been asked for as long as `hold`.
    """

    partition: str
    nodes: tuple[str, ...]
    elsewhere: tuple[str, ...]
    least: int = 1
    clock: tuple[tuple[time, int], ...] = ()
    hold: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Asked:
    """So many GPUs debug jobs held or waited for at a moment."""

    at: datetime
    gpus: int


def asked(picture: Picture, ladder: Ladder, lane: DebugLane) -> Asked:
    """What debug jobs hold, or wait for with nothing but room between them and their start."""
    jobs = counted(job for job in picture.jobs if in_lane(job, ladder, lane))
    gpus = sum(times * job.wanted.gpu_count for job, times in jobs if job.holding or could_start(job, picture))
    return Asked(picture.at, gpus)


def remembered(pool: Pool, before: Iterable[Asked], now: Asked) -> tuple[Asked, ...]:
    """What still counts: of the time that is held, only what no later moment has surpassed."""
    kept = [one for one in before if now.at - one.at <= pool.hold and one.at < now.at and one.gpus > now.gpus]
    return (*kept, now)


def size(pool: Pool, asked_lately: Sequence[Asked], nodes: Sequence[Node], local: datetime) -> int:
    """How many nodes the pool has. `local` is the moment on the site's own clock."""
    if pool.clock:
        since = [(at, count) for at, count in sorted(pool.clock) if at <= local.time()]
        _, wanted = since[-1] if since else max(pool.clock)
    else:
        smallest = min((n.total.gpu_count for n in nodes if n.name in pool.nodes and n.total.gpu_count), default=0)
        most = max((one.gpus for one in asked_lately), default=0)
        wanted = math.ceil(most / smallest) if smallest else 0
    return min(max(wanted, pool.least), len(pool.nodes))


def partitions(pool: Pool, count: int, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
    """The nodes of each partition that must change so that the pool has its first `count`. Other nodes stay put."""
    joining = set(pool.nodes[:count])
    changed = {}
    for name in (pool.partition, *pool.elsewhere):
        here = [node.name for node in nodes if name in node.partitions]
        mine = joining if name == pool.partition else set(pool.nodes) - joining
        wanted = [
            node.name for node in nodes if node.name in mine or (node.name in here and node.name not in pool.nodes)
        ]
        if wanted != here:
            changed[name] = tuple(wanted)
    return changed
