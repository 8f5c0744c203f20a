"""The lookback window and what is summed over it.

Everything that is summed over time comes as *pieces*: an amount spread evenly over a half-open stretch. A
weight turns a piece into its contribution: 1 everywhere for the box window, a halving with age for the
half-life. Usage and entitlement go through the same function, so they can be compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from slurm_fairshare.core.runs import Run

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Window:
    """The half-open interval `[start, end)`, aware UTC. Seven days are 168 hours, whatever the clocks do."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ValueError("a window's ends need a time zone")
        if self.end < self.start:
            raise ValueError(f"a window cannot end ({self.end}) before it starts ({self.start})")

    @classmethod
    def lookback(cls, now: datetime, length: timedelta) -> Window:
        at = now.astimezone(UTC)
        return cls(at - length, at)

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    def cut(self, start: datetime, end: datetime) -> Window | None:
        """The part of `[start, end)` inside this window, None if there is none."""
        left, right = max(start, self.start), min(end, self.end)
        return Window(left, right) if left < right else None

    def hours(self) -> tuple[Window, ...]:
        """The window cut at whole hours of UTC; the first and the last piece may be shorter."""
        edges = [self.start]
        mark = self.start.replace(minute=0, second=0, microsecond=0) + HOUR
        while mark < self.end:
            edges.append(mark)
            mark += HOUR
        edges.append(self.end)
        return tuple(Window(a, b) for a, b in itertools.pairwise(edges) if a < b)


PERIODS = ("hour", "day", "month")


def calendar(window: Window, period: str, zone: tzinfo) -> tuple[Window, ...]:
    """The window cut where an hour, a day or a month of the zone's calendar begins; the ends may be shorter.

    A day in which clocks change has 23 or 25 hours; the hour that comes twice is two parts.
    """
    parts = []
    start = window.start
    while start < window.end:
        end = min(_next_begin(start, period, zone), window.end)
        parts.append(Window(start, end))
        start = end
    return tuple(parts)


def _next_begin(at: datetime, period: str, zone: tzinfo) -> datetime:
    """When the period after the one that holds the moment begins, in UTC."""
    local = at.astimezone(zone)
    if period == "hour":
        within = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        return at.astimezone(UTC) - within + HOUR
    if period == "day":
        following = local.date() + timedelta(days=1)
    else:
        following = (local.date().replace(day=1) + timedelta(days=32)).replace(day=1)
    return datetime(following.year, following.month, following.day, tzinfo=zone).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Weight:
    """How much a second counts by its age: 1 in the box window, `2**(-age/half_life)` with a half-life."""

    half_life: timedelta | None = None

    def __post_init__(self) -> None:
        if self.half_life is not None and self.half_life <= timedelta(0):
            raise ValueError("a half-life is longer than nothing; leave it out for the box window")

    def mean(self, part: Window, now: datetime) -> float:
        """The mean weight over a part, exactly: the integral of the weight divided by the length.

        Range (0, 1] for parts that end by `now`; 1 for a part of no length at `now`.
        """
        if self.half_life is None or part.seconds == 0:
            return 1.0
        rate = math.log(2) / self.half_life.total_seconds()
        young = (now - part.end).total_seconds()
        old = (now - part.start).total_seconds()
        return (math.exp(-rate * young) - math.exp(-rate * old)) / (rate * (old - young))


@dataclass(frozen=True, slots=True)
class Piece:
    """`rate` per second, all through the part."""

    part: Window
    rate: float


def weighed(pieces: Iterable[Piece], weight: Weight, now: datetime) -> float:
    """The weighted integral of the pieces. fsum: the order of the pieces cannot change the result."""
    return math.fsum(piece.rate * piece.part.seconds * weight.mean(piece.part, now) for piece in pieces)


def overlap_seconds(run: Run, window: Window, now: datetime) -> int:
    """Whole seconds of the run inside the window. A run without an end counts up to `now`.

    Slurm keeps whole seconds, so this is exact where window and `now` lie on whole seconds; their fractions
    are cut off on both sides, which keeps adjacent windows adding up.
    """
    if run.start is None:
        return 0
    start = max(whole_second(run.start), whole_second(window.start))
    end = min(whole_second(run.end if run.end is not None else now), whole_second(window.end))
    return max(0, end - start)


def whole_second(at: datetime) -> int:
    """The second since 1970 in which the moment lies."""
    return math.floor(at.timestamp())


def milli_gpu_seconds(runs: Sequence[Run], window: Window, now: datetime) -> int:
    """What the runs are charged inside the window, in thousandths of a GPU-second. An integer, so exact."""
    return sum(run.milli_gpus * overlap_seconds(run, window, now) for run in runs)


@dataclass(frozen=True, slots=True)
class Step:
    """A step function's value from `at` on, until the next step."""

    at: datetime
    value: float


def pieces(steps: Sequence[Step], window: Window) -> tuple[Piece, ...]:
    """The step function inside the window. Before the first step nothing is known and nothing is owed."""
    if not steps:
        return ()
    ordered = sorted(steps, key=lambda step: step.at)
    ends = [step.at for step in ordered[1:]] + [window.end]
    found = []
    for step, end in zip(ordered, ends, strict=True):
        part = window.cut(step.at, end) if step.at < end else None
        if part is not None:
            found.append(Piece(part, step.value))
    return tuple(found)


def integrals(steps: Sequence[Step], parts: Sequence[Window]) -> list[float]:
    """The integral of the step function over each part, value x seconds. Parts are adjacent and in order.

    The same as `weighed(pieces(steps, part))` under the box window, in one walk over both.
    """
    if not parts:
        return []
    found: list[list[float]] = [[] for _ in parts]
    place = 0
    for piece in pieces(steps, Window(parts[0].start, parts[-1].end)):
        while parts[place].end <= piece.part.start:
            place += 1
        index = place
        while index < len(parts) and parts[index].start < piece.part.end:
            shared = parts[index].cut(piece.part.start, piece.part.end)
            found[index].append(piece.rate * shared.seconds if shared is not None else 0.0)
            index += 1
    return [math.fsum(amounts) for amounts in found]


def thinned(steps: Sequence[Step], window: Window) -> tuple[Step, ...]:
    """The step function with each whole hour of the window replaced by its mean, so sums over hours stay.

    What stands outside the window stays, and so does the value in force at its end.
    """
    ordered = sorted(steps, key=lambda step: step.at)
    known = [step for step in ordered if step.at < window.end]
    if not known:
        return tuple(ordered)
    start = max(window.start, known[0].at)
    hours = Window(start, window.end).hours() if start < window.end else ()
    means = [Step(hour.start, total / hour.seconds) for hour, total in zip(hours, integrals(known, hours), strict=True)]
    before = [step for step in known if step.at < start]
    after = [step for step in ordered if step.at >= window.end]
    at_end = [] if after and after[0].at == window.end else [Step(window.end, known[-1].value)]
    found: list[Step] = []
    for step in (*before, *means, *at_end, *after):
        if not found or found[-1].value != step.value:
            found.append(step)
    return tuple(found)
