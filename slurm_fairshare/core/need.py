"""What a waiting job needs of the nodes, and whether some room holds it.

Only what is understood here is acted on: a request with a part that is not makes the whole `unknown`, and nobody
is stopped for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_fairshare.core.cluster import Job, Node
from slurm_fairshare.core.hostlist import expand
from slurm_fairshare.core.resources import UNTYPED, Resources

CLOSED = frozenset({"RESERVED", "MAINTENANCE", "REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERING_DOWN", "BLOCKED"})
"""States in which a node that serves takes no job like any other: room made on it may help nobody."""

_ASSUMED_MET = frozenset({"dependency"})
"""Slurm's reason says so while it is not."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pending job needs: so many nodes with so much on each. `whole`: the nodes to itself, empty.

    `loose`: the GPUs need not lie evenly; `each` then is the even share, rounded up.
    """

    nodes: int
    each: Resources
    whole: bool = False
    loose: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """A pending job's shape and the sets of nodes it may stand on: one for each partition it names.

    No shape: `unknown` is not understood, or even empty nodes could not hold the job.
    """

    shape: Shape | None
    sets: tuple[tuple[str, ...], ...] = ()
    unknown: str = ""


def need_of(job: Job, nodes: Sequence[Node]) -> Need:
    """What the job needs and where it may stand. A job never spreads over two partitions."""
    chosen, whole, unknown = eligible_nodes(job, nodes)
    if unknown:
        return Need(None, (), unknown)
    partitions = job.partitions or ("",)
    shapes: list[Shape] = []
    sets: list[tuple[str, ...]] = []
    for partition in partitions:
        inside = [node for node in chosen if not partition or partition in node.partitions]
        shape = shape_of(job, inside, whole=whole)
        names = tuple(node.name for node in inside)
        if shape is not None and names not in sets:
            shapes.append(shape)
            sets.append(names)
    if not shapes:
        return Need(None)
    # One shape for all: the widest is right for each, since smaller nodes make for more of them.
    widest = max(shapes, key=lambda shape: shape.nodes)
    return Need(widest, tuple(names for shape, names in zip(shapes, sets, strict=True) if shape == widest))


def eligible_nodes(job: Job, nodes: Sequence[Node]) -> tuple[list[Node], bool, str]:
    """The nodes the job may run on, whether it wants them for itself, and what is not understood ("" for nothing)."""
    chosen = [
        node
        for node in nodes
        if node.in_service
        and not node.states & CLOSED
        and (not job.partitions or set(job.partitions) & set(node.partitions))
    ]
    whole = False
    for constraint in job.constraints:
        key, _, value = constraint.partition("=")
        narrowed = _narrowed(key, value, job, chosen)
        if key == "exclusive" and value == "node":
            whole = True
        elif narrowed is not None:
            chosen = narrowed
        elif key not in _ASSUMED_MET:
            return [], whole, constraint
    return chosen, whole, ""


def _narrowed(key: str, value: str, job: Job, nodes: list[Node]) -> list[Node] | None:
    """The nodes a constraint leaves; None for one that is not understood."""
    if key == "features" and value and not set(value) & set("|[]()*!"):
        wanted = set(value.replace("&", ",").split(","))
        return [node for node in nodes if wanted <= set(node.features)]
    if key not in {"excluded_nodes", "required_nodes"}:
        return None
    names = expand(value)
    if names is None:
        return None
    if key == "excluded_nodes":
        return [node for node in nodes if node.name not in names]
    # Nodes beyond those that are named would have to be searched around them.
    return [node for node in nodes if node.name in names] if len(set(names)) == job.node_count else None


def shape_of(job: Job, nodes: Sequence[Node], *, whole: bool = False) -> Shape | None:
    """Nodes and amount on each that the job asks for. None where even empty nodes could not hold it.

    A job that names GPUs but fewer nodes than they need is spread over as many as that takes. Uneven
    requests are rounded up: better no eviction than one that does not help.
    """
    largest = max((node.total.gpu_count for node in nodes), default=0)
    count = max(1, job.node_count)
    gpus = job.wanted.gpu_count
    if gpus > count * largest:
        if largest == 0:
            return None
        count = -(-gpus // largest)
    each = Resources(
        gpus={kind: -(-amount // count) for kind, amount in job.wanted.gpus.items() if amount},
        cpus=-(-job.wanted.cpus // count),
        memory_mb=-(-job.wanted.memory_mb // count),
    )
    room = sum(1 for node in nodes if fits(each, node.total))
    uneven = any(amount % count for amount in job.wanted.gpus.values())
    return Shape(count, each, whole, gpus if uneven else 0) if room >= count else None


def fits(need: Resources, free: Resources) -> bool:
    """Whether the need fits. A GPU of no stated type takes any that the typed needs leave."""
    if need.cpus > free.cpus or need.memory_mb > free.memory_mb:
        return False
    if any(amount > free.gpus.get(kind, 0) for kind, amount in need.gpus.items() if kind != UNTYPED):
        return False
    return need.gpu_count <= gpus_of(free)


def lacking(need: Resources, free: Resources) -> int:
    """GPUs that are missing, at the least: of a type, or in all.

    >>> lacking(Resources({"a": 4, "": 2}), Resources({"a": 1, "b": 8}))
    3
    """
    typed = sum(max(0, amount - max(0, free.gpus.get(kind, 0))) for kind, amount in need.gpus.items() if kind)
    return max(typed, need.gpu_count - gpus_of(free), 0)


def gpus_of(room: Resources) -> int:
    """GPUs that are there: a node that is over-committed in one type has none of it, not less."""
    return sum(amount for amount in room.gpus.values() if amount > 0)


def holds_unevenly(shape: Shape, names: Sequence[str], room: Mapping[str, Resources]) -> bool:
    """Whether a job whose GPUs need not lie evenly may find its place in the room, so that nobody need yield.

    The most favourable split is looked at, by GPUs alone: where in doubt, Slurm is given time to try.
    """
    if not shape.loose:
        return False
    most = sorted((min(gpus_of(room[name]), shape.loose) for name in names), reverse=True)[: shape.nodes]
    return len(most) == shape.nodes and most[-1] > 0 and sum(most) >= shape.loose
