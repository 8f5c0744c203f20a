"""`queue`: the pending jobs in the order in which Slurm takes them, then what runs and until when it is protected."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from slurm_fairshare.core.booking import Booking, in_words
from slurm_fairshare.core.cluster import COMPLETING, RUNNING, Job
from slurm_fairshare.core.contract import Contract, Ladder, spell
from slurm_fairshare.core.fairshare import Ranked, Ranking
from slurm_fairshare.core.rebalance import can_be_stopped, queue_order
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.reports.words import Basis, standing_paint, standing_short
from slurm_fairshare.units import duration, moment

STATES = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "STOPPED": "ST",
    "SIGNALING": "SI",
    "STAGE_OUT": "SO",
}
"""squeue's short names of the states that occur in a queue."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One job of the queue as it was at the last picture. `position` counts pending jobs from 1."""

    job: Job
    leaf: Ranked | None
    charged: bool
    now: datetime
    position: int | None = None
    booked: Booking | None = None
    """The nodes that are kept for it."""
    lifted: bool = False
    """Whether it stands at the first rank, as a large job that has waited long."""

    @property
    def since(self) -> timedelta:
        """How long it has waited since it could have started, or how long this run has lasted."""
        begin = self.job.start if self.job.holding else (self.job.eligible or self.job.submit)
        return max(self.now - begin, timedelta(0)) if begin is not None else timedelta(0)

    @property
    def protected_until(self) -> datetime | None:
        return self.job.protected_until() if self.job.holding and self.charged else None

    @property
    def may_yield(self) -> bool:
        """Whether this run may be stopped now for a job of a side that is further behind, or by Slurm itself."""
        if not self.job.holding or self.job.state == COMPLETING:
            return False
        if not self.charged:
            return self.unallocated
        until = self.protected_until
        return (
            self.job.state == RUNNING
            and self.leaf is not None
            and until is not None
            and until <= self.now
            and can_be_stopped(self.job)
        )

    @property
    def unallocated(self) -> bool:
        contract = self.job.contract
        return not self.charged and (contract is None or contract.min_runtime == 0)

    @property
    def kept(self) -> str:
        """The nodes that are kept for it, in words."""
        return in_words(self.booked) if self.booked is not None else ""

    def note(self) -> str:
        """Running: until when it is protected. Pending: Slurm's reason, in brackets as in squeue."""
        job = self.job
        if job.pending:
            more = [*(["at the first rank"] if self.lifted else []), *([self.kept] if self.kept else [])]
            return f"({'; '.join([job.reason or 'none yet', *more])})"
        if job.state == COMPLETING:
            return "leaving"
        if not self.charged:
            return "may yield any time"
        until = self.protected_until
        if until is None:
            return "left alone: contract unreadable"
        if until > self.now:
            return f"until {moment(until)[11:16]}Z"
        return "may yield now" if self.may_yield else "left alone"


def queue_rows(
    jobs: Collection[Job],
    ranking: Ranking | None,
    ladder: Ladder,
    now: datetime,
    booked: Mapping[int, Booking] = MappingProxyType({}),
    lifted: Collection[int] = (),
) -> tuple[QueueRow, ...]:
    """Pending jobs in Slurm's order, then jobs that hold GPUs, the oldest run first. `booked` tells by a job's number
    which nodes are kept for it, `lifted` names those that stand at the first rank."""

    def row(job: Job, position: int | None = None) -> QueueRow:
        leaf = ranking.leaf(job.account) if ranking is not None else None
        kept, first = booked.get(job.job_id), job.pending and job.job_id in lifted
        return QueueRow(job, leaf, ladder.is_charged(job.qos), now, position, kept, first)

    waiting = [row(job, place) for place, job in enumerate(queue_order(jobs, ladder), start=1)]
    holding = sorted((job for job in jobs if job.holding), key=lambda job: (job.start or now, job.job_id))
    return (*waiting, *(row(job) for job in holding))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs. Empty means all. States in squeue's long or short names."""

    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    states: tuple[str, ...] = ()


def select(rows: Sequence[QueueRow], wanted: Wanted) -> tuple[QueueRow, ...]:
    accounts = {account_key(name) for name in wanted.accounts}
    states = {name.upper() for name in wanted.states if name.lower() != "all"}
    return tuple(
        row
        for row in rows
        if (not accounts or account_key(row.job.account) in accounts)
        and (not wanted.users or row.job.user in wanted.users)
        and (not states or row.job.state in states or STATES.get(row.job.state) in states)
    )


def contract_words(contract: Contract | None, charged: bool) -> str:
    """The contract in as few words as say it.

    >>> contract_words(Contract(14_400, resumable=True), charged=True)
    '4h resumable'
    """
    if contract is None:
        return "none readable" if charged else "unallocated"
    if contract.min_runtime == 0:
        return "unallocated"
    return spell(contract.min_runtime) + (" resumable" if contract.resumable else "")


