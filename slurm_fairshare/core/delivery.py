"""Owed and delivered: whether a team got what it was promised.

Hour by hour, for each leaf of the tree as it stood then, all in GPU-seconds:

    entitled = integral of capacity x effective share
    demand   = integral of the demand seen, and never less than what ran
    owed     = min(entitled, demand)      a waiting job's demand counts again each hour it waits

Over a period, with the sums over its hours:

    delivered = min(sum of used, sum of owed) / sum of owed    what came too early or too late counts too
    hourly    = sum of min(used, owed) / sum of owed           each hour by itself: shown beside it, never the aim

Used is what was charged, so work that an eviction threw away counts as delivered: `core.lost` is shown beside it.
A node above the leaves has the sums of its leaves: one team's surplus does not pay for another's shortfall.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from slurm_fairshare.core.fairshare import entitlements
from slurm_fairshare.core.tree import ROOT, Epoch, account_key, ancestors
from slurm_fairshare.core.window import Step, Weight, Window, integrals

MET = 0.95
"""The part of what was owed from which on an hour counts as met, and a team as served."""

BOX = Weight()


@dataclass(frozen=True)
class Delivery:
    """A leaf, or a node with the sums of its leaves, over a period. GPU-seconds; the tuples have one value an hour.

    `got` is min(used, owed) over the whole period, leaf by leaf; `met` the same hour by hour.
    """

    entitled: float
    used: float
    got: float
    owed_by_hour: tuple[float, ...]
    met_by_hour: tuple[float, ...]

    @cached_property
    def owed(self) -> float:
        return math.fsum(self.owed_by_hour)

    @cached_property
    def steady(self) -> float:
        """What was delivered in the very hours it was owed in."""
        return math.fsum(self.met_by_hour)

    @property
    def delivered(self) -> float:
        """In [0, 1]; 1 where nothing was owed, since then nothing can be missing."""
        return self.got / self.owed if self.owed > 0 else 1.0

    @property
    def hourly(self) -> float:
        """The same hour by hour, never above `delivered`."""
        return self.steady / self.owed if self.owed > 0 else 1.0

    @property
    def served(self) -> bool:
        """Whether it got at least 95% of what it was owed."""
        return self.delivered >= MET

    def under(self) -> tuple[int, ...]:
        """The hours, counted from 0, in which less than 95% of what they owed was delivered."""
        pairs = zip(self.owed_by_hour, self.met_by_hour, strict=True)
        return tuple(hour for hour, (owed, met) in enumerate(pairs) if met < MET * owed)

    def worst(self) -> int | None:
        """The hour in which most was missing, the earliest of several; None where no hour misses anything."""
        missing = [owed - met for owed, met in zip(self.owed_by_hour, self.met_by_hour, strict=True)]
        most = max(missing, default=0.0)
        return missing.index(most) if most > 0 else None


def owed(entitled: float, demand: float, used: float) -> float:
    """What one hour owes a leaf: never more than it is entitled to, never more than it wanted.

    >>> owed(100.0, 60.0, 20.0), owed(100.0, 300.0, 20.0), owed(100.0, 0.0, 20.0)
    (60.0, 100.0, 20.0)
    """
    return min(entitled, max(demand, used))


def delivery(entitled: Sequence[float], demand: Sequence[float], usage: Sequence[float]) -> Delivery:
    """One leaf, from what it was entitled to, wanted and used in each hour.

    >>> made = delivery([10, 10], [20, 4], [0, 14])
    >>> made.owed, made.delivered, round(made.hourly, 2)
    (20.0, 0.7, 0.5)
    """
    due = tuple(float(owed(e, d, u)) for e, d, u in zip(entitled, demand, usage, strict=True))
    met = tuple(float(min(u, o)) for u, o in zip(usage, due, strict=True))
    used = math.fsum(usage)
    return Delivery(math.fsum(entitled), used, min(used, math.fsum(due)), due, met)


def joined(parts: Sequence[Delivery], hours: int) -> Delivery:
    """The sums of several leaves over the same hours."""

    def by_hour(columns: Iterable[Sequence[float]]) -> tuple[float, ...]:
        lists = list(columns)
        return tuple(math.fsum(one[hour] for one in lists) for hour in range(hours))

    return Delivery(
        entitled=math.fsum(part.entitled for part in parts),
        used=math.fsum(part.used for part in parts),
        got=math.fsum(part.got for part in parts),
        owed_by_hour=by_hour(part.owed_by_hour for part in parts),
        met_by_hour=by_hour(part.met_by_hour for part in parts),
    )


def together(parts: Sequence[Delivery]) -> float:
    """`delivered` of several leaves together: each capped by what it was owed itself."""
    whole = math.fsum(part.owed for part in parts)
    return math.fsum(part.got for part in parts) / whole if whole > 0 else 1.0


# --- from the ledger ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """One tree in one hour, and what was entitled (by tree key), wanted and used (by account key) in it."""

    epoch: Epoch
    entitled: Mapping[str, float]
    demand: Mapping[str, float]
    used: Mapping[str, float]


def hourly(epochs: Sequence[Epoch]) -> tuple[Epoch, ...]:
    """The epochs cut at whole hours of UTC: an hour in which the tree changed is cut there too."""
    return tuple(
        Epoch(part.start, part.end, epoch.tree) for epoch in epochs for part in Window(epoch.start, epoch.end).hours()
    )


def stretches(
    hours: Sequence[Epoch],
    capacity: Sequence[Step],
    demand: Mapping[str, Sequence[Step]],
    used: Sequence[Mapping[str, float]],
) -> tuple[Stretch, ...]:
    """Put the hours together. `used` has one mapping for each, in GPU-seconds by account key; `capacity` and each
    account's `demand` are step functions in GPUs."""
    parts = [Window(hour.start, hour.end) for hour in hours]
    wanted = {account: integrals(steps, parts) for account, steps in demand.items()}
    entitled = _entitled(hours, capacity)
    return tuple(
        Stretch(hour, entitled[i], {account: amounts[i] for account, amounts in wanted.items()}, used[i])
        for i, hour in enumerate(hours)
    )


