"""Hierarchical fair-share: who comes next, at every level of the tree.

For each node over the lookback window `[now - L, now)`:

    E = integral of capacity x effective share        entitlement, GPU-seconds
    U = integral of the GPUs its charged runs hold    usage, GPU-seconds
    ratio = U / E        0 = nothing used yet, 1 = exactly its due, above 1 = over target

Siblings are sorted by their ratio, ascending, ties by path. Walking the tree in that order ranks the leaves
hierarchically: nothing that happens inside one programme changes its standing against another.

Each hour is paid by whoever held the budget then: an epoch's usage counts for the ancestors its account had
in that epoch. A leaf keeps its own past wherever it is moved, since it is its account.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from slurm_fairshare.core.tree import Epoch, Node, Tree, account_key, ancestors
from slurm_fairshare.core.window import Step, Weight, Window, pieces, weighed

FIRST = -1.0
"""The place of a node that has a share and was never owed anything yet: before every ratio."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a node stands over a window: entitlement and usage in (weighted) GPU-seconds, and its share now."""

    entitlement: float
    usage: float
    share: float

    @property
    def ratio(self) -> float:
        """U/E. Infinite where nothing is owed but something was used; 0 where neither is.

        >>> Standing(100.0, 50.0, 0.5).ratio, Standing(0.0, 5.0, 0.5).ratio, Standing(0.0, 0.0, 0.5).ratio
        (0.5, inf, 0.0)
        """
        if self.entitlement > 0:
            return self.usage / self.entitlement
        return math.inf if self.usage > 0 else 0.0

    @property
    def balance(self) -> float:
        """(E-U)/E: the fraction of its due that is still open; negative when over target."""
        return 1.0 - self.ratio

    @property
    def level_fs(self) -> float:
        """E/U, as sshare's LevelFS shows it: infinite where nothing was used, 0 for a node without a share."""
        if self.share == 0:
            return 0.0
        return self.entitlement / self.usage if self.usage > 0 else math.inf

    @property
    def over_target(self) -> bool:
        return self.ratio > 1.0

    def place(self) -> float:
        """What siblings are sorted by, smaller first.

        A node without a share comes last whatever it used. A new node with a share, not owed anything yet,
        comes first. Everybody else by U/E.
        """
        if self.share <= 0:
            return math.inf
        if self.entitlement == 0:
            return FIRST
        return self.ratio


@dataclass(frozen=True, slots=True)
class Ranked:
    """A leaf in the order in which leaves are served: rank 1 goes first."""

    path: str
    account: str
    rank: int
    standing: Standing


@dataclass(frozen=True)
class Ranking:
    """The tree, how each node stands, and the leaves in order."""

    tree: Tree
    standings: Mapping[str, Standing]
    leaves: tuple[Ranked, ...]

    @cached_property
    def by_account(self) -> Mapping[str, Ranked]:
        """Leaves by the key of their account."""
        return {account_key(leaf.account): leaf for leaf in self.leaves}

    def leaf(self, account: str) -> Ranked | None:
        return self.by_account.get(account_key(account))

    def fair_share(self, leaf: Ranked) -> float:
        """sshare's FairShare: 1.0 for the leaf that goes first, 1/N for the last of N."""
        return (len(self.leaves) - leaf.rank + 1) / len(self.leaves)


@dataclass(frozen=True, slots=True)
class Usage:
    """Charged usage by account (lower-case key) inside one epoch, weighted as entitlement is, in GPU-seconds."""

    epoch: Epoch
    by_account: Mapping[str, float]


def from_the_first(epochs: Sequence[Epoch], now: Tree) -> tuple[Epoch, ...]:
    """The epochs with the first tree in place of no tree before it; `now` is the one in force behind them.

    Before its first budget a site promised nobody anything. Ranking it as if the first budget had held all along lets
    what was just used count at once, instead of making everybody equal on the first day.
    """
    first = next((epoch.tree for epoch in epochs if epoch.tree.nodes), now)
    found = []
    before = True
    for epoch in epochs:
        before = before and not epoch.tree.nodes
        found.append(replace(epoch, tree=first) if before else epoch)
    return tuple(found)


def entitlements(epochs: Sequence[Epoch], capacity: Sequence[Step], weight: Weight, now: datetime) -> dict[str, float]:
    """E of every node by path, and of every leaf by its account (see `Tree.keys`), over the epochs together.

    Shape: capacity in GPUs (a step function), epochs adjacent. Result in GPU-seconds.
    """
    parts: dict[str, list[float]] = {}
    for epoch in epochs:
        whole = weighed(pieces(capacity, Window(epoch.start, epoch.end)), weight, now)
        keys = epoch.tree.keys
        for path, node in epoch.tree.nodes.items():
            parts.setdefault(keys[path], []).append(whole * node.effective)
    return {key: math.fsum(amounts) for key, amounts in parts.items()}


def usages(usage: Sequence[Usage]) -> dict[str, float]:
    """U of every node, keyed like `entitlements`. An account that had no leaf then is in nobody's budget."""
    parts: dict[str, list[float]] = {}
    for part in usage:
        for key, amount in sorted(part.by_account.items()):
            leaf = part.epoch.tree.by_account.get(key)
            if leaf is None:
                continue
            parts.setdefault(part.epoch.tree.keys[leaf.path], []).append(amount)
            for path in ancestors(leaf.path)[:-1]:
                parts.setdefault(path, []).append(amount)
    return {key: math.fsum(amounts) for key, amounts in parts.items()}


def rank(
    tree: Tree,
    capacity: Sequence[Step],
    usage: Sequence[Usage],
    weight: Weight,
    now: datetime,
) -> Ranking:
    """Rank the leaves of the tree in force `now`. Same arguments, same result to the last bit."""
    owed = entitlements([part.epoch for part in usage], capacity, weight, now)
    used = usages(usage)
    standings = {
        path: Standing(
            entitlement=owed.get(tree.keys[path], 0.0),
            usage=used.get(tree.keys[path], 0.0),
            share=node.effective,
        )
        for path, node in tree.nodes.items()
    }
    return Ranking(tree, standings, ranked(tree, standings))


def ranked(tree: Tree, standings: Mapping[str, Standing]) -> tuple[Ranked, ...]:
    """The leaves in order: siblings by their place, ties by path, the tree walked in that order."""
    order: list[Node] = []

    def visit(siblings: Sequence[Node]) -> None:
        for node in sorted(siblings, key=lambda node: (standings[node.path].place(), node.path)):
            if node.is_leaf:
                order.append(node)
            else:
                visit(node.children)

    visit(tree.top)
    return tuple(
        Ranked(leaf.path, leaf.account or "", position, standings[leaf.path])
        for position, leaf in enumerate(order, start=1)
    )
