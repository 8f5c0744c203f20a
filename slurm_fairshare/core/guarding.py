"""What is to be booked now: guards for jobs that room is being made for, and a plan for a large job.

A pure function from the picture, what is booked already, and what a pass has decided. Both are settings and off where
a site says nothing: a booked node stands idle for whoever could have used it meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from slurm_fairshare.core.booking import Booking, Kind, is_guarded
from slurm_fairshare.core.cluster import COMPLETING, Job, Node, Picture
from slurm_fairshare.core.contract import DebugLane, Ladder
from slurm_fairshare.core.decisions import OPEN, Decision, Outcome, Recorded
from slurm_fairshare.core.drain import Stay, emptying, own_end
from slurm_fairshare.core.fairshare import Ranked, Ranking
from slurm_fairshare.core.large import Large, above_bands
from slurm_fairshare.core.need import Need, need_of
from slurm_fairshare.core.precedence import Permission, in_lane, who_yields, yielding_to
from slurm_fairshare.core.rebalance import Rules, queue_order, under_way, waits_for_room
from slurm_fairshare.core.tree import account_key

RESERVED = "RESERVED"

KEPT_OUT = re.compile(r"ReqNodeNotAvail\W*May.be.reserved.for.other.job")
"""Slurm's reason of a job that only a reservation keeps from its nodes."""


def wanted(
    picture: Picture,
    ranking: Ranking,
    ladder: Ladder,
    lane: DebugLane | None,
    rules: Rules,
    there: Sequence[Booking],
    made: Sequence[Decision],
    recent: Sequence[Recorded],
    now: datetime,
) -> tuple[Booking, ...]:
    """What is to be booked. `there` is booked now, `made` was decided in this pass, `recent` before it."""
    large = rules.large
    planning = large is not None and bool(large.plan_ahead)
    if not (there or rules.guard or planning):
        return ()
    waiting = {job.job_id: job for job in picture.pending if _may_be_booked(job)}
    plans = [one for one in there if one.kind is Kind.PLAN and one.job_id in waiting]
    guards = _made_room(picture, waiting, made, rules, {one.job_id for one in plans}, now)
    inside = {job_id for job_id, job in waiting.items() if job_id not in guards and is_guarded(job, ladder)}
    guards |= {one.job_id: one for one in _kept(there, inside, rules, recent, now)}
    if large is None or not planning:
        return tuple(guards.values())
    book = _Book(picture, ranking, ladder, lane, rules, large, recent, now)
    plans = [one for one in plans if one.job_id not in guards and book.holds(one, waiting[one.job_id])]
    for one in plans:
        if book.empty(one):
            guards[one.job_id] = Booking(Kind.GUARD, one.job_id, waiting[one.job_id].user, one.nodes, now)
    open_plans = [one for one in plans if one.job_id not in guards]
    if not open_plans:
        found = book.first([job for job_id, job in waiting.items() if job_id not in guards])
        open_plans = [found] if found is not None else []
    return (*guards.values(), *open_plans)


def opened(picture: Picture, there: Iterable[Booking], now: datetime) -> Picture:
    """The picture as it would be without our plans: `planned_nodes` says whom they keep out.

    Slurm marks the nodes RESERVED once a plan's moment has come, and lets the plan's own job wait for that reason.
    """
    plans = [one for one in there if one.kind is Kind.PLAN]
    if not plans:
        return picture
    due = {name for one in plans if one.start <= now for name in one.nodes}
    mine = {one.job_id for one in plans}
    nodes = (replace(node, states=node.states - {RESERVED}) if node.name in due else node for node in picture.nodes)
    jobs = (
        replace(job, reason="Resources") if job.job_id in mine and KEPT_OUT.search(job.reason) else job
        for job in picture.jobs
    )
    return replace(picture, jobs=tuple(jobs), nodes=tuple(nodes))


def planned_nodes(there: Iterable[Booking]) -> Mapping[str, int]:
    """By the name of a planned node, the job it is for."""
    return {name: one.job_id for one in there if one.kind is Kind.PLAN for name in one.nodes}


def _may_be_booked(job: Job) -> bool:
    """A reservation takes in a job, not a task of an array and not a component."""
    return not job.het_leader and "_" not in job.label


def _made_room(
    picture: Picture,
    waiting: Mapping[int, Job],
    made: Iterable[Decision],
    rules: Rules,
    planned: Collection[int],
    now: datetime,
) -> dict[int, Booking]:
    nodes = {node.name: node for node in picture.nodes}
    found = {}
    for one in made:
        job = waiting.get(one.preemptor.job_id) if one.preemptor else None
        if job is None or not (rules.guard or job.job_id in planned):
            continue
        if _takes_whole(job, [nodes[name] for name in one.nodes if name in nodes]):
            found[job.job_id] = Booking(Kind.GUARD, job.job_id, job.user, tuple(sorted(one.nodes)), now)
    return found


def _takes_whole(job: Job, nodes: Sequence[Node]) -> bool:
    """Whether the job leaves nothing of the nodes that somebody else could use: what it leaves would stand idle."""
    return bool(nodes) and (
        "exclusive=node" in job.constraints or job.wanted.gpu_count >= sum(node.total.gpu_count for node in nodes)
    )


