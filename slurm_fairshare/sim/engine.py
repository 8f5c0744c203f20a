"""The event loop: jumps from event to event, the same seed and input give the same bytes.

What happens at one moment happens in a fixed order: runs end, nodes fail or come back, jobs arrive, priorities
are recalculated, then the scheduler looks at the queue. Order, protection and eviction are the policy's; the
loop only knows room and time.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

from slurm_fairshare.core.contract import Rung
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.sim.jobs import JobSpec, Machine, Workload
from slurm_fairshare.sim.ledger import Ledger
from slurm_fairshare.sim.placement import NEVER, Barred, Floor, Place, Shape
from slurm_fairshare.sim.waiting import Stream, Waiting

GONE, STOP, END, NODE, SUBMIT, BACK, TIMER, TICK, RECALC, MAIN, BACKFILL, REBALANCE = range(12)
"""Events in the order in which they happen at one moment."""


QUEUE_DEPTH = 100
"""Slurm's default_queue_depth: jobs that its main scheduler looks at in a pass."""


class Ended(IntEnum):
    """How a run ended."""

    COMPLETED = 0
    PREEMPTED = 1
    """By Slurm itself: it was unallocated (or whatever the policy lets Slurm take)."""
    EVICTED = 2
    """By the rebalancer, past its minimum runtime."""
    NODE_FAILED = 3
    RUNNING = 4
    """Not ended when the simulation did."""
    DRAINED = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """How fast Slurm and the sidecar are, in seconds. All zero: the ideal scheduler of textbooks.

    `backfill` 0 means that every change is followed by a whole pass; otherwise a change is followed after
    `main_delay` by a pass that ends at the first blocked job (at whole ones: slurmctld looks once a second), but
    `main_gap` after the last one at the earliest, and a whole pass comes every `backfill` seconds. Backfill plans in
    steps of `resolution`, on whole nodes.
    `act` is how long the rebalancer needs from looking at the queue to the call that stops a run.
    `restart` is what a resumed run needs before it computes again.
    """

    main_delay: int = 0
    main_gap: int = 0
    resolution: int = 0
    backfill: int = 0
    kill_wait: int = 0
    requeue_delay: int = 0
    notice: int = 0
    act: int = 0
    priority_period: int = 60
    rebalance: int = 5
    restart: int = 0
    settle: int = 30

    @classmethod
    def ideal(cls) -> Timing:
        return cls()

    @classmethod
    def slurm(cls) -> Timing:
        """As slurm.conf.d/ sets it up: bf_interval=10, KillWait=10, PriorityCalcPeriod=1, a notice of 30 s."""
        return cls(
            main_delay=1,
            main_gap=3,
            resolution=60,
            backfill=10,
            kill_wait=10,
            requeue_delay=121,
            notice=30,
            priority_period=60,
            restart=300,
        )


class Job:
    """A job's state in one simulation."""

    __slots__ = (
        "arrival",
        "charged",
        "claim",
        "claim_until",
        "first_start",
        "group",
        "leaving",
        "limit",
        "limited_by",
        "loose",
        "near",
        "number",
        "place",
        "planned_end",
        "position",
        "remaining",
        "restarts",
        "run",
        "rung",
        "shape",
        "since",
        "spec",
        "start",
        "stream",
        "tag",
        "told",
    )  # fmt: skip

    def __init__(self, spec: JobSpec, shape: Shape) -> None:
        self.spec = spec
        self.number = spec.number
        self.shape = shape
        self.near: Shape | None = None
        """The same need on the nodes that are tried first."""
        self.limit = spec.limit or spec.work
        self.remaining = spec.work
        self.arrival = 0
        self.since = spec.submit
        self.charged = True
        self.loose = False
        self.group: Hashable = None
        self.limited_by: Hashable = None
        self.stream: Stream | None = None
        self.position = 0
        self.run = -1
        self.start = -1
        self.first_start = -1
        self.place: Place = ()
        self.planned_end = 0
        self.leaving = False
        self.told = 0
        self.claim: Place = ()
        self.claim_until = 0
        self.restarts = 0
        self.rung: Rung | None = None
        self.tag: object = None
        """Whatever the policy keeps about the job."""


