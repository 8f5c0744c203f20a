"""Who yields after its minimum runtime, to whom: a pure function from a picture to decisions.

A pass looks at the first pending jobs in Slurm's own order that wait for resources. For one that cannot be
placed in what is free, leaving, or held by unallocated work (which Slurm itself takes), it looks for the
cheapest set of runs that may yield to it and whose nodes then hold the whole job. No such set: nobody is
stopped, and the reason is kept. Nothing here knows a clock, Slurm or Postgres.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from itertools import combinations, islice

from slurm_fairshare.core.cluster import COMPLETING, RUNNING, Job, Node, Picture
from slurm_fairshare.core.contract import Contract, DebugLane, Ladder
from slurm_fairshare.core.decisions import OPEN, Decision, Outcome, Recorded, Rule, Side
from slurm_fairshare.core.fairshare import Ranked, Ranking
from slurm_fairshare.core.resources import UNTYPED, Resources
from slurm_fairshare.core.tree import account_key, diverging
from slurm_fairshare.units import duration

WAITS_FOR_RESOURCES = frozenset({"Resources", "Priority"})
"""Slurm's reasons of a job that only lacks room. Any other reason names a limit that would stop it anyway."""

EXHAUSTIVE = 8
"""Up to so many candidates on a node every subset is weighed; above it they are taken greedily."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The knobs of the rebalancer. Ratios are of U/E; rates count decisions that were carried out."""

    hysteresis: float = 0.10
    preemptors: int = 2
    lane_preemptors: int = 8
    depth: int = 200
    max_per_pass: int = 32
    max_per_hour: int = 600
    max_per_team_hour: int = 120
    settle: timedelta = timedelta(seconds=60)
    cooldown: timedelta = timedelta(minutes=10)
    attempts: int = 3
    max_age: timedelta = timedelta(minutes=5)
    checkpoint_interval: timedelta = timedelta(minutes=30)


class Why(StrEnum):
    """Why nobody was stopped for a waiting job."""

    STALE = "stale-data"
    NO_BUDGET = "no-budget"
    UNALLOCATED = "unallocated"
    FITS = "fits"
    OUTSTANDING = "outstanding"
    GAVE_UP = "gave-up"
    NOT_MODELLED = "not-modelled"
    NOBODY_YIELDS = "nobody-yields"
    TOO_BIG = "too-big"
    RATE_LIMIT = "rate-limit"


