"""Emptying nodes: who is still there, until when, and who may be stopped now. A pure function from a picture.

A node that is being emptied takes nothing new (Slurm's DRAIN state sees to it). Unallocated runs go at once, a run
under contract as it passes its minimum runtime, and nothing that is protected is stopped. Whatever cannot be
stopped, or is not understood, stays until it ends by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_fairshare.core.cluster import COMPLETING, RUNNING, Job, Node, Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.decisions import OPEN, Decision, Recorded, Rule, Side
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.lost import work_lost
from slurm_fairshare.core.rebalance import Rules, decision_on, past_minimum, spared, stuck_runs
from slurm_fairshare.core.scene import Identity, can_be_stopped, whole_jobs
from slurm_fairshare.core.tree import account_key

MARK = "slurm-fairshare drain"
"""Begins the reason of a node drained by our command: the node itself says that it is to be emptied."""


def marked(words: str) -> str:
    """
    >>> marked("bad  GPU 3")
    'slurm-fairshare drain: bad GPU 3'
    """
    return f"{MARK}: {' '.join(words.split())}"


def being_emptied(nodes: Iterable[Node], *, every: bool = False) -> tuple[Node, ...]:
    """Drained nodes that are to be emptied: those our command drained, or with `every` those anybody did."""
    return tuple(node for node in nodes if "DRAIN" in node.states and (every or node.reason.startswith(MARK)))


@dataclass(frozen=True, slots=True)
class Stay:
    """A run on a node that is being emptied. `until` is when it goes, None where that is not known."""

    job: Job
    until: datetime | None
    words: str
    asked_now: bool = False


@dataclass(frozen=True, slots=True)
class Emptying:
    """One node with who is still there. `free_at` is when the last of them is gone, None where one is open-ended."""

    node: Node
    stays: tuple[Stay, ...]
    free_at: datetime | None


def emptying(
    picture: Picture, nodes: Sequence[Node], ladder: Ladder, rules: Rules, recent: Sequence[Recorded], now: datetime
) -> tuple[Emptying, ...]:
    """How each node's emptying stands."""
    told = _told(recent)
    stuck = stuck_runs(picture, rules, recent, now)
    here: dict[str, list[Job]] = {}
    for job in sorted(whole_jobs(picture.holding, ladder), key=lambda job: job.job_id):
        for name in {*job.nodes, *job.by_node}:
            here.setdefault(name, []).append(job)
    found = []
    for node in nodes:
        stays = tuple(_stay(job, ladder, rules, told, stuck, now) for job in here.get(node.name, ()))
        ends = [stay.until for stay in stays]
        free_at = max((end for end in ends if end is not None), default=now) if None not in ends else None
        found.append(Emptying(node, stays, free_at))
    return tuple(found)


def _told(recent: Iterable[Recorded]) -> set[Identity]:
    return {
        (one.decision.victim.job_id, one.decision.started)
        for one in recent
        if one.outcome in OPEN and not one.decision.dry_run
    }


def own_end(job: Job, now: datetime) -> datetime | None:
    """When the run ends by its time limit at the latest; None where it has none."""
    return max(job.start + job.time_limit, now) if job.start is not None and job.time_limit is not None else None


def _stay(
    job: Job, ladder: Ladder, rules: Rules, told: Collection[Identity], stuck: Collection[Identity], now: datetime
) -> Stay:
    limit = own_end(job, now)
    run = (job.job_id, job.start)
    if run in stuck:
        return Stay(job, limit, "was told to go and stays; see why its processes do not end")
    if job.state == COMPLETING or run in told:
        return Stay(job, now, "is leaving")
    if job.state != RUNNING or job.start is None:
        return Stay(job, limit, f"is {job.state.lower()}; it stays to its time limit at the longest")
    rung = ladder.rung(job.qos)
    if rung is None or (job.contract is None and rung.min_runtime > 0):
        return Stay(job, limit, "has no contract that is understood; it stays to its time limit at the longest")
    if not can_be_stopped(job) or spared(job, rules):
        words = "is kept out by a setting" if spared(job, rules) else "says that it resumes, but cannot be requeued"
        return Stay(job, limit, f"{words}; it stays to its time limit at the longest")
    if rung.min_runtime == 0:
        return Stay(job, now, "is unallocated and goes at once", asked_now=True)
    if past_minimum(job, now) is not None:
        return Stay(job, now, "is past its minimum runtime and goes at once", asked_now=True)
    assert job.contract is not None  # noqa: S101  a rung above unallocated without one has been answered
    ends = job.start + timedelta(seconds=job.contract.min_runtime)
    return Stay(job, min(ends, limit) if limit else ends, "is protected until then")


def drain(
    picture: Picture,
    nodes: Sequence[Node],
    ranking: Ranking | None,
    ladder: Ladder,
    rules: Rules,
    recent: Sequence[Recorded],
    now: datetime,
) -> tuple[Decision, ...]:
    """The runs that go now, each once however many of its nodes are emptied."""
    going: dict[int, Job] = {}
    for one in emptying(picture, nodes, ladder, rules, recent, now):
        going.update({stay.job.job_id: stay.job for stay in one.stays if stay.asked_now})
    names = {node.name for node in nodes}
    return tuple(
        decision_on(
            job,
            _side(job, ranking),
            Rule.DRAIN,
            now,
            work_lost(job, now, rules.checkpoint_interval),
            nodes=tuple(sorted(names.intersection(job.nodes or job.by_node))),
        )
        for _, job in sorted(going.items())[: rules.max_per_pass]
    )


def _side(job: Job, ranking: Ranking | None) -> Side:
    """The standing plays no part in a drain; it is kept for the record where it is known."""
    leaf = ranking.by_account.get(account_key(job.account)) if ranking is not None else None
    path, ratio = (leaf.path, leaf.standing.ratio) if leaf is not None else ("", 0.0)
    return Side(job.job_id, job.label, job.user, job.account, path, path, ratio, job.wanted.gpu_count)
