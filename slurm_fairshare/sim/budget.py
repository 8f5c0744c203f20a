"""Our own policy in the simulator: the ranking, the labels and the evictions are core's, called as the daemon does.

What stands here is only what the daemon, the plugin and slurmctld do around them: when the tick comes, which
standing a job gets at submit, and how a decision is carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from slurm_fairshare.core import cluster
from slurm_fairshare.core.booking import Booking, Kind
from slurm_fairshare.core.committed import committed_by_user, counting
from slurm_fairshare.core.contract import Contract, DebugLane, Ladder, Priority, Rung
from slurm_fairshare.core.decisions import Outcome, Recorded
from slurm_fairshare.core.fairshare import Ranking, Usage, rank
from slurm_fairshare.core.guarding import planned_nodes, wanted
from slurm_fairshare.core.headroom import most_unallocated
from slurm_fairshare.core.large import Large
from slurm_fairshare.core.plan import BAND, TOP_LABEL, labels
from slurm_fairshare.core.rebalance import Rules, Scene, rebalance_scene
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.tree import Epoch, Tree, account_key
from slurm_fairshare.core.window import Step, Weight, Window
from slurm_fairshare.sim.engine import TIMER, Ended, Engine, Job, Policy
from slurm_fairshare.sim.placement import Barred, Place
from slurm_fairshare.sim.tree import tree_of

IN_TEAM = (Priority.LOW, Priority.NORMAL, Priority.HIGH)
UNALLOCATED = "unallocated"
CHARGED_FIRST = 10 * BAND * TOP_LABEL
"""Slurm sorts what may preempt before what may be preempted, whatever their priorities (the facts, F4)."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """All that can be turned. Times in seconds where they are not lengths of core."""

    lookback: timedelta = timedelta(days=7)
    half_life: timedelta | None = None
    ladder: Ladder = field(default_factory=Ladder.default)
    lane: DebugLane | None = field(default_factory=DebugLane)
    rules: Rules = field(default_factory=Rules)
    large: Large | None = field(default_factory=Large)
    reservations: int = 1
    """Blocked jobs that backfill keeps nodes for until the running jobs' limits end. None with
    bf_min_prio_reserve=4000000000, more than any job has."""
    reserves: str = "all"
    """Which blocked jobs get them: `all`, or those in the `first` rank, where large jobs go that have waited long
    (SchedulerParameters=bf_min_prio_reserve)."""
    holds: bool = True
    """Whether room that was made for a job is held for it, as by a guard's reservation."""
    pool: int = 0
    """Nodes that take only debug and unallocated jobs."""
    near: int = 0
    """Nodes that jobs smaller than a node are tried on first: a partition of higher PriorityTier over them."""
    near_unallocated: bool = False
    count_committed: bool = False
    """Whether what running jobs are still promised counts in the order of accounts."""
    headroom: float = 0.0
    """Fraction of the GPUs in service that unallocated jobs leave free."""
    evicts: bool = True
    tick: int = 60
    """Seconds between two recomputations of the ranking."""


