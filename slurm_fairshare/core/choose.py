"""The cheapest set of runs to stop, so that a job has its place: the search, without any rule of who may stop whom.

What a set costs, in this order: runs that are not resumable, GPUs given up beyond need, work lost, and minus how
far the victims' sides are over target. On one node the search is exact as far as GPUs go; over several nodes it
takes node after node and tries to begin with each run that clears several at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.fairshare import Ranked
from slurm_fairshare.core.need import Shape, fits, lacking
from slurm_fairshare.core.precedence import Permission
from slurm_fairshare.core.resources import Resources

SEEDS = 8
"""So many of the runs that clear several nodes at once are tried as the beginning of a set."""

Weight = tuple[int, int, float, float, int, tuple[int, ...]]
"""Not resumable, GPUs given up, work lost, minus how far over target (for each GPU), runs; the jobs' numbers
decide ties."""

_NOTHING: Weight = (0, 0, 0.0, 0.0, 0, ())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that may yield to the job in question."""

    job: Job
    leaf: Ranked
    permission: Permission
    weight: Weight

    @classmethod
    def of(cls, job: Job, leaf: Ranked, permission: Permission, over: float, lost: float) -> Candidate:
        """`over` is the ratio of the victim's side, `lost` the GPU-seconds thrown away."""
        gpus = job.wanted.gpu_count
        weight = (0 if job.resumes else 1, gpus, lost, -gpus * min(over, 1e9), 1, (job.job_id,))
        return cls(job, leaf, permission, weight)


@dataclass(frozen=True, slots=True)
class Found:
    """The nodes a job is to stand on, and who yields for it there."""

    placed: tuple[str, ...]
    yielding: tuple[Candidate, ...]
    cost: Weight


def _plus(one: Weight, other: Weight) -> Weight:
    return (
        one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4],
        one[5] + other[5],
    )  # fmt: skip


def _sum(group: Iterable[Candidate]) -> Weight:
    total = _NOTHING
    for candidate in sorted(group, key=lambda one: one.job.job_id):
        total = _plus(total, candidate.weight)
    return total


def _beyond(weight: Weight, need: int) -> Weight:
    """The weight with the GPUs that are needed taken off those given up."""
    return (weight[0], max(0, weight[1] - need), *weight[2:])


@dataclass(frozen=True, slots=True)
class _Option:
    """One node, and the cheapest way to clear it."""

    cost: Weight
    gpus: int
    name: str
    extra: tuple[Candidate, ...]

    @property
    def order(self) -> tuple[Weight, int, str]:
        """The fullest of nodes that cost the same, so that large holes stay whole."""
        return self.cost, self.gpus, self.name


