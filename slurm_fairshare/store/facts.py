"""What the store tells beside the core's own values: the last tick, failures, adjustments."""

from __future__ import annotations

from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class ManagerChange:
    """A login role was made a manager of what is below a node (`granted`), or is one no more."""

    id: int
    path: str
    role: str
    granted: bool
    author: str
    reason: str
    at: datetime


def managers_now(changes: Iterable[ManagerChange]) -> dict[tuple[str, str], ManagerChange]:
    """What holds after all of them, by path and role: the newest of each pair counts."""
    newest = {(change.path, change.role): change for change in sorted(changes, key=lambda change: change.id)}
    return {pair: newest[pair] for pair in sorted(newest) if newest[pair].granted}


@dataclass(frozen=True, slots=True)
class Holding:
    """What one user held in one account over a window: GPU-seconds, and the same weighted as they are charged."""

    account: str
    user: str
    charged: bool
    gpu_seconds: int
    milli_gpu_seconds: int
