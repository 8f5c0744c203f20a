"""What the store tells beside the core's own values: the last tick, failures, adjustments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Window


@dataclass(frozen=True, slots=True)
class Failure:
    """A tick that ended with an error, and the step it was in."""

    at: datetime
    phase: str
    error: str


@dataclass(frozen=True, slots=True)
class TickFacts:
    """The newest tick as reports show it; `changes` in words, `failures` are those since."""

    at: datetime
    finished: datetime
    window: Window
    pushed: bool
    changes: tuple[str, ...]
    unknown_accounts: tuple[str, ...]
    unbudgeted_accounts: tuple[str, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row of accounting that could not be read, and when it was met first."""

    row: RejectedRow
    first: datetime


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A correction of an account's usage by hand: positive is a debit, negative a credit.

    It counts in every window that holds `at`, until it expires (None = never).
    """

    id: str
    account: str
    milli_gpu_seconds: int
    at: datetime
    author: str
    reason: str
    expires: datetime | None = None

    def counts(self, window: Window, now: datetime) -> bool:
        return window.start <= self.at < window.end and (self.expires is None or now < self.expires)