def _entitled(hours: Sequence[Epoch], capacity: Sequence[Step]) -> list[dict[str, float]]:
    """Each hour through the one formula, given only the steps of capacity that reach into it."""
    ordered = sorted(capacity, key=lambda step: step.at)
    moments = [step.at for step in ordered]
    found = []
    for hour in hours:
        first = max(0, bisect_right(moments, hour.start) - 1)
        last = bisect_right(moments, hour.end)
        found.append(entitlements([hour], ordered[first:last], BOX, hour.end))
    return found


def deliveries(found: Sequence[Stretch]) -> dict[str, Delivery]:
    """Every node by its tree key (a leaf is its account), and the whole under ROOT.

    An hour counts for the ancestors that the leaf had in it.
    """
    leaves: dict[str, _Hours] = {}
    above: dict[str, dict[str, _Hours]] = {ROOT: {}}
    for index, stretch in enumerate(found):
        tree = stretch.epoch.tree
        for leaf in tree.leaves:
            key, account = tree.keys[leaf.path], account_key(leaf.account or "")
            values = (stretch.entitled.get(key, 0.0), stretch.demand.get(account, 0.0), stretch.used.get(account, 0.0))
            leaves.setdefault(key, {})[index] = values
            for node in (ROOT, *ancestors(leaf.path)[:-1]):
                above.setdefault(node, {}).setdefault(key, {})[index] = values
    count = len(found)
    told = {key: _leaf(hours, count) for key, hours in leaves.items()}
    return told | {
        node: joined([_leaf(hours, count) for hours in below.values()], count) for node, below in above.items()
    }


_Hours = dict[int, tuple[float, float, float]]
"""Entitled, demand and used by the hour's number."""


def _leaf(hours: _Hours, count: int) -> Delivery:
    nothing = (0.0, 0.0, 0.0)
    columns = list(zip(*(hours.get(index, nothing) for index in range(count)), strict=True)) or [(), (), ()]
    return delivery(columns[0], columns[1], columns[2])
