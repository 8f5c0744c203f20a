"""A decision of the rebalancer: who stops for whom, under which rule, with the numbers it was taken on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from slurm_fairshare.units import duration, moment


class Rule(StrEnum):
    """Why one run may be stopped for another job."""

    UNDER_SERVED = "under-served"
    IN_TEAM_PRIORITY = "in-team-priority"
    DEBUG_LANE = "debug-lane"
    LARGE_JOB = "large-job"
    DRAIN = "drain"


class Outcome(StrEnum):
    """What became of a decision."""

    DECIDED = "decided"
    NOTICED = "noticed"
    REQUEUED = "requeued"
    ENDED = "ended"
    GONE = "gone"
    """The run it was about was no longer there: it ended, or a new run of the job had started."""
    REFUSED = "refused"
    """Slurm did not do it; the reason stands beside."""
    LAPSED = "lapsed"
    """Nobody carried it out in time, and by now it may no longer be right."""


OPEN = frozenset({Outcome.DECIDED, Outcome.NOTICED})
"""Outcomes after which there is still something to do."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison: the job, its leaf, and the node just below the lowest common ancestor."""

    job_id: int
    label: str
    user: str
    account: str
    leaf: str
    node: str
    ratio: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Stop `victim`'s run that started at `started`, so that `preemptor` can start. None = a drain."""

    id: str
    at: datetime
    rule: Rule
    victim: Side
    started: datetime
    min_runtime: int
    over_minimum: int
    resumable: bool
    requeue: bool
    preemptor: Side | None
    hysteresis: float
    nodes: tuple[str, ...] = ()
    notice: str | None = None
    dry_run: bool = False
    lost: int = 0
    """GPU-seconds of work taken to be thrown away by it, and what they are counted from (`core.lost.Since`)."""
    lost_since: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A decision with what became of it."""

    decision: Decision
    outcome: Outcome
    changed: datetime
    detail: str = ""


def in_words(decision: Decision) -> str:
    """Why the run was stopped, in one sentence with the numbers, for its AdminComment and for `why`."""
    done = "requeued" if decision.requeue else "ended (it cannot be requeued)"
    ran = duration(decision.min_runtime + decision.over_minimum)
    past = (
        f"it ran {ran}, {duration(decision.over_minimum)} past its minimum runtime of {duration(decision.min_runtime)}"
    )
    return f"{done} {moment(decision.at)} {_for_whom(decision)}: {_because(decision)}; {past}"


def _for_whom(decision: Decision) -> str:
    if decision.preemptor is None:
        return "because its node is being drained"
    taker = decision.preemptor
    return f"for job {taker.label} of {taker.user} ({taker.account}, {taker.gpus} GPUs)"


def _because(decision: Decision) -> str:
    victim, taker = decision.victim, decision.preemptor
    if decision.rule is Rule.DRAIN or taker is None:
        return "a drain stops each run as it passes its minimum"
    if decision.rule is Rule.IN_TEAM_PRIORITY:
        return f"both belong to {victim.leaf}, and that job declared a higher priority within the team"
    has = f"{victim.node} has used {victim.ratio:.2f} of its entitlement"
    other = f"{taker.node} {taker.ratio:.2f}"
    if decision.rule is Rule.DEBUG_LANE:
        return f"{has} and {other}, and the debug lane may take from any team that has had more, or is over target"
    if decision.rule is Rule.LARGE_JOB:
        return f"{has} and {other}, and a large job that has waited long may take from any team that has had more"
    return f"{has} and {other}, further apart than the hysteresis of {decision.hysteresis:.2f}"
