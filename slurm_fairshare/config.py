"""The settings of a site: one TOML file, the environment above it, everything checked before anything runs.

Looked for in the order: `--config FILE`, $SLURM_FAIRSHARE_CONFIG, ./slurm-fairshare.toml,
/etc/slurm-fairshare/slurm-fairshare.toml. Any setting can be given as SLURM_FAIRSHARE_<SECTION>__<NAME>.

Whoever may read /etc/slurm-fairshare/environment, the daemon's own variables with its password, is given them too, as
systemd gives them to the daemon: its user and root run every command as the daemon would, all others as readers.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from datetime import time, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dotenv import dotenv_values
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from slurm_fairshare.core.classes import Classes
from slurm_fairshare.core.contract import DebugLane, Ladder, read_duration
from slurm_fairshare.core.hostlist import expand
from slurm_fairshare.core.large import Large
from slurm_fairshare.core.pool import Pool
from slurm_fairshare.core.rebalance import Rules
from slurm_fairshare.core.resources import ChargeRule
from slurm_fairshare.core.window import Weight
from slurm_fairshare.errors import ConfigError

PLACES = (Path("slurm-fairshare.toml"), Path("/etc/slurm-fairshare/slurm-fairshare.toml"))
ENVIRONMENT = Path("/etc/slurm-fairshare/environment")
WEB_ENVIRONMENT = Path("/etc/slurm-fairshare/web-environment")


def _length(value: object) -> object:
    """A length of time as people write it ("7d", "90s", "1h30m"); a bare number would leave its unit open."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or (value.strip().isdecimal() and value.strip() != "0"):
        raise ValueError(f'{value!r} is no length of time: write it with its unit, such as "7d", "15m" or "90s"')
    seconds = read_duration(value.strip())
    if seconds is None:
        raise ValueError(f'{value!r} is no length of time: write "7d", "15m" or "90s"')
    return timedelta(seconds=seconds)


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than nothing")
    return value


Length = Annotated[timedelta, BeforeValidator(_length)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FairshareSection(_Section):
    """How usage is weighed."""

    lookback: Length = Field(timedelta(days=7), description="Length of the lookback window.")
    half_life: Length | None = Field(
        None, description="Halve what counts with this age inside the lookback; leave out for the box window."
    )
    gpu_weights: dict[str, float] = Field(
        default_factory=dict, description="What a GPU of a type is charged, 1 where not named: { a100 = 0.5 }."
    )
    rank_users: bool = Field(
        False,
        description="Rank users inside their account too: who used less goes first among equal in-team priorities.",
    )
    count_committed: bool = Field(
        False,
        description="Put accounts in order by what they used and what their running jobs are still promised: for teams "
        "that start much at once. Ratios, and who yields, stay by usage alone.",
    )
    dominant: bool = Field(
        False, description="Charge the largest of a run's fractions of the cluster's GPUs, CPUs and memory."
    )

    @field_validator("lookback")
    @classmethod
    def _long_enough(cls, value: timedelta) -> timedelta:
        return _positive(value)

    @field_validator("half_life")
    @classmethod
    def _halves(cls, value: timedelta | None) -> timedelta | None:
        return None if value is None else _positive(value)

    @field_validator("gpu_weights")
    @classmethod
    def _not_negative(cls, value: dict[str, float]) -> dict[str, float]:
        for kind, weight in value.items():
            if not 0 <= weight < float("inf"):
                raise ValueError(f"the weight of {kind} must be a number of zero or more")
        return value


class ContractSection(_Section):
    """The ladder and what jobs may declare."""

    qos_prefix: str = Field("fs-", min_length=2, description="QOS whose names start so are ours, all others are not.")
    rungs: tuple[Length, ...] = Field(
        tuple(timedelta(seconds=s) for s in (900, 3600, 7200, 14_400, 28_800)),
        description="Minimum runtimes of the ladder, ascending; the longest is the cap.",
    )
    default_min_runtime: Length = Field(
        timedelta(0), description="What a job that declares nothing gets; 0 is unallocated."
    )
    partitions: tuple[str, ...] = Field((), description="Partitions under contract; empty means all.")
    exempt_accounts: tuple[str, ...] = Field((), description="Accounts whose jobs the plugin leaves alone.")
    other_qos: tuple[str, ...] = Field((), description="QOS outside the ladder that users may name.")
    near_feature: str = Field(
        "",
        description="Feature of nodes that small jobs under contract prefer, so that the other nodes stay whole; "
        "nodes must have it before the plugin is installed with it.",
    )
    near_gpus: int = Field(4, ge=1, description="GPUs of a job that prefers those nodes, at the most.")
    headroom: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Fraction of the GPUs in service that unallocated jobs leave free, so that the next small job "
        "under contract starts at once and stops nobody; 0 turns this off.",
    )


