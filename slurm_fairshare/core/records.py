"""What is handed to the store as a whole: one accounting query's answer, one tick's result."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.plan import Change
from slurm_fairshare.core.runs import RejectedRow, Run
from slurm_fairshare.core.window import Window


@dataclass(frozen=True, slots=True)
class Batch:
    """What one accounting query gave: the runs, and the rows that could not be read."""

    window: Window
    runs: tuple[Run, ...]
    rejected: tuple[RejectedRow, ...] = ()


def newest(runs: Iterable[Run]) -> Collection[Run]:
    """One run per key: of several the one that ended last, else the last named."""
    found: dict[str, Run] = {}
    for run in runs:
        old = found.get(run.key)
        if old is None or _end(run) >= _end(old):
            found[run.key] = run
    return found.values()


def _end(run: Run) -> datetime:
    return run.end or datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TickReport:
    """One tick as it is recorded."""

    at: datetime
    finished: datetime
    ranking: Ranking
    changes: tuple[Change, ...]
    pushed: bool
    window: Window
    unknown_accounts: tuple[str, ...] = ()
    unbudgeted_accounts: tuple[str, ...] = ()
