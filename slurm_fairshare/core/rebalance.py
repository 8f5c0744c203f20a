"""Who yields after its minimum runtime, to whom: a pure function from a picture to decisions.

A pass looks at the first pending jobs in Slurm's own order that wait for resources. For one that cannot be
placed in what is free, leaving, or held by unallocated work (which Slurm itself takes), it looks for the
cheapest set of runs that may yield to it and whose nodes then hold the whole job. No such set: nobody is
stopped, and the reason is kept. Nothing here knows a clock, Slurm or Postgres.

Who may stop whom is `precedence`, what a job needs is `need`, which set is cheapest is `choose`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import cached_property
from heapq import nsmallest
from itertools import islice
from types import MappingProxyType

from slurm_fairshare.core.booking import is_guarded
from slurm_fairshare.core.choose import Candidate, Found, Search
from slurm_fairshare.core.cluster import COMPLETING, Job, Picture
from slurm_fairshare.core.contract import DebugLane, Ladder
from slurm_fairshare.core.decisions import OPEN, Decision, Outcome, Recorded, Rule, Side
from slurm_fairshare.core.fairshare import Ranked, Ranking
from slurm_fairshare.core.large import Large, above_bands
from slurm_fairshare.core.lost import Loss, work_lost
from slurm_fairshare.core.need import Need, Shape, fits, gpus_of, holds_unevenly
from slurm_fairshare.core.precedence import Permission, in_lane, who_yields
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.scene import Identity as Identity
from slurm_fairshare.core.scene import Scene as Scene
from slurm_fairshare.core.scene import can_be_stopped as can_be_stopped
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.units import duration

WAITS_FOR_RESOURCES = frozenset({"Resources", "Priority"})
"""Slurm's reasons of a job that only lacks room. Any other reason names a limit that would stop it anyway: Slurm
looks at the limits of QOS, association and partition first, also where there is no room."""

NOT_LOOKED_AT = frozenset({"", "None"})
"""Slurm has given no reason yet. Array jobs behind a blocked one keep this for ever."""

LOOKED_AT_AFTER = timedelta(seconds=30)
"""A job without a reason that is older than this has been passed over for others."""

JUST_SAVED = timedelta(minutes=5)
"""A run that would lose no more than this when it is stopped is taken by a patient job."""

TASKS = 64
"""So many tasks of one array are looked at in a pass."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The knobs of the rebalancer. Ratios are of U/E; rates count decisions that were carried out."""

    hysteresis: float = 0.10
    hysteresis_restart: float = 0.50
    preemptors: int = 2
    lane_preemptors: int = 8
    depth: int = 200
    max_per_pass: int = 64
    max_per_hour: int = 600
    max_per_team_hour: int = 120
    settle: timedelta = timedelta(seconds=60)
    cooldown: timedelta = timedelta(minutes=10)
    attempts: int = 3
    max_age: timedelta = timedelta(minutes=5)
    checkpoint_interval: timedelta = timedelta(minutes=30)
    patience: timedelta = timedelta(0)
    end_sessions: bool = True
    kept_partitions: tuple[str, ...] = ()
    in_team: bool = True
    guard: bool = False
    large: Large | None = None


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
    PATIENCE = "patience"
    TOO_BIG = "too-big"
    LANE_LIMIT = "lane-limit"
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


def queue_order(jobs: Iterable[Job], ladder: Ladder) -> list[Job]:
    """Pending jobs as Slurm sorts them: what may preempt natively first, then priority, then age of the id."""
    return sorted((job for job in jobs if job.pending), key=_Order(ladder))


