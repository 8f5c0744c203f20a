"""The simulator's ledger: who held how much when, kept so that any recent window is summed at once.

A *meter* follows one amount over time (an account's charged GPUs, say). It holds the integral at every change,
so the sum over `[a, b)` is a difference of two readings: exact integers, and the same figure a sum over the
runs gives.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_right
from datetime import timedelta

HOUR = 3600


class Meter:
    """An amount over time, as a step function with its integral. Times are whole seconds and never go back."""

    __slots__ = ("at", "rate", "total", "trail")

    def __init__(self) -> None:
        self.at = array("q", [0])
        self.total = array("q", [0])
        self.rate = array("q", [0])
        self.trail = 0
        """Where the last window began: windows move forward, so the search starts there."""

    def change(self, now: int, by: int) -> None:
        last = self.at[-1]
        rate = self.rate[-1]
        if now == last:
            self.rate[-1] = rate + by
            return
        self.at.append(now)
        self.total.append(self.total[-1] + rate * (now - last))
        self.rate.append(rate + by)

    def until(self, when: int) -> int:
        """The integral from the beginning up to a moment."""
        last = self.at[-1]
        if when >= last:
            return self.total[-1] + self.rate[-1] * (when - last)
        index = bisect_right(self.at, when) - 1
        if index < 0:
            return 0
        return self.total[index] + self.rate[index] * (when - self.at[index])

    def between(self, start: int, end: int) -> int:
        return self.until(end) - self.until(start)

    def recent(self, start: int, end: int) -> int:
        """The same for windows that move forward: the search goes on where the last one ended."""
        at, index = self.at, self.trail
        count = len(at)
        while index + 1 < count and at[index + 1] <= start:
            index += 1
        self.trail = index
        before = self.total[index] + self.rate[index] * (start - at[index]) if start > at[index] else self.total[index]
        return self.until(end) - before

    def weighed(self, start: int, end: int, half_life: timedelta | None) -> float:
        """The integral with each second weighted by its age at `end`: halving with every half-life."""
        if half_life is None:
            return float(self.recent(start, end))
        decay = math.log(2) / half_life.total_seconds()
        index = max(0, bisect_right(self.at, start) - 1)
        parts = []
        for i in range(index, len(self.at)):
            left = max(self.at[i], start)
            right = min(self.at[i + 1] if i + 1 < len(self.at) else end, end)
            if left < right and self.rate[i]:
                grown = math.exp(-decay * (end - right)) - math.exp(-decay * (end - left))
                parts.append(self.rate[i] * grown / decay)
        return math.fsum(parts)

    def bins(self, start: int, end: int, width: int = HOUR) -> list[int]:
        """The integral in each stretch of `width` seconds from `start` on; the last may be shorter."""
        edges = [*range(start, end, width), end]
        readings = [self.until(edge) for edge in edges]
        return [b - a for a, b in itertools.pairwise(readings)]


class Ledger:
    """Meters by account: charged and unallocated usage, and the demand that is under contract."""

    def __init__(self) -> None:
        self.charged: dict[str, Meter] = {}
        self.unallocated: dict[str, Meter] = {}
        self.wanted: dict[str, Meter] = {}
        self.in_service: list[tuple[int, int]] = []
        self.lost = 0
        """GPU-seconds held by runs that left no work behind, all of them."""
        self.lost_unallocated = 0

    def usage(self, account: str, now: int, gpus: int, *, charged: bool) -> None:
        meters = self.charged if charged else self.unallocated
        meter = meters.get(account)
        if meter is None:
            meter = meters[account] = Meter()
        meter.change(now, gpus)

    def demand(self, account: str, now: int, gpus: int) -> None:
        if not gpus:
            return
        meter = self.wanted.get(account)
        if meter is None:
            meter = self.wanted[account] = Meter()
        meter.change(now, gpus)

    def capacity(self, now: int, gpus: int) -> None:
        self.in_service.append((now, gpus))
