"""The queue of pending jobs, in an order that the policy may change while nobody moves inside a stream.

Jobs that a policy cannot tell apart and that need the same room form a *stream*, first come first served.
Streams of one standing form a *group*; groups are sorted by the policy's priority. A scheduling pass walks the
groups, merges their streams by arrival, and drops a stream as soon as its shape cannot be placed: a pass over
ten thousand equal jobs costs as much as one over ten.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import merge
from itertools import islice, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_fairshare.sim.engine import Job

BLOCK = 64
"""Jobs whose shortest limit is kept together, so that a walk for short jobs skips the others in blocks."""


class Stream:
    """Jobs of one shape and standing by arrival."""

    __slots__ = ("_jobs", "_mins", "base", "first", "group", "live")

    def __init__(self, group: Group) -> None:
        self.group = group
        self._jobs: list[Job | None] = []
        self._mins: list[int] = []
        self.base = 0
        self.first = 0
        self.live = 0

    def append(self, job: Job) -> None:
        position = len(self._jobs)
        self._jobs.append(job)
        if position % BLOCK == 0:
            self._mins.append(job.limit)
        elif job.limit < self._mins[-1]:
            self._mins[-1] = job.limit
        job.stream = self
        job.position = self.base + position
        if not self.live:
            self.group.active[self] = None
        self.live += 1
        self.group.changed(1)

    def remove(self, job: Job) -> None:
        index = job.position - self.base
        self._jobs[index] = None
        job.stream = None
        self.live -= 1
        self.group.changed(-1)
        if self.live == 0:
            del self.group.active[self]
            self.base += len(self._jobs)
            self._jobs.clear()
            self._mins.clear()
            self.first = 0
            return
        if index == self.first:
            jobs = self._jobs
            while jobs[index] is None:
                index += 1
            self.first = index
            if index >= 16 * BLOCK:
                self._compact()

    def _compact(self) -> None:
        blocks = self.first // BLOCK
        del self._jobs[: blocks * BLOCK]
        del self._mins[:blocks]
        self.base += blocks * BLOCK
        self.first -= blocks * BLOCK

    def head(self) -> Job:
        """The first; only of a stream in which somebody waits."""
        job = self._jobs[self.first]
        assert job is not None  # noqa: S101
        return job

    def after(self, position: int, longest: int) -> Job | None:
        """The first job from a position on whose limit is at most `longest`."""
        jobs, mins = self._jobs, self._mins
        index = max(position - self.base, self.first)
        count = len(jobs)
        while index < count:
            block = index // BLOCK
            end = min((block + 1) * BLOCK, count)
            if mins[block] > longest:
                index = end
                continue
            at_start = index == block * BLOCK
            shortest = 1 << 60
            while index < end:
                job = jobs[index]
                index += 1
                if job is not None:
                    if job.limit <= longest:
                        return job
                    shortest = min(shortest, job.limit)
            if at_start:
                mins[block] = shortest
        return None

    def __iter__(self) -> Iterator[Job]:
        return (job for job in self._jobs[self.first :] if job is not None)


class Group:
    """Streams of one standing. `priority`: larger goes first."""

    __slots__ = ("_firsts", "active", "key", "live", "priority", "streams")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.priority: float = 0.0
        self.streams: dict[Hashable, Stream] = {}
        self.active: dict[Stream, None] = {}
        """The streams in which somebody waits."""
        self.live = 0
        self._firsts: list[Job] | None = None

    def oldest(self) -> int:
        """The arrival that decides between groups of one priority."""
        return min((stream.head().arrival for stream in self.active), default=0)

    def in_order(self) -> Iterator[Job]:
        """The group's jobs by arrival."""
        return merge(*self.active, key=_arrival)

    def firsts(self, count: int) -> list[Job]:
        """The first few by arrival: asked again and again, so kept until somebody comes or goes."""
        if self._firsts is None:
            self._firsts = list(islice(self.in_order(), count))
        return self._firsts

    def changed(self, by: int) -> None:
        self.live += by
        self._firsts = None


def _arrival(job: Job) -> int:
    return job.arrival


def _first(group: Group) -> float:
    return -group.priority


class Waiting:
    """All pending jobs."""

    def __init__(self) -> None:
        self.groups: dict[Hashable, Group] = {}
        self._order: list[Group] = []
        self._sorted = True
        self.count = 0
        self.by_gpus: dict[int, int] = {}

    def add(self, job: Job, key: Hashable, priority: float | None = None) -> None:
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(key)
            self._order.append(group)
            self._sorted = False
        if priority is not None and group.priority != priority:
            group.priority = priority
            self._sorted = False
        name = (job.shape.key, job.limited_by)
        stream = group.streams.get(name)
        if stream is None:
            stream = group.streams[name] = Stream(group)
        stream.append(job)
        self.count += 1
        self.by_gpus[job.spec.gpus] = self.by_gpus.get(job.spec.gpus, 0) + 1

    def remove(self, job: Job) -> None:
        assert job.stream is not None  # noqa: S101
        job.stream.remove(job)
        self.count -= 1
        left = self.by_gpus[job.spec.gpus] - 1
        if left:
            self.by_gpus[job.spec.gpus] = left
        else:
            del self.by_gpus[job.spec.gpus]

    def order(self) -> list[Group]:
        if not self._sorted:
            self._order.sort(key=_first)
            live = [group for group in self._order if group.live]
            if any(one.priority == other.priority for one, other in pairwise(live)):
                self._order.sort(key=lambda group: (-group.priority, group.oldest()))
            self._sorted = True
        return self._order

    def resort(self) -> None:
        self._sorted = False

    def jobs(self) -> Iterator[Job]:
        """All pending jobs in the order in which they are served."""
        for group in self.order():
            if group.live:
                yield from group.in_order()
