"""Who may stop whom: the comparison of two jobs' places in the tree. Neither age nor size plays a part."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import Contract, DebugLane, Ladder
from slurm_fairshare.core.decisions import Rule
from slurm_fairshare.core.fairshare import Ranked, Ranking, Standing
from slurm_fairshare.core.tree import diverging


@dataclass(frozen=True, slots=True)
class Permission:
    """That one run may be stopped for a job: under which rule, comparing which two nodes of the tree."""

    rule: Rule
    preemptor_node: str
    victim_node: str


def may_yield(
    preemptor: Job,
    mine: Ranked,
    run: Job,
    theirs: Ranked,
    ranking: Ranking,
    ladder: Ladder,
    lane: DebugLane | None,
    hysteresis: float,
) -> Permission | None:
    """The rules of precedence between two leaves.

    Inside one leaf only a higher in-team priority counts. Between leaves the two ancestors just below their
    lowest common one are compared: the victim's side is over target and behind by more than the hysteresis.
    A debug-lane job may take from any other leaf over target, but not from another debug job, and not from a
    side that is ahead of its own by more than half the hysteresis: by the whole it could take it back, and two jobs
    would stop each other in turn as often as the ratios tremble.
    """
    sides = diverging(mine.path, theirs.path)
    if sides is None:
        higher = in_team(preemptor.contract) > in_team(run.contract)
        return Permission(Rule.IN_TEAM_PRIORITY, mine.path, mine.path) if higher else None
    one, other = (ranking.standings[path] for path in sides)
    if is_ahead(one, other, hysteresis):
        return Permission(Rule.UNDER_SERVED, *sides)
    if not theirs.standing.over_target or not in_lane(preemptor, ladder, lane) or in_lane(run, ladder, lane):
        return None
    near = not one.ratio - other.ratio > hysteresis / 2
    return Permission(Rule.DEBUG_LANE, mine.path, theirs.path) if near else None


def is_ahead(one: Standing, other: Standing, hysteresis: float) -> bool:
    """Whether the first is so far ahead of the second that a run of the second yields to it.

    It never holds both ways: that would need `other - one > h` and `one - other > h` at once.
    """
    return other.over_target and other.ratio - one.ratio > hysteresis


def in_team(contract: Contract | None) -> int:
    return contract.priority.site_factor if contract is not None else 0


def in_lane(job: Job, ladder: Ladder, lane: DebugLane | None) -> bool:
    rung = ladder.rung(job.qos)
    return lane is not None and rung is not None and lane.covers(rung)
