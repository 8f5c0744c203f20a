"""Slurm in memory: a twin of CommandLine for tests and demonstrations, held to it by one suite of contract tests.

It knows nodes, accounts, QOS, jobs and runs, and refuses what Slurm refuses where our code depends on that. It
schedules nothing by itself: a test says which job starts where, or lets `schedule` fill what is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from slurm_fairshare.core.booking import Booking, Kind, is_guarded, name_of
from slurm_fairshare.core.capacity import Past
from slurm_fairshare.core.cluster import PENDING, RUNNING, Job, Node, Picture
from slurm_fairshare.core.contract import Contract, Ladder, pinned
from slurm_fairshare.core.fairtree import Association as FairTreeAssociation
from slurm_fairshare.core.plan import (
    AddQos,
    Allow,
    Association,
    Change,
    ClearUserPriority,
    Disallow,
    Held,
    Qos,
    RemoveQos,
    SetPriority,
    SetQos,
    SetUserPriority,
    Unbook,
)
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Window, overlap_seconds
from slurm_fairshare.errors import SlurmError, SlurmRefused
from slurm_fairshare.slurm.hands import with_note
from slurm_fairshare.slurm.pin import contract_of
from slurm_fairshare.slurm.queue import evenly

NORMAL = "normal"
EPOCH = datetime(2026, 10, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Account:
    users: dict[str, int | None] = field(default_factory=dict)
    """Each user's own Priority, None where the account's holds."""
    priority: int | None = None
    qos: set[str] = field(default_factory=lambda: {NORMAL})
    default_qos: str = ""


class MemorySlurm:
    """`now` is the twin's clock: set it, or `advance` it. `log` says what the hands did, in order.

    `fail("runs", error)` makes a method of the port raise until `heal()`. While `holds_back` is set, slurmdbd learns
    nothing; `hand_over` lets it have what has gathered, the oldest first.
    """

    def __init__(
        self,
        cluster: str = "lab",
        ladder: Ladder | None = None,
        rule: ChargeRule | None = None,
        now: datetime = EPOCH,
    ) -> None:
        self.cluster = cluster
        self.now = now
        self.calls: Counter[str] = Counter()
        self.log: list[str] = []
        self.history = Past()
        self.saved: dict[int, datetime] = {}
        self.utilisation: dict[str, float] = {}
        self.fair_tree: tuple[FairTreeAssociation, ...] = (FairTreeAssociation("root"),)
        self._lifts: dict[int, int] = {}
        self._bookings: dict[str, Booking] = {}
        self._ladder = ladder or Ladder.default()
        self._rule = rule or ChargeRule()
        self._nodes: dict[str, Node] = {}
        self._accounts: dict[str, _Account] = {}
        self._qos: dict[str, Qos] = {NORMAL: Qos(NORMAL)}
        self._jobs: dict[int, Job] = {}
        self._comments: dict[int, str] = {}
        self.holds_back = False
        self._true: dict[str, Run] = {}
        self._untold: list[Run] = []
        self._runs: dict[str, Run] = {}
        self._open: dict[int, str] = {}
        self._uids: dict[str, int] = {}
        self._failures: dict[str, SlurmError] = {}

    # --- what tests do with it

    def advance(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    def fail(self, method: str, error: SlurmError) -> None:
        self._failures[method] = error

    def heal(self) -> None:
        self._failures.clear()

    def add_node(
        self,
        name: str,
        gpus: Mapping[str, int] | None = None,
        cpus: int = 64,
        memory_mb: int = 128_000,
        partitions: Sequence[str] = ("gpu",),
    ) -> None:
        total = Resources({"h100": 8} if gpus is None else dict(gpus), cpus, memory_mb)
        self._nodes[name] = Node(name, frozenset({"IDLE"}), total, Resources(), tuple(partitions))

    def set_states(self, name: str, *states: str, reason: str = "") -> None:
        """Such as `set_states("n1", "IDLE", "DRAIN", reason="bad GPU")`."""
        self._nodes[name] = replace(self._nodes[name], states=frozenset(states), reason=reason)

    def add_account(self, name: str, *users: str, priority: int | None = None) -> None:
        """Names are lower case in Slurm, whatever was typed."""
        account = self._accounts.setdefault(name.lower(), _Account(priority=priority))
        for user in users:
            account.users.setdefault(user, None)
            self._uids.setdefault(user, 2001 + len(self._uids))

    def set_user_priority(self, account: str, user: str, priority: int) -> None:
        self._accounts[account.lower()].users[user] = priority

    def add_qos(self, qos: Qos) -> None:
        self._qos[qos.name] = qos

    def submit(
        self,
        account: str,
        user: str,
        gpus: int = 1,
        *,
        kind: str = "h100",
        nodes: int = 1,
        contract: Contract | None = None,
        qos: str | None = None,
        time_limit: timedelta | None = timedelta(days=1),
        requeueable: bool = True,
        batch: bool = True,
        name: str = "job",
    ) -> int:
        """A pending job of `gpus` GPUs on each of its nodes. Its rung follows its contract, as the plugin does it."""
        promised = contract or Contract()
        has = self._accounts.get(account.lower())
        if has is None or user not in has.users:
            raise SlurmRefused(f"user {user} has no association with account {account}")
        rung = qos or self._ladder.for_min_runtime(promised.min_runtime).name
        job_id = max(self._jobs, default=0) + 1
        self._comments[job_id] = pinned(promised)
        self._jobs[job_id] = Job(
            job_id=job_id,
            label=str(job_id),
            account=account.lower(),
            user=user,
            uid=self._uids[user],
            partitions=("gpu",),
            qos=rung,
            state=PENDING,
            reason="Resources",
            priority=0,
            submit=self.now,
            eligible=self.now,
            start=None,
            time_limit=time_limit,
            wanted=Resources({kind: gpus * nodes}, nodes, nodes * 1000),
            node_count=nodes,
            contract=contract_of(self._comments[job_id], rung, self._ladder)[0],
            requeueable=requeueable,
            batch=batch,
            name=name,
        )
        return job_id

    def start(self, job_id: int, *nodes: str) -> None:
        """Start a pending job, on these nodes or on the first that fit. Raises SlurmRefused if it does not fit."""
        job = self._there(job_id)
        names = nodes or self._places(job)
        shares = evenly(job.wanted, names)
        if job.state != PENDING or not shares or not all(self._fits(n, s) for n, s in shares.items()):
            raise SlurmRefused(f"job {job_id} does not fit on {', '.join(names) or 'any node'} or is not pending")
        running = replace(job, state=RUNNING, reason="None", start=self.now, nodes=tuple(sorted(names)), by_node=shares)
        self._jobs[job_id] = running
        self._open[job_id] = self._record(running)

    def schedule(self) -> tuple[int, ...]:
        """Start what fits, best priority first; no preemption. Says which jobs started."""
        started = []
        for job in sorted(self._pending(), key=lambda job: (-job.priority, job.submit, job.job_id)):
            if (job.eligible or self.now) <= self.now and self._places(job):
                self.start(job.job_id)
                started.append(job.job_id)
        return tuple(started)

    def finish(self, job_id: int, state: str = "COMPLETED") -> None:
        """The job ends, by itself or not, and leaves the queue."""
        self._close(job_id, state)
        del self._jobs[job_id]

    def add_run(self, run: Run) -> None:
        """A run of the past, as slurmdbd would have it."""
        self._true[run.key] = self._runs[run.key] = run

    def hand_over(self, count: int | None = None) -> None:
        """slurmdbd takes so many of the messages that wait for it, or all."""
        self._runs.update({run.key: run for run in self._untold[:count]})
        del self._untold[:count]

    def comment(self, job_id: int) -> str:
        return self._comments[job_id]

    def alter(self, job_id: int, change: Callable[[Job], Job]) -> None:
        """Make a job what no method here makes it (a held one, one with constraints, ...)."""
        self._jobs[job_id] = change(self._jobs[job_id])

    # --- Accounting

    def runs(self, window: Window) -> Batch:
        with self._asked("runs"):
            waiting = (self._row(job, "") for job in self._jobs.values() if job.job_id not in self._open)
            chosen = [run for run in (*self._runs.values(), *waiting) if _selected(run, window)]
            return Batch(window, tuple(sorted(chosen, key=lambda run: (run.start or run.submit, run.job_id, run.key))))

    def backlog(self) -> int:
        with self._asked("backlog"):
            return len(self._untold)

    def reported(self, window: Window) -> Mapping[tuple[str, str], int]:
        """As sreport would have it."""
        found: dict[tuple[str, str], int] = {}
        with self._asked("reported"):
            for run in self._runs.values():
                seconds = overlap_seconds(run, window, self.now)
                if seconds and run.held.gpu_count:
                    key = (account_key(run.account), run.user)
                    found[key] = found.get(key, 0) + run.held.gpu_count * seconds
        return found

    # --- Cluster

    def queue(self) -> tuple[Job, ...]:
        with self._asked("queue"):
            return tuple(self._with_priority(job) for job in self._jobs.values())

    def picture(self, now: datetime) -> Picture:
        with self._asked("picture"):
            return Picture(self.cluster, now, self.queue(), tuple(self._seen(node) for node in self._nodes.values()))

    def clock(self) -> datetime:
        with self._asked("clock"):
            return self.now.replace(microsecond=0)

    def past(self, window: Window) -> Past:
        """What a test has put into `history`."""
        with self._asked("past"):
            reaching = [one for one in self.history.outages if one.end is None or one.end > window.start]
            return replace(self.history, outages=tuple(one for one in reaching if one.start < window.end))

    def job(self, job_id: int) -> Job | None:
        with self._asked("job"):
            job = self._jobs.get(job_id)
            return self._with_priority(job) if job is not None else None

    # --- Settings

    def held(self, refresh: bool = False) -> Held:  # noqa: ARG002 - as CommandLine has it; nothing is remembered here
        with self._asked("held"):
            return Held(dict(self._qos), tuple(self._associations()))

    def busy(self, window: Window) -> Mapping[str, float]:  # noqa: ARG002 - whatever `utilisation` was set to
        with self._asked("busy"):
            return dict(self.utilisation)

    def associations(self) -> tuple[FairTreeAssociation, ...]:
        """Whatever `fair_tree` was set to: the twin has no usage of Slurm's own."""
        with self._asked("associations"):
            return self.fair_tree

    def carry_out(self, changes: Sequence[Change]) -> None:
        with self._asked("carry_out"):
            for change in changes:
                self._apply(change)

    # --- Hands

    def note(self, job_id: int, words: str) -> None:
        with self._asked("note"):
            self._there(job_id)
            self._comments[job_id] = with_note(self._comments[job_id], words)

    def notice(self, job_id: int, signal: str) -> None:
        with self._asked("notice"):
            self._there(job_id)
            self.log.append(f"notice {job_id} {signal}")

    def requeue(self, job_id: int) -> None:
        with self._asked("requeue"):
            job = self._there(job_id)
            if not job.requeueable or not job.batch or job.state == PENDING:
                raise SlurmRefused(f"job {job_id} cannot be requeued: Requested operation is presently disabled")
            self._close(job_id, "REQUEUED")
            self._jobs[job_id] = replace(
                job,
                state=PENDING,
                reason="BeginTime",
                submit=self.now,
                eligible=self.now,
                start=None,
                nodes=(),
                by_node={},
                restarts=job.restarts + 1,
            )
            self.log.append(f"requeue {job_id}")

    def end(self, job_id: int) -> None:
        with self._asked("end"):
            self._there(job_id)
            self.finish(job_id, "CANCELLED")
            self.log.append(f"end {job_id}")

    # --- Errands

    def checkpoints(self) -> Mapping[int, datetime]:
        with self._asked("checkpoints"):
            return dict(self.saved)

    def tell(self, job_id: int, words: str) -> None:
        with self._asked("tell"):
            self._there(job_id)
            self.log.append(f"tell {job_id} {words}")

    def lift(self, job_id: int, site_factor: int) -> None:
        with self._asked("lift"):
            self._there(job_id)
            self._lifts[job_id] = site_factor
            self.log.append(f"lift {job_id} {site_factor}")

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        with self._asked("drain"):
            for name in nodes:
                self.set_states(self._node(name), "IDLE", "DRAIN", reason=reason)

    def undrain(self, nodes: Sequence[str]) -> None:
        with self._asked("undrain"):
            for name in nodes:
                self.set_states(self._node(name), "IDLE")

    def repartition(self, partition: str, nodes: Sequence[str]) -> None:
        with self._asked("repartition"):
            wanted = {self._node(name) for name in nodes}
            for name, node in self._nodes.items():
                others = tuple(one for one in node.partitions if one != partition)
                self._nodes[name] = replace(node, partitions=(*others, partition) if name in wanted else others)
            self.log.append(f"repartition {partition} {','.join(nodes)}")

    def limit(self, qos: str, gpus: int | None) -> None:
        with self._asked("limit"):
            self.log.append(f"limit {qos} {gpus}")

    def _node(self, name: str) -> str:
        if name not in self._nodes:
            raise SlurmRefused(f"scontrol update NodeName={name}: Invalid node name specified")
        return name

    # --- Reservations

    def bookings(self) -> tuple[Booking, ...]:
        with self._asked("bookings"):
            return tuple(self._bookings.values())

    def book(self, booking: Booking, in_place_of: Booking | None = None) -> None:
        with self._asked("book"):
            name = name_of(booking.job_id, self._ladder)
            others = (one for one in self._bookings.values() if one != in_place_of)
            if any(set(one.nodes) & set(booking.nodes) for one in others):
                raise SlurmRefused("Error creating the reservation: Requested reservation overlaps with another")
            if booking.kind is Kind.GUARD:
                self._reserve(self._there(booking.job_id), name)
            self._bookings[name] = booking
            self.log.append(f"{booking.kind} {name} {','.join(booking.nodes)}")

    def unbook(self, booking: Booking) -> None:
        with self._asked("unbook"):
            name = name_of(booking.job_id, self._ladder)
            job = self._jobs.get(booking.job_id)
            if job is not None and is_guarded(job, self._ladder):
                self._reserve(job, "")
            self._bookings.pop(name, None)
            self.log.append(f"unbook {name}")

    def _reserve(self, job: Job, name: str) -> None:
        others = tuple(word for word in job.constraints if not word.startswith("reservation="))
        self._jobs[job.job_id] = replace(job, constraints=(*others, f"reservation={name}") if name else others)

    def _closed(self, node: str, job: Job) -> bool:
        """Whether the node is booked for another job now, or will be before this one must have ended."""
        for name, one in self._bookings.items():
            if node in one.nodes and f"reservation={name}" not in job.constraints:
                ends = self.now + job.time_limit if job.time_limit is not None else None
                return ends is None or ends > one.start
        guarded = next((one for name, one in self._bookings.items() if f"reservation={name}" in job.constraints), None)
        return guarded is not None and node not in guarded.nodes

    # --- inside

    @contextmanager
    def _asked(self, method: str) -> Iterator[None]:
        self.calls[method] += 1
        if method in self._failures:
            raise self._failures[method]
        yield

    def _there(self, job_id: int) -> Job:
        if job_id not in self._jobs:
            raise SlurmRefused(f"job {job_id} is not in the queue (any more): Invalid job id specified")
        return self._jobs[job_id]

    def _pending(self) -> list[Job]:
        return [self._with_priority(job) for job in self._jobs.values() if job.pending]

    def _with_priority(self, job: Job) -> Job:
        """As multifactor adds it up with our settings, but for age: label + QOS + in-team priority."""
        account = self._accounts[job.account]
        own = account.users.get(job.user)
        label = own if own is not None else account.priority or 0
        qos = self._qos.get(job.qos)
        factor = self._lifts.get(job.job_id, job.contract.priority.site_factor if job.contract else 0)
        total = max(1, label + (qos.priority if qos else 0) + factor)
        return replace(job, priority=total) if job.pending else job

    def _allocated(self, name: str) -> Resources:
        total = Resources()
        for job in self._jobs.values():
            if name in job.by_node:
                total = total.plus(job.by_node[name])
        return total

    def _seen(self, node: Node) -> Node:
        allocated = self._allocated(node.name)
        states = node.states
        if allocated.gpu_count or allocated.cpus:
            states = (states - {"IDLE"}) | {"MIXED"}
        if any(one.start <= self.now and node.name in one.nodes for one in self._bookings.values()):
            states |= {"RESERVED"}
        return replace(node, states=states, allocated=allocated)

    def _fits(self, name: str, share: Resources) -> bool:
        free = self._nodes[name].total.minus(self._allocated(name))
        enough = all(free.gpus.get(kind, 0) >= number for kind, number in share.gpus.items())
        return enough and free.cpus >= share.cpus and free.memory_mb >= share.memory_mb

    def _places(self, job: Job) -> tuple[str, ...]:
        share = evenly(job.wanted, [str(place) for place in range(job.node_count)]).get("0", job.wanted)
        open_nodes = [n.name for n in self._nodes.values() if n.in_service and not self._closed(n.name, job)]
        fitting = [name for name in open_nodes if self._fits(name, share)]
        return tuple(fitting[: job.node_count]) if len(fitting) >= job.node_count else ()

    @property
    def _whole(self) -> Resources:
        found = Resources()
        for node in self._nodes.values():
            found = found.plus(node.total)
        return found

    def _record(self, job: Job) -> str:
        key = str(len(self._true) + 1)
        self._tell(self._row(job, key))
        return key

    def _tell(self, run: Run) -> None:
        """slurmdbd learns it, behind whatever it has not been told yet."""
        self._true[run.key] = run
        self._untold.append(run)
        if not self.holds_back and len(self._untold) == 1:
            self.hand_over()

    def _row(self, job: Job, key: str) -> Run:
        held = job.wanted if job.start is not None else Resources()
        return Run(
            cluster=self.cluster,
            key=key or f"{job.job_id}-{int(job.submit.timestamp())}",
            job_id=job.job_id,
            label=job.label,
            account=job.account,
            user=job.user,
            uid=job.uid,
            partition=job.partitions[0],
            qos=job.qos,
            state=job.state,
            submit=job.submit,
            eligible=job.eligible,
            start=job.start,
            end=None,
            held=held,
            milli_gpus=self._rule.milli_gpus(held, self._whole),
            charged=self._ladder.is_charged(job.qos),
            contract=job.contract,
            nodes=",".join(job.nodes),
        )

    def _close(self, job_id: int, state: str) -> None:
        key = self._open.pop(job_id, None) or self._record(self._jobs[job_id])
        self._tell(replace(self._true[key], state=state, end=self.now))

    def _associations(self) -> Iterator[Association]:
        for name, account in sorted(self._accounts.items()):
            may, default = frozenset(account.qos), account.default_qos
            yield Association(name, "", account.priority, may, default)
            for user, own in sorted(account.users.items()):
                yield Association(name, user, account.priority if own is None else own, may, default)

    def _apply(self, change: Change) -> None:
        match change:
            case AddQos(name):
                self._qos.setdefault(name, Qos(name))
            case SetQos(qos, _):
                self._set_qos(qos)
            case Allow(accounts, names, default):
                self._known(*names, default)
                for account in self._named(accounts):
                    account.qos |= set(names)
                    account.default_qos = default
            case SetPriority(accounts, priority):
                for account in self._named(accounts):
                    account.priority = priority
            case ClearUserPriority(name, user):
                for account in self._named((name,)):
                    if user in account.users:
                        account.users[user] = None
            case SetUserPriority(name, user, priority):
                for account in self._named((name,)):
                    if user in account.users:
                        account.users[user] = priority
            case Disallow(accounts, names, label):
                for account in self._named(accounts):
                    account.qos -= set(names)
                    account.priority = None if label else account.priority
                    account.default_qos = "" if account.default_qos in names else account.default_qos
            case RemoveQos(name):
                self._remove_qos(name)
            case Unbook(booking):
                self.unbook(booking)

    def _named(self, names: Sequence[str]) -> list[_Account]:
        """Accounts Slurm knows; of others it says "Nothing modified", which is no error."""
        return [self._accounts[name.lower()] for name in names if name.lower() in self._accounts]

    def _known(self, *names: str) -> None:
        for name in names:
            if name not in self._qos:
                raise SlurmRefused(f"You gave a bad qos '{name}'. Valid QOS's are {','.join(self._qos)}")

    def _set_qos(self, qos: Qos) -> None:
        self._known(qos.name, *qos.preempts)
        if self._reaches(qos.preempts, qos.name):
            raise SlurmRefused("QOS Preemption loop detected")
        self._qos[qos.name] = qos

    def _reaches(self, starts: frozenset[str], goal: str) -> bool:
        return any(name == goal or self._reaches(self._qos[name].preempts, goal) for name in starts)

    def _remove_qos(self, name: str) -> None:
        if any(job.qos == name for job in self._jobs.values()):
            raise SlurmRefused(f"QOS {name} is in use: Job(s) active, cancel job(s) before remove")
        self._qos.pop(name, None)
        self._qos = {key: replace(qos, preempts=qos.preempts - {name}) for key, qos in self._qos.items()}
        for account in self._accounts.values():
            account.qos.discard(name)
            account.default_qos = "" if account.default_qos == name else account.default_qos


def _selected(run: Run, window: Window) -> bool:
    """As sacct selects without a state filter: eligible before the end, not ended before the start."""
    return run.eligible is not None and run.eligible < window.end and (run.end is None or run.end >= window.start)