@dataclass(frozen=True, slots=True)
class Declined:
    """A waiting job for which nobody was stopped, and why, in words. Job 0: the whole pass."""

    job_id: int
    why: Why
    words: str


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one pass."""

    decisions: tuple[Decision, ...] = ()
    declined: tuple[Declined, ...] = ()


@dataclass(frozen=True, slots=True)
class Permission:
    """That one run may be stopped for a job: under which rule, comparing which two nodes of the tree."""

    rule: Rule
    preemptor_node: str
    victim_node: str


Permissions = dict[tuple[str, str], dict[object, Permission | None]]
"""By the two leaves, then by whatever of job and run the rules look at."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that may yield to the job in question."""

    job: Job
    leaf: Ranked
    permission: Permission
    over: float
    lost: float

    @property
    def resumable(self) -> bool:
        return self.job.contract is not None and self.job.contract.resumable


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pending job needs: so many nodes with so much on each."""

    nodes: int
    each: Resources


@dataclass(frozen=True, slots=True)
class Need:
    """A pending job's shape and the names of the nodes it may stand on. No shape: `unknown` is not understood, or
    even empty nodes could not hold it."""

    shape: Shape | None
    names: tuple[str, ...]
    unknown: str = ""


class Scene:
    """What a pass looks at, kept run by run: the room on each node in service, and the runs that may yield.

    *Room* is what a job under contract gets without our help: free, leaving, and held by unallocated work.
    The daemon builds a scene from each picture; the simulator keeps one and moves it along, so that a pass
    costs what changed and not the size of the cluster.
    """

    def __init__(self, nodes: Iterable[Node], ladder: Ladder) -> None:
        self.ladder = ladder
        self.nodes = {node.name: node for node in nodes}
        self.in_service = [node for node in self.nodes.values() if node.in_service]
        self.room = {node.name: node.free for node in self.in_service}
        self.gpus = {name: _total(room) for name, room in self.room.items()}
        """The sum of GPUs in `room`: the quick look before the exact one."""
        self.bare: dict[str, dict[int, Job]] = {}
        """Runs past their minimum, which may be stopped, by account key and job id: as of `advance`."""
        self._protected: dict[int, Job] = {}
        self._ends: list[tuple[datetime, int]] = []
        """When protection ends, soonest first; what is no longer in `_protected` is passed over."""
        self._charged: dict[str, bool] = {}
        self._permissions: tuple[Ranking | None, Permissions] = (None, {})
        self.holding: dict[int, Job] = {}
        self._leaving: set[int] = set()
        self._needs: dict[object, Need] = {}

    @classmethod
    def of(cls, picture: Picture, ladder: Ladder, leaving: Collection[int] = ()) -> Scene:
        """The scene of a picture. `leaving` are jobs told to go that the picture still shows as running."""
        scene = cls(picture.nodes, ladder)
        for job in picture.holding:
            scene._hold(job)
            if job.state == COMPLETING or job.job_id in leaving:
                scene.leave(job)
        return scene

    def _hold(self, job: Job) -> None:
        """Take up a run whose room the nodes already count as allocated."""
        self.holding[job.job_id] = job
        if job.qos == self.ladder.unallocated.name:
            self._change(job, 1)
        elif self._may_be_stopped(job):
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
        self.holding.pop(job.job_id, None)
        self._forget(job)

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

    def permissions(self, ranking: Ranking) -> Permissions:
        """What has been asked under this very ranking; a new one starts afresh."""
        if self._permissions[0] is not ranking:
            self._permissions = (ranking, {})
        return self._permissions[1]

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
                self.gpus[name] = _total(self.room[name])

    def need(self, job: Job) -> Need:
        """What the job needs and where it may stand; worked out once for all jobs that ask for the same."""
        wanted = job.wanted
        asked = (
            job.partitions, job.constraints, job.node_count, wanted.cpus, wanted.memory_mb, *wanted.gpus.items()
        )  # fmt: skip
        need = self._needs.get(asked)
        if need is None:
            nodes, unknown = eligible_nodes(job, self.in_service)
            shape = None if unknown else shape_of(job, nodes)
            need = self._needs[asked] = Need(shape, tuple(node.name for node in nodes), unknown)
        return need


def _total(room: Resources) -> int:
    """GPUs that are there: a node that is over-committed in one type has none of it, not less."""
    return sum(amount for amount in room.gpus.values() if amount > 0)


def queue_order(jobs: Iterable[Job], ladder: Ladder) -> list[Job]:
    """Pending jobs as Slurm sorts them: what may preempt natively first, then priority, then age of the id."""
    return sorted(
        (job for job in jobs if job.pending),
        key=lambda job: (not ladder.is_charged(job.qos), -job.priority, job.submit, job.job_id),
    )


def rebalance(
    picture: Picture,
    ranking: Ranking,
    ranked_at: datetime,
    ladder: Ladder,
    lane: DebugLane | None,
    rules: Rules,
    recent: Sequence[Recorded],
    now: datetime,
) -> Pass:
    """One pass. `recent` holds at least the decisions of the last hour and of the cool-down."""
    oldest = min(picture.at, ranked_at)
    if now - oldest > rules.max_age:
        age = duration((now - oldest).total_seconds())
        limit = duration(rules.max_age.total_seconds())
        words = f"the data is {age} old, more than the {limit} allowed; nobody is stopped on it"
        return Pass(declined=(Declined(0, Why.STALE, words),))
    told = {one.decision.victim.job_id for one in _counted(recent) if one.outcome in OPEN}
    waiting = queue_order(picture.jobs, ladder)[: rules.depth]
    return rebalance_scene(Scene.of(picture, ladder, told), waiting, ranking, lane, rules, recent, now)


def rebalance_scene(
    scene: Scene,
    waiting: Iterable[Job],
    ranking: Ranking,
    lane: DebugLane | None,
    rules: Rules,
    recent: Sequence[Recorded],
    now: datetime,
) -> Pass:
    """One pass over a scene that is up to date. `waiting` are the pending jobs in Slurm's order."""
    return _Pass(scene, waiting, ranking, lane, rules, recent, now).run()


