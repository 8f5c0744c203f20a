"""When to try again what has failed."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Pauses that double with each failure in a row, from `first` up to `longest` seconds.

    The first failure makes no pause of its own: the next turn comes as planned.
    """

    def __init__(self, first: float, longest: float, monotonic: Callable[[], float]) -> None:
        self._first, self._longest, self._monotonic = first, max(first, longest), monotonic
        self.failures = 0
        self._until = 0.0

    @property
    def pausing(self) -> bool:
        return self._monotonic() < self._until

    def failed(self) -> float:
        """Count a failure; the seconds until it is tried again."""
        pause = min(self._first * 2.0 ** min(self.failures, 60), self._longest)
        self.failures += 1
        # A turn comes at its interval or a little before: half a turn earlier it may be taken.
        self._until = self._monotonic() + pause - self._first / 2
        return pause

    def succeeded(self) -> None:
        self.failures, self._until = 0, 0.0
