"""How the product itself does: how old each thing is that it knows, who leads, what has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.reports.words import STALE_TICKS
from slurm_fairshare.store.facts import Failure
from slurm_fairshare.store.tallies import Tallies
from slurm_fairshare.units import duration, moment


class State(IntEnum):
    """As monitoring systems number it; the worst is the command's exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """From what age on something is late, and from what age on nobody is stopped on it any more."""

    interval: timedelta
    max_age: timedelta

    @property
    def late(self) -> timedelta:
        return min(STALE_TICKS * self.interval, self.max_age)


@dataclass(frozen=True, slots=True)
class Source:
    """One thing that is known, and when it was last true. `limits` None: its age is no fault. `why`: what keeps it from
    being newer, where that is known."""

    name: str
    at: datetime | None
    about: str
    now: datetime
    limits: Limits | None = None
    why: str = ""

    @property
    def age(self) -> timedelta | None:
        return None if self.at is None else self.now - self.at

    @property
    def state(self) -> State:
        if self.limits is None:
            return State.OK
        if self.age is None or self.age > self.limits.max_age:
            return State.CRITICAL
        return State.WARNING if self.age > self.limits.late else State.OK


@dataclass(frozen=True, slots=True)
class Leader:
    """Who led last; `held`: whether anybody leads at this moment. A `tick` from cron leads only while it runs."""

    host: str
    pid: int
    since: datetime
    held: bool

    @property
    def words(self) -> str:
        if not self.held:
            return f"nobody at this moment (last {self.host}, process {self.pid}, from {moment(self.since)})"
        return f"{self.host}, process {self.pid}, since {moment(self.since)}"


@dataclass(frozen=True)
class Status:
    """All of it. `pending`: differences between Slurm and what it should hold; None before the first plan.
    `pool`: its nodes and what debug jobs asked for lately, as the tick remembers them; None without a pool of ours.
    `most_unallocated`: GPUs that unallocated jobs may hold together; None without a limit of ours."""

    now: datetime
    cluster: str
    sources: Sequence[Source]
    leader: Leader | None
    held: bool
    push: bool
    pending: int | None
    pushed: int | None
    took: timedelta | None
    skew: float | None
    pool: Mapping[str, Any] | None = None
    most_unallocated: int | None = None
    failures: Sequence[Failure] = ()
    tallies: Tallies = field(default_factory=Tallies)

    def faults(self) -> list[tuple[State, str]]:
        """What is not as it should be, the worst first."""
        found = [(one.state, f"{one.name} is {_old(one)}") for one in self.sources if one.state is not State.OK]
        if self.failures:
            last = self.failures[-1]
            found.append(
                (State.WARNING, f"{_failed(len(self.failures))} since, the last at {last.phase}: {last.error}")
            )
        if self.push and self.pending:
            found.append((State.WARNING, f"{_differences(self.pending)} not pushed"))
        if self.tallies.rejected_since:
            found.append((State.WARNING, f"{self.tallies.rejected_since} new rows of Slurm could not be read"))
        return sorted(found, key=lambda one: -one[0])

    @property
    def state(self) -> State:
        return max((state for state, _ in self.faults()), default=State.OK)

    def headline(self) -> str:
        """One line, as monitoring systems show it."""
        faults = "; ".join(words for _, words in self.faults())
        return f"{self.state.name}: {faults or 'all is as it should be'}"


def _old(source: Source) -> str:
    age = "not known yet" if source.age is None else f"{duration(source.age.total_seconds())} old"
    return f"{age}: {source.why}" if source.why else age


def _failed(count: int) -> str:
    return f"{count} failure" if count == 1 else f"{count} failures"


def _differences(count: int) -> str:
    return f"{count} difference" if count == 1 else f"{count} differences"


COLUMNS: tuple[Column[Source], ...] = (
    Column("Source", lambda row: row.name, "What is known."),
    Column("At", lambda row: row.at, "When it was last read, computed or done; UTC."),
    Column(
        "Age",
        lambda row: row.age,
        "How long ago; seconds for programs.",
        show=lambda age: duration(age.total_seconds()),
        right=True,
    ),
    Column(
        "State", lambda row: row.state.name, "OK, WARNING (late) or CRITICAL (older than rebalance.max_age).", show=str
    ),
    Column(
        "About",
        lambda row: f"{row.about}; {row.why}" if row.why else row.about,
        "What it is for, and why it is no newer where that is known.",
        spare=1,
    ),
)


def report(status: Status) -> Report[Source]:
    return Report(
        noun="sources",
        columns=COLUMNS,
        rows=status.sources,
        shown=("Source", "At", "Age", "State", "About"),
        script=("Source", "At", "Age", "State"),
        above=(status.headline(), *_sentences(status)),
        facts=_facts(status),
    )


def _sentences(status: Status) -> list[str]:
    told = [f"Leader of {status.cluster}: {status.leader.words if status.leader else _unknown(status.held)}."]
    took = f" It took {duration(status.took.total_seconds())}." if status.took is not None else ""
    if status.pending is not None:
        mode = "" if status.push else " (daemon.push is off: everything is computed and shown, nothing is changed)"
        told.append(f"Slurm differs from what it should hold by {_differences(status.pending)}{mode}.{took}")
    if status.skew is not None and abs(status.skew) >= 1:
        side = "ahead of" if status.skew > 0 else "behind"
        told.append(f"slurmctld's clock is {duration(abs(status.skew))} {side} the daemon's.")
    if status.pool is not None:
        told.append(_pool_words(status.pool))
    if status.most_unallocated is not None:
        told.append(f"Unallocated jobs may hold {status.most_unallocated} GPUs together (contract.headroom).")
    rejected = sum(status.tallies.rejected.values())
    if rejected:
        told.append(
            f"{rejected} rows of Slurm could not be read and count for nobody (kept in the table rejected_row)."
        )
    told += [f"Failed at {moment(one.at)}, {one.phase}: {one.error}" for one in status.failures[-5:]]
    return told


def _pool_words(pool: Mapping[str, Any]) -> str:
    gpus = [gpus for _, gpus in pool["asked"]]
    most = f", at most {max(gpus)} lately" if max(gpus) > gpus[-1] else ""
    return f"The pool has {pool['nodes']} of {pool['of']} nodes; debug jobs ask for {gpus[-1]} GPUs{most}."


def _unknown(held: bool) -> str:
    return "somebody who has not said who it is" if held else "nobody yet"


def _facts(status: Status) -> Mapping[str, Any]:
    leader = status.leader
    return {
        "state": status.state.name,
        "faults": [words for _, words in status.faults()],
        "cluster": status.cluster,
        "leader": None
        if leader is None
        else {"host": leader.host, "pid": leader.pid, "since": leader.since, "leads_now": leader.held},
        "push": status.push,
        "pending_differences": status.pending,
        "pushed_differences": status.pushed,
        "tick_seconds": status.took,
        "clock_skew_seconds": status.skew,
        "pool": None
        if status.pool is None
        else {"nodes": status.pool["nodes"], "of": status.pool["of"], "gpus_asked": status.pool["asked"][-1][1]},
        "most_unallocated_gpus": status.most_unallocated,
        "failures": [{"at": one.at, "phase": one.phase, "error": one.error} for one in status.failures],
        "failures_last_day": status.tallies.failures_since,
        "rejected_rows": sum(status.tallies.rejected.values()),
        "rejected_rows_last_day": status.tallies.rejected_since,
    }
