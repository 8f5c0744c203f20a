"""`habits`: how teams and users use the contract. Facts without judgement: there are good reasons for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from slurm_fairshare.core.contract import Ladder, Priority
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.waits import STOPPED, percentile
from slurm_fairshare.core.window import Window, overlap_seconds
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import HOUR, duration, moment

ALL = "all"


@dataclass(frozen=True, slots=True)
class Habit:
    """One team or user over a window. GPU-seconds; `declared` and `ran` are seconds of charged runs that ended."""

    account: str
    user: str
    runs: int
    charged: float
    unallocated: float
    declared: tuple[int, ...]
    ran: tuple[float, ...]
    at_cap: int
    ended_before: int
    low: int
    normal: int
    high: int
    idle: float | None

    @property
    def unallocated_part(self) -> float | None:
        whole = self.charged + self.unallocated
        return self.unallocated / whole if whole else None

    def part(self, count: int) -> float | None:
        """Of the charged runs that ended by themselves."""
        return count / len(self.declared) if self.declared else None


def habits(
    runs: Iterable[Run], window: Window, now: datetime, ladder: Ladder, busy: Mapping[str, float]
) -> tuple[Habit, ...]:
    """All together, then each account with its users. Only runs that held GPUs inside the window."""
    everything: list[Held] = []
    accounts: dict[str, list[Held]] = {}
    users: dict[str, dict[str, list[Held]]] = {}
    for run in runs:
        held = run.held.gpu_count * overlap_seconds(run, window, now) if run.held.gpu_count else 0
        if held:
            account = account_key(run.account)
            everything.append((run, held))
            accounts.setdefault(account, []).append((run, held))
            users.setdefault(account, {}).setdefault(run.user, []).append((run, held))
    found = [_habit(ALL, "", everything, ladder, busy)]
    for account in sorted(accounts):
        found.append(_habit(account, "", accounts[account], ladder, busy))
        found.extend(_habit(account, user, mine, ladder, busy) for user, mine in sorted(users[account].items()))
    return tuple(found)


Held = tuple[Run, int]
"""A run and the GPU-seconds it held inside the window."""


def _habit(account: str, user: str, runs: Sequence[Held], ladder: Ladder, busy: Mapping[str, float]) -> Habit:
    charged = [(run, held) for run, held in runs if run.charged]
    ended = [
        (run, run.contract.min_runtime)
        for run, _ in charged
        if run.end is not None and run.state not in STOPPED and run.contract is not None
    ]
    said = [run.contract.priority for run, _ in charged if run.contract is not None]
    known = [(run, held) for run, held in runs if run.key in busy]
    return Habit(
        account=account,
        user=user,
        runs=len(runs),
        charged=sum(held for _, held in charged),
        unallocated=sum(held for run, held in runs if not run.charged),
        declared=tuple(declared for _, declared in ended),
        ran=tuple(_length(run) for run, _ in ended),
        at_cap=sum(1 for _, declared in ended if declared >= ladder.cap),
        ended_before=sum(1 for run, declared in ended if _length(run) < declared),
        low=said.count(Priority.LOW),
        normal=said.count(Priority.NORMAL),
        high=said.count(Priority.HIGH),
        idle=sum(held * (1 - busy[run.key]) for run, held in known) if known else None,
    )


def _length(run: Run) -> float:
    return (run.end - run.start).total_seconds() if run.end is not None and run.start is not None else 0.0


def select(found: Sequence[Habit], accounts: Sequence[str] = (), *, users: bool = False) -> tuple[Habit, ...]:
    wanted = {account_key(name) for name in accounts}
    return tuple(one for one in found if (users or not one.user) and (not wanted or one.account in wanted))


def _percent(value: float) -> str:
    return f"{value * 100:.0f}%"


def _hours(value: float) -> str:
    return f"{value:,.1f}"


def _plain_hours(value: float) -> str:
    return f"{value:.2f}"


def _whole(value: float) -> str:
    return str(round(value))


COLUMNS: tuple[Column[Habit], ...] = (
    Column("Account", lambda one: one.account, "account, or `all`", elastic=True),
    Column("User", lambda one: one.user, "user, on the lines of users"),
    Column("Runs", lambda one: one.runs, "runs that held GPUs in this time", right=True),
    Column(
        "Charged", lambda one: one.charged / HOUR, "GPU-hours a budget paid for", _hours, plain=_plain_hours,
        right=True, spare=6,
    ),
    Column(
        "Unallocated", lambda one: one.unallocated / HOUR, "GPU-hours nobody paid for", _hours, plain=_plain_hours,
        right=True, spare=5, head="Unalloc",
    ),
    Column(
        "UnallocatedPart", lambda one: one.unallocated_part, "unallocated as a fraction of all it held", _percent,
        right=True, head="Unalloc%",
    ),
    Column(
        "Declared", lambda one: percentile(one.declared, 0.5),
        "median minimum runtime of charged runs that ended by themselves, in seconds", duration, plain=_whole,
        right=True,
    ),
    Column(
        "Ran", lambda one: percentile(one.ran, 0.5), "median length of these runs, in seconds", duration,
        plain=_whole, right=True,
    ),
    Column(
        "EndedBefore", lambda one: one.part(one.ended_before),
        "fraction of these runs that were shorter than the minimum runtime they declared", _percent, right=True,
        head="Shorter",
    ),
    Column(
        "AtCap", lambda one: one.part(one.at_cap), "fraction of these runs that declared the longest there is",
        _percent, right=True, spare=1,
    ),
    Column(
        "Idle", lambda one: None if one.idle is None else one.idle / HOUR,
        "GPU-hours held while the GPUs did nothing, where gres/gpuutil is known",
        _hours, plain=_plain_hours, right=True, spare=4,
    ),
    Column("Low", lambda one: one.low, "charged runs of in-team priority low", right=True, spare=3),
    Column("Normal", lambda one: one.normal, "charged runs of in-team priority normal", right=True, spare=3),
    Column("High", lambda one: one.high, "charged runs of in-team priority high", right=True, spare=2),
)  # fmt: skip
TABLE = tuple(column.name for column in COLUMNS if column.name != "User")
WITH_USERS = tuple(column.name for column in COLUMNS)


def report(found: Sequence[Habit], window: Window, *, users: bool = False, known: bool = False) -> Report[Habit]:
    """Habits in a window. `known`: whether any run has gres/gpuutil."""
    notes = () if known else ("Idle is unknown: no run of this time has gres/gpuutil in accounting.",)
    return Report(
        noun="habits",
        columns=COLUMNS,
        rows=found,
        shown=WITH_USERS if users else TABLE,
        script=WITH_USERS,
        above=(
            f"From {moment(window.start)} to {moment(window.end)} ({duration(window.seconds)}, UTC). GPU-hours.",
            "Declared, Ran, Shorter, AtCap: of charged runs that ended by themselves.",
        ),
        below=notes,
        facts={"since": window.start, "until": window.end, "zone": "UTC", "units": "GPU-hours, seconds"},
        empty="Nothing ran in this time.",
    )