def _counted(recent: Iterable[Recorded]) -> list[Recorded]:
    return [one for one in recent if not one.decision.dry_run and one.outcome != Outcome.GONE]


def may_yield(
    preemptor: Job,
    mine: Ranked,
    run: Job,
    theirs: Ranked,
    ranking: Ranking,
    ladder: Ladder,
    lane: DebugLane | None,
    rules: Rules,
) -> Permission | None:
    """The rules of precedence between two leaves. Neither age nor the size of a job plays a part.

    Inside one leaf only a higher in-team priority counts. Between leaves the two ancestors just below their
    lowest common one are compared: the victim's side is over target and behind by more than the hysteresis.
    A debug-lane job may take from any other leaf over target.
    """
    sides = diverging(mine.path, theirs.path)
    if sides is None:
        higher = _in_team(preemptor.contract) > _in_team(run.contract)
        return Permission(Rule.IN_TEAM_PRIORITY, mine.path, mine.path) if higher else None
    ahead, behind = (ranking.standings[path] for path in sides)
    if behind.over_target and behind.ratio - ahead.ratio > rules.hysteresis:
        return Permission(Rule.UNDER_SERVED, *sides)
    if theirs.standing.over_target and _in_lane(preemptor, ladder, lane):
        return Permission(Rule.DEBUG_LANE, mine.path, theirs.path)
    return None


def past_minimum(run: Job, now: datetime) -> int | None:
    """Whole seconds the run is past its own declared minimum; None while it is protected or not understood."""
    if run.start is None or run.contract is None:
        return None
    over = (now - run.start).total_seconds() - run.contract.min_runtime
    return int(over) if over >= 0 else None


def work_lost(run: Job, now: datetime, checkpoint_interval: timedelta) -> float:
    """GPU-seconds thrown away if the run stops now: since its last checkpoint, or all if it keeps none.

    Where a run saves is not known to Slurm; a resumable one is assumed to save once an interval.
    """
    if run.start is None:
        return 0.0
    elapsed = (now - run.start).total_seconds()
    if run.contract is not None and run.contract.resumable:
        elapsed %= checkpoint_interval.total_seconds()
    return elapsed * run.wanted.gpu_count


def can_be_stopped(run: Job) -> bool:
    """A run that can be requeued, or one whose contract says it does not resume and so may be ended."""
    if run.batch and run.requeueable:
        return True
    return run.contract is not None and not run.contract.resumable


