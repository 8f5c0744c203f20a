"""A decision of the rebalancer: who stops for whom, under which rule, with the numbers it was taken on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Rule(StrEnum):
    """Why one run may be stopped for another job."""

    UNDER_SERVED = "under-served"
    IN_TEAM_PRIORITY = "in-team-priority"
    DEBUG_LANE = "debug-lane"
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """A decision with what became of it."""

    decision: Decision
    outcome: Outcome
    changed: datetime
    detail: str = ""