class _Order:
    """The key by which Slurm sorts pending jobs."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder

    def __call__(self, job: Job) -> tuple[bool, int, datetime, int]:
        return not self.ladder.is_charged(job.qos), -job.priority, job.submit, job.job_id


def waits_for_room(job: Job, now: datetime) -> bool:
    """Whether room is all the job lacks, as far as Slurm has said."""
    if job.reason in NOT_LOOKED_AT:
        return job.eligible is not None and now - job.eligible >= LOOKED_AT_AFTER
    return job.reason in WAITS_FOR_RESOURCES


def rebalance(
    picture: Picture,
    ranking: Ranking,
    ranked_at: datetime,
    ladder: Ladder,
    lane: DebugLane | None,
    rules: Rules,
    recent: Sequence[Recorded],
    now: datetime,
    leaving: Collection[Identity] = (),
    planned: Mapping[str, int] = MappingProxyType({}),
) -> Pass:
    """One pass. `recent` holds at least the decisions of the last hour and of the cool-down; `leaving` are runs
    that something else (a drain) has just told to go; `planned` says of nodes for which job alone they are kept."""
    oldest = min(picture.at, ranked_at)
    if now - oldest > rules.max_age:
        age = duration((now - oldest).total_seconds())
        limit = duration(rules.max_age.total_seconds())
        words = f"the data is {age} old, more than the {limit} allowed; nobody is stopped on it"
        return Pass(declined=(Declined(0, Why.STALE, words),))
    told = {_victim(one) for one in recent if one.outcome in OPEN and not one.decision.dry_run} | set(leaving)
    scene = Scene.of(picture, ladder, told, stuck_runs(picture, rules, recent, now), planned)
    return rebalance_scene(scene, _first(picture, ladder, lane, rules, now), ranking, lane, rules, recent, now)


def _first(picture: Picture, ladder: Ladder, lane: DebugLane | None, rules: Rules, now: datetime) -> list[Job]:
    """The first waiting jobs in order: of the lane, of all others, and some of each account, however far behind."""
    debug: list[Job] = []
    others: dict[str, list[Job]] = {}
    fast = {rung.name for rung in ladder.charged if lane is not None and lane.covers(rung)}
    for job in picture.jobs:
        if job.pending and waits_for_room(job, now):
            (debug if job.qos in fast else others.setdefault(job.account, [])).append(job)
    order = _Order(ladder)
    first = nsmallest(rules.depth, (job for jobs in others.values() for job in jobs), key=order)
    known = {job.job_id for job in first}
    each = 4 * rules.preemptors
    behind = [job for jobs in others.values() for job in nsmallest(each, jobs, key=order) if job.job_id not in known]
    return [*nsmallest(rules.depth, debug, key=order), *first, *sorted(behind, key=order)]


def stuck_runs(picture: Picture, rules: Rules, recent: Iterable[Recorded], now: datetime) -> set[Identity]:
    """Runs that were told to go and stay: Slurm refused it, or their processes do not die.

    Their GPUs are no room, and asking again at once would stop nobody. After the cool-down they are asked again.
    """
    refused: set[Identity] = set()
    sent: set[Identity] = set()
    for one in recent:
        if one.decision.dry_run or now - one.changed > rules.cooldown:
            continue
        if one.outcome is Outcome.REFUSED:
            refused.add(_victim(one))
        elif one.outcome in {Outcome.REQUEUED, Outcome.ENDED} and now - one.changed > 2 * rules.settle:
            sent.add(_victim(one))
    leaving = {(job.het_leader or job.job_id, job.start): job.state for job in picture.holding}
    return {run for run in refused if leaving.get(run) != COMPLETING} | (sent & leaving.keys())


def _victim(one: Recorded) -> Identity:
    return one.decision.victim.job_id, one.decision.started


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


def past_minimum(run: Job, now: datetime) -> int | None:
    """Whole seconds the run is past its own declared minimum; None while it is protected or not understood."""
    if run.start is None or run.contract is None:
        return None
    over = (now - run.start).total_seconds() - run.contract.min_runtime
    return int(over) if over >= 0 else None


def spared(run: Job, rules: Rules) -> bool:
    """Whether the site keeps the run out of the rebalancer: by its partition, or since it is a session."""
    if rules.kept_partitions and any(name in rules.kept_partitions for name in run.partitions):
        return True
    return not run.batch and not rules.end_sessions


def under_way(one: Recorded, rules: Rules, now: datetime) -> bool:
    """Whether the room that a decision makes still has time to be used."""
    return one.outcome in OPEN or now - one.changed < rules.settle


class _Served(Enum):
    """What became of a waiting job in a pass."""

    PLACED = 0
    MADE_ROOM = 1
    BLOCKED = 2
    LEFT_OUT = 3


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
        self.recent = [one for one in recent if not one.decision.dry_run and one.outcome != Outcome.GONE]
        self.leaf_by_account = ranking.by_account
        self.decisions: list[Decision] = []
        self.declined: list[Declined] = []
        self.room, self.gpus = dict(scene.room), dict(scene.gpus)
        self.levels = Counter(self.gpus.values())
        """How many nodes have so many GPUs: most jobs are seen to find no room without a look at the nodes."""
        self.gone: set[int] = set()
        self.in_lane: dict[str, bool] = {}
        self._candidates: dict[tuple[int, Permission], Candidate] = {}
        self._made: dict[int, list[Recorded]] | None = None
        self._starts: dict[str, list[datetime]] | None = None
        self._lane_gpus: dict[str, int] = {}
        self._lane_rungs = [rung.name for rung in self.ladder.charged if lane is not None and lane.covers(rung)]
        scene.advance(now)

    def run(self) -> Pass:
        """Debug jobs one after the other; of the others the first blocked ones of each leaf.

        A leaf is compared with its siblings whatever place its programme has in the queue. Were only the first
        jobs of the whole queue looked at, a starved leaf of a programme that has had its due would wait for the
        programme's turn, while its sibling runs on over target.
        """
        left = {True: self.rules.lane_preemptors, False: self.rules.preemptors}
        seen: set[int] = set()
        looked_at: dict[str, int] = {}
        for job in self.waiting:
            lane = self._in_lane(job)
            account = "" if lane else account_key(job.account)
            open_looks = left[lane] if lane else self.rules.preemptors - looked_at.get(account, 0)
            if min(left[lane], open_looks) <= 0 or job.het_leader in seen:
                continue
            if job.het_leader:
                seen.add(job.het_leader)
            made, blocked = self._serve_all(job, min(left[lane], open_looks))
            left[lane] -= made + blocked if lane else made
            looked_at[account] = looked_at.get(account, 0) + made + blocked
            if left[True] <= 0 and left[False] <= 0:
                break
        return Pass(tuple(self.decisions), tuple(self.declined))

    def _in_lane(self, job: Job) -> bool:
        known = self.in_lane.get(job.qos)
        if known is None:
            known = self.in_lane[job.qos] = in_lane(job, self.ladder, self.lane)
        return known

    def _serve_all(self, job: Job, most: int) -> tuple[int, int]:
        """Serve the job, or so many tasks of an array: for how many room was made, how many stay blocked."""
        made = blocked = placed = 0
        for _ in range(self._tasks(job)):
            served = self._serve(job, placed)
            made += served is _Served.MADE_ROOM
            blocked += served is _Served.BLOCKED
            placed += served is _Served.PLACED
            if served in {_Served.BLOCKED, _Served.LEFT_OUT} or made >= most:
                break
        return made, blocked

    def _tasks(self, job: Job) -> int:
        if job.array_size < 2:
            return 1
        count = min(job.array_size, TASKS)
        if job.array_limit:
            running = len(self._starts_of(job))
            count = min(count, max(1, job.array_limit - running))
        return count

    def _serve(self, job: Job, before: int) -> _Served:
        """Place the job or find who yields to it. `before` tasks of its array were placed already."""
        if not self.scene.charged(job):
            return self._decline(job, Why.UNALLOCATED, "it runs unallocated, which never stops anybody")
        leaf = self.leaf_by_account.get(account_key(job.account))
        if leaf is None or leaf.standing.share <= 0:
            words = f"account {job.account} has no share in the budget tree, so it never stops anybody"
            return self._decline(job, Why.NO_BUDGET, words)
        if is_guarded(job, self.ladder):
            words = "the nodes it takes are guarded for it while those who yield leave"
            return self._decline(job, Why.OUTSTANDING, words, _Served.BLOCKED)
        parts = self.scene.together.get(job.het_leader) or (job,)
        needs, unknown = self._needs(parts)
        if unknown:
            words = f"it asks for {unknown}, which the rebalancer does not model, so it stops nobody for it"
            return self._decline(job, Why.NOT_MODELLED, words, _Served.BLOCKED)
        if any(need.shape is None for need in needs):
            words = "no set of nodes in service could hold it even if they were empty"
            return self._decline(job, Why.TOO_BIG, words, _Served.BLOCKED)
        limit = self._lane_limit(parts)
        if limit:
            return self._decline(job, Why.LANE_LIMIT, limit)
        if self._place_all(needs):
            words = "there is room for it, free, leaving or held by unallocated work: Slurm starts it at its turn"
            return self._decline(job, Why.FITS, words, _Served.PLACED) if not before else _Served.PLACED
        return self._evict_for(job, parts, leaf, needs, before)

    def _needs(self, parts: Sequence[Job]) -> tuple[list[Need], str]:
        """What each component needs, or what of it is not understood."""
        if len(parts) == 1:
            need = self.scene.need(parts[0])
            return [need], need.unknown
        if len({account_key(part.account) for part in parts}) > 1:
            return [], "components in several accounts"
        for part in parts[1:]:
            if not waits_for_room(part, self.now) and part.reason not in NOT_LOOKED_AT:
                return [], f"a component that waits for {part.reason}"
        needs = [self.scene.need(part) for part in parts]
        return needs, next((need.unknown for need in needs if need.unknown), "")

    def _lane_limit(self, parts: Sequence[Job]) -> str:
        """Slurm finds the lane's limit for a team only when the job could start: too late for whoever was stopped."""
        if self.lane is None or not self._in_lane(parts[0]):
            return ""
        key, most = account_key(parts[0].account), self.lane.max_gpus_per_team
        held = self._lane_gpus.get(key)
        if held is None:
            held = sum(self.scene.held.get((key, qos), 0) for qos in self._lane_rungs)
        wanted = sum(part.wanted.gpu_count for part in parts)
        if held + wanted > most:
            return (
                f"its team's debug jobs hold {held} GPUs, and with its {wanted} they would pass their limit of {most}"
            )
        self._lane_gpus[key] = held + wanted
        return ""

    # --- room ---------------------------------------------------------------------------------------

    def _take(self, names: Iterable[str], shape: Shape) -> None:
        for name in names:
            self._set_room(name, self.room[name].minus(self._needed(shape, name)))

    def _give(self, job: Job) -> None:
        for name, part in job.by_node.items():
            if name in self.room:
                self._set_room(name, self.room[name].plus(part))

    def _set_room(self, name: str, room: Resources) -> None:
        self.room[name] = room
        self.levels[self.gpus[name]] -= 1
        self.gpus[name] = gpus_of(room)
        self.levels[self.gpus[name]] += 1

    def _decline(self, job: Job, why: Why, words: str, served: _Served = _Served.LEFT_OUT) -> _Served:
        self.declined.append(Declined(job.het_leader or job.job_id, why, words))
        return served

    def _place_all(self, needs: Sequence[Need]) -> bool:
        """Place every part as things stand, or none."""
        kept = (dict(self.room), dict(self.gpus)) if len(needs) > 1 else None
        for need in needs:
            placed = self._place(need)
            if placed is None:
                if kept:
                    self.room, self.gpus = kept
                    self.levels = Counter(self.gpus.values())
                return False
            assert need.shape is not None  # noqa: S101  _serve has looked
            self._take(placed, need.shape)
        return True

    def _place(self, need: Need) -> Sequence[str] | None:
        """Nodes that hold the job as things stand: the fullest that fit, so that large holes stay whole."""
        shape = need.shape
        assert shape is not None  # noqa: S101  _serve has looked
        wanted = shape.each.gpu_count
        if not shape.loose and sum(n for gpus, n in self.levels.items() if gpus >= wanted) < shape.nodes:
            return None
        for names in need.sets:
            found = self._place_in(shape, names)
            if found is not None:
                return found
        return None

    def _place_in(self, shape: Shape, names: Sequence[str]) -> Sequence[str] | None:
        gpus, wanted = self.gpus, shape.each.gpu_count
        enough = [(gpus[name], name) for name in names if gpus[name] >= wanted]
        if len(enough) >= shape.nodes:
            fitting = (name for _, name in sorted(enough) if fits(self._needed(shape, name), self.room[name]))
            found = list(islice(fitting, shape.nodes))
            if len(found) == shape.nodes:
                return found
        return () if holds_unevenly(shape, names, self.room) else None

    def _needed(self, shape: Shape, name: str) -> Resources:
        return self.scene.nodes[name].total if shape.whole else shape.each

    # --- eviction -----------------------------------------------------------------------------------

    def _evict_for(self, job: Job, parts: Sequence[Job], leaf: Ranked, needs: Sequence[Need], before: int) -> _Served:
        made = self._unanswered(job)
        waiting = self._waits_for_earlier(made, before)
        if waiting is not None:
            return self._decline(job, *waiting, _Served.BLOCKED)
        above = above_bands(job, self.ranking, self.ladder, self.lane, self.rules.large, self.now)
        yielding = self._yielding(job, leaf, above, {one.decision.victim.job_id for one in made})
        patient = above is None and self._is_patient(job)
        found = self._search(needs, [one for one in yielding if self._has_saved(one[0])] if patient else yielding)
        if found is None and patient and yielding:
            return self._decline(job, Why.PATIENCE, self._unsaved(len(yielding)), _Served.BLOCKED)
        if found is None:
            return self._decline(job, Why.NOBODY_YIELDS, self._nobody(leaf, len(yielding)), _Served.BLOCKED)
        placed = tuple(name for part in found for name in part.placed)
        chosen = [candidate for part in found for candidate in part.yielding]
        limit = self._rate_limit(chosen)
        if limit:
            return self._decline(job, Why.RATE_LIMIT, limit, _Served.BLOCKED)
        for candidate in chosen:
            self.decisions.append(self._decision(job, parts, leaf, candidate, placed))
            self._give(candidate.job)
            self.gone.add(candidate.job.job_id)
        for part, need in zip(found, needs, strict=True):
            assert need.shape is not None  # noqa: S101  _serve has looked
            self._take(part.placed, need.shape)
        return _Served.MADE_ROOM

    def _search(self, needs: Sequence[Need], yielding: Sequence[tuple[Job, Ranked, Permission]]) -> list[Found] | None:
        """Places for all parts, one after the other, with who yields for each; None if one part finds none."""
        if not yielding or not all(self._could_hold(need, yielding) for need in needs):
            return None
        candidates = [self._candidate(*one) for one in yielding]
        room, gpus = dict(self.room), dict(self.gpus)
        found: list[Found] = []
        for need in needs:
            best = self._cheapest(need, room, gpus, candidates)
            if best is None:
                return None
            found.append(best)
            if len(needs) > 1:
                self._imagine(best, need, room, gpus)
                taken = {one.job.job_id for one in best.yielding}
                candidates = [one for one in candidates if one.job.job_id not in taken]
        return found

    def _imagine(self, best: Found, need: Need, room: dict[str, Resources], gpus: dict[str, int]) -> None:
        assert need.shape is not None  # noqa: S101  _serve has looked
        for candidate in best.yielding:
            for name, part in candidate.job.by_node.items():
                if name in room:
                    room[name] = room[name].plus(part)
        for name in best.placed:
            room[name] = room[name].minus(self._needed(need.shape, name))
        for name in room:
            gpus[name] = gpus_of(room[name])

    def _cheapest(
        self, need: Need, room: dict[str, Resources], gpus: dict[str, int], candidates: Sequence[Candidate]
    ) -> Found | None:
        assert need.shape is not None  # noqa: S101  _serve has looked
        total = {name: node.total for name, node in self.scene.nodes.items()} if need.shape.whole else {}
        tries = (Search(need.shape, names, room, gpus, total, candidates).cheapest() for names in need.sets)
        return min((one for one in tries if one is not None), key=lambda one: (one.cost, one.placed), default=None)

    def _unanswered(self, job: Job) -> list[Recorded]:
        """Recent decisions made for the job, less those that a start answers: of it, or of a task of its array.

        Each start answers the oldest set of decisions that is older than it.
        """
        if self._made is None:
            self._made = {}
            for one in self.recent:
                if one.decision.preemptor and self.now - one.decision.at <= self.rules.cooldown:
                    self._made.setdefault(one.decision.preemptor.job_id, []).append(one)
        made = self._made.get(job.het_leader or job.job_id, [])
        if not made:
            return made
        open_sets = sorted({one.decision.at for one in made})
        for start in self._starts_of(job):
            answered = next((at for at in open_sets if at < start), None)
            if answered is not None:
                open_sets.remove(answered)
        return [one for one in made if one.decision.at in open_sets]

    def _starts_of(self, job: Job) -> list[datetime]:
        """When the runs of the job, or of its array's tasks, started that hold GPUs now."""
        if self._starts is None:
            self._starts = {}
            for run in self.scene.holding.values():
                if run.start is not None:
                    self._starts.setdefault(_family(run), []).append(run.start)
        return sorted(self._starts.get(_family(job), ()))

    def _took_from(self, job: Job) -> set[int]:
        """Jobs for which this one was stopped within the hour: it does not stop them in turn, whatever the ratios."""
        mine, hour = job.het_leader or job.job_id, self.now - timedelta(hours=1)
        return {
            one.decision.preemptor.job_id
            for one in self.recent
            if one.decision.victim.job_id == mine and one.decision.preemptor and one.decision.at > hour
        }

    def _waits_for_earlier(self, earlier: Sequence[Recorded], placed: int) -> tuple[Why, str] | None:
        """Room made for the job is given time to be used; `placed` tasks of its array stand in it already."""
        fresh: set[datetime] = set()
        failed: set[datetime] = set()
        for one in earlier:
            (fresh if under_way(one, self.rules, self.now) else failed).add(one.decision.at)
        if len(fresh) > placed:
            names = ", ".join(sorted({one.decision.victim.label for one in earlier if one.decision.at in fresh}))
            return Why.OUTSTANDING, f"room was made for it ({names} yielded); it has not started yet"
        if len(failed - fresh) >= self.rules.attempts:
            wait = duration(self.rules.cooldown.total_seconds())
            return Why.GAVE_UP, f"room was made for it {self.rules.attempts} times in {wait} and it did not start"
        return None

    def _yielding(
        self, job: Job, leaf: Ranked, above: Rule | None, tried: set[int]
    ) -> list[tuple[Job, Ranked, Permission]]:
        """The runs past their minimum that may be stopped for the job. `above` is what lifts it above the bands."""
        rules, ranking = self.rules, self.ranking
        others = self.scene.yielding(leaf, ranking, rules.hysteresis, above)
        found = who_yields(
            job, leaf, others, self.scene.bare, self._in_lane,
            inside=rules.in_team, restart=rules.hysteresis_restart, now=self.now,
        )  # fmt: skip
        kept = tried | self.gone | self._took_from(job) if found else ()
        return [one for one in found if one[0].job_id not in kept and not spared(one[0], rules)]

    def _is_patient(self, job: Job) -> bool:
        """Whether the job has not waited long enough yet to take a run whatever that loses."""
        return job.eligible is not None and self.now - job.eligible < self.rules.patience

    def _has_saved(self, run: Job) -> bool:
        lost = work_lost(run, self.now, self.rules.checkpoint_interval).gpu_seconds
        return lost <= JUST_SAVED.total_seconds() * run.wanted.gpu_count

    def _unsaved(self, yielding: int) -> str:
        return (
            f"{yielding} runs past their minimum would yield to it, but those that have saved within the last "
            f"{duration(JUST_SAVED.total_seconds())} are not enough; it takes the others too once it has waited "
            f"{duration(self.rules.patience.total_seconds())}"
        )

    def _could_hold(self, need: Need, yielding: Sequence[tuple[Job, Ranked, Permission]]) -> bool:
        """Whether enough nodes would have the GPUs if all of them yielded: most tries end at this count."""
        assert need.shape is not None  # noqa: S101  _serve has looked
        each = need.shape.each.gpu_count
        more: dict[str, int] = {}
        for run, _, _ in yielding:
            for name, part in run.by_node.items():
                more[name] = more.get(name, 0) + part.gpu_count
        gpus, most = self.gpus, need.shape.nodes
        cleared = {name for name, freed in more.items() if gpus.get(name, each) + freed >= each}
        if most == 1:
            return any(not cleared.isdisjoint(names) for names in need.sets)
        return any(sum(1 for name in names if gpus[name] >= each or name in cleared) >= most for names in need.sets)

    def _candidate(self, run: Job, theirs: Ranked, permission: Permission) -> Candidate:
        key = (run.job_id, permission)
        known = self._candidates.get(key)
        if known is None:
            lost = work_lost(run, self.now, self.rules.checkpoint_interval).gpu_seconds
            over = self.ranking.standings[permission.victim_node].ratio
            known = self._candidates[key] = Candidate.of(run, theirs, permission, over, lost)
        return known

    def _rate_limit(self, chosen: Sequence[Candidate]) -> str:
        hour = [one for one in self.recent if self.now - one.decision.at <= timedelta(hours=1) and _carried_out(one)]
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
        bare = self._bare
        if not bare:
            return "no run under contract is past its minimum runtime yet"
        ratio = leaf.standing.ratio
        return (
            f"none of the {bare} runs past their minimum belongs to a side that is over target and "
            f"behind by more than {self.rules.hysteresis:.2f} ({leaf.path} stands at {ratio:.2f} of its entitlement)"
        )

    @cached_property
    def _bare(self) -> int:
        return sum(len(runs) for account, runs in self.scene.bare.items() if account in self.leaf_by_account)

    def _decision(
        self, job: Job, parts: Sequence[Job], leaf: Ranked, candidate: Candidate, placed: Sequence[str]
    ) -> Decision:
        permission = candidate.permission
        taker = self._side(job, leaf, permission.preemptor_node)
        if job.het_leader:
            gpus = sum(part.wanted.gpu_count for part in parts)
            taker = replace(taker, job_id=job.het_leader, label=str(job.het_leader), gpus=gpus)
        return decision_on(
            candidate.job,
            self._side(candidate.job, candidate.leaf, permission.victim_node),
            permission.rule,
            self.now,
            work_lost(candidate.job, self.now, self.rules.checkpoint_interval),
            preemptor=taker,
            hysteresis=self.rules.hysteresis,
            nodes=tuple(placed),
        )

    def _side(self, job: Job, leaf: Ranked, node: str) -> Side:
        ratio = self.ranking.standings[node].ratio
        return Side(job.job_id, job.label, job.user, job.account, leaf.path, node, ratio, job.wanted.gpu_count)


