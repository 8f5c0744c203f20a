"""`why JOBID`: why a job was stopped, who yielded to it, or what it waits for, in plain sentences.

What is said about the past comes from the recorded decisions, with the numbers they were taken on; what is
said about the present comes from the last tick's picture.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded, Rule, Side
from slurm_fairshare.core.lost import IN_WORDS, Since
from slurm_fairshare.core.rebalance import WAITS_FOR_RESOURCES
from slurm_fairshare.reports.queue import QueueRow, contract_words
from slurm_fairshare.reports.words import Basis, standing_words
from slurm_fairshare.units import duration, gpu_hours, moment

MOST_AHEAD = 5
"""So many of the jobs ahead are named; the others are counted."""

JOB = re.compile(r"([0-9]{1,15})(?:_[0-9]{1,15}|\+[0-9]{1,15})?")
"""A job as squeue prints it: 123, 123_4 (array task), 123+1 (part of a heterogeneous job)."""

LABELS_BACK = timedelta(days=7)
"""So far back decisions are looked through for a label."""


class Decisions(Protocol):
    """What is asked of the store about one job."""

    def decisions(self, since: datetime) -> tuple[Recorded, ...]: ...

    def decisions_about(self, job_id: int) -> tuple[Recorded, ...]: ...


def number_of(label: str, rows: Sequence[QueueRow]) -> int:
    """A task of an array has a number of its own behind its label; the queue tells it while the job is there."""
    found = JOB.fullmatch(label)
    if found is None:
        raise ValueError(f"{label!r} is no job number")
    return next((row.job.job_id for row in rows if row.job.label == label), int(found.group(1)))


def decided(store: Decisions, label: str, number: int, now: datetime) -> tuple[Recorded, ...]:
    """Decisions by the job's number, and recent ones by its label: a task's own number is not in its label, and
    nobody knows it any more once the task has left the queue."""
    found = {one.decision.id: one for one in store.decisions_about(number)}
    named = (one for one in store.decisions(now - LABELS_BACK) if names(one, label))
    return tuple({**{one.decision.id: one for one in named}, **found}.values())


@dataclass(frozen=True, slots=True)
class NotStopped:
    """What the rebalancer said of a waiting job for which it stopped nobody: the newest it said."""

    why: str
    words: str
    at: str


def not_stopped(remembered: tuple[datetime, Any] | None, number: int) -> NotStopped | None:
    """Read from what a pass remembers by job: [kind, words, moment]."""
    told = remembered[1].get(str(number)) if remembered is not None else None
    return None if told is None else NotStopped(*told)


@dataclass(frozen=True, slots=True)
class Why:
    """What is known about a job: the decisions that name it, and its line of the last picture, if it is in it.

    `ahead` are the pending jobs Slurm takes before it; `leaves` is the number of ranked accounts.
    """

    asked: str
    decisions: tuple[Recorded, ...]
    row: QueueRow | None = None
    ahead: tuple[QueueRow, ...] = ()
    leaves: int = 0
    basis: Basis | None = None
    declined: NotStopped | None = None

    @property
    def stopped(self) -> tuple[Recorded, ...]:
        return tuple(one for one in self.decisions if _is(one.decision.victim, self.asked))

    @property
    def served(self) -> tuple[Recorded, ...]:
        return tuple(one for one in self.decisions if _is(one.decision.preemptor, self.asked))


def _is(side: Side | None, asked: str) -> bool:
    """Whether this is the job asked for, or a task or part of it."""
    return side is not None and asked in (side.label, str(side.job_id), re.split(r"[_+]", side.label)[0])


def names(one: Recorded, asked: str) -> bool:
    """Whether a decision is about the job asked for, on either side."""
    return _is(one.decision.victim, asked) or _is(one.decision.preemptor, asked)


def why(
    asked: str,
    decisions: Sequence[Recorded],
    rows: Sequence[QueueRow],
    leaves: int,
    basis: Basis | None,
    declined: NotStopped | None = None,
) -> Why:
    """Gather what is known of one job. `rows` is the whole queue, in order."""
    row = next((row for row in rows if asked in (row.job.label, str(row.job.job_id))), None)
    place = row.position if row is not None else None
    ahead = tuple(other for other in rows if place and other.position and other.position < place)
    mine = sorted(decisions, key=lambda one: (one.decision.at, one.decision.id))
    return Why(asked, tuple(mine), row, ahead, leaves, basis, declined)


def paragraphs(known: Why) -> list[list[str]]:
    """The answer in sentences: a paragraph for each decision, the newest last, then how it is now."""
    told = [_stopped(one) for one in known.stopped] + [_served(one) for one in known.served]
    now = _now(known)
    return [*(told or [_nothing_recorded(known)]), *([now] if now else [])]


def _stopped(one: Recorded) -> list[str]:
    decision = one.decision
    ran = duration(decision.min_runtime + decision.over_minimum)
    return [
        f"{told_to_yield(decision)} {because(decision)}",
        f"This run of it had started at {moment(decision.started)} and had run {ran}: "
        f"{duration(decision.over_minimum)} past its minimum runtime of {duration(decision.min_runtime)}, "
        "so it was no longer protected.",
        *_lost(one),
        _became(one),
    ]


def told_to_yield(decision: Decision) -> str:
    """Who yields to whom, and when that was decided."""
    victim, taker = decision.victim, decision.preemptor
    told = f"Job {_who(victim)} was told to yield at {moment(decision.at)}"
    if taker is None:
        return f"{told}, because its node is being drained."
    return f"{told} to job {_who(taker)}."


def _who(side: Side) -> str:
    return f"{side.label} of {side.user} (account {side.account}, {_gpus(side.gpus)})"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def because(decision: Decision) -> str:
    """The rule, with both ratios and the level at which they were compared."""
    victim, taker = decision.victim, decision.preemptor
    if taker is None or decision.rule is Rule.DRAIN:
        return "A drain stops each run as it passes its minimum runtime."
    if decision.rule is Rule.IN_TEAM_PRIORITY:
        return (
            f"Both belong to {victim.leaf}, and that job declared the higher priority within the team; "
            "no other team plays a part."
        )
    if decision.rule is Rule.DEBUG_LANE:
        return (
            "That job is in the debug lane (short and small), which may take from any team that has had more, or is "
            f"over target: {taker.node} had {_used(taker.ratio)}, {victim.node} had {_used(victim.ratio)}."
        )
    if decision.rule is Rule.LARGE_JOB:
        return (
            "That job is large and has waited so long that it may take from any team that has had more: "
            f"{taker.node} had {_used(taker.ratio)}, {victim.node} had {_used(victim.ratio)}."
        )
    return (
        f"{taker.node} had {_used(taker.ratio)}, {victim.node} had {_used(victim.ratio)}: "
        f"{victim.node} was over target, and the two are further apart than the hysteresis of "
        f"{decision.hysteresis:.2f}. They are compared where the two jobs' branches of the tree part."
    )


def _used(ratio: float) -> str:
    if ratio == float("inf"):
        return "used GPU time without being owed any"
    return f"used {ratio:.2f} of its entitlement"


def _lost(one: Recorded) -> list[str]:
    """What the stop threw away, and how far that is known."""
    decision = one.decision
    if not decision.lost_since or one.outcome not in {Outcome.REQUEUED, Outcome.ENDED}:
        return []
    since = IN_WORDS[Since(decision.lost_since)]
    return [f"Work thrown away by it: {gpu_hours(decision.lost)} GPU-hours ({since})."]


def _became(one: Recorded) -> str:
    decision, at = one.decision, moment(one.changed)
    resumes = (
        "It says it is resumable, so it goes on from where it last saved."
        if decision.resumable
        else "It does not say it is resumable, so it may start from the beginning."
    )
    said = f" ({one.detail})" if one.detail else ""
    if decision.dry_run:
        return "This was only shown (a dry run): nothing was done to the job."
    match one.outcome:
        case Outcome.REQUEUED:
            return f"It was requeued at {at} and starts again by itself when its turn comes. {resumes}"
        case Outcome.ENDED:
            return f"It was ended at {at}, since it could not be requeued and its contract says it does not resume."
        case Outcome.NOTICED:
            return f"It was sent its notice signal {decision.notice or ''} at {at} and is about to be stopped."
        case Outcome.GONE:
            return f"Nothing was done to it: at {at} that run was over already{said}."
        case Outcome.REFUSED:
            return f"Slurm did not stop it at {at}{said}. It goes on."
        case Outcome.LAPSED:
            return f"Nothing was done to it{said}: by {at} the decision was too old to be carried out."
        case Outcome.DECIDED:
            return "It is about to be stopped."


def _served(one: Recorded) -> list[str]:
    decision = one.decision
    outcome = "only shown, in a dry run" if decision.dry_run else one.outcome.value
    return [
        f"Job {_who(decision.victim)} was told to yield to it at {moment(decision.at)} ({outcome}). {because(decision)}"
    ]


def _nothing_recorded(known: Why) -> list[str]:
    told = [f"No decision about job {known.asked} is recorded: slurm-fairshare has not stopped it, or anyone for it."]
    row = known.row
    if row is None:
        told.append(
            "It is not in the queue either. If it stopped early, its owner, its time limit, a failed node or an "
            f"admin stopped it, or Slurm itself if it ran unallocated: `sacct -D -j {known.asked}` shows which."
        )
    elif row.unallocated and row.job.restarts:
        told.append(
            "It runs unallocated: Slurm itself stops such a job whenever a job under contract needs its GPUs. "
            f"It has been requeued {_times(row.job.restarts)}; `sacct -D -j {known.asked}` shows each run."
        )
    return told


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _now(known: Why) -> list[str]:
    row = known.row
    if row is None:
        return []
    if known.basis is not None and any(one.changed >= known.basis.at for one in known.stopped + known.served):
        return ["The queue has not been read since; ask again after the next tick for how the job stands now."]
    stale = [known.basis.warning()] if known.basis is not None and known.basis.stale else []
    return [*stale, *(_waiting(known, row) if row.job.pending else [_running(row)])]


def _waiting(known: Why, row: QueueRow) -> list[str]:
    job = row.job
    told = [
        f"Now it has been pending for {duration(row.since.total_seconds())} "
        f"({_gpus(job.wanted.gpu_count)}, {_contract(job, row.charged)}). {_reason(job)}",
        _place(known, row),
        *(["As a large job that has waited long it stands at the first rank."] if row.lifted else []),
        *([f"Kept for it: {row.kept}."] if row.kept else []),
    ]
    if known.declined is not None:
        told.append(
            f"Nobody was stopped for it when that was looked at last, {known.declined.at}: {known.declined.words}."
        )
    if known.ahead:
        named = ", ".join(f"{one.job.label} ({one.job.user}, {one.job.account})" for one in known.ahead[:MOST_AHEAD])
        more = len(known.ahead) - MOST_AHEAD
        told.append(f"Ahead of it: {named}{f' and {more} more' if more > 0 else ''}.")
    return told


def _reason(job: Job) -> str:
    if job.reason in WAITS_FOR_RESOURCES:
        return f"Slurm's reason is {job.reason}: it only lacks free GPUs, or its turn."
    if job.reason == "QOSGrpGRES":
        return (
            "Slurm's reason is QOSGrpGRES: all jobs of its QOS together hold as many GPUs as they may. Unallocated "
            "jobs leave some free for the next jobs under contract; `slurm-fairshare status` says how many they may "
            "hold."
        )
    return f"Slurm's reason is {job.reason or 'not given yet'}: nobody is stopped for it while that holds."


def _place(known: Why, row: QueueRow) -> str:
    if row.leaf is None:
        told = f"Account {row.job.account} has no budget, so nobody ever yields to it."
    else:
        told = (
            f"Account {row.job.account} ranks {row.leaf.rank} of {known.leaves} ({standing_words(row.leaf.standing)})."
        )
    return f"It is number {row.position} among the pending jobs. {told}"


def _running(row: QueueRow) -> str:
    job = row.job
    ran = duration(row.since.total_seconds())
    told = f"Now it is {job.state.lower()}, {ran} since its start ({_contract(job, row.charged)}): "
    until = row.protected_until
    if not row.charged:
        return told + "Slurm may stop it at any time for a job under contract."
    if until is None:
        return told + "its contract cannot be read, so slurm-fairshare leaves it alone."
    if until > row.now:
        left = duration((until - row.now).total_seconds())
        return told + f"protected until {moment(until)}, {left} from now. After that it may yield."
    if not row.may_yield:
        return told + "past its minimum runtime, but it cannot be stopped now (it leaves, or cannot be requeued)."
    if row.leaf is None:
        return told + "past its minimum runtime; its account has no budget."
    return told + (
        f"past its minimum runtime since {moment(until)}. It may yield to a job of a side that is further behind; "
        f"its account stands {standing_words(row.leaf.standing)}."
    )


def _contract(job: Job, charged: bool) -> str:
    words = contract_words(job.contract, charged)
    return words if words == "unallocated" else f"minimum runtime {words.replace(' ', ', ')}"


def facts(known: Why) -> dict[str, Any]:
    """The same for programs: the decisions whole, and the job as it is now."""
    told: dict[str, Any] = {
        "job": known.asked,
        "stopped": [_decision(one) for one in known.stopped],
        "served": [_decision(one) for one in known.served],
        "now": _now_facts(known),
        "not_stopped": None
        if known.declined is None
        else {
            "why": known.declined.why,
            "words": known.declined.words,
            "at": known.declined.at,
        },
        "sentences": [sentence for paragraph in paragraphs(known) for sentence in paragraph],
    }
    return told | (known.basis.facts() if known.basis is not None else {})


def _decision(one: Recorded) -> dict[str, Any]:
    decision = one.decision
    return {
        "id": decision.id,
        "at": decision.at,
        "rule": decision.rule,
        "victim": _side(decision.victim),
        "preemptor": _side(decision.preemptor) if decision.preemptor else None,
        "started": decision.started,
        "min_runtime": decision.min_runtime,
        "over_minimum": decision.over_minimum,
        "resumable": decision.resumable,
        "requeue": decision.requeue,
        "hysteresis": decision.hysteresis,
        "nodes": decision.nodes,
        "lost_gpu_seconds": decision.lost,
        "lost_since": decision.lost_since,
        "dry_run": decision.dry_run,
        "outcome": one.outcome,
        "changed": one.changed,
        "detail": one.detail,
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "job": side.label,
        "user": side.user,
        "account": side.account,
        "leaf": side.leaf,
        "node": side.node,
        "ratio": side.ratio,
        "gpus": side.gpus,
    }


def _now_facts(known: Why) -> dict[str, Any] | None:
    row = known.row
    if row is None:
        return None
    until: datetime | None = row.protected_until
    return {
        "state": row.job.state,
        "reason": row.job.reason if row.job.pending else None,
        "position": row.position,
        "lifted": row.lifted,
        "booked": row.kept or None,
        "ahead": [one.job.label for one in known.ahead],
        "rank": row.leaf.rank if row.leaf else None,
        "ratio": row.leaf.standing.ratio if row.leaf else None,
        "charged": row.charged,
        "protected_until": until,
        "may_yield": row.may_yield if row.job.holding else None,
        "seconds": row.since,
    }