def shape_of(job: Job, nodes: Sequence[Node]) -> Shape | None:
    """Nodes and amount on each that the job asks for. None where even empty nodes could not hold it.

    A job that names GPUs but fewer nodes than they need is spread over as many as that takes. Uneven
    requests are rounded up: better no eviction than one that does not help.
    """
    largest = max((node.total.gpu_count for node in nodes), default=0)
    count = max(1, job.node_count)
    gpus = job.wanted.gpu_count
    if gpus > count * largest:
        if largest == 0:
            return None
        count = -(-gpus // largest)
    each = Resources(
        gpus={kind: -(-amount // count) for kind, amount in job.wanted.gpus.items() if amount},
        cpus=-(-job.wanted.cpus // count),
        memory_mb=-(-job.wanted.memory_mb // count),
    )
    room = sum(1 for node in nodes if fits(each, node.total))
    return Shape(count, each) if room >= count else None


def fits(need: Resources, free: Resources) -> bool:
    """Whether the need fits. A GPU of no stated type takes any that the typed needs leave."""
    if need.cpus > free.cpus or need.memory_mb > free.memory_mb:
        return False
    if any(amount > free.gpus.get(kind, 0) for kind, amount in need.gpus.items() if kind != UNTYPED):
        return False
    return need.gpu_count <= sum(amount for amount in free.gpus.values() if amount > 0)


def eligible_nodes(job: Job, nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """The nodes the job may run on, or the part of its request that is not understood here."""
    chosen = [
        node for node in nodes if node.in_service and (not job.partitions or set(job.partitions) & set(node.partitions))
    ]
    for constraint in job.constraints:
        key, _, value = constraint.partition("=")
        if key == "features" and value and not set(value) & set("|[]()*!"):
            wanted = set(value.replace("&", ",").split(","))
            chosen = [node for node in chosen if wanted <= set(node.features)]
        elif key == "exclude":
            chosen = [node for node in chosen if node.name not in value.split(",")]
        elif key == "nodelist" and len(value.split(",")) <= job.node_count:
            required = set(value.split(","))
            if len(required) == job.node_count:
                chosen = [node for node in chosen if node.name in required]
            else:
                return [], constraint
        else:
            return [], constraint
    return chosen, ""


def _in_team(contract: Contract | None) -> int:
    return contract.priority.site_factor if contract is not None else 0


def _in_lane(job: Job, ladder: Ladder, lane: DebugLane | None) -> bool:
    rung = ladder.rung(job.qos)
    return lane is not None and rung is not None and lane.covers(rung)


class _Pass:
    """The working state of one pass; nothing of it outlives the call."""

    def __init__(
        self,
        scene: Scene,
        waiting: Iterable[Job],
        ranking: Ranking,
        lane: DebugLane | None,
        rules: Rules,
        recent: Sequence[Recorded],
        now: datetime,
    ) -> None:
        self.scene, self.waiting, self.ranking, self.lane = scene, waiting, ranking, lane
        self.ladder, self.rules, self.now = scene.ladder, rules, now
        self.recent = _counted(recent)
        self.leaf_by_account = ranking.by_account
        self.decisions: list[Decision] = []
        self.declined: list[Declined] = []
        self.room, self.gpus = dict(scene.room), dict(scene.gpus)
        self.gone: set[int] = set()
        self.in_lane: dict[str, bool] = {}
        scene.advance(now)

    def run(self) -> Pass:
        general = lane = 0
        for job in self.waiting:
            if job.reason not in WAITS_FOR_RESOURCES:
                continue
            in_lane = self.in_lane.get(job.qos)
            if in_lane is None:
                in_lane = self.in_lane[job.qos] = _in_lane(job, self.ladder, self.lane)
            if lane >= self.rules.lane_preemptors if in_lane else general >= self.rules.preemptors:
                continue
            blocked = self._serve(job)
            lane += blocked and in_lane
            general += blocked and not in_lane
        return Pass(tuple(self.decisions), tuple(self.declined))

    def _serve(self, job: Job) -> bool:
        """Place the job or find who yields to it. True if it was blocked, so that it counts as a preemptor."""
        if not self.scene.charged(job):
            return self._decline(job, Why.UNALLOCATED, "it runs unallocated, which never stops anybody")
        leaf = self.leaf_by_account.get(account_key(job.account))
        if leaf is None or leaf.standing.share <= 0:
            words = f"account {job.account} has no share in the budget tree, so it never stops anybody"
            return self._decline(job, Why.NO_BUDGET, words)
        need = self.scene.need(job)
        if need.unknown:
            words = f"it asks for {need.unknown}, which the rebalancer does not model, so it stops nobody for it"
            return self._decline(job, Why.NOT_MODELLED, words, blocked=True)
        if need.shape is None:
            words = "no set of nodes in service could hold it even if they were empty"
            return self._decline(job, Why.TOO_BIG, words, blocked=True)
        placed = self._place(need.shape, need.names)
        if placed is not None:
            self._take(placed, need.shape.each)
            return False
        return self._evict_for(job, leaf, need.shape, need.names)

    def _take(self, names: Iterable[str], need: Resources) -> None:
        for name in names:
            self.room[name] = self.room[name].minus(need)
            self.gpus[name] = _total(self.room[name])

    def _give(self, job: Job) -> None:
        for name, part in job.by_node.items():
            if name in self.room:
                self.room[name] = self.room[name].plus(part)
                self.gpus[name] = _total(self.room[name])

    def _decline(self, job: Job, why: Why, words: str, *, blocked: bool = False) -> bool:
        self.declined.append(Declined(job.job_id, why, words))
        return blocked

    def _place(self, shape: Shape, names: Sequence[str]) -> list[str] | None:
        """Nodes that hold the job as things stand: the fullest that fit, so that large holes stay whole."""
        gpus, each, wanted = self.gpus, shape.each, shape.each.gpu_count
        enough = [(gpus[name], name) for name in names if gpus[name] >= wanted]
        if len(enough) < shape.nodes:
            return None
        fitting = (name for _, name in sorted(enough) if fits(each, self.room[name]))
        found = list(islice(fitting, shape.nodes))
        return found if len(found) == shape.nodes else None

    def _evict_for(self, job: Job, leaf: Ranked, shape: Shape, names: Sequence[str]) -> bool:
        made = self._for_this(job)
        waiting = self._waits_for_earlier(made)
        if waiting is not None:
            return self._decline(job, *waiting, blocked=True)
        yielding = self._yielding(job, leaf, {one.decision.victim.job_id for one in made})
        found = None
        if self._could_hold(shape, names, yielding):
            found = self._choose(shape, names, [self._candidate(*one) for one in yielding])
        if found is None:
            return self._decline(job, Why.NOBODY_YIELDS, self._nobody(leaf, len(yielding)), blocked=True)
        placed, chosen = found
        limit = self._rate_limit(chosen)
        if limit:
            return self._decline(job, Why.RATE_LIMIT, limit, blocked=True)
        for candidate in chosen:
            self.decisions.append(self._decision(job, leaf, candidate, placed))
            self._give(candidate.job)
            self.gone.add(candidate.job.job_id)
        self._take(placed, shape.each)
        return True

    def _for_this(self, job: Job) -> list[Recorded]:
        """Recent decisions made for the job and not answered by a start since: of it, or of a task of its array."""
        made = [one for one in self.recent if one.decision.preemptor and one.decision.preemptor.job_id == job.job_id]
        if not made:
            return made
        family = job.label.partition("_")[0]
        started = [
            other.start
            for other in self.scene.holding.values()
            if other.start is not None and (other.job_id == job.job_id or other.label.partition("_")[0] == family)
        ]
        answered = max(started, default=None)
        return [
            one
            for one in made
            if self.now - one.decision.at <= self.rules.cooldown and (answered is None or one.decision.at > answered)
        ]

    def _waits_for_earlier(self, earlier: Sequence[Recorded]) -> tuple[Why, str] | None:
        if not earlier:
            return None
        newest = max(one.changed for one in earlier)
        if self.now - newest < self.rules.settle or any(one.outcome in OPEN for one in earlier):
            names = ", ".join(sorted({one.decision.victim.label for one in earlier}))
            return Why.OUTSTANDING, f"room was made for it ({names} yielded); it has not started yet"
        if len({one.decision.at for one in earlier}) >= self.rules.attempts:
            wait = duration(self.rules.cooldown.total_seconds())
            return Why.GAVE_UP, f"room was made for it {self.rules.attempts} times in {wait} and it did not start"
        return None

    def _yielding(self, job: Job, leaf: Ranked, tried: Collection[int]) -> list[tuple[Job, Ranked, Permission]]:
        """The runs past their minimum that may be stopped for the job. One look at two leaves serves all runs."""
        found = []
        for account, bare in self.scene.bare.items():
            theirs = self.leaf_by_account.get(account)
            if theirs is None or not bare:
                continue
            own = theirs.path == leaf.path
            for run in bare.values():
                permission = self._may_yield(job, leaf, run, theirs, own)
                if permission is not None:
                    if run.job_id not in tried and run.job_id not in self.gone:
                        found.append((run, theirs, permission))
                elif not own:
                    break
        return found

    def _may_yield(self, job: Job, leaf: Ranked, run: Job, theirs: Ranked, own: bool) -> Permission | None:
        """`may_yield`, asked once for all jobs and runs that it cannot tell apart."""
        key: object = (
            (job.contract and job.contract.priority, run.contract and run.contract.priority) if own else job.qos
        )
        known = self.scene.permissions(self.ranking).setdefault((leaf.path, theirs.path), {})
        if key not in known:
            known[key] = may_yield(job, leaf, run, theirs, self.ranking, self.ladder, self.lane, self.rules)
        return known[key]

    def _could_hold(
        self, shape: Shape, names: Sequence[str], yielding: Sequence[tuple[Job, Ranked, Permission]]
    ) -> bool:
        """Whether enough nodes would have the GPUs if all of them yielded: most tries end at this count."""
        if not yielding:
            return False
        each = shape.each.gpu_count
        more: dict[str, int] = {}
        for run, _, _ in yielding:
            for name, part in run.by_node.items():
                more[name] = more.get(name, 0) + part.gpu_count
        gpus = self.gpus
        return sum(1 for name in names if gpus[name] + more.get(name, 0) >= each) >= shape.nodes

    def _candidate(self, run: Job, theirs: Ranked, permission: Permission) -> Candidate:
        lost = work_lost(run, self.now, self.rules.checkpoint_interval)
        return Candidate(run, theirs, permission, self.ranking.standings[permission.victim_node].ratio, lost)

    def _choose(
        self, shape: Shape, names: Sequence[str], candidates: Sequence[Candidate]
    ) -> tuple[list[str], list[Candidate]] | None:
        """The cheapest set of runs whose nodes, with what is free, hold the whole job; None if there is none.

        Node after node the one that is cheapest to clear is taken; then every run that turns out not to be
        needed is spared. Resumable before not, fewest GPUs given up beyond need, least work lost, most over
        target; ties by name, so the same picture gives the same decision.
        """
        by_node: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            for name in candidate.job.by_node:
                by_node.setdefault(name, []).append(candidate)
        chosen: list[Candidate] = []
        placed: list[str] = []
        options: dict[str, tuple[_Cost, str, tuple[Candidate, ...]]] = {}
        stale: Iterable[str] = names
        while True:
            for name in stale:
                extra = self._clear(name, shape.each, by_node.get(name, ()), chosen)
                if extra is not None:
                    options[name] = (_cost(extra, shape.each), name, extra)
            if not options:
                return None
            _, name, extra = min(options.values(), key=lambda option: option[:2])
            chosen.extend(extra)
            placed.append(name)
            del options[name]
            if len(placed) == shape.nodes:
                return placed, self._spare(shape, placed, chosen)
            # What was chosen for this node may make others cheaper; nothing else has changed.
            stale = {other for one in extra for other in one.job.by_node} & set(names).difference(placed)

    def _clear(
        self, name: str, each: Resources, here: Sequence[Candidate], chosen: Sequence[Candidate]
    ) -> tuple[Candidate, ...] | None:
        """The cheapest of the candidates on the node, beyond those chosen already, that make room on it."""
        free = self.room[name]
        for candidate in chosen:
            part = candidate.job.by_node.get(name)
            if part is not None:
                free = free.plus(part)
        if fits(each, free):
            return ()
        rest = [one for one in here if one not in chosen]
        everything = free
        for candidate in rest:
            everything = everything.plus(candidate.job.by_node[name])
        if not rest or not fits(each, everything):
            return None
        if len(rest) > EXHAUSTIVE:
            return self._clear_greedily(name, each, free, rest)
        return self._clear_exactly(name, each, free, rest)

    def _clear_exactly(
        self, name: str, each: Resources, free: Resources, rest: Sequence[Candidate]
    ) -> tuple[Candidate, ...] | None:
        """Every subset is weighed; those with too few GPUs are passed over by their sum alone."""
        lacking = each.gpu_count - _total(free)
        gpus = [one.job.by_node[name].gpu_count for one in rest]
        best: tuple[Candidate, ...] | None = None
        least: _Cost | None = None
        for size in range(1, len(rest) + 1):
            for picked in combinations(range(len(rest)), size):
                if sum(gpus[i] for i in picked) < lacking:
                    continue
                group = tuple(rest[i] for i in picked)
                cost = _cost(group, each)
                if least is not None and cost >= least:
                    continue
                room = free
                for candidate in group:
                    room = room.plus(candidate.job.by_node[name])
                if fits(each, room):
                    best, least = group, cost
        return best

    def _clear_greedily(
        self, name: str, each: Resources, free: Resources, rest: Sequence[Candidate]
    ) -> tuple[Candidate, ...] | None:
        taken: list[Candidate] = []
        for candidate in sorted(rest, key=lambda one: _cost((one,), each)):
            taken.append(candidate)
            free = free.plus(candidate.job.by_node[name])
            if fits(each, free):
                return tuple(taken)
        return None

    def _spare(self, shape: Shape, placed: Sequence[str], chosen: Sequence[Candidate]) -> list[Candidate]:
        needed = list(chosen)
        for candidate in sorted(chosen, key=lambda one: _cost((one,), shape.each), reverse=True):
            rest = [one for one in needed if one is not candidate]
            if all(self._clear(name, shape.each, (), rest) is not None for name in placed):
                needed = rest
        return needed

    def _rate_limit(self, chosen: Sequence[Candidate]) -> str:
        hour = [one for one in self.recent if self.now - one.decision.at <= timedelta(hours=1)]
        if len(self.decisions) + len(chosen) > self.rules.max_per_pass:
            return f"this pass has reached its limit of {self.rules.max_per_pass} runs to stop"
        if len(hour) + len(self.decisions) + len(chosen) > self.rules.max_per_hour:
            return f"the limit of {self.rules.max_per_hour} runs stopped in an hour is reached"
        sides = [one.decision.victim.leaf for one in hour] + [made.victim.leaf for made in self.decisions]
        for candidate in chosen:
            more = sum(1 for other in chosen if other.leaf.path == candidate.leaf.path)
            if sides.count(candidate.leaf.path) + more > self.rules.max_per_team_hour:
                limit = self.rules.max_per_team_hour
                return f"{candidate.leaf.path} has had {limit} runs stopped within an hour, its limit"
        return ""

    def _nobody(self, leaf: Ranked, yielding: int) -> str:
        """The words for a blocked job: what there was, and what it lacked."""
        if yielding:
            return (
                f"{yielding} runs past their minimum would yield to it, but their nodes together with "
                "what is free do not hold it whole, so none is stopped"
            )
        bare = sum(len(runs) for account, runs in self.scene.bare.items() if account in self.leaf_by_account)
        if not bare:
            return "no run under contract is past its minimum runtime yet"
        ratio = leaf.standing.ratio
        return (
            f"none of the {bare} runs past their minimum belongs to a side that is over target and "
            f"behind by more than {self.rules.hysteresis:.2f} ({leaf.path} stands at {ratio:.2f} of its entitlement)"
        )

    def _decision(self, job: Job, leaf: Ranked, candidate: Candidate, placed: Sequence[str]) -> Decision:
        run, permission = candidate.job, candidate.permission
        assert run.start is not None  # noqa: S101  _stoppable has seen to it
        assert run.contract is not None  # noqa: S101
        return Decision(
            id=f"{run.job_id}-{int(run.start.timestamp())}-{job.job_id}-{int(self.now.timestamp())}",
            at=self.now,
            rule=permission.rule,
            victim=self._side(run, candidate.leaf, permission.victim_node),
            started=run.start,
            min_runtime=run.contract.min_runtime,
            over_minimum=past_minimum(run, self.now) or 0,
            resumable=run.contract.resumable,
            requeue=run.batch and run.requeueable,
            preemptor=self._side(job, leaf, permission.preemptor_node),
            hysteresis=self.rules.hysteresis,
            nodes=tuple(placed),
            notice=run.contract.notice,
        )

    def _side(self, job: Job, leaf: Ranked, node: str) -> Side:
        ratio = self.ranking.standings[node].ratio
        return Side(job.job_id, job.label, job.user, job.account, leaf.path, node, ratio, job.wanted.gpu_count)


_Cost = tuple[int, int, float, float, tuple[int, ...]]


def _cost(group: Sequence[Candidate], each: Resources) -> _Cost:
    """What clearing costs, smaller is better. In-team yielding comes after yielding between teams."""
    given = sum(candidate.job.wanted.gpu_count for candidate in group)
    return (
        sum(1 for candidate in group if not candidate.resumable),
        max(0, given - each.gpu_count) if group else 0,
        sum(candidate.lost for candidate in group),
        -sum(min(candidate.over, 1e9) for candidate in group),
        tuple(sorted(candidate.job.job_id for candidate in group)),
    )


def dry(decision: Decision) -> Decision:
    """The same decision, marked as one that was only shown."""
    return replace(decision, dry_run=True)