class Budget(Policy):
    """Budgets, fair-share over a lookback window, and the minimum-runtime contract."""

    name = "budget"
    backfill = True
    native = True
    rebalances = True
    recalculates = True

    def __init__(self, knobs: Knobs | None = None, name: str = "budget") -> None:
        self.knobs = knobs or Knobs()
        self.name = name
        self.rules = replace(self.knobs.rules, large=self.knobs.large)
        self.rebalances = self.knobs.evicts
        self.reservations = self.knobs.reservations
        self.tick = self.knobs.tick
        self.holds = self.knobs.holds

    def begin(self, engine: Engine) -> None:
        super().begin(engine)
        self.tree: Tree = tree_of(engine.workload.shares)
        self.origin = engine.workload.origin
        self.weight = Weight(self.knobs.half_life)
        self.order: list[str] = []
        self.label: dict[str, int] = {}
        """What the last tick pushed: a job that is submitted has it at once."""
        self.applied: dict[str, int] = {}
        """What pending jobs have had since Slurm last recalculated their priorities."""
        self.fresh: list[Job] = []
        self.ranking: Ranking | None = None
        self.most_unallocated: int | None = None
        self.recent: deque[Recorded] = deque()
        self.plan: tuple[Job, Booking] | None = None
        self.jobs: dict[int, Job] = {}
        self._resources: dict[tuple[str, int, int, int], Resources] = {}
        self._contracts: dict[tuple[int, bool, int, bool], Contract] = {}
        self._scene_up = -1
        nodes = engine.machine.nodes
        self.pool_mask = ((1 << self.knobs.pool) - 1) << (len(nodes) - self.knobs.pool)
        self.near_mask = ((1 << self.knobs.near) - 1) << (len(nodes) - self.knobs.near)
        self.names = [node.name for node in nodes]
        self.index = {name: i for i, name in enumerate(self.names)}

    # --- the tick ---------------------------------------------------------------------------------

    def moment(self, now: int) -> datetime:
        return self.origin + timedelta(seconds=now)

    def recalculate(self, now: int) -> None:
        at = self.moment(now)
        window = Window.lookback(at, self.knobs.lookback)
        start = now - int(self.knobs.lookback.total_seconds())
        meters = self.engine.ledger.charged
        used = {
            account_key(account): meter.weighed(max(0, start), now, self.knobs.half_life)
            for account, meter in meters.items()
        }
        usage = [Usage(Epoch(window.start, window.end, self.tree), used)]
        self.ranking = rank(self.tree, self._capacity(), usage, self.weight, at)
        order = [account_key(leaf.account) for leaf in self._in_order(at).leaves]
        if order != self.order:
            self.order, self.label = order, labels(order, self.label)
        if self.knobs.headroom:
            self._keep_headroom()
        if self.knobs.large is not None and self.knobs.large.plan_ahead:
            self._plan_ahead(self.knobs.large, at)

    def _plan_ahead(self, large: Large, at: datetime) -> None:
        """What the daemon would have planned for the first large job. A plan that is due becomes a claim."""
        self._keep_scene()
        first = self._first_large(large)
        if self.plan is None and first is None:
            return
        waiting = {job.number: job for job in (first, self.plan[0] if self.plan else None) if job is not None}
        jobs = (*self.scene.holding.values(), *(self._asking(job) for job in waiting.values()))
        picture = cluster.Picture("", at, jobs, tuple(self.scene.nodes.values()))
        assert self.ranking is not None  # noqa: S101
        knobs, recent = self.knobs, tuple(self.recent)
        booked = wanted(picture, self.ranking, knobs.ladder, knobs.lane, self.rules, self._plans(), (), recent, at)
        plan = next((one for one in booked if one.kind is Kind.PLAN), None)
        self._book((waiting[plan.job_id], plan) if plan is not None else None)
        for one in booked:
            if one.kind is Kind.GUARD:
                self.engine.take(waiting[one.job_id], self._place(waiting[one.job_id], one.nodes))

    def _first_large(self, large: Large) -> Job | None:
        for group in self.engine.waiting.order():
            for job in group.in_order() if group.live else ():
                if job.charged and large.is_planned(job.spec.gpus) and not job.claim:
                    return job
        return None

    def _book(self, plan: tuple[Job, Booking] | None) -> None:
        """Keep these nodes for this job, and no others for anybody."""
        if plan == self.plan:
            return
        self.plan, self.engine.plan = plan, None
        self.scene.plan(planned_nodes(self._plans()))
        if plan is not None:
            begins = int((plan[1].start - self.origin).total_seconds())
            self.engine.plan = Barred()
            self.engine.plan.book((self.index[name] for name in plan[1].nodes), begins)

    def _unplan(self, job: Job) -> None:
        """The job starts, or has a claim: what was planned for it is not needed any more."""
        if self.plan is not None and self.plan[0] is job:
            self._book(None)

    def _plans(self) -> list[Booking]:
        return [self.plan[1]] if self.plan is not None else []

    def _in_order(self, at: datetime) -> Ranking:
        assert self.ranking is not None  # noqa: S101
        if not self.knobs.count_committed:
            return self.ranking
        self._keep_scene()
        return counting(self.ranking, committed_by_user(self.scene.holding.values(), self.knobs.ladder, at))

    def _keep_headroom(self) -> None:
        floor, held = self.engine.floor, self.engine.limited.get(UNALLOCATED, 0)
        self.most_unallocated = most_unallocated(
            held, floor.total_free, floor.in_service, self.knobs.headroom, self.most_unallocated
        )

    def reorder(self) -> None:
        self.applied = dict(self.label)
        for job in self.fresh:
            if job.stream is not None and len(job.group) == 4:  # type: ignore[arg-type]
                self.engine.regroup(job, job.group[:3])  # type: ignore[index]
        self.fresh.clear()

    def _capacity(self) -> list[Step]:
        first = Step(self.origin, self.engine.machine.gpus)
        return [first, *(Step(self.moment(at), gpus) for at, gpus in self.engine.ledger.in_service)]

    # --- submit: what the plugin and slurmctld make of a job ----------------------------------------

    def rung_of(self, job: Job) -> Rung:
        """The smallest rung that covers the job; the lane's rung only for jobs small enough for the lane."""
        ladder, lane = self.knobs.ladder, self.knobs.lane
        rung = ladder.for_min_runtime(min(job.spec.min_runtime, ladder.cap))
        if lane is not None and lane.covers(rung) and job.spec.gpus > lane.max_gpus:
            return next((other for other in ladder.charged if not lane.covers(other)), rung)
        return rung

    def admit(self, job: Job) -> None:
        rung, lane = self.rung_of(job), self.knobs.lane
        account = account_key(job.spec.account)
        job.charged = rung.min_runtime > 0
        job.loose = not job.charged
        job.rung = rung
        job.tag = None
        if (
            self.near_mask
            and job.spec.gpus < self.engine.floor.size[0]
            and (job.charged or self.knobs.near_unallocated)
        ):
            job.near = self.engine.on(job, self.near_mask)
        if lane is not None and lane.covers(rung):
            job.limited_by = ("lane", account)
            job.group = ("lane", account, job.spec.priority)
        elif not job.charged:
            job.group = (UNALLOCATED, account, job.spec.priority)
            job.limited_by = UNALLOCATED if self.knobs.headroom else None
        else:
            job.group = ("leaf", account, job.spec.priority)
            if self.pool_mask:
                job.shape = self.engine.on(job, ~self.pool_mask)
            large = self.knobs.large
            if large is not None and job.spec.gpus >= large.gpus:
                self.engine.at(self.engine.now + int(large.wait.total_seconds()), TIMER, job, job.restarts)
        label = self.label.get(account, 0)
        if label != self.applied.get(account, 0):
            job.group = (*job.group, label)
            self.fresh.append(job)

    def reserves(self, job: Job) -> bool:
        if self.knobs.reserves == "all":
            return super().reserves(job)
        return isinstance(job.group, tuple) and job.group[0] == "large" and self._below_bound(job.group[1])

    def timer(self, job: Job, now: int) -> None:
        large = self.knobs.large
        if large is not None and job.stream is not None and now - job.since >= large.wait.total_seconds():
            self.engine.regroup(job, ("large", account_key(job.spec.account), job.spec.priority))

    def priority(self, group: Hashable) -> float:
        """As Slurm adds it up: the leaf's label, the in-team priority, the lane's own priority above all."""
        assert isinstance(group, tuple)  # noqa: S101
        kind, account, in_team, *fresh = group
        label = fresh[0] if fresh else self.applied.get(account, 0)
        own = label * BAND + IN_TEAM[in_team].site_factor
        if kind == UNALLOCATED:
            return float(own)
        if kind == "lane" and self.knobs.lane is not None:
            own += self.knobs.lane.priority
        if kind == "large" and self._below_bound(account):
            own = (TOP_LABEL + 1) * BAND
        return float(own + CHARGED_FIRST)

    def _below_bound(self, account: str) -> bool:
        large = self.knobs.large
        leaf = self.ranking.leaf(account) if self.ranking is not None else None
        return large is not None and leaf is not None and leaf.standing.ratio < large.max_ratio

    def may_start(self, job: Job) -> bool:
        if job.limited_by == UNALLOCATED:
            most = self.most_unallocated
            return most is None or self.engine.limited.get(UNALLOCATED, 0) + job.spec.gpus <= most
        lane = self.knobs.lane
        if lane is None:
            return True
        return self.engine.limited.get(job.limited_by, 0) + job.spec.gpus <= lane.max_gpus_per_team

    # --- the rebalancer ---------------------------------------------------------------------------

    def started(self, job: Job, now: int) -> None:
        self.jobs[job.number] = job
        self._unplan(job)
        if self._scene_up == self.engine.floor.up:
            self.scene.add(self._running(job))

    def told(self, job: Job, now: int) -> None:
        if self._scene_up == self.engine.floor.up:
            self.scene.leave(self._known(job))

    def ended(self, job: Job, now: int) -> None:
        del self.jobs[job.number]
        if self._scene_up == self.engine.floor.up:
            self.scene.remove(self._known(job))

    def _known(self, job: Job) -> cluster.Job:
        assert isinstance(job.tag, cluster.Job)  # noqa: S101
        return job.tag

    def stirs(self, job: Job) -> bool:
        """Debug jobs, and the first of a standing: nobody else is looked at."""
        return job.charged and (job.limited_by is not None or job.stream is None or job.stream.group.live <= 3)

    def rebalance(self, now: int) -> bool:
        if self.ranking is None:
            return False
        self._keep_scene()
        at, rules = self.moment(now), self.rules
        oldest = at - max(timedelta(hours=1), rules.cooldown)
        while self.recent and self.recent[0].decision.at < oldest:
            self.recent.popleft()
        found = rebalance_scene(self.scene, self._waiting(), self.ranking, self.knobs.lane, rules, self.recent, at)
        gone: dict[int, int] = {}
        for decision in found.decisions:
            assert decision.preemptor is not None  # noqa: S101
            leaves = self.engine.tell(self.jobs[decision.victim.job_id], Ended.EVICTED)
            taker = decision.preemptor.job_id
            gone[taker] = max(gone.get(taker, 0), leaves)
            self.recent.append(Recorded(decision, Outcome.REQUEUED, self.moment(leaves)))
        places = {d.preemptor.job_id: d.nodes for d in found.decisions if d.preemptor is not None}
        for number, until in gone.items():
            self._claim(self._pending[number], places[number], until)
        return bool(found.decisions)

    def _claim(self, job: Job, names: tuple[str, ...], until: int) -> None:
        self._unplan(job)
        self.engine.claim(job, self._place(job, names), until)

    def _place(self, job: Job, names: tuple[str, ...]) -> Place:
        shape = job.shape
        nodes = [self.index[name] for name in names]
        return (*((node, shape.each) for node in nodes[:-1]), (nodes[-1], shape.last))

    def _waiting(self) -> Iterator[cluster.Job]:
        """The first pending jobs of each standing in order, as far as a pass may look."""
        self._pending: dict[int, Job] = {}
        # Room that is being made for somebody is spoken for, however deep in the queue that job stands.
        for job in list(self.engine.claims.values()):
            self._pending[job.number] = job
            yield self._asking(job)
        if self.plan is not None and not self.plan[0].claim:
            self._pending[self.plan[0].number] = self.plan[0]
            yield self._asking(self.plan[0])
        most = {"lane": self.knobs.rules.lane_preemptors, "large": 2, "leaf": 3}
        for group in self.engine.waiting.order():
            if not group.live:
                continue
            assert isinstance(group.key, tuple)  # noqa: S101
            if group.key[0] == UNALLOCATED:
                return
            for job in group.firsts(most[group.key[0]]):
                if job.limited_by is not None and not self.may_start(job):
                    break
                if job.number in self._pending:
                    continue
                self._pending[job.number] = job
                yield self._asking(job)

    # --- core's picture of things -------------------------------------------------------------------

    def _keep_scene(self) -> None:
        """The scene follows the runs; when a node leaves or comes back it is made anew."""
        floor = self.engine.floor
        if self._scene_up == floor.up:
            return
        self._scene_up = floor.up
        none = Resources()
        self.scene = Scene(
            [
                cluster.Node(
                    name=node.name,
                    states=frozenset({"IDLE"}) if floor.up >> i & 1 else frozenset({"DOWN"}),
                    total=self._held(node.kind, node.gpus, node.cpus or 1 << 40, node.memory_mb or 1 << 40),
                    allocated=none,
                    partitions=("pool",) if self.pool_mask >> i & 1 else ("main", "pool"),
                )
                for i, node in enumerate(self.engine.machine.nodes)
            ],
            self.knobs.ladder,
            planned_nodes(self._plans()),
        )
        for job in self.jobs.values():
            self.scene.add(self._running(job))
            if job.leaving:
                self.scene.leave(self._known(job))

    def _held(self, kind: str, gpus: int, cpus: int, memory: int) -> Resources:
        key = (kind, gpus, cpus, memory)
        found = self._resources.get(key)
        if found is None:
            found = self._resources[key] = Resources({kind: gpus} if gpus else {}, cpus, memory)
        return found

    def _contract(self, job: Job) -> Contract:
        spec = job.spec
        key = (spec.min_runtime, spec.resumable, spec.priority, spec.notice)
        found = self._contracts.get(key)
        if found is None:
            notice = "USR1" if spec.notice else None
            found = Contract(
                min(spec.min_runtime, self.knobs.ladder.cap), spec.resumable, IN_TEAM[spec.priority], notice
            )
            self._contracts[key] = found
        return found

    def _asking(self, job: Job) -> cluster.Job:
        if not isinstance(job.tag, cluster.Job):
            job.tag = self._job(job, cluster.PENDING, "Resources", None)
        return job.tag

    def _running(self, job: Job) -> cluster.Job:
        made = self._job(job, cluster.RUNNING, "None", self.moment(job.start))
        job.tag = made
        return made

    def _job(self, job: Job, state: str, reason: str, start: datetime | None) -> cluster.Job:
        spec, shape = job.spec, job.shape
        nodes = self.engine.machine.nodes
        assert job.rung is not None  # noqa: S101
        submit = self.moment(job.since)
        return cluster.Job(
            job_id=job.number,
            label=str(job.number),
            account=spec.account,
            user=spec.user,
            uid=0,
            partitions=("main",) if self.pool_mask and job.group[0] in ("leaf", "large") else ("pool",),  # type: ignore[index]
            qos=job.rung.name,
            state=state,
            reason=reason,
            priority=0,
            submit=submit,
            eligible=submit,
            start=start,
            time_limit=timedelta(seconds=job.limit),
            wanted=self._held(spec.kind, spec.gpus, spec.cpus, spec.memory_mb),
            node_count=shape.count,
            by_node={
                nodes[node].name: self._held(nodes[node].kind, gpus, shape.cpus, shape.memory)
                for node, gpus in job.place
            }
            if start is not None
            else {},
            contract=self._contract(job),
            requeueable=True,
            restarts=job.restarts,
        )