class DebugSection(_Section):
    """The debug lane: short, small jobs sort first."""

    enabled: bool = Field(True, description="Whether there is a debug lane.")
    max_gpus: int = Field(8, ge=1, description="GPUs a debug job may ask for.")
    max_gpus_per_team: int = Field(40, ge=1, description="GPUs an account's debug jobs may hold at once.")
    pool: str = Field(
        "", description="Partition over nodes for debug and unallocated jobs only; the plugin offers it to those."
    )


class PoolSection(_Section):
    """The size of the pool (`debug_lane.pool`). Without `nodes` the site sets it itself."""

    nodes: str = Field("", description='Nodes that may be in the pool, in the order they join: "gpu[120-125]".')
    elsewhere: tuple[str, ...] = Field((), description="Partitions that these nodes are in when not in the pool.")
    least: int = Field(1, ge=1, description="Nodes in the pool at the least.")
    clock: dict[time, int] = Field(
        {},
        description='How many nodes from which time of day (`time_zone`) on: { "08:00" = 6, "20:00" = 2 }. '
        "Empty: as many as debug jobs ask for.",
    )
    hold: Length = Field(timedelta(hours=1), description="How long less must have been asked for before it shrinks.")

    @model_validator(mode="after")
    def _whole(self) -> PoolSection:
        if not self.nodes:
            return self
        names = expand(self.nodes)
        if names is None:
            raise ValueError(f'nodes: {self.nodes!r} is no list of nodes; write "gpu1" or "gpu[1-8]"')
        if not self.elsewhere:
            raise ValueError("nodes needs elsewhere: the partitions that the nodes are in when not in the pool")
        most = max(self.least, *self.clock.values(), 0)
        if most > len(names):
            raise ValueError(f"the pool is to have {most} nodes, but nodes names {len(names)}")
        return self


class ClassesSection(_Section):
    """Kinds of jobs in reports: debug, small, medium, large; unallocated work is its own kind."""

    debug: Length = Field(timedelta(minutes=15), description="Longest minimum runtime of a debug job.")
    debug_gpus: int = Field(8, ge=1, description="GPUs of a debug job at the most.")
    small: int = Field(8, ge=1, description="GPUs of a small job at the most.")
    medium: int = Field(64, ge=1, description="GPUs of a medium job at the most; more is large.")


