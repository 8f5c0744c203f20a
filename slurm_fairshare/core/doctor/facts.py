"""What the doctor looks at: how the site is set up, read once, as plain values.

A source that could not be read stands in `Facts.unread` with the reason; its field then holds nothing, and no
check that needs it is made. Nothing here may turn "not known" into "not there".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property

from slurm_fairshare.core.contract import DebugLane, Ladder
from slurm_fairshare.core.plan import Held
from slurm_fairshare.core.tree import Tree

Release = tuple[int, int, int]
"""Slurm's version: (24, 11, 5)."""

NOTHING = frozenset({"", "(null)", "N/A", "NONE", "none", "(null type)"})


class Source(Enum):
    """Where facts come from. Each is read or not read as a whole; the value is the field of `Facts` it fills."""

    CONFIG = "config"
    FILE = "lines"
    PARTITIONS = "partitions"
    NODES = "nodes"
    QUEUE = "queue"
    BACKLOG = "backlog"
    HELD = "held"
    QOS = "qos"
    USERS = "users"
    ACCOUNTING = "accounting"
    CLUSTERS = "clusters"
    RIGHTS = "rights"
    PLUGIN = "plugin"
    PROBE = "probe"
    RUNAWAYS = "runaways"
    DATABASE = "database"
    TREE = "tree"
    TICK = "tick"

    @property
    def words(self) -> str:
        return _SOURCES[self]


_SOURCES = {
    Source.CONFIG: "the configuration that slurmctld holds (scontrol show config)",
    Source.FILE: "the file slurm.conf where Slurm's commands run",
    Source.PARTITIONS: "the partitions (scontrol show partitions)",
    Source.NODES: "the nodes (scontrol show nodes)",
    Source.QUEUE: "the queue (squeue)",
    Source.BACKLOG: "slurmctld's messages to slurmdbd (sdiag)",
    Source.HELD: "associations and their priorities (scontrol show assoc_mgr, sacctmgr show assoc)",
    Source.QOS: "the QOS (sacctmgr show qos)",
    Source.USERS: "the users slurmctld knows (scontrol show assoc_mgr)",
    Source.ACCOUNTING: "the configuration of slurmdbd (sacctmgr show configuration)",
    Source.CLUSTERS: "the clusters slurmdbd knows (sacctmgr show cluster)",
    Source.RIGHTS: "the AdminLevel of the user who runs this (sacctmgr show user)",
    Source.PLUGIN: "the file job_submit.lua beside slurm.conf",
    Source.PROBE: "the plugin's answer to a job that must be refused (sbatch --test-only)",
    Source.RUNAWAYS: "jobs that run in slurmdbd's eyes (sacct)",
    Source.DATABASE: "Postgres",
    Source.TREE: "the budget tree",
    Source.TICK: "the record of the last tick",
}


@dataclass(frozen=True)
class Configuration:
    """Parameters and their values as a tool prints them. Names compare without case."""

    values: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _by_key(self) -> Mapping[str, str]:
        return {name.lower(): value.strip() for name, value in self.values.items()}

    def text(self, name: str) -> str:
        """The value, "" where there is none."""
        value = self._by_key.get(name.lower(), "")
        return "" if value in NOTHING else value

    def words(self, name: str) -> frozenset[str]:
        """A list's members in lower case."""
        return frozenset(word.strip().lower() for word in self.text(name).split(",") if word.strip())

    def options(self, name: str) -> Mapping[str, str]:
        """A list whose members may carry a value: `bf_interval=10,bf_continue` -> {bf_interval: 10, bf_continue: ""}.

        Of two with one name Slurm takes the first.
        """
        found: dict[str, str] = {}
        for part in self.text(name).split(","):
            key, _, value = part.strip().partition("=")
            if key:
                found.setdefault(key.lower(), value)
        return found

    def number(self, name: str) -> int | None:
        """The whole number a value starts with (`30 sec`); None where there is none."""
        return whole(self.text(name))

    def seconds(self, name: str) -> int | None:
        """A length of time printed as `D-HH:MM:SS`, `HH:MM:SS` or a number of seconds; None where there is none."""
        return seconds(self.text(name))

    def with_option(self, name: str, option: str, value: str = "") -> str:
        """The line that sets one option of a list and keeps the others."""
        options = {**self.options(name), option: value}
        return f"{name}=" + ",".join(f"{key}={one}" if one else key for key, one in options.items())

    def without_option(self, name: str, option: str) -> str:
        """The line that leaves one option out and keeps the others."""
        kept = ",".join(f"{key}={one}" if one else key for key, one in self.options(name).items() if key != option)
        return f"{name}={kept}" if kept else f"# no {name} line"


def whole(text: str) -> int | None:
    match = re.match(r"\d+", text)
    return int(match.group()) if match else None


