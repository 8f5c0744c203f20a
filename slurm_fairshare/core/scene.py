"""The scene of a rebalance pass: the room on each node in service, and the runs that may yield."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from types import MappingProxyType

from slurm_fairshare.core.cluster import COMPLETING, RUNNING, Job, Node, Picture
from slurm_fairshare.core.contract import Contract, Ladder
from slurm_fairshare.core.decisions import Rule
from slurm_fairshare.core.fairshare import Ranked, Ranking
from slurm_fairshare.core.need import Need, gpus_of, need_of
from slurm_fairshare.core.precedence import Precedence, yielding_to
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.tree import account_key

Identity = tuple[int, datetime | None]
"""A run: the job's number and the moment this run of it started."""

Yielding = dict[tuple[str, Rule | None], tuple[Precedence, ...]]
"""From whom a leaf's jobs may take: by the leaf's path and what lifts the job above the bands."""


class Scene:
    """What a pass looks at, kept run by run.

    *Room* is what a job under contract gets without our help: free, leaving, and held by unallocated work.
    The daemon builds a scene from each picture; the simulator keeps one and moves it along, so that a pass
    costs what changed and not the size of the cluster.
    """

    def __init__(
        self, nodes: Iterable[Node], ladder: Ladder, planned: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.ladder = ladder
        self.planned = planned
        """By the name of a node that is planned for a job, that job's number: closed to all others."""
        self.nodes = {node.name: node for node in nodes}
        self.in_service = [node for node in self.nodes.values() if node.in_service]
        self.room = {node.name: node.free for node in self.in_service}
        self.gpus = {name: gpus_of(room) for name, room in self.room.items()}
        """The sum of GPUs in `room`: the quick look before the exact one."""
        self.bare: dict[str, dict[int, Job]] = {}
        """Runs past their minimum, which may be stopped, by account key and job id: as of `advance`."""
        self.together: dict[int, tuple[Job, ...]] = {}
        """Waiting heterogeneous jobs: all components, by the leader's number."""
        self._protected: dict[int, Job] = {}
        self._ends: list[tuple[datetime, int]] = []
        """When protection ends, soonest first; what is no longer in `_protected` is passed over."""
        self._charged: dict[str, bool] = {}
        self._yielding: tuple[Ranking | None, Yielding] = (None, {})
        self.holding: dict[int, Job] = {}
        self.held: dict[tuple[str, str], int] = {}
        """GPUs that runs hold, by account key and QOS."""
        self._leaving: set[int] = set()
        self._needs: dict[object, Need] = {}

    @classmethod
    def of(
        cls,
        picture: Picture,
        ladder: Ladder,
        leaving: Collection[Identity] = (),
        stuck: Collection[Identity] = (),
        planned: Mapping[str, int] = MappingProxyType({}),
    ) -> Scene:
        """The scene of a picture. `leaving` are runs told to go that the picture still shows as running; `stuck`
        are those that do not go, or cannot be made to: neither room nor anybody to ask again."""
        scene = cls(picture.nodes, ladder, planned)
        for job in whole_jobs(picture.holding, ladder):
            run = (job.job_id, job.start)
            scene._hold(job, may_be_asked=run not in stuck)
            if run not in stuck and (job.state == COMPLETING or run in leaving):
                scene.leave(job)
        for job in picture.pending:
            if job.het_leader:
                scene.together[job.het_leader] = (*scene.together.get(job.het_leader, ()), job)
        return scene

    def plan(self, planned: Mapping[str, int]) -> None:
        """Close nodes to all but the job that each is planned for."""
        self.planned = planned
        self._needs.clear()

    def _hold(self, job: Job, *, may_be_asked: bool = True) -> None:
        """Take up a run whose room the nodes already count as allocated."""
        self.holding[job.job_id] = job
        self._count(job, 1)
        if job.qos == self.ladder.unallocated.name:
            if may_be_asked:
                self._change(job, 1)
        elif may_be_asked and self._may_be_stopped(job):
            assert job.start is not None  # noqa: S101  _may_be_stopped has seen to it
            assert job.contract is not None  # noqa: S101
            self._protected[job.job_id] = job
            heappush(self._ends, (job.start + timedelta(seconds=job.contract.min_runtime), job.job_id))

    def add(self, job: Job) -> None:
        """A run starts."""
        self._change(job, -1)
        self._hold(job)

    def leave(self, job: Job) -> None:
        """A run has been told to go: its room counts as free from now on, and it cannot be told again."""
        if job.job_id in self._leaving:
            return
        self._leaving.add(job.job_id)
        if job.qos != self.ladder.unallocated.name:
            self._change(job, 1)
        self._forget(job)

    def remove(self, job: Job) -> None:
        """A run is gone."""
        if job.job_id not in self._leaving and job.qos != self.ladder.unallocated.name:
            self._change(job, 1)
        self._leaving.discard(job.job_id)
        if self.holding.pop(job.job_id, None) is not None:
            self._count(job, -1)
        self._forget(job)

    def _count(self, job: Job, sign: int) -> None:
        key = (account_key(job.account), job.qos)
        self.held[key] = self.held.get(key, 0) + sign * job.wanted.gpu_count

    def _forget(self, job: Job) -> None:
        if self._protected.pop(job.job_id, None) is None:
            self.bare.get(account_key(job.account), {}).pop(job.job_id, None)

    def advance(self, now: datetime) -> None:
        """Let the protection end that ends by `now`. Moments never go back."""
        while self._ends and self._ends[0][0] <= now:
            end, job_id = heappop(self._ends)
            job = self._protected.get(job_id)
            if job is None or job.start is None or job.contract is None:
                continue
            if job.start + timedelta(seconds=job.contract.min_runtime) == end:
                del self._protected[job_id]
                self.bare.setdefault(account_key(job.account), {})[job_id] = job

    def yielding(self, leaf: Ranked, ranking: Ranking, hysteresis: float, above: Rule | None) -> tuple[Precedence, ...]:
        """`yielding_to`, asked once for all jobs that it cannot tell apart; a new ranking starts afresh."""
        if self._yielding[0] is not ranking:
            self._yielding = (ranking, {})
        known = self._yielding[1].get((leaf.path, above))
        if known is None:
            known = self._yielding[1][leaf.path, above] = yielding_to(leaf, ranking, hysteresis, above)
        return known

    def charged(self, job: Job) -> bool:
        """Whether a budget pays for the job."""
        known = self._charged.get(job.qos)
        if known is None:
            known = self._charged[job.qos] = self.ladder.is_charged(job.qos)
        return known

    def _may_be_stopped(self, job: Job) -> bool:
        return (
            job.state == RUNNING
            and job.contract is not None
            and job.start is not None
            and bool(job.by_node)
            and self.charged(job)
            and can_be_stopped(job)
        )

    def _change(self, job: Job, sign: int) -> None:
        for name, part in job.by_node.items():
            room = self.room.get(name)
            if room is not None:
                self.room[name] = room.plus(part) if sign > 0 else room.minus(part)
                self.gpus[name] = gpus_of(self.room[name])

    def need(self, job: Job) -> Need:
        """What the job needs and where it may stand; worked out once for all jobs that ask for the same."""
        wanted = job.wanted
        asked = (
            job.partitions, job.constraints, job.node_count, wanted.cpus, wanted.memory_mb, *wanted.gpus.items()
        )  # fmt: skip
        key = (asked, job.job_id if job.job_id in self.planned.values() else 0)
        need = self._needs.get(key)
        if need is None:
            need = self._needs[key] = need_of(job, self._open_to(job))
        return need

    def _open_to(self, job: Job) -> Sequence[Node]:
        if not self.planned:
            return self.in_service
        return [node for node in self.in_service if self.planned.get(node.name, job.job_id) == job.job_id]


def can_be_stopped(run: Job) -> bool:
    """A run that can be requeued, or one whose contract says it does not resume and so may be ended."""
    if run.batch and run.requeueable:
        return True
    return run.contract is not None and not run.contract.resumable


def whole_jobs(jobs: Iterable[Job], ladder: Ladder) -> list[Job]:
    """The jobs with the components of each heterogeneous one joined: Slurm requeues and ends them together."""
    found: list[Job] = []
    parts: dict[int, list[Job]] = {}
    for job in jobs:
        if job.het_leader:
            parts.setdefault(job.het_leader, []).append(job)
        else:
            found.append(job)
    return [*found, *(_joined(sorted(group, key=lambda job: job.job_id), ladder) for group in parts.values())]


def _joined(parts: list[Job], ladder: Ladder) -> Job:
    """One job of several components. Its protection lasts as long as the longest of theirs, as Slurm has it (one
    exempt component exempts all), and what one component does not allow is not done to any."""
    leader = parts[0]
    by_node: dict[str, Resources] = {}
    for name, share in ((name, share) for part in parts for name, share in part.by_node.items()):
        by_node[name] = by_node.get(name, Resources()).plus(share)
    wanted = Resources()
    for part in parts:
        wanted = wanted.plus(part.wanted)
    alike = len({part.account for part in parts}) == 1 and all(part.by_node for part in parts)
    odd = next((part.state for part in parts if part.state != RUNNING), RUNNING)
    return replace(
        leader,
        job_id=leader.het_leader,
        label=str(leader.het_leader),
        state=odd,
        qos=_highest([part.qos for part in parts], ladder),
        contract=_strictest(parts) if alike else None,
        wanted=wanted,
        by_node=by_node,
        nodes=tuple(sorted(by_node)),
        node_count=len(by_node),
        requeueable=all(part.requeueable for part in parts),
        batch=leader.batch,
    )


def _highest(names: list[str], ladder: Ladder) -> str:
    """The rung that protects longest. A QOS outside the ladder among them leaves the whole job alone."""
    lengths: Mapping[str, int] = {name: rung.min_runtime for name in names if (rung := ladder.rung(name)) is not None}
    outside = [name for name in names if name not in lengths]
    return outside[0] if outside else max(names, key=lambda name: lengths[name])


def _strictest(parts: list[Job]) -> Contract | None:
    leader = parts[0]
    terms = [part.contract for part in parts if part.contract is not None]
    if len(terms) < len(parts) or leader.start is None or any(part.start is None for part in parts):
        return None
    late = [(part.start - leader.start).total_seconds() for part in parts if part.start is not None]
    longest = max(int(after) + one.min_runtime for after, one in zip(late, terms, strict=True))
    return Contract(
        min_runtime=longest,
        resumable=all(one.resumable for one in terms),
        priority=max((one.priority for one in terms), key=lambda priority: priority.site_factor),
        notice=terms[0].notice,
    )
