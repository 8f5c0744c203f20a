"""Where jobs stand: the free GPUs of each node, indexed so that the best fit is found without a search.

A set of nodes is an integer used as a bit mask. Nodes are kept in buckets by the number of GPUs they have
free, so "the fullest node that still holds g" is the lowest bit of the first bucket from g on. `soft` counts
what a job under contract sees: free GPUs and those of runs that are preempted at once.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from slurm_fairshare.sim.jobs import Machine

Place = tuple[tuple[int, int], ...]
"""(node, GPUs) for each node a run stands on."""

NEVER = 1 << 60


class Shape:
    """What a pending job needs: `count` nodes with `each` GPUs, the last one `last`; nodes allowed by `mask`."""

    __slots__ = ("count", "cpus", "each", "gpus", "key", "last", "mask", "memory", "mine", "plain")

    def __init__(self, gpus: int, count: int, cpus: int, memory: int, mask: int, mine: int = 0) -> None:
        self.gpus = gpus
        self.count = count
        self.each = -(-gpus // count)
        self.last = gpus - self.each * (count - 1)
        self.cpus = -(-cpus // count)
        self.memory = -(-memory // count)
        self.mask = mask
        self.mine = mine
        self.plain = not cpus and not memory
        self.key = (gpus, count, cpus, memory, mask)


class Buckets:
    """Nodes by a count each of them has."""

    __slots__ = ("count", "masks", "some")

    def __init__(self, counts: Sequence[int]) -> None:
        self.count = list(counts)
        self.masks = [0] * (max(counts, default=0) + 1)
        self.some = 0
        for node, amount in enumerate(counts):
            self.masks[amount] |= 1 << node
            self.some |= 1 << amount

    def change(self, node: int, by: int) -> None:
        old = self.count[node]
        new = old + by
        if new < 0 or new >= len(self.masks):
            raise AssertionError(f"node {node} would hold {new} free GPUs of {len(self.masks) - 1}")
        self.count[node] = new
        bit = 1 << node
        left = self.masks[old] ^ bit
        self.masks[old] = left
        if not left:
            self.some ^= 1 << old
        if not self.masks[new]:
            self.some |= 1 << new
        self.masks[new] |= bit


class Floor:
    """The nodes and what stands on them. Knows nothing about jobs but their shapes."""

    def __init__(self, machine: Machine) -> None:
        sizes = [node.gpus for node in machine.nodes]
        self.size = sizes
        self.free = Buckets(sizes)
        self.soft = Buckets(sizes)
        self.leaving = [0] * len(sizes)
        self.held = [0] * len(sizes)
        """GPUs of the node that are promised to a job whose victims are leaving."""
        self.promised = 0
        self.total_free = sum(sizes)
        self.cpus = [node.cpus or NEVER for node in machine.nodes]
        self.memory = [node.memory_mb or NEVER for node in machine.nodes]
        self.whole = list(zip(sizes, self.cpus, self.memory, strict=True))
        """GPUs, CPUs and memory of each node when it is empty."""
        self.soft_cpus = list(self.cpus)
        self.soft_memory = list(self.memory)
        self.all = (1 << len(sizes)) - 1
        self.up = self.all
        self.completing = [0] * len(sizes)
        """Runs that are being killed on the node. Until they are gone Slurm starts nobody there, on no GPU."""
        self.usable = self.all
        """Nodes without any such run."""
        kinds: dict[str, int] = {"": self.all}
        for index, node in enumerate(machine.nodes):
            if node.kind:
                kinds[node.kind] = kinds.get(node.kind, 0) | 1 << index
        self.of_kind = kinds
        self.ends: list[list[tuple[int, int, int]]] = [[] for _ in sizes]
        """For each node the planned ends of what cannot be preempted at once: (when, run, GPUs)."""
        self._columns: dict[int, list[int]] = {}
        self._stale: dict[int, int] = {}
        self._in_all: dict[int, int] = {}

    @property
    def in_service(self) -> int:
        """GPUs of the nodes that are up."""
        return sum(gpus for node, gpus in enumerate(self.size) if self.up >> node & 1)

    # --- what changes -----------------------------------------------------------------------------

    def add(self, place: Place, run: int, planned_end: int, cpus: int, memory: int, *, loose: bool) -> None:
        for node, gpus in place:
            self.free.change(node, -gpus)
            self.total_free -= gpus
            if not loose:
                self.soft.change(node, -gpus)
                insort(self.ends[node], (planned_end, run, gpus))
        if cpus or memory:
            self._reserve(place, cpus, memory, 1, soft=not loose, hard=True)
        self._touch(place)

    def remove(self, place: Place, run: int, planned_end: int, cpus: int, memory: int, *, loose: bool) -> None:
        for node, gpus in place:
            self.free.change(node, gpus)
            self.total_free += gpus
            if not loose:
                self.soft.change(node, gpus)
                self.ends[node].remove((planned_end, run, gpus))
        if cpus or memory:
            self._reserve(place, cpus, memory, -1, soft=not loose, hard=True)
        self._touch(place)

    def start_leaving(
        self, place: Place, run: int, planned_end: int, gone: int, cpus: int, memory: int, *, loose: bool
    ) -> None:
        """The run's GPUs come free at `gone`. Until then they are neither free nor to be had by preempting."""
        for node, gpus in place:
            self.leaving[node] += gpus
            if loose:
                self.soft.change(node, -gpus)
            else:
                self.ends[node].remove((planned_end, run, gpus))
            insort(self.ends[node], (gone, run, gpus))
        if loose and (cpus or memory):
            self._reserve(place, cpus, memory, 1, soft=True, hard=False)
        self._touch(place)

    def left(self, place: Place) -> None:
        for node, gpus in place:
            self.leaving[node] -= gpus

    def complete(self, place: Place, by: int) -> None:
        """One run more that is being killed on these nodes (+1), or one less (-1)."""
        for node, _ in place:
            self.completing[node] += by
            if self.completing[node]:
                self.usable &= ~(1 << node)
            else:
                self.usable |= 1 << node

    def promise(self, place: Place, sign: int) -> None:
        """Hold the room of a job that has had room made for it (+1), or give it up (-1)."""
        for node, gpus in place:
            self.held[node] += sign * gpus
            if self.held[node]:
                self.promised |= 1 << node
            else:
                self.promised &= ~(1 << node)

    def _reserve(self, place: Place, cpus: int, memory: int, sign: int, *, soft: bool, hard: bool) -> None:
        for node, _ in place:
            if hard:
                self.cpus[node] -= sign * cpus
                self.memory[node] -= sign * memory
            if soft:
                self.soft_cpus[node] -= sign * cpus
                self.soft_memory[node] -= sign * memory

    def _touch(self, place: Place) -> None:
        for node, _ in place:
            bit = 1 << node
            for each in self._stale:
                self._stale[each] |= bit

    # --- where a job fits -------------------------------------------------------------------------

    def could_hold(self, shape: Shape) -> bool:
        """Whether the job would fit if every node were up and empty."""
        fit = sum(
            shape.mask >> node & 1 and shape.each <= gpus and shape.cpus <= cpus and shape.memory <= memory
            for node, (gpus, cpus, memory) in enumerate(self.whole)
        )
        return fit >= shape.count

    def room(self, shape: Shape, *, soft: bool, barred: Barred | None = None, end: int = 0) -> Place | None:
        """Where the job fits now: on the fullest nodes that hold it, lowest number first. None if nowhere.

        `soft`: count what can be preempted at once as free. `barred`: nodes kept for others from some moment
        on; the job may use them if it is gone by then (`end`) or leaves enough.
        """
        buckets = self.soft if soft else self.free
        mask = shape.mask & self.up & self.usable
        special = self.promised | barred.mask if barred is not None else self.promised
        found: list[int] = []
        wanted, each = shape.count, shape.each
        some = buckets.some >> each
        level = each
        while some:
            step = (some & -some).bit_length() - 1
            level += step
            here = buckets.masks[level] & mask
            while here:
                # Nodes kept for nobody come first among equals.
                usual = here & ~special or here
                bit = usual & -usual
                here ^= bit
                node = bit.bit_length() - 1
                if bit & special and not self._may_use(node, each, level, barred, end):
                    continue
                if not shape.plain and not self._holds(shape, node, soft):
                    continue
                found.append(node)
                if len(found) == wanted:
                    return self._cut(found, shape)
            some >>= step + 1
            level += 1
        return None

    def room_with(self, shape: Shape, offered: Mapping[int, int], barred: Barred | None, end: int) -> Place | None:
        """Where the job fits if so many GPUs of loose runs are given up on each node; None if nowhere yet."""
        free, each = self.free.count, shape.each
        special = self.promised | barred.mask if barred is not None else self.promised
        allowed = shape.mask & self.up & self.usable
        if shape.count == 1:
            nodes = [node for node in offered if allowed >> node & 1]
        else:
            nodes = [node for node in range(len(self.size)) if allowed >> node & 1]
        found = []
        for node in nodes:
            level = free[node] + offered.get(node, 0)
            if level < each:
                continue
            if special >> node & 1 and not self._may_use(node, each, level, barred, end):
                continue
            if shape.plain or self._holds(shape, node, soft=True):
                found.append((level, node))
        if len(found) < shape.count:
            return None
        found.sort()
        return self._cut([node for _, node in found[: shape.count]], shape)

    def lacking(self, node: int, gpus: int) -> int:
        """GPUs that must still be given up on the node for a job that wants so many there."""
        return gpus - self.free.count[node] + max(0, self.held[node] - self.leaving[node])

    def _cut(self, found: list[int], shape: Shape) -> Place:
        if len(found) == 1:
            return ((found[0], shape.gpus),)
        return (*((node, shape.each) for node in found[:-1]), (found[-1], shape.last))

    def _may_use(self, node: int, each: int, level: int, barred: Barred | None, end: int) -> bool:
        promised = self.held[node] - self.leaving[node]
        if promised > 0 and level - each < promised:
            return False
        if barred is None or not barred.mask >> node & 1:
            return True
        return barred.allows(node, each, end)

    def _holds(self, shape: Shape, node: int, soft: bool) -> bool:
        cpus, memory = (self.soft_cpus, self.soft_memory) if soft else (self.cpus, self.memory)
        return shape.cpus <= cpus[node] and shape.memory <= memory[node]

    # --- when a job will fit ----------------------------------------------------------------------

    def ready(self, node: int, each: int) -> int:
        """When the node will have `each` GPUs, by the planned ends of its runs. 0 = it has them now."""
        have = self.soft.count[node]
        if have >= each:
            return 0
        for when, _, gpus in self.ends[node]:
            have += gpus
            if have >= each:
                return when
        return NEVER

    def earliest(self, shape: Shape, taken: int) -> tuple[int, list[int]] | None:
        """The earliest moment at which the job will fit by the planned ends, and on which nodes."""
        each = shape.each
        column = self._columns.get(each)
        if column is None:
            column = [self.ready(node, each) for node in range(len(self.size))]
            self._columns[each] = column
            self._stale[each] = 0
        stale = self._stale[each]
        while stale:
            bit = stale & -stale
            stale ^= bit
            node = bit.bit_length() - 1
            column[node] = self.ready(node, each)
        self._stale[each] = 0
        allowed = shape.mask & self.up & ~taken
        if allowed == self.all and shape.count == 1:
            when = min(column)
            return (when, [column.index(when)]) if when < NEVER else None
        ranked = sorted((when, node) for node, when in enumerate(column) if when < NEVER and allowed >> node & 1)
        if len(ranked) < shape.count:
            return None
        chosen = ranked[: shape.count]
        return chosen[-1][0], [node for _, node in chosen]

    def spare_at(self, node: int, when: int, need: int) -> int:
        """GPUs of the node that a job starting there at `when` with `need` GPUs leaves free then.

        Of runs that end at that very moment only those count that the job needs: the cautious reading.
        """
        have = self.soft.count[node]
        for end, _, gpus in self.ends[node]:
            if end > when or (end == when and have >= need):
                break
            have += gpus
        return have - need


