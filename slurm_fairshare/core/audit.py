"""The ledger against slurmdbd: run by run and in totals, every difference with its cause.

Two readings of the same stretch are compared: what the ledger counts, and what slurmdbd says now. Seconds are compared
inside the stretch, so a run that has ended since the last poll is no difference as long as its end lies behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from slurm_fairshare.core.runs import RejectedRow, Run
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Window, whole_second


class Basis(Enum):
    """What the time that a run counts rests on."""

    ENDED = "ended"
    """Accounting closed it."""
    RUNNING = "running"
    """Accounting has no end, and slurmctld shows it alive (or cannot know it yet): it counts up to now."""
    RUNAWAY = "runaway"
    """Accounting has no end, and slurmctld does not know it: it counts as long as it was seen alive."""
    QUEUE = "queue"
    """slurmctld shows it alive and accounting does not know it (yet)."""
    SIGHTING = "sighting"
    """It was seen alive, has left the queue, and accounting does not know it (yet)."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A run as it counts: half-open `[start, until)`, `until` None up to now. `key` is "" where no row is behind it."""

    key: str
    job_id: int
    label: str
    account: str
    user: str
    qos: str
    state: str
    gpus: Mapping[str, int]
    milli_gpus: int
    charged: bool
    start: datetime
    until: datetime | None
    basis: Basis

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())

    def seconds(self, window: Window, now: datetime) -> int:
        """Whole seconds inside the window."""
        start = max(whole_second(self.start), whole_second(window.start))
        end = min(whole_second(self.until if self.until is not None else now), whole_second(window.end))
        return max(0, end - start)


