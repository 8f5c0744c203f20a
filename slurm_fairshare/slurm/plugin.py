"""A site's own job_submit.lua: the packaged file with its settings block written anew. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files

from slurm_fairshare.core.contract import Contract, DebugLane, Ladder, Priority, spell
from slurm_fairshare.errors import ConfigError

BEGIN = "-- settings: begin\n"
END = "-- settings: end\n"


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """What a site may set in the plugin. Durations in seconds.

    `cap` None is the ladder's top. `partitions` empty puts every partition under contract. `other_qos` are
    QOS outside the ladder that users may name with --qos. `strict` puts a job that declares nothing on the
    unallocated rung even where its account's default QOS is none of the ladder's. `trusted_uids` change jobs
    unchecked: root, SlurmUser, the daemon; a Comment of theirs on a pending job is a new contract, which
    Slurm accepts from administrators only.
    """

    version: str = "default"
    ladder: Ladder = field(default_factory=Ladder.default)
    cap: int | None = None
    default_min_runtime: int = Contract().min_runtime
    debug: DebugLane | None = field(default_factory=DebugLane)
    partitions: tuple[str, ...] = ()
    exempt_accounts: tuple[str, ...] = ()
    other_qos: tuple[str, ...] = ()
    strict: bool = False
    near: tuple[str, int] | None = None
    """The feature that small jobs prefer, and the most GPUs of such a job."""
    trusted_uids: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not 0 <= self.longest <= self.ladder.cap:
            raise ConfigError(
                f"the cap of {spell(self.longest)} lies above the ladder ({spell(self.ladder.cap)}): "
                "add a rung or lower the cap"
            )
        if not 0 <= self.default_min_runtime <= self.longest:
            raise ConfigError(f"the default minimum runtime must lie between 0 and the cap of {spell(self.longest)}")

    @property
    def longest(self) -> int:
        """The longest minimum runtime a job may declare."""
        return self.ladder.cap if self.cap is None else self.cap


def packaged() -> str:
    """The plugin as it is delivered, with the product's defaults."""
    return (files("slurm_fairshare.slurm") / "job_submit.lua").read_text(encoding="utf-8")


def render(settings: PluginSettings) -> str:
    """The whole plugin file with these settings."""
    text = packaged()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ConfigError("the packaged job_submit.lua lacks its settings markers: reinstall slurm-fairshare")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}{_block(settings)}{END}{tail}"


def _block(settings: PluginSettings) -> str:
    lines = [
        f"version = {quote(settings.version)},",
        "rungs = {",
        *(f"  {{ name = {quote(rung.name)}, seconds = {rung.min_runtime} }}," for rung in settings.ladder.rungs),
        "},",
        f"cap = {settings.longest},",
        f"default_min_runtime = {settings.default_min_runtime},",
        f"priorities = {_table(f'{one.value} = {one.site_factor}' for one in Priority)},",
        f"debug = {_lane(settings.debug)},",
        f"partitions = {_table(quote(name) for name in settings.partitions)},",
        f"exempt_accounts = {_table(quote(name) for name in settings.exempt_accounts)},",
        f"other_qos = {_table(quote(name) for name in settings.other_qos)},",
        f"strict = {str(settings.strict).lower()},",
        *([f"near = {_near(settings.near)},"] if settings.near else []),
        f"trusted_uids = {_table(str(uid) for uid in settings.trusted_uids)},",
    ]
    return "local SETTINGS = {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _lane(lane: DebugLane | None) -> str:
    if lane is None:
        return "nil"
    pool = (f"pool = {quote(lane.pool)}",) if lane.pool else ()
    return _table((f"max_seconds = {lane.max_min_runtime}", f"max_gpus = {lane.max_gpus}", *pool))


def _near(near: tuple[str, int]) -> str:
    feature, gpus = near
    return _table((f"feature = {quote(feature)}", f"gpus = {gpus}"))


def _table(items: Iterable[str]) -> str:
    inside = ", ".join(items)
    return f"{{ {inside} }}" if inside else "{}"


def quote(text: str) -> str:
    r"""A Lua string that holds exactly these bytes, whatever they are.

    >>> quote('a "b"')
    '"a \\034b\\034"'
    """
    plain = re.compile(rb"[A-Za-z0-9 _.,:@/+-]")
    octets = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(byte) if plain.match(bytes([byte])) else f"\\{byte:03d}" for byte in octets) + '"'