class Policy:
    """What decides in a simulation. Adding a policy is deriving from this class and changing what differs."""

    name = "fifo"
    backfill = False
    """Whether jobs behind a blocked one are tried at all."""
    reservations = 0
    """How many blocked jobs get nodes kept for the moment they could start by the running jobs' limits."""
    native = False
    """Whether Slurm preempts loose runs for those that may preempt."""
    holds = True
    """Whether room that was made for a job is held for it. Slurm by itself gives it to whoever comes first."""
    rebalances = False
    recalculates = False
    tick = 0
    """Seconds between two of its own recalculations; 0 = one with each of Slurm's priority periods."""

    def begin(self, engine: Engine) -> None:
        """Called once before the first event."""
        self.engine = engine

    def admit(self, job: Job) -> None:
        """Set group, charged, loose and limited_by of a job at submit (and again when it is requeued)."""
        job.group = ()

    def priority(self, group: Hashable) -> float:
        """Of a group of streams: larger goes first."""
        return 0.0

    def may_start(self, job: Job) -> bool:
        """Whether a limit lets the job start now. Asked only of jobs with `limited_by`."""
        return True

    def may_preempt(self, job: Job) -> bool:
        return job.charged

    def reserves(self, job: Job) -> bool:
        """Whether nodes are kept for the job when it is blocked. Slurm's does not ask whether it may be preempted."""
        return True

    def may_be_kept_off(self, job: Job) -> bool:
        """Whether nodes kept for blocked jobs are kept from this one."""
        return True

    def recalculate(self, now: int) -> None:
        """Called every tick, or every priority period: find out who stands where."""

    def reorder(self) -> None:
        """Called every priority period, before the groups are sorted anew: pending jobs follow who stands where."""

    def started(self, job: Job, now: int) -> None:
        """A run began."""

    def ended(self, job: Job, now: int) -> None:
        """A run gave its room back."""

    def told(self, job: Job, now: int) -> None:
        """A run was told to go."""

    def stirs(self, job: Job) -> bool:
        """Whether a job that begins to wait can change what the rebalancer decides."""
        return job.charged

    def rebalance(self, now: int) -> bool:
        """Stop runs where the policy says so, through `engine.evict` and `engine.claim`. True if it did."""
        return False

    def timer(self, job: Job, now: int) -> None:
        """A moment the policy asked for with `engine.at` has come."""


class Watcher(Protocol):
    """Whoever wants to see a simulation move on: a progress bar."""

    def __call__(self, done: int, of: int) -> None: ...


class Feed(Protocol):
    """Users who watch the queue before they submit: jobs that come in while the simulation runs."""

    def first(self) -> list[tuple[int, int]]:
        """(moment, source) for each source."""

    def offer(self, index: int, number: int, now: int) -> tuple[JobSpec | None, int]:
        """The source's job, if it submits one now, and the moment it would submit next."""

    def done(self, spec: JobSpec) -> None:
        """A job is over."""


class Runs:
    """All runs in columns, in the order of their start."""

    def __init__(self) -> None:
        self.job = array("q")
        self.start = array("q")
        self.end = array("q")
        self.ended = array("b")
        self.useful = array("q")
        self.place: list[Place] = []

    def __len__(self) -> int:
        return len(self.job)


@dataclass(slots=True)
class Result:
    """What a simulation did."""

    policy: str
    workload: Workload
    machine: Machine
    timing: Timing
    end: int
    runs: Runs
    first_start: array[int]
    finished: array[int]
    charged: array[int]
    ledger: Ledger
    preempted: int
    evicted: int
    events: int
    passes: int
    rebalances: int
    pieces: int
    """Seconds during which the largest waiting job's GPUs were free, but in pieces."""
    notes: dict[str, float]