def counted(run: Run) -> Counted | None:
    """A row of accounting, taken at its word; None for one that never started."""
    if run.start is None:
        return None
    return Counted(
        key=run.key,
        job_id=run.job_id,
        label=run.label,
        account=run.account,
        user=run.user,
        qos=run.qos,
        state=run.state,
        gpus=run.held.gpus,
        milli_gpus=run.milli_gpus,
        charged=run.charged,
        start=run.start,
        until=run.end,
        basis=Basis.RUNNING if run.end is None else Basis.ENDED,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing on which the two disagree. `gpu_seconds`: how much more the ledger counts in the stretch."""

    what: str
    key: str
    label: str
    account: str
    ledger: str
    slurm: str
    gpu_seconds: int
    cause: str


@dataclass(frozen=True, slots=True)
class Total:
    """GPU-seconds of an account in the stretch, unweighted."""

    ledger_charged: int = 0
    ledger_unallocated: int = 0
    slurm_charged: int = 0
    slurm_unallocated: int = 0

    def plus(self, other: Total) -> Total:
        return Total(
            self.ledger_charged + other.ledger_charged,
            self.ledger_unallocated + other.ledger_unallocated,
            self.slurm_charged + other.slurm_charged,
            self.slurm_unallocated + other.slurm_unallocated,
        )


@dataclass(frozen=True)
class Audit:
    """What came out of comparing a stretch."""

    window: Window
    runs: int
    differences: tuple[Difference, ...]
    totals: Mapping[str, Total]


MISSED = (
    "slurmdbd learnt of it after this time was read, further back than polls overlap; `audit --repair` takes it over"
)
GONE = "slurmdbd has it no more (purged or archived); the ledger keeps it"
CHANGED = "slurmdbd changed it after it was read; `audit --repair` takes the change over"
SINCE = "it ended after the last poll; the next one brings its end"
RUNAWAY = (
    "slurmdbd shows it running and slurmctld does not know it: it counts as long as it was seen alive. "
    "`sacctmgr show runawayjobs` mends slurmdbd"
)
NOT_YET = "slurmctld had it running and slurmdbd does not know it (yet): is slurmctld's queue to slurmdbd behind?"
PRICED = "it was charged by another rule or other resources of the cluster; the next tick prices it anew"
UNREADABLE = "the row cannot be read; it is kept with its reason among the rejected rows and counts nothing"
ROLLUP = "the hourly roll-ups are not the sum of the runs: somebody wrote there; `database rebuild` makes them anew"


def compare(
    ledger: Sequence[Counted],
    slurm: Iterable[Counted],
    window: Window,
    now: datetime,
    rejected: Sequence[RejectedRow] = (),
) -> Audit:
    """Compare what the ledger counts with slurmdbd's rows inside the window. Accounts by their key, differences in
    the order of the runs' starts."""
    mine = {one.key: one for one in ledger if one.key and one.seconds(window, now)}
    theirs = {one.key: one for one in slurm if one.seconds(window, now)}
    without_row = {(one.job_id, one.start): one for one in ledger if not one.key and one.seconds(window, now)}
    found: list[tuple[datetime, Difference]] = []
    for key, row in theirs.items():
        here = mine.get(key)
        if here is None:
            here = without_row.pop((row.job_id, row.start), None)
        found += [(row.start, difference) for difference in _of_run(here, row, window, now)]
    lost = [one for key, one in mine.items() if key not in theirs]
    found += [(one.start, _only_here(one, GONE, window, now)) for one in lost]
    found += [(one.start, _only_here(one, NOT_YET, window, now)) for one in without_row.values()]
    ordered = [difference for _, difference in sorted(found, key=lambda pair: (pair[0], pair[1].key, pair[1].what))]
    unread = [
        Difference("row", "", row.text[:60], "", "", row.text[:200], 0, f"{UNREADABLE}: {row.reason}")
        for row in rejected
    ]
    everything = (*mine.values(), *(one for one in ledger if not one.key and one.seconds(window, now)))
    return Audit(
        window=window,
        runs=len(theirs.keys() | mine.keys()),
        differences=(*ordered, *unread),
        totals=_totals(everything, theirs.values(), window, now),
    )


def _of_run(here: Counted | None, row: Counted, window: Window, now: datetime) -> list[Difference]:
    if here is None:
        return [_difference("run", row, "not there", "there", -_gpu_seconds(row, window, now), MISSED)]
    more = _gpu_seconds(here, window, now) - _gpu_seconds(row, window, now)
    found = [
        _difference(what, row, ledger, slurm, 0, CHANGED)
        for what, ledger, slurm in (
            ("account", account_key(here.account), account_key(row.account)),
            ("user", here.user, row.user),
            ("qos", here.qos, row.qos),
            ("gpus", _spelt(here.gpus), _spelt(row.gpus)),
            ("charged", _yes(here.charged), _yes(row.charged)),
            *_states(here, row),
        )
        if ledger != slurm
    ]
    mine, theirs = here.seconds(window, now), row.seconds(window, now)
    if mine != theirs:
        found.append(_difference("seconds", row, str(mine), str(theirs), 0, _why_seconds(here, row)))
    elif here.milli_gpus != row.milli_gpus and here.gpus == row.gpus:
        found.append(_difference("price", row, str(here.milli_gpus), str(row.milli_gpus), 0, PRICED))
    # What the ledger counts more is told once, however many things differ.
    return [replace(found[0], gpu_seconds=more), *found[1:]] if found else []


def _states(here: Counted, row: Counted) -> list[tuple[str, str, str]]:
    both_ended = here.basis is Basis.ENDED and row.basis is Basis.ENDED
    return [("state", here.state, row.state)] if both_ended else []


def _why_seconds(here: Counted, row: Counted) -> str:
    if here.basis is Basis.RUNAWAY:
        return RUNAWAY if row.until is None else SINCE
    if here.basis in (Basis.QUEUE, Basis.SIGHTING, Basis.RUNNING) and row.until is not None:
        return SINCE
    return CHANGED


def _only_here(one: Counted, cause: str, window: Window, now: datetime) -> Difference:
    return _difference("run", one, "there", "not there", _gpu_seconds(one, window, now), cause)


def _difference(what: str, one: Counted, ledger: str, slurm: str, gpu_seconds: int, cause: str) -> Difference:
    return Difference(what, one.key, one.label, one.account, ledger, slurm, gpu_seconds, cause)


def _gpu_seconds(one: Counted, window: Window, now: datetime) -> int:
    return one.gpu_count * one.seconds(window, now)


def _spelt(gpus: Mapping[str, int]) -> str:
    """
    >>> _spelt({"h100": 2, "": 1})
    '1, h100:2'
    """
    return ", ".join(f"{kind}:{gpus[kind]}" if kind else str(gpus[kind]) for kind in sorted(gpus) if gpus[kind])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _totals(ledger: Iterable[Counted], slurm: Iterable[Counted], window: Window, now: datetime) -> dict[str, Total]:
    found: dict[str, Total] = {}
    for here, side in ((True, ledger), (False, slurm)):
        for one in side:
            amount = _gpu_seconds(one, window, now)
            charged, free = (amount, 0) if one.charged else (0, amount)
            part = Total(charged, free, 0, 0) if here else Total(0, 0, charged, free)
            key = account_key(one.account)
            found[key] = found.get(key, Total()).plus(part)
    return {key: found[key] for key in sorted(found) if found[key] != Total()}


def joined(parts: Sequence[Audit]) -> Audit:
    """Audits of adjacent stretches as one. A run that differs in several is told once, with its sums."""
    merged: dict[tuple[str, str, str], Difference] = {}
    for part in parts:
        for one in part.differences:
            key = (one.what, one.key, one.label)
            before = merged.get(key)
            if before is None:
                merged[key] = one
            elif one.key:
                merged[key] = replace(one, gpu_seconds=before.gpu_seconds + one.gpu_seconds)
    totals: dict[str, Total] = {}
    for part in parts:
        for account, total in part.totals.items():
            totals[account] = totals.get(account, Total()).plus(total)
    window = Window(parts[0].window.start, parts[-1].window.end)
    return Audit(window, sum(part.runs for part in parts), tuple(merged.values()), dict(sorted(totals.items())))


def rollup_differences(hours: int) -> tuple[Difference, ...]:
    """What it means that so many hours of accounts are not what their runs say."""
    if not hours:
        return ()
    return (Difference("roll-up", "", f"{hours} hours of accounts", "", "differ", "", 0, ROLLUP),)


Reported = Mapping[tuple[str, str], int]
"""GPU-seconds by account key and user."""


def expected_report(ledger: Iterable[Counted], window: Window, now: datetime) -> Reported:
    """What sreport should say of the window by the ledger. A suspended run holds its GPUs: slurmdbd takes the time of a
    suspension from CPUs alone, as the ledger takes it from nothing."""
    found: dict[tuple[str, str], int] = {}
    for one in ledger:
        amount = _gpu_seconds(one, window, now)
        if amount:
            key = (account_key(one.account), one.user)
            found[key] = found.get(key, 0) + amount
    return found


SREPORT = (
    "sreport's hours are rolled up by slurmdbd itself: it may be late, it counts reservations that stood idle, and it "
    "keeps what a run said when its hour was rolled up"
)


def report_differences(expected: Reported, reported: Reported) -> tuple[Difference, ...]:
    """Where sreport and the ledger disagree on an account's user."""
    return tuple(
        Difference(
            "sreport",
            "",
            user,
            account,
            str(expected.get((account, user), 0)),
            str(reported.get((account, user), 0)),
            expected.get((account, user), 0) - reported.get((account, user), 0),
            SREPORT,
        )
        for account, user in sorted(expected.keys() | reported.keys())
        if expected.get((account, user), 0) != reported.get((account, user), 0)
    )


def whole_hours(window: Window) -> Window | None:
    """The whole hours of UTC inside the window, None if there is none."""
    hours = [hour for hour in window.hours() if hour.seconds == 3600]
    return Window(hours[0].start, hours[-1].end) if hours else None