def seconds(text: str) -> int | None:
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return whole(text)
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `allow_qos` None means all; `max_time` in seconds, None for no limit."""

    name: str
    nodes: frozenset[str] = frozenset()
    qos: str = ""
    allow_qos: frozenset[str] | None = None
    deny_qos: frozenset[str] = frozenset()
    priority_tier: int = 1
    max_time: int | None = None


@dataclass(frozen=True, slots=True)
class HeldQos:
    """One QOS as slurmdbd has it. Times in seconds, None where unset: unset and 0 are not the same to Slurm."""

    name: str
    exempt: int | None = None
    grace: int | None = None
    preempts: frozenset[str] = frozenset()
    modes: frozenset[str] = frozenset()
    """Lower case, such as {"requeue", "within"}; {"cluster"} means the cluster's."""
    flags: frozenset[str] = frozenset()
    usage_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    states: frozenset[str] = frozenset()
    gres: str = ""
    """As slurm.conf gives it: `gpu:h100:8`."""
    tres: Mapping[str, str] = field(default_factory=dict)
    """What Slurm counts on it."""
    reason: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queue in numbers: pending jobs, and unfinished ones by QOS."""

    pending: int = 0
    by_qos: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rights:
    """Who runs this, where, and with which AdminLevel (`None`, `Operator`, `Administrator`); "" = no user of Slurm."""

    user: str = ""
    uid: int = -1
    host: str = ""
    level: str = ""


@dataclass(frozen=True, slots=True)
class PluginFile:
    """job_submit.lua where it was found, and what this site's settings would make of it.

    `wanted` is written with the uids that `text` trusts: who they are is a question of its own.
    """

    place: str = ""
    text: str = ""
    wanted: str = ""
    trusted_uids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Clocks:
    """Another clock less ours, in seconds; half the time of the question is in doubt."""

    name: str
    ahead: float
    doubt: float = 0.0


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Postgres as its role sees it. `version` None: no schema of ours. `lacks`: rights, as "insert on runs".

    `pages_lack`: logins of dashboards that run, each with a role it has to take on for viewers and is not in.
    """

    version: str | None = None
    wanted: str = ""
    known: frozenset[str] = frozenset()
    superuser: bool = False
    role: str = ""
    lacks: tuple[str, ...] = ()
    pages_lack: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TickState:
    """The last tick; `at` None before the first one. `failure` is the newest one since, in words."""

    at: datetime | None = None
    pushed: bool = True
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The site's settings, as far as a check compares something with them.

    `open_secrets`: files that hold a login's password and that everybody on this host may read.
    """

    cluster: str = "cluster"
    ladder: Ladder = field(default_factory=Ladder.default)
    lane: DebugLane | None = field(default_factory=DebugLane)
    prefix: str = "fs-"
    partitions: tuple[str, ...] = ()
    other_qos: tuple[str, ...] = ()
    trusted_users: tuple[str, ...] = ("fairshare",)
    lookback: timedelta = timedelta(days=7)
    half_life: timedelta | None = None
    first_poll: timedelta = timedelta(days=8)
    interval: timedelta = timedelta(seconds=60)
    max_age: timedelta = timedelta(minutes=5)
    push: bool = True
    open_secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything the checks may look at. `unread` tells which of it could not be read, and why."""

    now: datetime
    wanted: Wanted = field(default_factory=Wanted)
    unread: Mapping[Source, str] = field(default_factory=dict)
    config: Configuration = field(default_factory=Configuration)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """slurm.conf with what it includes: by parameter (lower case) its values in the order of the file."""
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    queue: Waiting = field(default_factory=Waiting)
    backlog: int = 0
    held: Held = field(default_factory=Held)
    qos: Mapping[str, HeldQos] = field(default_factory=dict)
    users: Mapping[str, bool] = field(default_factory=dict)
    """Users with an association, and whether slurmctld knows their uid."""
    accounting: Configuration = field(default_factory=Configuration)
    clusters: frozenset[str] = frozenset()
    rights: Rights = field(default_factory=Rights)
    plugin: PluginFile = field(default_factory=PluginFile)
    probe: str = ""
    runaways: tuple[str, ...] = ()
    database: DatabaseFacts = field(default_factory=DatabaseFacts)
    tree: Tree = field(default_factory=Tree)
    tick: TickState = field(default_factory=TickState)
    clocks: tuple[Clocks, ...] = ()
    """Those of the other daemons that answered: a daemon that did not is in `unread` already."""

    @property
    def release(self) -> Release:
        """slurmctld's version, (0, 0, 0) where it is not known."""
        return release_of(self.config.text("SLURM_VERSION"))

    def under_contract(self, partition: str) -> bool:
        return not self.wanted.partitions or partition in self.wanted.partitions


def release_of(text: str) -> Release:
    """
    >>> release_of("24.11.5"), release_of("slurm-wlm 22.05.8"), release_of("26.05.0rc1"), release_of("")
    ((24, 11, 5), (22, 5, 8), (26, 5, 0), (0, 0, 0))
    """
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2)), int(match.group(3))) if match else (0, 0, 0)
