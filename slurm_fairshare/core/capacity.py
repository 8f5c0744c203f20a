"""Capacity before the first tick, from what slurmdbd remembers: the cluster's size and its nodes' outages.

From its first tick on the product sees the nodes itself. What was in service before that follows from two kinds of
record: when the cluster was registered with which GPUs, and when each node was down or drained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from slurm_fairshare.core.cluster import Capacity, Node
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Window

PastStep = tuple[datetime, tuple[Capacity, ...]]
"""From this moment on: one capacity for each GPU type."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The cluster had these resources and nodes from `start` on, until the next registration."""

    start: datetime
    total: Resources
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outage:
    """A node was out of service in `[start, end)`; `end` None: it still is. `states` as a node has them."""

    node: str
    start: datetime
    end: datetime | None
    states: frozenset[str]
    total: Resources

    @property
    def down(self) -> bool:
        """Down rather than drained. What slurmdbd writes down of a node is never a time in which it served."""
        node = Node(self.node, self.states, self.total, Resources())
        return node.down or not node.drained


@dataclass(frozen=True, slots=True)
class Past:
    """What slurmdbd remembers of a stretch of time, and the rows of it that could not be read."""

    registrations: tuple[Registration, ...] = ()
    outages: tuple[Outage, ...] = ()
    rejected: tuple[RejectedRow, ...] = ()


def past_steps(past: Past, nodes: Sequence[Node], window: Window) -> tuple[PastStep, ...]:
    """The capacity as a step function over the window, from where the cluster is known on.

    `nodes` are the definitions of today: they say what a node holds whose outage does not tell its GPUs. How many
    GPUs were allocated is not known of the past (None): the runs tell it.
    """
    known = sorted(past.registrations, key=lambda one: one.start)
    if not known or known[0].start >= window.end:
        return ()
    start = max(window.start, known[0].start)
    outages = [_with_gpus(outage, nodes) for outage in past.outages]
    found: list[PastStep] = []
    for at in _moments(known, outages, Window(start, window.end)):
        step = _at(at, known, outages)
        if not found or found[-1][1] != step:
            found.append((at, step))
    return tuple(found)


def _with_gpus(outage: Outage, nodes: Sequence[Node]) -> Outage:
    if outage.total.gpu_count:
        return outage
    total = next((node.total for node in nodes if node.name == outage.node), outage.total)
    return Outage(outage.node, outage.start, outage.end, outage.states, total)


def _moments(known: Sequence[Registration], outages: Iterable[Outage], window: Window) -> list[datetime]:
    """The window's start and every moment inside it at which something may have changed."""
    changes = {one.start for one in known} | {end for one in outages for end in (one.start, one.end) if end is not None}
    return sorted({window.start} | {at for at in changes if window.start < at < window.end})


def _at(at: datetime, known: Sequence[Registration], outages: Sequence[Outage]) -> tuple[Capacity, ...]:
    """An outage of a node that is no part of the cluster (any more) takes nothing from it; of two of one node, the
    later holds."""
    now = [one for one in known if one.start <= at]
    current = now[-1]
    kinds = {kind for one in now for kind in one.total.gpus}
    latest: dict[str, Outage] = {}
    for outage in outages:
        there = outage.start <= at and (outage.end is None or at < outage.end) and outage.node in current.nodes
        if there and (outage.node not in latest or latest[outage.node].start <= outage.start):
            latest[outage.node] = outage
    down = _gpus(outage for outage in latest.values() if outage.down)
    drained = _gpus(outage for outage in latest.values() if not outage.down)
    return tuple(_capacity(kind, current.total.gpus, down, drained) for kind in sorted(kinds))


def _gpus(outages: Iterable[Outage]) -> dict[str, int]:
    found: dict[str, int] = {}
    for outage in outages:
        for kind, count in outage.total.gpus.items():
            found[kind] = found.get(kind, 0) + count
    return found


def _capacity(kind: str, installed: Mapping[str, int], down: Mapping[str, int], drained: Mapping[str, int]) -> Capacity:
    """Never less than nothing in service, whatever the records say."""
    whole = installed.get(kind, 0)
    broken = min(down.get(kind, 0), whole)
    return Capacity(kind, whole, broken, min(drained.get(kind, 0), whole - broken), None)