def _kept(
    there: Iterable[Booking], inside: Collection[int], rules: Rules, recent: Iterable[Recorded], now: datetime
) -> list[Booking]:
    """Guards that go on: their job waits inside, and there has not been time enough for it to start."""
    going = {
        one.decision.preemptor.job_id
        for one in recent
        if one.decision.preemptor and not one.decision.dry_run and one.outcome in _COUNTS and under_way(one, rules, now)
    }
    return [
        one
        for one in there
        if one.kind is Kind.GUARD and one.job_id in inside and (now - one.start < rules.settle or one.job_id in going)
    ]


_COUNTS = OPEN | {Outcome.REQUEUED, Outcome.ENDED}


class _Book:
    """When which node could be had for a job, if nobody is stopped before its minimum runtime."""

    def __init__(
        self,
        picture: Picture,
        ranking: Ranking,
        ladder: Ladder,
        lane: DebugLane | None,
        rules: Rules,
        large: Large,
        recent: Sequence[Recorded],
        now: datetime,
    ) -> None:
        self.picture, self.ranking, self.ladder, self.lane = picture, ranking, ladder, lane
        self.rules, self.large, self.now = rules, large, now
        self.in_service = [node for node in picture.nodes if node.in_service]
        stays = emptying(picture, self.in_service, ladder, rules, recent, now)
        self.stays = {one.node.name: one.stays for one in stays}
        self.runs: dict[str, dict[int, Job]] = {}
        for run in (stay.job for one in stays for stay in one.stays):
            self.runs.setdefault(account_key(run.account), {})[run.job_id] = run
        self._yield: dict[int, set[int]] = {}

    def first(self, waiting: Iterable[Job]) -> Booking | None:
        """A plan for the first large job in Slurm's order that lacks room; None where it needs none, or has none."""
        for job in queue_order(waiting, self.ladder):
            if self.large.is_planned(job.wanted.gpu_count) and waits_for_room(job, self.now) and self._has_share(job):
                return self._soonest(job)
        return None

    def holds(self, plan: Booking, job: Job) -> bool:
        """Whether the plan is still one: its moment can be kept, and has not passed without use."""
        return (
            self.now < plan.start + self.rules.settle
            and self.ladder.is_charged(job.qos)
            and set(plan.nodes) <= {name for names in self._need(job).sets for name in names}
            and all((at := self._ready(name, job)) is not None and at <= plan.start for name in plan.nodes)
        )

    def empty(self, plan: Booking) -> bool:
        """Whether the job could start there now with nobody stopped for it: free, leaving, or unallocated."""
        unallocated = self.ladder.unallocated.name
        return all(
            stay.job.qos == unallocated or stay.job.state == COMPLETING
            for name in plan.nodes
            for stay in self.stays[name]
        )

    def _has_share(self, job: Job) -> bool:
        leaf = self.ranking.by_account.get(account_key(job.account))
        return leaf is not None and leaf.standing.share > 0 and self.ladder.is_charged(job.qos)

    def _need(self, job: Job) -> Need:
        return need_of(job, self.in_service)

    def _soonest(self, job: Job) -> Booking | None:
        need = self._need(job)
        if need.shape is None:
            return None
        known = {node.name: node for node in self.in_service}
        best: tuple[datetime, tuple[str, ...]] | None = None
        for names in need.sets:
            ready = sorted((at, name) for name in names if (at := self._ready(name, job)) is not None)
            chosen = ready[: need.shape.nodes]
            if len(chosen) == need.shape.nodes and _takes_whole(job, [known[name] for _, name in chosen]):
                one = (chosen[-1][0], tuple(sorted(name for _, name in chosen)))
                best = min(best, one) if best is not None else one
        if best is None or not self.now < best[0] <= self.now + self.large.plan_ahead:
            return None
        return Booking(Kind.PLAN, job.job_id, job.user, best[1], _whole_second(best[0]))

    def _ready(self, name: str, job: Job) -> datetime | None:
        """When all that runs on the node has gone by itself or may be stopped for the job; None if never."""
        ends = [self._gone(stay, job) for stay in self.stays[name]]
        return None if None in ends else max((end for end in ends if end is not None), default=self.now)

    def _gone(self, stay: Stay, job: Job) -> datetime | None:
        run = stay.job
        goes = run.state == COMPLETING or run.qos == self.ladder.unallocated.name or run.job_id in self._yielding(job)
        return stay.until if goes else own_end(run, self.now)

    def _yielding(self, job: Job) -> Collection[int]:
        """The runs that yield to the job, once they may be stopped."""
        known = self._yield.get(job.job_id)
        if known is None:
            known = self._yield[job.job_id] = {run.job_id for run, _, _ in self._permitted(job)}
        return known

    def _permitted(self, job: Job) -> list[tuple[Job, Ranked, Permission]]:
        leaf = self.ranking.by_account.get(account_key(job.account))
        if leaf is None:
            return []
        rules, ladder, lane = self.rules, self.ladder, self.lane
        above = above_bands(job, self.ranking, ladder, lane, self.large, self.now)
        return who_yields(
            job, leaf, yielding_to(leaf, self.ranking, rules.hysteresis, above), self.runs,
            lambda run: in_lane(run, ladder, lane),
            inside=rules.in_team, restart=rules.hysteresis_restart, now=self.now,
        )  # fmt: skip


def _whole_second(at: datetime) -> datetime:
    """Not before the moment: Slurm's times have no fractions."""
    whole = at.replace(microsecond=0)
    return whole if whole == at else whole + timedelta(seconds=1)
