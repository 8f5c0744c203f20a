"""`waits`: how long jobs waited for their first start, by kind of job or by team, before and after a date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from slurm_fairshare.core.classes import Classes, Kind
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.waits import Wait, percentile, waits_of_queue, waits_of_runs
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import duration, moment

ALL = "all"
KINDS = tuple(kind.value for kind in Kind)

BEFORE = timedelta(days=7)
"""So far before a period runs are read to tell which of its runs follow a requeue."""


class Runs(Protocol):
    """What is asked of the store."""

    def runs(self, window: Window) -> tuple[Run, ...]: ...

    def latest_queue(self) -> Picture | None: ...


def gathered(store: Runs, asked: Window, classes: Classes, ladder: Ladder) -> tuple[Wait, ...]:
    """Waits that ended in the period, and those of the last picture that go on, if it lies in the period."""
    ended = waits_of_runs(store.runs(Window(asked.start - BEFORE, asked.end)), classes)
    picture = store.latest_queue()
    if picture is None or not asked.start <= picture.at <= asked.end:
        return ended
    return (*ended, *waits_of_queue(picture, classes, ladder))


@dataclass(frozen=True, slots=True)
class WaitRow:
    """The waits of one group in one part of the period; seconds."""

    period: str
    kind: str
    account: str
    waited: tuple[float, ...]
    """For a first start, the shortest first."""
    waited_again: tuple[float, ...]
    """After a requeue, the shortest first."""
    waiting: int

    @property
    def jobs(self) -> int:
        return len(self.waited)

    @property
    def again(self) -> int:
        return len(self.waited_again)

    def first(self, part: float) -> float | None:
        return percentile(self.waited, part)

    def after_requeue(self, part: float) -> float | None:
        return percentile(self.waited_again, part)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the period with its name: "" for the whole, else "before" or "after"."""

    name: str
    window: Window


def parts_of(window: Window, before: datetime | None, after: datetime | None) -> tuple[Part, ...]:
    """The period, or what lies before one moment and what lies after another (the same one if only one is given)."""
    if before is None and after is None:
        return (Part("", window),)
    first, second = before or after, after or before
    assert first is not None and second is not None  # noqa: S101, PT018  one of the two is given
    parts = (window.cut(window.start, first), window.cut(second, window.end))
    return tuple(Part(name, part) for name, part in zip(("before", "after"), parts, strict=True) if part is not None)


def wait_rows(
    waits: Iterable[Wait], parts: Sequence[Part], *, teams: bool = False, accounts: Sequence[str] = ()
) -> tuple[WaitRow, ...]:
    """A row for each kind of job, or for each team and kind, and one for all; for each part of the period."""
    groups: dict[tuple[str, str, str], list[Wait]] = {}
    names = set() if teams else {ALL}
    for wait in waits:
        if accounts and wait.account not in accounts:
            continue
        account = wait.account if teams else ALL
        names.add(account)
        for part in parts:
            if _inside(wait, part.window):
                for kind in (wait.kind.value, ALL):
                    groups.setdefault((account, kind, part.name), []).append(wait)
    return tuple(
        _row(account, kind, part.name, groups.get((account, kind, part.name), ()))
        for account in sorted(names)
        for kind in (*KINDS, ALL)
        for part in parts
        if (account, kind, part.name) in groups or (kind == ALL and not teams)
    )


def _inside(wait: Wait, window: Window) -> bool:
    return window.start <= wait.at < window.end or (wait.waiting and wait.at == window.end)


def _row(account: str, kind: str, period: str, waits: Sequence[Wait]) -> WaitRow:
    return WaitRow(
        period=period,
        kind=kind,
        account=account,
        waited=tuple(sorted(wait.seconds for wait in waits if not wait.again)),
        waited_again=tuple(sorted(wait.seconds for wait in waits if wait.again)),
        waiting=sum(1 for wait in waits if wait.waiting and not wait.again),
    )


def _at(part: float) -> Callable[[WaitRow], float | None]:
    return lambda row: row.first(part)


def _again(part: float) -> Callable[[WaitRow], float | None]:
    return lambda row: row.after_requeue(part)


def _whole(value: float) -> str:
    return str(round(value))


COLUMNS: tuple[Column[WaitRow], ...] = (
    Column("Account", lambda row: row.account, "account, or `all`", elastic=True),
    Column("Class", lambda row: row.kind, "kind of job: debug, small, medium, large, unallocated, or all of them"),
    Column("Period", lambda row: row.period, "before or after the date, where one was given"),
    Column("Jobs", lambda row: row.jobs, "jobs that started first in this time or wait for it", right=True),
    Column("P50", _at(0.5), "half of them waited no longer, in seconds", duration, plain=_whole, right=True),
    Column("P90", _at(0.9), "90% of them waited no longer, in seconds", duration, plain=_whole, right=True),
    Column("P99", _at(0.99), "99% of them waited no longer, in seconds", duration, plain=_whole, right=True, spare=1),
    Column("Max", _at(1.0), "the longest wait, in seconds", duration, plain=_whole, right=True, spare=2),
    Column(
        "Waiting", lambda row: row.waiting, "of the jobs, those that wait still, counted as so far", right=True, spare=3
    ),
    Column("Again", lambda row: row.again, "waits after a requeue, which stand apart", right=True, spare=4),
    Column(
        "AgainP50",
        _again(0.5),
        "half of these lasted no longer, in seconds",
        duration,
        plain=_whole,
        right=True,
        spare=5,
    ),
    Column(
        "AgainP90",
        _again(0.9),
        "90% of these lasted no longer, in seconds",
        duration,
        plain=_whole,
        right=True,
        spare=6,
    ),
)
NUMBERS = ("Jobs", "P50", "P90", "P99", "Max", "Waiting", "Again", "AgainP50", "AgainP90")


def report(rows: Sequence[WaitRow], parts: Sequence[Part], classes: Classes, *, teams: bool = False) -> Report[WaitRow]:
    """Waits of the given parts of a period."""
    split = [part for part in parts if part.name]
    shown = (*(("Account",) if teams else ()), "Class", *(("Period",) if split else ()), *NUMBERS)
    told = [_span(part) for part in parts]
    return Report(
        noun="waits",
        columns=COLUMNS,
        rows=rows,
        shown=shown,
        script=("Account", "Class", "Period", *NUMBERS),
        above=(*told, "From the moment a job could have started to its first start; jobs by when they started."),
        below=(
            "; ".join(f"{kind.value}: {classes.about(kind)}" for kind in Kind) + ".",
            "A job that waits still counts as long as it has waited so far. Requeue delays are no wait.",
        ),
        facts={
            "periods": {part.name or "all": {"since": part.window.start, "until": part.window.end} for part in parts},
            "zone": "UTC",
            "units": "seconds",
            "classes": {kind.value: classes.about(kind) for kind in Kind},
        },
        empty="No job started or waited in this time.",
    )


def _span(part: Part) -> str:
    window = part.window
    name = f"{part.name.capitalize()}: from" if part.name else "From"
    return f"{name} {moment(window.start)} to {moment(window.end)} ({duration(window.seconds)}, UTC)."