class RebalanceSection(_Section):
    """Who yields after the minimum runtime."""

    enabled: bool = Field(True, description="Whether the daemon stops runs at all.")
    interval: Length = Field(timedelta(seconds=5), description="Time between two passes of the daemon.")
    hysteresis: float = Field(0.10, ge=0, description="How far the ratio must be apart before anybody yields.")
    hysteresis_restart: float = Field(
        0.50, ge=0, description="The same for a run that does not resume, since all its work is lost."
    )
    preemptors: int = Field(
        2, ge=0, description="Jobs that room is made for in a pass, and blocked jobs of each leaf that are looked at."
    )
    lane_preemptors: int = Field(8, ge=0, description="Debug jobs served in a pass, apart from these.")
    in_team: bool = Field(
        True, description="Whether a job may stop runs of its own team for a higher priority within the team."
    )
    max_per_pass: int = Field(64, ge=1, description="Runs stopped in one pass at the most.")
    max_per_hour: int = Field(600, ge=1, description="Runs stopped in an hour at the most.")
    max_per_team_hour: int = Field(120, ge=1, description="Runs of one team stopped in an hour at the most.")
    settle: Length = Field(timedelta(seconds=60), description="Time a preemptor has to start in the room made for it.")
    cooldown: Length = Field(timedelta(minutes=10), description="Time for which a pair that failed is not tried again.")
    attempts: int = Field(3, ge=1, description="Sets of runs stopped for one job within the cool-down at the most.")
    max_age: Length = Field(timedelta(minutes=5), description="Age of the data beyond which nobody is stopped on it.")
    checkpoint_interval: Length = Field(
        timedelta(minutes=30), description="How often a resumable run is taken to save, where nothing is known."
    )
    patience: Length = Field(
        timedelta(0),
        description="Time for which a waiting job takes only runs that have just saved, so that less work is lost; "
        'debug jobs, and large ones in the first rank, never wait for that. "0" turns it off.',
    )
    notice: Length = Field(timedelta(seconds=30), description="Time between a run's notice signal and its requeue.")
    end_sessions: bool = Field(
        True, description="Whether interactive jobs are ended past their minimum; off leaves them to their time limit."
    )
    warn_sessions: Length = Field(
        timedelta(minutes=5), description="How long before the end of its minimum runtime a session is warned."
    )
    kept_partitions: tuple[str, ...] = Field((), description="Partitions whose jobs the rebalancer never stops.")
    guard: bool = Field(
        False,
        description="Whether the nodes of a job that takes whole ones are kept for it, by a reservation of Slurm's, "
        "while those who yield leave.",
    )
    empty_drained: bool = Field(
        False, description="Whether nodes drained by an admin or a health check are emptied like those by `drain`."
    )


class LargeSection(_Section):
    """Large jobs that have waited long move to the first rank."""

    gpus: int = Field(64, ge=0, description="GPUs from which on a job is large; 0 turns this off.")
    wait: Length = Field(timedelta(hours=12), description="Time a large job waits before it moves to the first rank.")
    max_ratio: float = Field(1.2, gt=0, description="Only while its account has used less than this of its due.")
    plan_ahead: Length = Field(
        timedelta(0),
        description="How far ahead nodes are kept for the first large job, by a reservation of Slurm's: nothing starts "
        'there that would outlast the moment at which all of them may yield to it; "0" turns this off.',
    )
    plan_gpus: int = Field(
        0, ge=0, description="GPUs from which on nodes are kept ahead for a job; 0: for every large one."
    )


