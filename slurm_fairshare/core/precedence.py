"""Who may stop whom: the comparison of two jobs' places in the tree. Neither age nor size plays a part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import Contract, DebugLane, Ladder
from slurm_fairshare.core.decisions import Rule
from slurm_fairshare.core.fairshare import Ranked, Ranking, Standing
from slurm_fairshare.core.tree import account_key, diverging


@dataclass(frozen=True, slots=True)
class Permission:
    """That one run may be stopped for a job: under which rule, comparing which two nodes of the tree."""

    rule: Rule
    preemptor_node: str
    victim_node: str


def who_yields(
    job: Job,
    leaf: Ranked,
    others: Iterable[Precedence],
    runs: Mapping[str, Mapping[int, Job]],
    is_debug: Callable[[Job], bool],
    *,
    inside: bool,
    restart: float,
    now: datetime,
) -> list[tuple[Job, Ranked, Permission]]:
    """Of these runs, by account key and number, those that yield to the job: by the rule between two leaves or,
    where `inside` has it, by the one inside its own. `others` is `yielding_to` of its leaf.

    It says to whom, not when: whether a run's minimum is over and whether it may be stopped at all is the caller's.
    """
    found: list[tuple[Job, Ranked, Permission]] = []
    for other in others:
        anew = other.others.rule is Rule.UNDER_SERVED and other.gap > restart
        for run in runs.get(other.account, {}).values():
            if not run.resumes and not (anew and is_worth(run, job, other.gap, restart, now)):
                continue
            permission = other.debug_runs if is_debug(run) else other.others
            if permission is not None:
                found.append((run, other.leaf, permission))
    mine = in_team(job.contract) if inside else 0
    if mine:
        own = runs.get(account_key(leaf.account), {}).values()
        found += [(run, leaf, inside_one(leaf)) for run in own if run.resumes and in_team(run.contract) < mine]
    return found


def yields_between(
    mine: Ranked, theirs: Ranked, ranking: Ranking, hysteresis: float, above: Rule | None, *, debug_run: bool
) -> Permission | None:
    """The rule between two leaves. `above`: what lifts the job above the bands, the debug lane or a long wait of a
    large one; `debug_run` says whether the run is the lane's.

    The two ancestors just below their lowest common one are compared: the victim's side is over target and behind
    by more than the hysteresis. A job above the bands takes from any side that has had more: where everybody gets what
    is owed, hardly anybody is over target. A debug-lane job takes from a leaf over target besides, but not from a side
    that is ahead of its own by more than half the hysteresis: by the whole it could take it back, and two jobs would
    stop each other in turn as often as the ratios tremble. Neither takes from a debug job.
    """
    sides = diverging(mine.path, theirs.path)
    assert sides is not None  # noqa: S101  inside one leaf `inside_one` is the rule
    one, other = (ranking.standings[path] for path in sides)
    if is_ahead(one, other, hysteresis):
        return Permission(Rule.UNDER_SERVED, *sides)
    if above is None or debug_run:
        return None
    if other.ratio > one.ratio:
        return Permission(above, *sides)
    near = theirs.standing.over_target and not one.ratio - other.ratio > hysteresis / 2
    return Permission(above, *sides) if near and above is Rule.DEBUG_LANE else None


def inside_one(leaf: Ranked) -> Permission:
    """The rule inside one leaf: a run of lower in-team priority (`in_team`) yields, and only such a one."""
    return Permission(Rule.IN_TEAM_PRIORITY, leaf.path, leaf.path)


def is_worth(run: Job, preemptor: Job, gap: float, restart: float, now: datetime) -> bool:
    """Whether what is won is worth the work of a run that does not resume: all of it is lost, and asked for again.

    The gap between the two sides must be larger than `restart`, once more for each time it began anew before, and once
    more for each time over that as much is lost as the job is promised, its GPUs for its minimum runtime. A session
    loses no such work. Neither its own team nor a job above the bands stops it.
    """
    if preemptor.contract is None or run.start is None:
        return False
    promised = preemptor.wanted.gpu_count * preemptor.contract.min_runtime
    lost = run.wanted.gpu_count * (now - run.start).total_seconds() if run.batch else 0
    over = max(0, math.ceil(lost / promised) - 1) if promised else math.inf
    return gap > restart * (1 + run.restarts + over)


class Precedence(NamedTuple):
    """A leaf whose runs yield to another, under which rule (its debug runs, and all others), and how much more of its
    due its side has had."""

    account: str
    leaf: Ranked
    debug_runs: Permission | None
    others: Permission
    gap: float


def yielding_to(mine: Ranked, ranking: Ranking, hysteresis: float, above: Rule | None) -> tuple[Precedence, ...]:
    """The other leaves from which a job of this one may take something."""
    found = []
    for account, theirs in ranking.by_account.items():
        if theirs.path == mine.path:
            continue
        others = yields_between(mine, theirs, ranking, hysteresis, above, debug_run=False)
        if others is not None:
            debug_runs = others if others.rule is Rule.UNDER_SERVED else None
            one, other = (ranking.standings[node] for node in (others.preemptor_node, others.victim_node))
            found.append(Precedence(account, theirs, debug_runs, others, other.ratio - one.ratio))
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
