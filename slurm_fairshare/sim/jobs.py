"""What a simulation is given: jobs, and the machine they run on. Times are whole seconds from the origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import NamedTuple

ORIGIN = datetime(2026, 1, 5, tzinfo=UTC)
"""The moment an invented workload starts at: a Monday, so that days of the week mean what they say."""


class InTeam(IntEnum):
    """The order a team gives its own jobs, as `core.contract.Priority` names it."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job as its owner submits it. `work` is how long it computes if nobody stops it, in seconds.

    `limit` is its time limit: schedulers see the limit, never the work. `checkpoint` is the interval at which
    a resumable job saves, in seconds; `notice` says whether it saves when it is told that it must go.
    `klass` names the job's class in tables.
    """

    number: int
    submit: int
    work: int
    gpus: int
    account: str
    user: str = ""
    limit: int = 0
    nodes: int = 0
    kind: str = ""
    cpus: int = 0
    memory_mb: int = 0
    min_runtime: int = 0
    resumable: bool = False
    priority: int = InTeam.NORMAL
    checkpoint: int = 1800
    notice: bool = False
    klass: str = ""


class NodeSpec(NamedTuple):
    """One node. `kind` is the type of its GPUs. CPUs or memory of 0 are not looked at."""

    name: str
    gpus: int
    kind: str = ""
    cpus: int = 0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class Outage:
    """A node out of service during `[start, end)`. A drained one lets its runs finish, a failed one does not."""

    node: int
    start: int
    end: int
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """The nodes, and when some of them are out of service."""

    nodes: tuple[NodeSpec, ...]
    outages: tuple[Outage, ...] = ()

    @classmethod
    def uniform(cls, count: int, gpus: int, kind: str = "", outages: Sequence[Outage] = ()) -> Machine:
        width = len(str(count))
        return cls(tuple(NodeSpec(f"n{i:0{width}d}", gpus, kind) for i in range(1, count + 1)), tuple(outages))

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of their submission, and the shares of the accounts they run under.

    `shares` maps a path of the budget tree to its weight among its siblings; leaves bear the account's name.
    Times are seconds after `origin`.
    """

    jobs: tuple[JobSpec, ...]
    shares: dict[str, float] = field(default_factory=dict)
    origin: datetime = ORIGIN
    name: str = ""

    @property
    def accounts(self) -> tuple[str, ...]:
        return tuple(sorted({job.account for job in self.jobs}))