class SlurmSection(_Section):
    """How Slurm is reached."""

    command_prefix: tuple[str, ...] = Field(
        (), description='Words put before every Slurm command: ["ssh", "login1"] or ["docker", "exec", "slurmctld"].'
    )
    notify_prefix: tuple[str, ...] = Field(
        (),
        description='The same for `scontrol notify`, which only SlurmUser and root may use: ["sudo", "-u", "slurm"].',
    )
    backend: Literal["cli", "pyslurm"] = Field(
        "cli", description="How queue and nodes are read: by Slurm's tools, or by pyslurm where its release fits."
    )
    timeout: Length = Field(timedelta(seconds=60), description="Time a Slurm command may take.")
    gpu_utilisation: bool = Field(
        False,
        description="Read gres/gpuutil of steps once an hour, for `pyramid` and `habits`; costs a query by step.",
    )
    trusted_users: tuple[str, ...] = Field(
        ("fairshare",), description="Users whose changes of jobs the plugin lets pass: the daemon's own."
    )

    @field_validator("command_prefix", "notify_prefix", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        return tuple(shlex.split(value)) if isinstance(value, str) else value


class DaemonSection(_Section):
    """The daemon."""

    push: bool = Field(True, description="Whether Slurm is changed; off computes and shows all, changes nothing.")
    interval: Length = Field(timedelta(seconds=60), description="Time between two ticks.")
    poll_overlap: Length = Field(
        timedelta(minutes=10), description="How far back behind the last poll accounting is read again."
    )
    first_poll: Length = Field(
        timedelta(days=8), description="How far back accounting is read when the ledger is empty."
    )
    max_backoff: Length = Field(
        timedelta(minutes=5), description="Longest pause before what failed again and again is tried once more."
    )
    max_skew: Length = Field(
        timedelta(seconds=5), description="How far this host's clock may be from slurmctld's before nothing is done."
    )


class MetricsSection(_Section):
    """What Prometheus reads."""

    listen: str = Field(
        "",
        description='Address and port at which the daemon serves /metrics, such as "127.0.0.1:9341"; empty: nowhere.',
    )


class WebSection(_Section):
    """The dashboard."""

    listen: str = Field("127.0.0.1:8080", description="Address and port it listens on.")
    root_path: str = Field("", description='Path under which a proxy shows it, such as "/fairshare"; empty for "/".')
    user_header: str | None = Field(
        None,
        description="Header in which the site's proxy says who is signed in, such as "
        '"X-Remote-User"; without it whoever reaches the address may look.',
    )
    trusted_proxies: tuple[str, ...] = Field(
        ("127.0.0.1", "::1"),
        description="Addresses and networks that user_header is believed from; no other may ask then.",
    )
    strangers: Literal["reader", "nothing"] = Field(
        "reader",
        description="What people without a role in Postgres see, where roles are set up: as readers do, or nothing.",
    )
    refresh: Length = Field(
        timedelta(seconds=5),
        description="How long an answer serves everybody before Postgres is asked whether there was a new tick.",
    )
    history: Length = Field(timedelta(days=30), description="How far back pages show what was owed and delivered.")
    page_rows: int = Field(50, ge=1, le=1000, description="Jobs on one page of a queue.")

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        if not (colon and host and port.isdecimal() and int(port) < 65_536):
            raise ValueError(f'{value!r} is no address: write "127.0.0.1:8080", "[::]:8080" or "0.0.0.0:8080"')
        return value

    @field_validator("root_path")
    @classmethod
    def _begins_with_slash(cls, value: str) -> str:
        value = value.rstrip("/")
        if value and not value.startswith("/"):
            raise ValueError('it begins with a slash, such as "/fairshare"')
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            try:
                ip_network(one)
            except ValueError as error:
                raise ValueError(f"{one!r} is no address and no network: write 10.0.0.7 or 10.0.0.0/24") from error
        return value

    @field_validator("refresh", "history")
    @classmethod
    def _some_time(cls, value: timedelta) -> timedelta:
        return _positive(value)

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @model_validator(mode="after")
    def _somebody_sees_something(self) -> WebSection:
        if self.user_header is None and self.strangers == "nothing":
            raise ValueError('strangers = "nothing" needs user_header: without it everybody is a stranger')
        return self


class Config(BaseSettings):
    """All settings. Unknown names are errors, so that a misspelt one cannot pass unseen."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="SLURM_FAIRSHARE_", env_nested_delimiter="__"
    )

    cluster: str = Field("cluster", min_length=1, description="Slurm's ClusterName.")
    database_url: str = Field(
        "postgresql:///fairshare", description="Postgres: postgresql://user:password@host:port/database."
    )
    database_timeout: Length = Field(
        timedelta(minutes=2), description="Time Postgres may take for one statement before it is given up."
    )
    time_zone: str = Field("UTC", description="Zone in which reports cut days and months.")
    log_format: Literal["console", "json"] = Field("console", description="How the daemon writes its log.")
    fairshare: FairshareSection = Field(default_factory=lambda: FairshareSection())
    contract: ContractSection = Field(default_factory=lambda: ContractSection())
    debug_lane: DebugSection = Field(default_factory=lambda: DebugSection())
    pool: PoolSection = Field(default_factory=lambda: PoolSection())
    classes: ClassesSection = Field(default_factory=lambda: ClassesSection())
    rebalance: RebalanceSection = Field(default_factory=lambda: RebalanceSection())
    large: LargeSection = Field(default_factory=lambda: LargeSection())
    slurm: SlurmSection = Field(default_factory=lambda: SlurmSection())
    daemon: DaemonSection = Field(default_factory=lambda: DaemonSection())
    metrics: MetricsSection = Field(default_factory=lambda: MetricsSection())
    web: WebSection = Field(default_factory=lambda: WebSection())

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{value!r} is no time zone; write one such as Europe/Berlin") from error
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  pydantic-settings calls it with these names
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose values arrive as `init`."""
        return env_settings, init_settings

    @property
    def ladder(self) -> Ladder:
        return Ladder.of([int(rung.total_seconds()) for rung in self.contract.rungs], self.contract.qos_prefix)

    @property
    def lane(self) -> DebugLane | None:
        section = self.debug_lane
        if not section.enabled:
            return None
        return DebugLane(section.max_gpus, section.max_gpus_per_team, pool=section.pool)

    @property
    def pool_rule(self) -> Pool | None:
        """None where there is no pool, or its size is the site's to set."""
        section, partition = self.pool, self.debug_lane.pool
        names = expand(section.nodes)
        if not names or not partition or not self.debug_lane.enabled:
            return None
        return Pool(partition, names, section.elsewhere, section.least, tuple(section.clock.items()), section.hold)

    @property
    def job_classes(self) -> Classes:
        section = self.classes
        return Classes(int(section.debug.total_seconds()), section.debug_gpus, section.small, section.medium)

    @property
    def large_jobs(self) -> Large | None:
        section = self.large
        if not section.gpus:
            return None
        return Large(section.gpus, section.wait, section.max_ratio, section.plan_ahead, section.plan_gpus)

    @property
    def weight(self) -> Weight:
        return Weight(self.fairshare.half_life)

    @property
    def charge_rule(self) -> ChargeRule:
        return ChargeRule(self.fairshare.gpu_weights, self.fairshare.dominant)

    @property
    def rules(self) -> Rules:
        names = Rules.__dataclass_fields__.keys() & RebalanceSection.model_fields.keys()
        return Rules(**{name: getattr(self.rebalance, name) for name in names}, large=self.large_jobs)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)