class Engine:
    """One simulation."""

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        policy: Policy,
        timing: Timing | None = None,
        *,
        until: int | None = None,
        watcher: Watcher | None = None,
        feed: Feed | None = None,
    ) -> None:
        if feed is not None and until is None:
            raise ValueError("users never stop submitting: say until when")
        self.feed = feed
        self.fed: list[JobSpec] = []
        self.workload, self.machine, self.policy = workload, machine, policy
        self.timing = timing or Timing()
        self.until = until
        self.watcher = watcher
        self.floor = Floor(machine)
        self.waiting = Waiting()
        self.running: dict[int, Job] = {}
        self.loose: dict[int, Job] = {}
        """Natively preemptible runs in the order of their start."""
        self.claims: dict[int, Job] = {}
        """Pending jobs that room is being made for."""
        self.plan: Barred | None = None
        """Nodes planned for a large job by a reservation: whatever ends before it begins may start there."""
        self.limited: dict[Hashable, int] = {}
        self.now = 0
        self.runs = Runs()
        count = len(workload.jobs)
        self.first_start = array("q", [-1]) * count
        self.finished = array("q", [-1]) * count
        self.charged = array("b", [0]) * count
        self.ledger = Ledger()
        self.events = self.passes = self.rebalances = 0
        self.preempted = self.evicted = 0
        self.pieces = 0
        self._broken_since = -1
        self._heap: list[tuple[int, int, int, Job | None, int]] = []
        self._sequence = 0
        self._arrivals = 0
        self._shapes: dict[tuple[int, int, int, int, int], Shape] = {}
        self._places: dict[tuple[int, int], Place] = {}
        self._largest = max((node.gpus for node in machine.nodes), default=0)
        self._main_at = -self.timing.main_gap
        self._backfill_at = self._rebalance_at = -1
        self._dirty = self._urgent = False
        self.stirred = False
        """Whether anything changed that could change what the rebalancer decides."""
        self.in_system = 0

    # --- time -------------------------------------------------------------------------------------

    def at(self, when: int, kind: int, job: Job | None = None, tag: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (when, kind, self._sequence, job, tag))

    def run(self) -> Result:
        """Run to the end: until all jobs are done, or until the given moment."""
        self.policy.begin(self)
        for outage in self.machine.outages:
            self.at(outage.start, NODE, None, outage.node * 4 + (1 if outage.drain else 0))
            self.at(outage.end, NODE, None, outage.node * 4 + 2)
        jobs = self.workload.jobs
        count, arriving = len(jobs), 0
        heap, until = self._heap, self.until if self.until is not None else NEVER
        if self.policy.recalculates and (count or self.feed):
            first = jobs[0].submit if count else 0
            self.at(first - first % self.timing.priority_period, RECALC)
            if self.policy.tick:
                self.at(first - first % self.policy.tick, TICK)
        if self.feed is not None:
            for when, source in self.feed.first():
                self.at(when, SUBMIT, None, source)
        ideal = self.timing.backfill == 0
        handlers = self._handlers()
        while heap or arriving < count:
            now = heap[0][0] if heap else NEVER
            if arriving < count and jobs[arriving].submit < now:
                now = jobs[arriving].submit
            if now > until:
                break
            self.now = now
            while heap and heap[0][0] == now and heap[0][1] < SUBMIT:
                _, kind, _, job, tag = heapq.heappop(heap)
                handlers[kind](job, tag)
            while arriving < count and jobs[arriving].submit == now:
                self._submit(jobs[arriving])
                arriving += 1
                if self.watcher is not None and arriving & 1023 == 0:
                    self.watcher(arriving, count)
            while heap and heap[0][0] == now:
                _, kind, _, job, tag = heapq.heappop(heap)
                handlers[kind](job, tag)
            if self._dirty:
                if ideal:
                    self._whole_pass()
                else:
                    self._schedule_passes()
            if arriving == count and not self.in_system and self.feed is None:
                break
        return self._result()

    def _handlers(self) -> tuple[Callable[[Job | None, int], None], ...]:
        by_kind: dict[int, Callable[..., None]] = {
            GONE: self._gone, STOP: self._told, END: self._end, NODE: self._node, SUBMIT: self._offer,
            BACK: self._back, TIMER: self._timer, TICK: self._tick, RECALC: self._recalc, MAIN: self._main,
            BACKFILL: self._backfill, REBALANCE: self._rebalance,
        }  # fmt: skip
        return tuple(by_kind[kind] for kind in range(len(by_kind)))

    def _schedule_passes(self) -> None:
        """A change is followed by the main scheduler soon, by backfill and the rebalancer at their next turn."""
        now, timing = self.now, self.timing
        if self._urgent:
            self._urgent = False
            self._main(None, 0)
        if self._main_at < now:
            step = timing.main_delay
            self._main_at = max(now - now % step + step if step else now, self._main_at + timing.main_gap)
            if self._main_at == now:
                self._main(None, 0)
            else:
                self.at(self._main_at, MAIN)
        if self._backfill_at <= now and self.waiting.count:
            self._backfill_at = now - now % timing.backfill + timing.backfill
            self.at(self._backfill_at, BACKFILL)
        self._dirty = False

    def _want_rebalance(self) -> None:
        if self._rebalance_at <= self.now and self.policy.rebalances and self.waiting.count:
            step = self.timing.rebalance
            self._rebalance_at = self.now - self.now % step + step
            self.at(self._rebalance_at, REBALANCE)

    # --- events -----------------------------------------------------------------------------------

    def _submit(self, spec: JobSpec) -> None:
        self.events += 1
        job = Job(spec, self._shape(spec))
        self.in_system += 1
        self.policy.admit(job)
        self.charged[spec.number] = job.charged
        self.ledger.demand(spec.account, self.now, spec.gpus if job.charged else 0)
        self._enqueue(job)

    def _offer(self, _job: Job | None, source: int) -> None:
        assert self.feed is not None  # noqa: S101
        spec, again = self.feed.offer(source, len(self.fed), self.now)
        self.at(again, SUBMIT, None, source)
        if spec is None:
            return
        self.fed.append(spec)
        self.first_start.append(-1)
        self.finished.append(-1)
        self.charged.append(0)
        self._submit(spec)
        if self.watcher is not None and self.until and len(self.fed) & 255 == 0:
            self.watcher(self.now, self.until)

    def _over(self, job: Job) -> None:
        """The job is through, one way or another."""
        self.in_system -= 1
        spec = job.spec
        self.ledger.demand(spec.account, self.now, -spec.gpus if job.charged else 0)
        if self.feed is not None:
            self.feed.done(spec)

    def _shape(self, spec: JobSpec) -> Shape:
        mask = self.floor.of_kind.get(spec.kind, 0)
        count = max(1, spec.nodes)
        if spec.gpus > count * self._largest and self._largest:
            count = -(-spec.gpus // self._largest)
        return self._shape_of(spec, spec.gpus, count, mask)

    def on(self, job: Job, mask: int) -> Shape:
        """The job's shape on these nodes only."""
        return self._shape_of(job.spec, job.shape.gpus, job.shape.count, job.shape.mask & mask)

    def _shape_of(self, spec: JobSpec, gpus: int, count: int, mask: int) -> Shape:
        key = (gpus, count, spec.cpus, spec.memory_mb, mask)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(*key)
            if not self.floor.could_hold(shape):
                raise FairshareError(
                    f"job {spec.number} of {spec.account} wants {gpus} {spec.kind or 'GPU'}s on {count} node(s), more "
                    "than this machine could ever give it. Simulate more or larger nodes, or leave the job out."
                )
        return shape

    def _enqueue(self, job: Job) -> None:
        self._arrivals += 1
        job.arrival = self._arrivals
        self.waiting.add(job, job.group, self.policy.priority(job.group))
        if job.charged or self.floor.total_free:
            self._dirty = True
        if self.policy.rebalances and not self.stirred:
            self.stirred = self.policy.stirs(job)

    def regroup(self, job: Job, group: Hashable) -> None:
        """Move a pending job to another standing; its arrival there counts from now."""
        self.waiting.remove(job)
        job.group = group
        self._enqueue(job)

    def _back(self, job: Job | None, _tag: int) -> None:
        assert job is not None  # noqa: S101
        self.events += 1
        job.since = self.now
        self.policy.admit(job)
        self._enqueue(job)

    def _timer(self, job: Job | None, _tag: int) -> None:
        assert job is not None  # noqa: S101
        self.policy.timer(job, self.now)

    def _tick(self, _job: Job | None, _tag: int) -> None:
        self.policy.recalculate(self.now)
        self.stirred = True
        self._want_rebalance()
        self.at(self.now + self.policy.tick, TICK)

    def _recalc(self, _job: Job | None, _tag: int) -> None:
        waiting = self.waiting
        if waiting.count:
            self._reorder()
        self.at(self.now + self.timing.priority_period, RECALC)

    def _reorder(self) -> None:
        """With nobody waiting there is nothing to order; the figures themselves come from the ledger each time."""
        waiting = self.waiting
        if not self.policy.tick:
            self.policy.recalculate(self.now)
        self.policy.reorder()
        for key, group in waiting.groups.items():
            if group.live:
                group.priority = self.policy.priority(key)
        waiting.resort()
        self._dirty = self.stirred = True
        self._want_rebalance()

    def _main(self, _job: Job | None, _tag: int) -> None:
        self._pass(whole=False)
        if self.stirred:
            self._want_rebalance()

    def _backfill(self, _job: Job | None, _tag: int) -> None:
        self._pass(whole=True)
        if self.stirred:
            self._want_rebalance()
        self._watch_pieces()

    def _whole_pass(self) -> None:
        self._dirty = False
        self._pass(whole=True)
        if self.stirred:
            self._want_rebalance()
        self._watch_pieces()

    def _rebalance(self, _job: Job | None, _tag: int) -> None:
        if not self.stirred or not self.waiting.count:
            return
        self.stirred = False
        self.rebalances += 1
        if self.policy.rebalance(self.now):
            self._dirty = True

    def _node(self, _job: Job | None, tag: int) -> None:
        node, what = tag >> 2, tag & 3
        bit = 1 << node
        if what == 2:
            self.floor.up |= bit
        else:
            self.floor.up &= ~bit
            if what == 0:
                for job in [j for j in self.running.values() if any(n == node for n, _ in j.place)]:
                    self._stop(job, Ended.NODE_FAILED)
        self.ledger.capacity(self.now, self.floor.in_service)
        self._dirty = self.stirred = True

    # --- runs -------------------------------------------------------------------------------------

    def _start(self, job: Job, place: Place) -> None:
        now = self.now
        self.waiting.remove(job)
        if job.claim:
            self.drop_claim(job)
        if len(place) == 1:
            place = self._places.setdefault(place[0], place)
        spec = job.spec
        run = len(self.runs.job)
        runs = self.runs
        runs.job.append(job.number)
        runs.start.append(now)
        runs.end.append(-1)
        runs.ended.append(Ended.RUNNING)
        runs.useful.append(0)
        runs.place.append(place)
        length = job.remaining + (self.timing.restart if job.restarts and spec.resumable else 0)
        job.run, job.start, job.place = run, now, place
        job.leaving = False
        job.planned_end = now + max(job.limit, 1)
        if self.first_start[job.number] < 0:
            self.first_start[job.number] = now
        self.floor.add(place, run, job.planned_end, job.shape.cpus, job.shape.memory, loose=job.loose)
        self.running[run] = job
        if job.loose:
            self.loose[run] = job
        if job.limited_by is not None:
            self.limited[job.limited_by] = self.limited.get(job.limited_by, 0) + spec.gpus
        self.ledger.usage(spec.account, now, spec.gpus, charged=job.charged)
        self._sequence += 1
        heapq.heappush(self._heap, (now + length, END, self._sequence, job, run))
        self.policy.started(job, now)

    def _end(self, job: Job | None, run: int) -> None:
        assert job is not None  # noqa: S101
        if job.run != run:
            return
        self.events += 1
        self._release(job, Ended.COMPLETED, job.remaining)
        self.finished[job.number] = self.now
        self._over(job)

    def _release(self, job: Job, how: Ended, useful: int) -> None:
        """The run is over and its room free at once."""
        run = job.run
        self._close(job, how, useful)
        self._vacate(job, run)

    def _close(self, job: Job, how: Ended, useful: int) -> None:
        """Write down that the run is over: from here on nobody is charged for it."""
        run, now = job.run, self.now
        runs, spec = self.runs, job.spec
        runs.end[run] = now
        runs.ended[run] = how
        runs.useful[run] = useful
        del self.running[run]
        if not job.leaving:
            self._no_longer_loose(job)
        if job.limited_by is not None:
            self.limited[job.limited_by] -= spec.gpus
        self.ledger.usage(spec.account, now, -spec.gpus, charged=job.charged)
        self.ledger.lost += (now - job.start - useful) * spec.gpus
        if not job.charged:
            self.ledger.lost_unallocated += (now - job.start - useful) * spec.gpus
        job.run = -1

    def _vacate(self, job: Job, run: int) -> None:
        """Give the run's room back."""
        shape = job.shape
        if job.leaving:
            self.floor.left(job.place)
            self.floor.remove(job.place, run, job.told, shape.cpus, shape.memory, loose=False)
        else:
            self.floor.remove(job.place, run, job.planned_end, shape.cpus, shape.memory, loose=job.loose)
        self._dirty = True
        self.stirred = self.stirred or job.charged
        self.policy.ended(job, self.now)

    def _no_longer_loose(self, job: Job) -> None:
        if job.loose:
            del self.loose[job.run]

    def tell(self, job: Job, how: Ended) -> int:
        """Tell a run to go. It saves if it asked for a notice; from its end on its nodes take nobody for KillWait."""
        timing = self.timing
        stops = self.now
        if how is Ended.EVICTED:
            stops += timing.act + (timing.notice if job.spec.notice else 0)
        gone = stops + timing.kill_wait
        self._no_longer_loose(job)
        self.floor.start_leaving(
            job.place, job.run, job.planned_end, gone, job.shape.cpus, job.shape.memory, loose=job.loose
        )
        job.leaving, job.told = True, gone
        self.policy.told(job, self.now)
        if stops > self.now:
            self.at(stops, STOP, job, job.run * 8 + how)
        else:
            self._stop(job, how)
        return gone

    def _told(self, job: Job | None, tag: int) -> None:
        assert job is not None  # noqa: S101
        if job.run == tag >> 3:
            self._stop(job, Ended(tag & 7))

    def _stop(self, job: Job, how: Ended) -> None:
        self.events += 1
        useful = self._saved(job, how)
        if how is Ended.PREEMPTED:
            self.preempted += 1
        elif how is Ended.EVICTED:
            self.evicted += 1
        run = job.run
        self._close(job, how, useful)
        job.remaining -= useful
        job.restarts += 1
        if how is Ended.NODE_FAILED:
            self._gone(job, run * 2)
        else:
            self.floor.complete(job.place, 1)
            self.at(self.now + self.timing.kill_wait, GONE, job, run * 2 + 1)

    def _gone(self, job: Job | None, tag: int) -> None:
        """The last process of a stopped run has ended."""
        assert job is not None  # noqa: S101
        if tag & 1:
            self.floor.complete(job.place, -1)
        self._vacate(job, tag >> 1)
        self._urgent = True
        self.at(self.now + self.timing.requeue_delay, BACK, job)

    def _saved(self, job: Job, how: Ended) -> int:
        """Seconds of work the run leaves behind: up to its notice, or to its last checkpoint, one every so many seconds
        since it began (as core takes it, too)."""
        spec, timing = job.spec, self.timing
        if not spec.resumable:
            return 0
        ran = self.now - job.start
        if not (spec.notice and how is Ended.EVICTED):
            ran -= ran % max(1, spec.checkpoint)
        return max(0, min(ran - (timing.restart if job.restarts else 0), job.remaining))

    # --- claims: room that is being made for one job ------------------------------------------------

    def claim(self, job: Job, place: Place, until: int) -> None:
        if job.claim:
            self.drop_claim(job)
        job.claim_until = until + self.timing.settle
        self._hold(job, place)

    def _hold(self, job: Job, place: Place) -> None:
        job.claim = place
        self.claims[job.number] = job
        if self.policy.holds:
            self.floor.promise(place, 1)

    def _end_claims(self) -> None:
        """Room kept too long is anybody's again, though the pass may never get as far as the job that it was for."""
        for job in [job for job in self.claims.values() if job.claim_until <= self.now]:
            self.drop_claim(job)

    def drop_claim(self, job: Job) -> None:
        if self.policy.holds:
            self.floor.promise(job.claim, -1)
        job.claim = ()
        del self.claims[job.number]

    # --- the scheduler ----------------------------------------------------------------------------

    def _pass(self, *, whole: bool) -> None:
        """Start what can start, in order. Not `whole`: up to the first job that is blocked; where no nodes are kept for
        those that are, it passes over them, and looks at so many jobs."""
        floor, policy, waiting = self.floor, self.policy, self.waiting
        if not waiting.count or (not floor.total_free and not self.loose):
            return
        self.passes += 1
        if self.claims:
            self._end_claims()
        whole = whole and policy.backfill
        stops = not whole and not (policy.backfill and policy.reservations == 0)
        barred = self.plan.copy() if self.plan is not None else None
        scan = _Scan(policy.reservations if whole else 0, barred, whole=whole, stops=stops)
        left = NEVER if whole else QUEUE_DEPTH
        for group in waiting.order():
            if not group.live:
                continue
            if left <= 0:
                return
            left -= group.live
            heap: list[tuple[int, Job, Stream]] = []
            for stream in group.active:
                head = stream.head()
                if head.claim or not scan.hopeless(head, policy.native):
                    heap.append((head.arrival, head, stream))
            if len(heap) > 1:
                heapq.heapify(heap)
            while heap:
                _, job, stream = heap[0]
                after = self._attempt(job, stream, scan)
                if after is _STOP and stops:
                    return
                if isinstance(after, Job):
                    heapq.heapreplace(heap, (after.arrival, after, stream))
                else:
                    heapq.heappop(heap)
            if not floor.total_free and not self.loose:
                return

    def _attempt(self, job: Job, stream: Stream, scan: _Scan) -> Job | object | None:
        """Try one job. The next of its stream to try; None if the stream is done with; _STOP if it is blocked."""
        if job.limited_by is not None and not self.policy.may_start(job):
            return None
        if job.claim and self.policy.holds:
            return self._attempt_claimed(job, stream)
        if scan.hopeless(job, self.policy.native):
            return _STOP
        barred = scan.barred
        end = self.now + job.limit
        if barred is not None and not self.policy.may_be_kept_off(job):
            barred = None
        # Slurm does not preempt anew for a job whose victims are still leaving.
        preempts = self.policy.native and self.policy.may_preempt(job) and not job.claim
        for shape in (job.near, job.shape) if job.near is not None else (job.shape,):
            place = self.floor.room(shape, soft=False, barred=barred, end=end)
            if place is not None:
                self._start(job, place)
                if barred is None:
                    return stream.head() if stream.live else None
                barred.used(place, end)
                return stream.after(job.position, NEVER)
            if preempts and self.loose and self.floor.room(shape, soft=True, barred=barred, end=end) is not None:
                place = self._preempt_for(job, shape, barred, end)
                if scan.whole:
                    self._keep(scan, [node for node, _ in place], self.now, shape.each)
                return _STOP if scan.stops else stream.after(job.position + 1, NEVER) or _STOP
        return self._blocked(job, stream, scan, barred, preempts)

    def _attempt_claimed(self, job: Job, stream: Stream) -> Job | object | None:
        """A job that room was made for starts in it, or somewhere else; else it has some time to wait."""
        claim = job.claim
        self.drop_claim(job)
        place = self.floor.room(job.shape, soft=False, barred=self.plan, end=self.now + job.limit)
        if place is not None:
            self._start(job, place)
            return stream.head() if stream.live else None
        self._hold(job, claim)
        return stream.after(job.position + 1, NEVER) or _STOP

    def _blocked(
        self, job: Job, stream: Stream, scan: _Scan, barred: Barred | None, preempts: bool
    ) -> Job | object | None:
        soft = preempts and bool(self.loose)
        if barred is not None and self.floor.room(job.shape, soft=soft, barred=barred, end=0) is not None:
            # A shorter job of the same shape could go where nodes are kept for later.
            return stream.after(job.position + 1, barred.latest - self.now) or _STOP
        scan.failed(job, preempts)
        if scan.reservations and self.policy.reserves(job):
            scan.reservations -= 1
            taken = scan.barred.mask if scan.barred is not None else 0
            found = self.floor.earliest(job.shape, taken)
            if found is not None:
                self._keep(scan, found[1], found[0], job.shape.each)
        return _STOP

    def _keep(self, scan: _Scan, nodes: Sequence[int], when: int, each: int) -> None:
        """Keep nodes for a job that is blocked, or that runs make way for, from a moment to the end of this pass."""
        if scan.barred is None:
            scan.barred = Barred()
        scan.barred.keep(self.floor, nodes, when, each, self.timing.resolution)

    def _preempt_for(self, job: Job, shape: Shape, barred: Barred | None, end: int) -> Place:
        """Take loose runs away as Slurm does with preempt_youngest_first: one after another, the youngest first,
        until the job fits somewhere; those that are not on its nodes are spared."""
        offered: dict[int, int] = {}
        for run in reversed(self.loose.values()):
            for node, gpus in run.place:
                offered[node] = offered.get(node, 0) + gpus
            place = self.floor.room_with(shape, offered, barred, end)
            if place is not None:
                self.take(job, place)
                return place
        raise AssertionError("what fits with all loose runs gone did not fit when they were taken one by one")

    def take(self, job: Job, place: Place) -> None:
        """Preempt what is loose there, as far as the job needs it, and claim the place."""
        lacking = {node: self.floor.lacking(node, gpus) for node, gpus in place}
        gone = self.now
        for run in list(reversed(self.loose.values())):
            if any(lacking.get(node, 0) > 0 or (node in lacking and not job.shape.plain) for node, _ in run.place):
                for node, gpus in run.place:
                    if node in lacking:
                        lacking[node] -= gpus
                gone = max(gone, self.tell(run, Ended.PREEMPTED))
        self.claim(job, place, gone)

    # --- figures ----------------------------------------------------------------------------------

    def _watch_pieces(self) -> None:
        """Count the time in which the largest waiting job has its GPUs free, but not where it could use them."""
        largest = max(self.waiting.by_gpus, default=0)
        broken = 0 < largest <= self.floor.total_free
        if broken and self._broken_since < 0:
            self._broken_since = self.now
        elif not broken and self._broken_since >= 0:
            self.pieces += self.now - self._broken_since
            self._broken_since = -1

    def _result(self) -> Result:
        end = self.until if self.until is not None else self.now
        for job in self.running.values():
            # What runs on is taken to be saved: it was not thrown away.
            elapsed = end - job.start
            self.runs.end[job.run] = end
            self.runs.useful[job.run] = elapsed
        workload = self.workload
        if self.feed is not None:
            workload = replace(workload, jobs=tuple(self.fed))
        return Result(
            policy=self.policy.name, workload=workload, machine=self.machine, timing=self.timing, end=end,
            runs=self.runs, first_start=self.first_start, finished=self.finished, charged=self.charged,
            ledger=self.ledger, preempted=self.preempted, evicted=self.evicted,
            events=self.events, passes=self.passes, rebalances=self.rebalances, pieces=self.pieces, notes={},
        )  # fmt: skip


class _Scan:
    """What one pass has found out: shapes that fit nowhere any more, and the nodes kept for blocked jobs."""

    __slots__ = ("barred", "dead", "dead_soft", "reservations", "stops", "whole", "wide", "wide_soft")

    def __init__(self, reservations: int, barred: Barred | None, *, whole: bool, stops: bool) -> None:
        self.reservations = reservations
        self.barred = barred
        self.whole = whole
        self.stops = stops
        self.dead: dict[int, int] = {}
        self.dead_soft: dict[int, int] = {}
        self.wide: dict[tuple[int, int], int] = {}
        self.wide_soft: dict[tuple[int, int], int] = {}

    def hopeless(self, job: Job, native: bool) -> bool:
        """Whether less than the job needs has already failed on the same nodes in this pass."""
        shape = job.shape
        soft = native and job.charged
        smallest = (self.dead_soft if soft else self.dead).get(shape.mask)
        if smallest is not None and shape.each >= smallest:
            return True
        if shape.count == 1 or self.reservations:
            return False
        fewest = (self.wide_soft if soft else self.wide).get((shape.mask, shape.each))
        return fewest is not None and shape.count >= fewest

    def failed(self, job: Job, soft: bool) -> None:
        shape = job.shape
        if not shape.plain:
            return
        if shape.count == 1:
            dead = self.dead_soft if soft else self.dead
            dead[shape.mask] = min(shape.each, dead.get(shape.mask, NEVER))
        else:
            wide, key = self.wide_soft if soft else self.wide, (shape.mask, shape.each)
            wide[key] = min(shape.count, wide.get(key, NEVER))


_STOP = object()


def simulate(
    workload: Workload,
    machine: Machine,
    policy: Policy,
    timing: Timing | None = None,
    *,
    until: int | None = None,
    watcher: Watcher | None = None,
    feed: Feed | None = None,
) -> Result:
    """Run the workload (and what a feed adds to it) on the machine under the policy."""
    return Engine(workload, machine, policy, timing, until=until, watcher=watcher, feed=feed).run()


def waits(result: Result, chosen: Iterable[JobSpec], end: int | None = None) -> list[int]:
    """Seconds from submit to first start; a job that never started waited up to the end."""
    until = result.end if end is None else end
    return [
        (started if started >= 0 else until) - spec.submit
        for spec in chosen
        for started in (result.first_start[spec.number],)
    ]


def quantile(values: Sequence[float], q: float) -> float:
    """The value at rank q of the sorted values, interpolated. 0 for none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    where = q * (len(ordered) - 1)
    low = int(where)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (where - low)