def decision_on(
    run: Job,
    victim: Side,
    rule: Rule,
    now: datetime,
    loss: Loss,
    *,
    preemptor: Side | None = None,
    hysteresis: float = 0.0,
    nodes: tuple[str, ...] = (),
) -> Decision:
    """The decision to stop this run, with what is known of it now."""
    assert run.start is not None  # noqa: S101  only runs that have started are looked at
    terms = run.contract
    return Decision(
        id=f"{run.job_id}-{int(run.start.timestamp())}-{preemptor.job_id if preemptor else 'drain'}"
        f"-{int(now.timestamp())}",
        at=now,
        rule=rule,
        victim=victim,
        started=run.start,
        min_runtime=terms.min_runtime if terms else 0,
        over_minimum=past_minimum(run, now) or 0,
        resumable=terms is not None and terms.resumable,
        requeue=run.batch and run.requeueable,
        preemptor=preemptor,
        hysteresis=hysteresis,
        nodes=nodes,
        notice=terms.notice if terms else None,
        lost=round(loss.gpu_seconds),
        lost_since=loss.since.value,
    )


def _carried_out(one: Recorded) -> bool:
    return one.outcome not in {Outcome.REFUSED, Outcome.LAPSED} and one.decision.rule is not Rule.DRAIN


def _family(job: Job) -> str:
    """What an array's tasks have in common; of any other job, itself."""
    return str(job.het_leader) if job.het_leader else job.label.partition("_")[0]


def dry(decision: Decision) -> Decision:
    """The same decision, marked as one that was only shown."""
    return replace(decision, dry_run=True)
