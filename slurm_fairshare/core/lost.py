"""Work thrown away when a run is stopped: GPU-seconds since the last moment from which it can go on.

    lost = GPUs x (now - the last known save)

The last known save is, in this order: the start of the run if it says that it does not resume; the moment its
notice is acted on, if it asked for one; the checkpoint the job reported itself; else an assumed one, every
`interval` since its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.decisions import Outcome, Recorded
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import account_key


class Since(StrEnum):
    """What the last save is taken from."""

    START = "start"
    NOTICE = "notice"
    CHECKPOINT = "checkpoint"
    ASSUMED = "assumed"


IN_WORDS = {
    Since.START: "it does not say that it resumes, so the whole run counts",
    Since.NOTICE: "it asked for a notice, so it is taken to have saved on it",
    Since.CHECKPOINT: "since the checkpoint it reported",
    Since.ASSUMED: "it has reported no checkpoint, so one is assumed at every interval",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """GPU-seconds, and what they are counted from."""

    gpu_seconds: float
    since: Since


def work_lost(run: Job, now: datetime, interval: timedelta) -> Loss:
    """What is thrown away if the run stops now.

    A checkpoint reported before this run began is of an earlier run: from it this run has started.
    """
    if run.start is None:
        return Loss(0.0, Since.START)
    elapsed = max(0.0, (now - run.start).total_seconds())
    gpus = run.wanted.gpu_count
    if run.contract is None or not run.contract.resumable:
        return Loss(elapsed * gpus, Since.START)
    if run.contract.notice is not None:
        return Loss(0.0, Since.NOTICE)
    if run.checkpoint is not None and run.checkpoint <= now:
        return Loss((now - max(run.checkpoint, run.start)).total_seconds() * gpus, Since.CHECKPOINT)
    return Loss(elapsed % interval.total_seconds() * gpus, Since.ASSUMED)


@dataclass(frozen=True, slots=True)
class Lost:
    """Work thrown away in one account under one rule: `rule` is `native` where Slurm itself took unallocated work."""

    account: str
    rule: str
    charged: bool
    runs: int
    gpu_seconds: float


NATIVE = "native"
PREEMPTED = "PREEMPTED"
_STOPPED = frozenset({Outcome.REQUEUED, Outcome.ENDED})


def lost_work(
    recorded: Iterable[Recorded], runs: Iterable[Run], since: datetime, until: datetime, interval: timedelta
) -> tuple[Lost, ...]:
    """By account and rule, what was thrown away by stops in `[since, until)`, ours and Slurm's own.

    Ours are the decisions that were carried out. Slurm's own are the ledger's runs that ended PREEMPTED; what they
    had saved is not known any more, so the assumed interval counts for those that say they resume.
    """
    sums: dict[tuple[str, str, bool], tuple[int, float]] = {}

    def add(key: tuple[str, str, bool], amount: float) -> None:
        count, total = sums.get(key, (0, 0.0))
        sums[key] = (count + 1, total + amount)

    for one in sorted(recorded, key=lambda one: (one.decision.at, one.decision.id)):
        decision = one.decision
        if one.outcome in _STOPPED and not decision.dry_run and since <= one.changed < until:
            charged = decision.min_runtime > 0
            add((account_key(decision.victim.account), decision.rule.value, charged), float(decision.lost))
    for run in sorted(runs, key=lambda run: (run.job_id, run.key)):
        if run.state == PREEMPTED and run.start and run.end and since <= run.end < until:
            add((account_key(run.account), NATIVE, run.charged), _lost_by(run, interval))
    return tuple(Lost(account, rule, charged, *sums[account, rule, charged]) for account, rule, charged in sorted(sums))


def _lost_by(run: Run, interval: timedelta) -> float:
    assert run.start is not None and run.end is not None  # noqa: S101, PT018  its caller has looked
    elapsed = (run.end - run.start).total_seconds()
    if run.contract is not None and run.contract.resumable:
        elapsed %= interval.total_seconds()
    return elapsed * run.held.gpu_count


def by_account(lost: Iterable[Lost], *, charged: bool) -> Mapping[str, float]:
    """GPU-seconds thrown away by account, of charged or of unallocated runs."""
    found: dict[str, float] = {}
    for one in lost:
        if one.charged == charged:
            found[one.account] = found.get(one.account, 0.0) + one.gpu_seconds
    return found