class Barred:
    """Nodes kept for blocked jobs: from when on, and how many GPUs they leave to others."""

    __slots__ = ("latest", "mask", "spare", "until")

    def __init__(self) -> None:
        self.mask = 0
        self.until: dict[int, int] = {}
        self.spare: dict[int, int] = {}
        self.latest = 0

    def copy(self) -> Barred:
        found = Barred()
        found.mask, found.until, found.spare, found.latest = self.mask, dict(self.until), dict(self.spare), self.latest
        return found

    def book(self, nodes: Iterable[int], when: int) -> None:
        """Keep whole nodes from a moment on."""
        for node in nodes:
            self.mask |= 1 << node
            self.until[node], self.spare[node] = when, 0
        self.latest = max(self.latest, when)

    def keep(self, floor: Floor, nodes: Sequence[int], when: int, each: int, step: int = 0) -> None:
        """Keep nodes from a moment on. `step`: as Slurm does, whole nodes and from the beginning of that step."""
        self.book(nodes, when - when % step - 1 if step else when)
        if not step:
            self.spare.update((node, floor.spare_at(node, when, each)) for node in nodes)

    def allows(self, node: int, each: int, end: int) -> bool:
        return end <= self.until[node] or self.spare[node] >= each

    def used(self, place: Place, end: int) -> None:
        """A job was started on kept nodes: what it holds beyond the kept moment is no longer spare."""
        for node, gpus in place:
            if self.mask >> node & 1 and end > self.until[node]:
                self.spare[node] -= gpus