def _balance(row: QueueRow) -> str:
    return standing_short(row.leaf.standing) if row.leaf else "no budget"


def _paint_note(row: QueueRow) -> str:
    if row.job.pending:
        return ""
    return "yellow" if row.may_yield else "green"


def _length(value: timedelta) -> str:
    return duration(value.total_seconds())


COLUMNS: tuple[Column[QueueRow], ...] = (
    Column("JobId", lambda row: row.job.label, "job, as squeue prints it", right=True),
    Column("User", lambda row: row.job.user, "owner", elastic=True),
    Column("Account", lambda row: row.job.account, "Slurm account", elastic=True),
    Column("GPUs", lambda row: row.job.wanted.gpu_count, "GPUs asked for or held", right=True),
    Column(
        "Contract",
        lambda row: contract_words(row.job.contract, row.charged),
        "minimum runtime, and whether the job resumes after a requeue",
    ),
    Column(
        "MinRuntime",
        lambda row: row.job.contract.min_runtime if row.job.contract else None,
        "declared minimum runtime in seconds, 0 for unallocated",
        right=True,
    ),
    Column(
        "Resumable", lambda row: row.job.contract.resumable if row.job.contract else None, "whether it says it resumes"
    ),
    Column(
        "InTeam",
        lambda row: row.job.contract.priority.value if row.job.contract else None,
        "in-team priority: low, normal or high",
    ),
    Column("QOS", lambda row: row.job.qos, "QOS: the rung of the ladder"),
    Column("Position", lambda row: row.position, "place among the pending jobs", right=True, spare=3),
    Column("Rank", lambda row: row.leaf.rank if row.leaf else None, "rank of its account: 1 goes first", right=True),
    Column(
        "Ratio",
        lambda row: row.leaf.standing.ratio if row.leaf else None,
        "usage / entitlement of its account; below 1 is under-served",
        right=True,
        spare=5,
    ),
    Column(
        "Balance",
        lambda row: row.leaf.standing.balance if row.leaf else None,
        "how far its account is under target (positive) or over (negative); in words in the table",
        tell=_balance,
        paint=lambda row: standing_paint(row.leaf.standing if row.leaf else None),
        spare=4,
    ),
    Column("State", lambda row: row.job.state, "state", show=lambda state: STATES.get(state, state), head="ST"),
    Column("Reason", lambda row: row.job.reason if row.job.pending else None, "Slurm's reason of a pending job"),
    Column(
        "Lifted",
        lambda row: row.lifted if row.job.pending else None,
        "whether it stands at the first rank, as a large job that has waited long",
    ),
    Column("Booked", lambda row: row.kept or None, "nodes that are guarded or planned for a pending job"),
    Column("Time", lambda row: row.since, "time waited, or length of this run", show=_length, right=True),
    Column("Waited", lambda row: row.since if row.job.pending else None, "seconds waited since eligible", right=True),
    Column("RunningFor", lambda row: row.since if row.job.holding else None, "seconds of this run so far", right=True),
    Column("ProtectedUntil", lambda row: row.protected_until, "end of the minimum runtime of this run"),
    Column("MayYield", lambda row: row.may_yield if row.job.holding else None, "whether this run may be stopped now"),
    Column("Priority", lambda row: row.job.priority, "the job's priority in Slurm", right=True),
    Column(
        "Protected",
        lambda row: row.note(),
        "running: until when it is protected; pending: Slurm's reason",
        head="Protected (Reason)",
        elastic=True,
        paint=_paint_note,
    ),
    Column("Name", lambda row: row.job.name, "the job's name", elastic=True),
)

TABLE = ("JobId", "User", "Account", "GPUs", "Contract", "Position", "Rank", "Balance", "State", "Time", "Protected")
SCRIPT = (
    "JobId",
    "User",
    "Account",
    "GPUs",
    "MinRuntime",
    "Resumable",
    "Position",
    "Rank",
    "Ratio",
    "Balance",
    "State",
    "Reason",
    "Waited",
    "RunningFor",
    "ProtectedUntil",
    "MayYield",
)


def report(rows: Sequence[QueueRow], basis: Basis) -> Report[QueueRow]:
    """The queue as of the last tick's picture."""
    return Report(
        noun="jobs",
        columns=COLUMNS,
        rows=rows,
        shown=TABLE,
        script=SCRIPT,
        above=(
            *basis.lines(),
            "Pending jobs come in the order Slurm takes them; Rank is their account's place in `shares`.",
        ),
        facts=basis.facts(),
        empty="No job matches.",
    )