def load(path: Path | None = None) -> Config:
    """The settings from the file (if there is one) and the environment; ConfigError names every fault."""
    _take_over(ENVIRONMENT)
    place = _find(path)
    values = _read(place) if place else {}
    try:
        return Config(**values)
    except SettingsError as error:
        raise ConfigError(
            f"a variable SLURM_FAIRSHARE_... of the environment cannot be read ({error}): lists and tables are written "
            'as JSON there, such as ["ssh", "login1"]'
        ) from error
    except ValidationError as error:
        where = str(place) if place else "the environment"
        lines = [f"  - {'.'.join(map(str, item['loc'])) or 'settings'}: {_plain(item)}" for item in error.errors()]
        raise ConfigError(f"{where} has settings that cannot be used:\n" + "\n".join(lines)) from error


def _take_over(file: Path) -> None:
    """The variables of the daemon's environment file, where this user may read it; those that are set already win."""
    if os.access(file, os.R_OK):
        for name, value in dotenv_values(file, interpolate=False).items():
            os.environ.setdefault(name, value or "")


def _plain(item: Any) -> str:
    if item["type"] == "extra_forbidden":
        return "there is no such setting; see docs/reference/settings.md"
    return str(item["msg"]).removeprefix("Value error, ")


def _find(path: Path | None) -> Path | None:
    named = path or (Path(given) if (given := os.environ.get("SLURM_FAIRSHARE_CONFIG")) else None)
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"there is no settings file {named}")
        return named
    # os.path: a working directory that this user may not enter (root's, under runuser) is no error
    return next((place for place in PLACES if os.path.isfile(place)), None)  # noqa: PTH113


def _read(place: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(place.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{place} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{place} cannot be read: {error.strerror}") from error
