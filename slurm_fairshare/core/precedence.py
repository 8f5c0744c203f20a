"""Who may stop whom: the comparison of two jobs' places in the tree. Neither age nor size plays a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
    """Whether the run may be stopped for the job: by the rule inside one leaf, or by the one between two."""
    if mine.path == theirs.path:
        return yields_inside(preemptor, run, mine)
    debug, debug_run = in_lane(preemptor, ladder, lane), in_lane(run, ladder, lane)
    return yields_between(mine, theirs, ranking, hysteresis, debug=debug, debug_run=debug_run)


def yields_between(
    mine: Ranked, theirs: Ranked, ranking: Ranking, hysteresis: float, *, debug: bool, debug_run: bool
) -> Permission | None:
    """The rule between two leaves; `debug` and `debug_run` say whether the job and the run are the lane's.

    The two ancestors just below their lowest common one are compared: the victim's side is over target and behind
    by more than the hysteresis. A debug-lane job may take from any other leaf over target, but not from another
    debug job, and not from a side that is ahead of its own by more than half the hysteresis: by the whole it could
    take it back, and two jobs would stop each other in turn as often as the ratios tremble.
    """
    sides = diverging(mine.path, theirs.path)
    assert sides is not None  # noqa: S101  inside one leaf `yields_inside` decides
    one, other = (ranking.standings[path] for path in sides)
    if is_ahead(one, other, hysteresis):
        return Permission(Rule.UNDER_SERVED, *sides)
    if not debug or debug_run or not theirs.standing.over_target:
        return None
    near = not one.ratio - other.ratio > hysteresis / 2
    return Permission(Rule.DEBUG_LANE, mine.path, theirs.path) if near else None


def yields_inside(preemptor: Job, run: Job, leaf: Ranked) -> Permission | None:
    """The rule inside one leaf: only a higher in-team priority counts."""
    higher = in_team(preemptor.contract) > in_team(run.contract)
    return Permission(Rule.IN_TEAM_PRIORITY, leaf.path, leaf.path) if higher else None


class Precedence(NamedTuple):
    """A leaf whose runs yield to another, and under which rule: its debug runs, and all others."""

    account: str
    leaf: Ranked
    debug_runs: Permission | None
    others: Permission | None


def yielding_to(mine: Ranked, ranking: Ranking, hysteresis: float, *, debug: bool) -> tuple[Precedence, ...]:
    """The other leaves from which a job of this one may take something."""
    found = []
    for account, theirs in ranking.by_account.items():
        if theirs.path == mine.path:
            continue
        others = yields_between(mine, theirs, ranking, hysteresis, debug=debug, debug_run=False)
        runs = others
        if others is not None and others.rule is Rule.DEBUG_LANE:
            runs = None  # never one debug job for another
        if runs is not None or others is not None:
            found.append(Precedence(account, theirs, runs, others))
    return tuple(found)


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
