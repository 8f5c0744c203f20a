"""How it went hour by hour and day by day: what nodes were entitled to, wanted and used; who held the GPUs."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo

from slurm_fairshare.core.cluster import Capacity
from slurm_fairshare.core.delivery import Delivery, Stretch, deliveries
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import ROOT, account_key, ancestors
from slurm_fairshare.core.window import Step, Window, integrals, overlap_seconds


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour, or the part of one, of a node: GPUs on average."""

    start: datetime
    seconds: float
    entitled: float
    wanted: float
    used: float


def hours_of_nodes(found: Sequence[Stretch]) -> dict[str, tuple[Hour, ...]]:
    """Every node's hours by its tree key, and those of the whole under ROOT; hours before it was there are left out.

    As in `core.delivery` an hour counts for the ancestors that the leaf had in it.
    """
    told: dict[str, list[Hour]] = {}
    for stretch in found:
        tree, epoch = stretch.epoch.tree, stretch.epoch
        seconds = (epoch.end - epoch.start).total_seconds()
        sums: dict[str, list[float]] = {ROOT: [0.0, 0.0, 0.0]}
        for leaf in tree.leaves:
            key, account = tree.keys[leaf.path], account_key(leaf.account or "")
            values = (stretch.entitled.get(key, 0.0), stretch.demand.get(account, 0.0), stretch.used.get(account, 0.0))
            for node in (ROOT, *ancestors(leaf.path)[:-1], key):
                total = sums.setdefault(node, [0.0, 0.0, 0.0])
                for place, value in enumerate(values):
                    total[place] += value
        for node, (entitled, wanted, used) in sums.items():
            hour = Hour(epoch.start, seconds, entitled / seconds, max(wanted, used) / seconds, used / seconds)
            told.setdefault(node, []).append(hour)
    return {node: tuple(hours) for node, hours in told.items()}


def merged(hours: Sequence[Hour], count: int) -> tuple[Hour, ...]:
    """So many hours in one, averaged by their length: for lines with little room."""
    return tuple(_mean(hours[start : start + count]) for start in range(0, len(hours), max(count, 1)))


def _mean(hours: Sequence[Hour]) -> Hour:
    seconds = sum(hour.seconds for hour in hours)

    def mean(values: Iterable[float]) -> float:
        return sum(value * hour.seconds for value, hour in zip(values, hours, strict=True)) / seconds

    return Hour(
        hours[0].start,
        seconds,
        mean(hour.entitled for hour in hours),
        mean(hour.wanted for hour in hours),
        mean(hour.used for hour in hours),
    )


def by_day(found: Sequence[Stretch], zone: tzinfo) -> tuple[tuple[date, Mapping[str, Delivery]], ...]:
    """Owed and delivered of each day of the zone, each day by itself; an hour belongs to the day it begins in."""
    days = itertools.groupby(found, key=lambda stretch: stretch.epoch.start.astimezone(zone).date())
    return tuple((day, deliveries(tuple(stretches))) for day, stretches in days)


FREE = ""
"""Stands for the account of work that no budget paid for."""


def occupancy(runs: Iterable[Run], hours: Sequence[Window], now: datetime) -> dict[str, tuple[float, ...]]:
    """GPUs held on average in each hour by account key, and under FREE those of unallocated runs of all accounts.

    Hours are adjacent and in order.
    """
    held: dict[str, list[float]] = {}
    starts = [hour.start for hour in hours]
    for run in runs:
        gpus = run.held.gpu_count
        if not gpus or run.start is None:
            continue
        line = held.setdefault(account_key(run.account) if run.charged else FREE, [0.0] * len(hours))
        first = max(0, bisect_right(starts, run.start) - 1)
        for place in range(first, bisect_left(starts, run.end if run.end is not None else now)):
            line[place] += gpus * overlap_seconds(run, hours[place], now)
    return {
        account: tuple(amount / hour.seconds for amount, hour in zip(line, hours, strict=True))
        for account, line in held.items()
    }


def in_service(history: Iterable[tuple[datetime, Capacity]], hours: Sequence[Window]) -> tuple[float, ...]:
    """GPUs in service on average in each hour, of all types."""
    kinds: dict[str, list[Step]] = {}
    for at, one in history:
        kinds.setdefault(one.kind, []).append(Step(at, float(one.in_service)))
    lines = [integrals(steps, hours) for steps in kinds.values()]
    return tuple(sum(line[place] for line in lines) / hour.seconds for place, hour in enumerate(hours))