class Search:
    """One search for one part of one job. `total` is what a node has: a job that wants it whole needs all of it."""

    def __init__(
        self,
        shape: Shape,
        names: Sequence[str],
        room: Mapping[str, Resources],
        gpus: Mapping[str, int],
        total: Mapping[str, Resources],
        candidates: Sequence[Candidate],
    ) -> None:
        self.shape, self.names, self.room, self.gpus, self.total = shape, names, room, gpus, total
        self.by_node: dict[str, list[Candidate]] = {name: [] for name in names}
        self.frees: dict[str, int] = dict.fromkeys(names, 0)
        """GPUs that all candidates together hold on a node."""
        for candidate in sorted(candidates, key=lambda one: one.weight):
            for name, part in candidate.job.by_node.items():
                if name in self.by_node:
                    self.by_node[name].append(candidate)
                    self.frees[name] += part.gpu_count
        self._first: dict[str, _Option] = {}

    def cheapest(self) -> Found | None:
        """The best set found, None if there is none. Deterministic: the same arguments, the same answer."""
        least = self.shape.each.gpu_count
        hopeful = [name for name in self.names if self.gpus[name] + self.frees[name] >= least]
        self._first = {name: option for name in hopeful if (option := self._option(name, ())) is not None}
        if len(self._first) < self.shape.nodes:
            return None
        tries = [self._grown(())]
        if self.shape.nodes > 1:
            tries += [self._grown((seed,)) for seed in self._seeds()]
        found = [one for one in tries if one is not None]
        return min(found, key=lambda one: (one.cost, one.placed)) if found else None

    def _needed(self, name: str) -> Resources:
        return self.total[name] if self.shape.whole else self.shape.each

    def _seeds(self) -> list[Candidate]:
        wide: dict[int, Candidate] = {}
        covered: dict[int, int] = {}
        for here in self.by_node.values():
            for one in here:
                if len(one.job.by_node) > 1:
                    wide[one.job.job_id] = one
                    covered[one.job.job_id] = covered.get(one.job.job_id, 0) + 1
        useful = [one for one in wide.values() if covered[one.job.job_id] > 1]

        def promise(one: Candidate) -> Weight:
            nodes = min(covered[one.job.job_id], self.shape.nodes)
            return _beyond(one.weight, nodes * self.shape.each.gpu_count)

        return sorted(useful, key=promise)[:SEEDS]

    def _grown(self, seed: tuple[Candidate, ...]) -> Found | None:
        """Take the cheapest node again and again; what was chosen for one may make others cheaper."""
        options = dict(self._first)
        chosen: list[Candidate] = list(seed)
        placed: list[str] = []
        self._renew(options, chosen, {name for one in seed for name in one.job.by_node}, placed)
        while len(placed) < self.shape.nodes:
            if not options:
                return None
            best = min(options.values(), key=lambda option: option.order)
            placed.append(best.name)
            chosen.extend(best.extra)
            del options[best.name]
            self._renew(options, chosen, {name for one in best.extra for name in one.job.by_node}, placed)
        needed = self._spare(placed, chosen)
        need = sum(lacking(self._needed(name), self.room[name]) for name in placed)
        return Found(tuple(placed), tuple(needed), _beyond(_sum(needed), need))

    def _renew(
        self, options: dict[str, _Option], chosen: Sequence[Candidate], touched: set[str], placed: Sequence[str]
    ) -> None:
        for name in touched.intersection(self._first).difference(placed):
            option = self._option(name, chosen)
            if option is not None:
                options[name] = option

    def _option(self, name: str, chosen: Sequence[Candidate]) -> _Option | None:
        extra = self._clear(name, chosen, self.by_node[name])
        if extra is None:
            return None
        need = lacking(self._needed(name), self._with(name, chosen)) if extra else 0
        return _Option(_beyond(_sum(extra), need), self.gpus[name], name, extra)

    def _with(self, name: str, chosen: Iterable[Candidate]) -> Resources:
        free = self.room[name]
        for candidate in chosen:
            part = candidate.job.by_node.get(name)
            if part is not None:
                free = free.plus(part)
        return free

    def _clear(self, name: str, chosen: Sequence[Candidate], here: Sequence[Candidate]) -> tuple[Candidate, ...] | None:
        """The cheapest of those on the node, beyond those chosen already, that make room on it; None if none do."""
        need, free = self._needed(name), self._with(name, chosen)
        if fits(need, free):
            return ()
        taken = {one.job.job_id for one in chosen}
        rest = [one for one in here if one.job.job_id not in taken] if taken else here
        missing = lacking(need, free)
        group = _fewest(name, rest, missing)
        if group is not None and fits(need, self._with(name, (*chosen, *group))):
            return group
        return self._one_by_one(name, need, chosen, rest)

    def _one_by_one(
        self, name: str, need: Resources, chosen: Sequence[Candidate], rest: Sequence[Candidate]
    ) -> tuple[Candidate, ...] | None:
        """Where CPUs, memory or a GPU type are what is missing: the cheapest first, then those spared that may be."""
        taken: list[Candidate] = []
        for candidate in rest:
            taken.append(candidate)
            if fits(need, self._with(name, (*chosen, *taken))):
                break
        else:
            return None
        for candidate in reversed(taken[:-1]):
            fewer = [one for one in taken if one is not candidate]
            if fits(need, self._with(name, (*chosen, *fewer))):
                taken = fewer
        return tuple(taken)

    def _spare(self, placed: Sequence[str], chosen: Sequence[Candidate]) -> list[Candidate]:
        """Those that are needed: what was taken for one node may have been made needless by another's."""
        needed = list(chosen)
        for candidate in sorted(chosen, key=lambda one: one.weight, reverse=True):
            rest = [one for one in needed if one is not candidate]
            touched = [name for name in placed if name in candidate.job.by_node]
            if all(fits(self._needed(name), self._with(name, rest)) for name in touched):
                needed = rest
        return needed


def _fewest(name: str, here: Sequence[Candidate], missing: int) -> tuple[Candidate, ...] | None:
    """The cheapest subset that holds so many GPUs on the node: a knapsack over the GPUs freed so far.

    `best[g]` is the cheapest way to free g GPUs, anything above `missing` counting as `missing`. Weights add up
    and are compared in order, so the best of each g leads to the best whole.
    """
    best: list[tuple[Weight, tuple[Candidate, ...]] | None] = [None] * (missing + 1)
    best[0] = (_NOTHING, ())
    for candidate in here:
        frees, weight = candidate.job.by_node[name].gpu_count, candidate.weight
        if not frees:
            continue
        for have in range(missing - 1, -1, -1):
            before = best[have]
            if before is None:
                continue
            then = min(missing, have + frees)
            cost, old = _plus(before[0], weight), best[then]
            if old is None or cost < old[0]:
                best[then] = (cost, (*before[1], candidate))
    found = best[missing]
    return None if found is None or not found[1] else found[1]
