"""Who yields after its minimum runtime, to whom: a pure function from a picture to decisions.

A pass looks at the first pending jobs in Slurm's own order that wait for resources. For one that cannot be
placed in what is free, leaving, or held by unallocated work (which Slurm itself takes), it looks for the
cheapest set of runs that may yield to it and whose nodes then hold the whole job. No such set: nobody is
stopped, and the reason is kept. Nothing here knows a clock, Slurm or Postgres.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import combinations

from slurm_fairshare.core.cluster import RUNNING, Job, Node, Picture
from slurm_fairshare.core.contract import Contract, DebugLane, Ladder
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded, Rule, Side
from slurm_fairshare.core.fairshare import Ranked, Ranking
from slurm_fairshare.core.resources import UNTYPED, Resources
from slurm_fairshare.core.tree import diverging
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


@dataclass
class _Space:
    """What is or will soon be free on each node; shrinks as the pass hands room out."""

    free: dict[str, Resources]
    nodes: Mapping[str, Node]
    whole: dict[str, bool] = field(default_factory=dict)

    def take(self, names: Iterable[str], need: Resources) -> None:
        for name in names:
            self.free[name] = self.free[name].minus(need)

    def give(self, job: Job) -> None:
        for name, part in job.by_node.items():
            if name in self.free:
                self.free[name] = self.free[name].plus(part)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pending job needs: so many nodes with so much on each."""

    nodes: int
    each: Resources


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
    return _Pass(picture, ranking, ladder, lane, rules, recent, now).run()


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
    if _in_lane(preemptor, ladder, lane) and theirs.standing.over_target:
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
        picture: Picture,
        ranking: Ranking,
        ladder: Ladder,
        lane: DebugLane | None,
        rules: Rules,
        recent: Sequence[Recorded],
        now: datetime,
    ) -> None:
        self.picture, self.ranking, self.ladder, self.lane = picture, ranking, ladder, lane
        self.rules, self.now = rules, now
        self.recent = [one for one in recent if not one.decision.dry_run and one.outcome != Outcome.GONE]
        self.leaf_by_account = {leaf.account.lower(): leaf for leaf in ranking.leaves}
        self.decisions: list[Decision] = []
        self.declined: list[Declined] = []
        self.leaving = {one.decision.victim.job_id for one in self.recent if one.outcome in ("decided", "noticed")}
        self.space = self._room()
        self.victims = [job for job in picture.jobs if self._stoppable(job)]

    def run(self) -> Pass:
        general = lane = 0
        for job in queue_order(self.picture.jobs, self.ladder)[: self.rules.depth]:
            if job.reason not in WAITS_FOR_RESOURCES:
                continue
            in_lane = _in_lane(job, self.ladder, self.lane)
            if lane >= self.rules.lane_preemptors if in_lane else general >= self.rules.preemptors:
                continue
            blocked = self._serve(job)
            lane += blocked and in_lane
            general += blocked and not in_lane
        return Pass(tuple(self.decisions), tuple(self.declined))

    def _room(self) -> _Space:
        """Free, leaving, and held by unallocated work: what a job under contract gets without our help."""
        nodes = {node.name: node for node in self.picture.nodes if node.in_service}
        space = _Space({name: node.free for name, node in nodes.items()}, nodes)
        for job in self.picture.holding:
            goes = job.state == "COMPLETING" or job.job_id in self.leaving
            if goes or job.qos == self.ladder.unallocated.name:
                space.give(job)
        return space

    def _stoppable(self, job: Job) -> bool:
        return (
            job.state == RUNNING
            and self.ladder.is_charged(job.qos)
            and job.job_id not in self.leaving
            and job.account.lower() in self.leaf_by_account
            and bool(job.by_node)
            and past_minimum(job, self.now) is not None
            and can_be_stopped(job)
        )

    def _serve(self, job: Job) -> bool:
        """Place the job or find who yields to it. True if it was blocked, so that it counts as a preemptor."""
        if not self.ladder.is_charged(job.qos):
            return self._decline(job, Why.UNALLOCATED, "it runs unallocated, which never stops anybody")
        leaf = self.leaf_by_account.get(job.account.lower())
        if leaf is None or leaf.standing.share <= 0:
            words = f"account {job.account} has no share in the budget tree, so it never stops anybody"
            return self._decline(job, Why.NO_BUDGET, words)
        nodes, unknown = eligible_nodes(job, self.picture.nodes)
        if unknown:
            words = f"it asks for {unknown}, which the rebalancer does not model, so it stops nobody for it"
            return self._decline(job, Why.NOT_MODELLED, words, blocked=True)
        shape = shape_of(job, nodes)
        if shape is None:
            words = "no set of nodes in service could hold it even if they were empty"
            return self._decline(job, Why.TOO_BIG, words, blocked=True)
        placed = self._place(shape, nodes)
        if placed is not None:
            self.space.take(placed, shape.each)
            return False
        return self._evict_for(job, leaf, shape, nodes)

    def _decline(self, job: Job, why: Why, words: str, *, blocked: bool = False) -> bool:
        self.declined.append(Declined(job.job_id, why, words))
        return blocked

    def _place(self, shape: Shape, nodes: Sequence[Node]) -> list[str] | None:
        """Nodes that hold the job as things stand: the fullest that fit, so that large holes stay whole."""
        fitting = [node.name for node in nodes if fits(shape.each, self.space.free[node.name])]
        if len(fitting) < shape.nodes:
            return None
        return sorted(fitting, key=lambda name: (self.space.free[name].gpu_count, name))[: shape.nodes]

    def _evict_for(self, job: Job, leaf: Ranked, shape: Shape, nodes: Sequence[Node]) -> bool:
        waiting = self._waits_for_earlier(job)
        if waiting is not None:
            return self._decline(job, *waiting, blocked=True)
        candidates = self._candidates(job, leaf)
        found = self._choose(shape, nodes, candidates)
        if found is None:
            return self._decline(job, Why.NOBODY_YIELDS, self._nobody(leaf, candidates), blocked=True)
        placed, chosen = found
        limit = self._rate_limit(chosen)
        if limit:
            return self._decline(job, Why.RATE_LIMIT, limit, blocked=True)
        for candidate in chosen:
            self.decisions.append(self._decision(job, leaf, candidate, placed))
            self.space.give(candidate.job)
        gone = {candidate.job.job_id for candidate in chosen}
        self.victims = [run for run in self.victims if run.job_id not in gone]
        self.space.take(placed, shape.each)
        return True

    def _for_this(self, job: Job) -> list[Recorded]:
        """Recent decisions made for the job and not answered by a start since: of it, or of a task of its array."""
        made = [one for one in self.recent if one.decision.preemptor and one.decision.preemptor.job_id == job.job_id]
        family = job.label.partition("_")[0]
        started = [
            other.start
            for other in self.picture.holding
            if other.start is not None and (other.job_id == job.job_id or other.label.partition("_")[0] == family)
        ]
        answered = max(started, default=None)
        return [
            one
            for one in made
            if self.now - one.decision.at <= self.rules.cooldown and (answered is None or one.decision.at > answered)
        ]

    def _waits_for_earlier(self, job: Job) -> tuple[Why, str] | None:
        earlier = self._for_this(job)
        if not earlier:
            return None
        newest = max(one.changed for one in earlier)
        if self.now - newest < self.rules.settle or any(one.outcome in ("decided", "noticed") for one in earlier):
            names = ", ".join(sorted({one.decision.victim.label for one in earlier}))
            return Why.OUTSTANDING, f"room was made for it ({names} yielded); it has not started yet"
        if len({one.decision.at for one in earlier}) >= self.rules.attempts:
            wait = duration(self.rules.cooldown.total_seconds())
            return Why.GAVE_UP, f"room was made for it {self.rules.attempts} times in {wait} and it did not start"
        return None

    def _candidates(self, job: Job, leaf: Ranked) -> list[Candidate]:
        tried = {one.decision.victim.job_id for one in self._for_this(job)}
        verdicts: dict[tuple[str, int], Permission | None] = {}
        found = []
        for run in self.victims:
            if run.job_id in tried:
                continue
            theirs = self.leaf_by_account[run.account.lower()]
            key = (theirs.path, _in_team(run.contract))
            if key not in verdicts:
                verdicts[key] = may_yield(job, leaf, run, theirs, self.ranking, self.ladder, self.lane, self.rules)
            permission = verdicts[key]
            if permission is not None:
                lost = work_lost(run, self.now, self.rules.checkpoint_interval)
                over = self.ranking.standings[permission.victim_node].ratio
                found.append(Candidate(run, theirs, permission, over, lost))
        return found

    def _choose(
        self, shape: Shape, nodes: Sequence[Node], candidates: Sequence[Candidate]
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
        left = [node.name for node in nodes]
        while len(placed) < shape.nodes:
            options = []
            for name in left:
                extra = self._clear(name, shape.each, by_node.get(name, ()), chosen)
                if extra is not None:
                    options.append((*_cost(extra, shape.each), name, extra))
            if not options:
                return None
            best = min(options, key=lambda option: option[:-1])
            name, extra = best[-2], best[-1]
            chosen.extend(extra)
            placed.append(name)
            left.remove(name)
        return placed, self._spare(shape, placed, chosen)

    def _clear(
        self, name: str, each: Resources, here: Sequence[Candidate], chosen: Sequence[Candidate]
    ) -> tuple[Candidate, ...] | None:
        """The cheapest of the candidates on the node, beyond those chosen already, that make room on it."""
        free = self.space.free[name]
        for candidate in chosen:
            free = free.plus(candidate.job.by_node.get(name, Resources()))
        if fits(each, free):
            return ()
        rest = [one for one in here if one not in chosen]
        if len(rest) > EXHAUSTIVE:
            return self._clear_greedily(name, each, free, rest)
        best: tuple[Candidate, ...] | None = None
        for size in range(1, len(rest) + 1):
            for group in combinations(rest, size):
                room = free
                for candidate in group:
                    room = room.plus(candidate.job.by_node[name])
                if fits(each, room) and (best is None or _cost(group, each) < _cost(best, each)):
                    best = group
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

    def _nobody(self, leaf: Ranked, candidates: Sequence[Candidate]) -> str:
        """The words for a blocked job: what there was, and what it lacked."""
        if candidates:
            return (
                f"{len(candidates)} runs past their minimum would yield to it, but their nodes together with "
                "what is free do not hold it whole, so none is stopped"
            )
        if not self.victims:
            return "no run under contract is past its minimum runtime yet"
        ratio = leaf.standing.ratio
        return (
            f"none of the {len(self.victims)} runs past their minimum belongs to a side that is over target and "
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


def _cost(group: Sequence[Candidate], each: Resources) -> tuple[int, int, float, float, tuple[int, ...]]:
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
