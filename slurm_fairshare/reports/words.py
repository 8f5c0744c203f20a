"""How a node stands and how old the data is, in words: the same words in every report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from slurm_fairshare.core.fairshare import Standing
from slurm_fairshare.core.window import Window
from slurm_fairshare.units import duration, moment, percent

ON_TARGET = 0.005
"""Up to so far from its entitlement a node is said to be on target: half of the last digit shown."""

STALE_TICKS = 3
"""Data older than so many tick intervals is called stale."""


def standing_short(standing: Standing) -> str:
    """How a node stands, for a column: never a bare number whose good end one has to know.

    >>> standing_short(Standing(100.0, 140.0, 0.5)), standing_short(Standing(100.0, 88.0, 0.5))
    ('over 40%', 'under 12%')
    """
    return standing_words(standing).replace(" target by", "").partition(":")[0]


def standing_words(standing: Standing) -> str:
    """
    >>> standing_words(Standing(100.0, 140.0, 0.5)), standing_words(Standing(100.0, 100.0, 0.5))
    ('over target by 40%', 'on target')
    """
    if standing.share <= 0:
        return "no share: never owed anything, comes last"
    if standing.entitlement <= 0:
        return "new: nothing owed yet, comes first"
    off = standing.ratio - 1
    if abs(off) < ON_TARGET:
        return "on target"
    return f"{'over' if off > 0 else 'under'} target by {percent(round(abs(off), 2))}"


def standing_paint(standing: Standing | None) -> str:
    """Over target is red, under target green, on a terminal only and always beside the words."""
    if standing is None or standing.share <= 0 or standing.entitlement <= 0:
        return ""
    if abs(standing.ratio - 1) < ON_TARGET:
        return ""
    return "red" if standing.ratio > 1 else "green"


@dataclass(frozen=True, slots=True)
class Basis:
    """What the numbers of a report stand on: the window they cover, when they were computed, when they are read.

    `interval` is the time between two ticks. `window` is None for what is no sum over time.
    """

    at: datetime
    now: datetime
    interval: timedelta
    window: Window | None = None
    half_life: timedelta | None = None

    @property
    def age(self) -> timedelta:
        return max(self.now - self.at, timedelta(0))

    @property
    def stale(self) -> bool:
        return self.age > STALE_TICKS * self.interval

    def lines(self) -> tuple[str, ...]:
        """The sentences above a table; the first says STALE where it is."""
        age = duration(self.age.total_seconds())
        if self.window is None:
            told = f"As of {moment(self.at)} (UTC), {age} ago."
        else:
            length = duration(self.window.seconds)
            told = (
                f"Window {moment(self.window.start)} to {moment(self.window.end)} ({length}, UTC), computed {age} ago."
            )
        if self.half_life is not None:
            told += f" What counts halves every {duration(self.half_life.total_seconds())}."
        return (self.warning(), told) if self.stale else (told,)

    def warning(self) -> str:
        age, interval = duration(self.age.total_seconds()), duration(self.interval.total_seconds())
        return (
            f"STALE: these numbers are {age} old, although there should be a tick every {interval}: "
            "the daemon is down or cannot read Slurm or Postgres. Slurm goes on with its last priorities."
        )

    def facts(self) -> dict[str, Any]:
        told: dict[str, Any] = {"computed": self.at, "age_seconds": self.age.total_seconds(), "stale": self.stale}
        if self.window is not None:
            told |= {"window_start": self.window.start, "window_end": self.window.end, "zone": "UTC"}
        return told
