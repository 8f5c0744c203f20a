"""The cluster at one moment: its nodes and its queue, as a picture that does not change while one decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.resources import Resources

PENDING = "PENDING"
RUNNING = "RUNNING"
SUSPENDED = "SUSPENDED"
COMPLETING = "COMPLETING"
CONFIGURING = "CONFIGURING"
HOLDING_STATES = frozenset({RUNNING, SUSPENDED, COMPLETING, CONFIGURING, "STOPPED", "SIGNALING", "STAGE_OUT"})
"""States in which a job holds its GPUs."""


@dataclass(frozen=True, slots=True)
class Node:
    """One compute node. `states` holds Slurm's base state and flags in upper case (IDLE, DRAIN, DOWN, ...)."""

    name: str
    states: frozenset[str]
    total: Resources
    allocated: Resources
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    reason: str = ""

    @property
    def down(self) -> bool:
        """Cannot run anything: not answering, failed, or not there (future, powered down on purpose excluded)."""
        return bool(self.states & {"DOWN", "FAIL", "ERROR", "UNKNOWN", "FUTURE", "NOT_RESPONDING"})

    @property
    def drained(self) -> bool:
        """Starts nothing new by an admin's or a health check's will; what runs there goes on."""
        return "DRAIN" in self.states and not self.down

    @property
    def in_service(self) -> bool:
        return not (self.down or self.drained)

    @property
    def free(self) -> Resources:
        return self.total.minus(self.allocated)


@dataclass(frozen=True, slots=True)
class Job:
    """A job in slurmctld's queue, pending or holding GPUs.

    `wanted` is the whole request of a pending job and the whole allocation of a running one. `by_node` says
    what a running job holds on each of its nodes. `array_size` counts the tasks a pending array line stands
    for, `array_limit` how many of them may run at once (0 = no limit).
    """

    job_id: int
    label: str
    account: str
    user: str
    uid: int
    partitions: tuple[str, ...]
    qos: str
    state: str
    reason: str
    priority: int
    submit: datetime
    eligible: datetime | None
    start: datetime | None
    time_limit: timedelta | None
    wanted: Resources
    node_count: int
    nodes: tuple[str, ...] = ()
    by_node: Mapping[str, Resources] = field(default_factory=dict)
    contract: Contract | None = None
    requeueable: bool = True
    batch: bool = True
    array_size: int = 1
    array_limit: int = 0
    het_leader: int = 0
    restarts: int = 0
    name: str = ""
    constraints: tuple[str, ...] = ()
    """Whatever of the request feasibility does not model ("features=ib", "licenses=x:1", ...)."""
    checkpoint: datetime | None = None
    """When the job says it saved last; None where it said nothing, or nobody asked."""

    @property
    def pending(self) -> bool:
        return self.state == PENDING

    @property
    def holding(self) -> bool:
        return self.state in HOLDING_STATES

    @property
    def resumes(self) -> bool:
        """Whether its contract says that it goes on where it was. Saying nothing is no."""
        return self.contract is not None and self.contract.resumable

    def protected_until(self) -> datetime | None:
        """The end of the minimum runtime of this run; None where nothing is protected."""
        if self.start is None or self.contract is None or self.contract.min_runtime == 0:
            return None
        return self.start + timedelta(seconds=self.contract.min_runtime)


@dataclass(frozen=True, slots=True)
class Picture:
    """Queue and nodes read at one moment. `at` is the clock reading of the read, not of its use."""

    cluster: str
    at: datetime
    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)

    @property
    def whole(self) -> Resources:
        """All the cluster has, for a rule that charges fractions of it."""
        found = Resources()
        for node in self.nodes:
            found = found.plus(node.total)
        return found

    @property
    def pending(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.pending)

    @property
    def holding(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.holding)


@dataclass(frozen=True, slots=True)
class Capacity:
    """GPUs by what they can be used for at a moment, for one GPU type. In service = installed - down - drained.

    `allocated` is None where nobody looked: before the first tick.
    """

    kind: str
    installed: int
    down: int
    drained: int
    allocated: int | None

    @property
    def in_service(self) -> int:
        return self.installed - self.down - self.drained


def capacity_of(nodes: tuple[Node, ...]) -> tuple[Capacity, ...]:
    """Capacity by GPU type, in the order of their names."""
    kinds = sorted({kind for node in nodes for kind in node.total.gpus})
    return tuple(_capacity(kind, nodes) for kind in kinds)


def _capacity(kind: str, nodes: tuple[Node, ...]) -> Capacity:
    def count(chosen: list[Node]) -> int:
        return sum(node.total.gpus.get(kind, 0) for node in chosen)

    return Capacity(
        kind=kind,
        installed=count(list(nodes)),
        down=count([node for node in nodes if node.down]),
        drained=count([node for node in nodes if node.drained]),
        allocated=sum(node.allocated.gpus.get(kind, 0) for node in nodes),
    )
