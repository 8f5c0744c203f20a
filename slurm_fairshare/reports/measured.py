"""A period as it is measured: what was owed and delivered in it, who held what, and how well it is known.

Everything is asked of the store; nothing here asks Slurm.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from slurm_fairshare.core.cluster import Capacity
from slurm_fairshare.core.decisions import Recorded
from slurm_fairshare.core.delivery import Delivery, Stretch, deliveries, hourly, stretches
from slurm_fairshare.core.demand import EVERYBODY
from slurm_fairshare.core.lost import PREEMPTED, Lost, lost_work
from slurm_fairshare.core.resources import MILLI
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import Changeset, Tree, epochs, tree_at
from slurm_fairshare.core.window import HOUR, Step, Window
from slurm_fairshare.errors import StaleData
from slurm_fairshare.store.facts import Holding
from slurm_fairshare.units import duration, moment


class History(Protocol):
    """What reports on the past ask of the store."""

    def capacity(self, window: Window) -> tuple[Step, ...]: ...

    def capacity_history(self, window: Window) -> tuple[tuple[datetime, Capacity], ...]: ...

    def demand(self, window: Window) -> Mapping[str, tuple[Step, ...]]: ...

    def changesets(self) -> tuple[Changeset, ...]: ...

    def charges_by_hour(self, window: Window, now: datetime) -> Sequence[tuple[Window, Mapping[str, int]]]: ...

    def holdings(self, window: Window, now: datetime) -> tuple[Holding, ...]: ...

    def ticks(self, window: Window) -> tuple[datetime, ...]: ...

    def runs(self, window: Window, state: str | None = None) -> tuple[Run, ...]: ...

    def decisions(self, since: datetime) -> tuple[Recorded, ...]: ...

    def busy(self, window: Window) -> Mapping[str, float]: ...


@dataclass(frozen=True, slots=True)
class Period:
    """What was asked for, what of it is known, and the stretches in which nobody looked."""

    asked: Window
    known: Window
    unseen: tuple[Window, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """The exact window in words, and what is not known of it."""
        told = [f"From {moment(self.known.start)} to {moment(self.known.end)} ({duration(self.known.seconds)}, UTC)."]
        if self.known.start > self.asked.start:
            told[0] += f" Before {moment(self.known.start)} nothing was recorded."
        if self.unseen:
            longest = max(self.unseen, key=lambda one: (one.seconds, one.start))
            told.append(
                f"In {duration(sum(one.seconds for one in self.unseen))} of it nobody looked at the queue, the longest "
                f"from {moment(longest.start)} for {duration(longest.seconds)}: demand and capacity are taken to have "
                "stayed as last seen. What ran is known from accounting."
            )
        return tuple(told)

    def facts(self) -> dict[str, object]:
        return {
            "since": self.known.start,
            "until": self.known.end,
            "zone": "UTC",
            "asked_since": self.asked.start,
            "unseen_seconds": sum(one.seconds for one in self.unseen),
        }


@dataclass(frozen=True)
class Measured:
    """Deliveries by tree key and of the whole under ROOT; `hours` are what their tuples count, `stretches` the same
    hours with what they are made of. `tree` is the one in force at the end."""

    period: Period
    hours: tuple[Window, ...]
    tree: Tree
    deliveries: Mapping[str, Delivery]
    lost: tuple[Lost, ...]
    holdings: tuple[Holding, ...]
    stretches: tuple[Stretch, ...] = ()


def period_of(store: History, asked: Window, capacity: Sequence[Step], demand: Mapping[str, Sequence[Step]]) -> Period:
    """The part of the window in which capacity and demand are known. StaleData if there is none."""
    starts = [step.at for step in capacity[:1]]
    starts += [step.at for step in demand.get(EVERYBODY, ())[:1]]
    if len(starts) < 2 or max(starts) >= asked.end:
        raise StaleData(
            f"nothing was recorded from {moment(asked.start)} to {moment(asked.end)}: choose another --since, or let "
            "the daemon (or `slurm-fairshare tick`) run first"
        )
    known = Window(max(asked.start, *starts), asked.end)
    return Period(asked, known, _unseen(store, known))


def _unseen(store: History, known: Window) -> tuple[Window, ...]:
    """Stretches of more than two hours without a tick: of old ticks one in each hour is kept."""
    looks = [known.start, *store.ticks(known), known.end]
    gap = 2 * HOUR + timedelta(minutes=10)
    return tuple(Window(a, b) for a, b in itertools.pairwise(looks) if b - a > gap)


def measured(store: History, asked: Window, now: datetime, checkpoint_interval: timedelta) -> Measured:
    """Everything about a window that ends by `now`."""
    capacity, demand = store.capacity(asked), store.demand(asked)
    period = period_of(store, asked, capacity, demand)
    known = period.known
    changesets = store.changesets()
    stretched = epochs(changesets, known.start, known.end)
    hours = hourly(stretched)
    used: list[dict[str, float]] = []
    for epoch in stretched:
        for _, charges in store.charges_by_hour(Window(epoch.start, epoch.end), now):
            used.append({account: amount / MILLI for account, amount in charges.items()})
    found = stretches(hours, capacity, demand, used)
    return Measured(
        period=period,
        hours=tuple(Window(hour.start, hour.end) for hour in hours),
        tree=tree_at(changesets, known.end),
        deliveries=deliveries(found),
        lost=lost_work(
            store.decisions(known.start), store.runs(known, PREEMPTED), known.start, known.end, checkpoint_interval
        ),
        holdings=store.holdings(known, now),
        stretches=found,
    )
