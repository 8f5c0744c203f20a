"""The contract of a job: what its owner declared, read at submit and pinned where no owner can change it.

Two texts are read here and nowhere else in Python: what a user writes in `--comment` (`parse_comment`,
`admit`) and the pin that job_submit.lua leaves in AdminComment (`read_pinned`). job_submit.lua holds the
same grammar in Lua, because Slurm asks it and not us; tests/contract_cases.py runs against both, messages
included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import pairwise

from slurm_fairshare.errors import ContractError


class Priority(Enum):
    """The order a team gives its own jobs. It never moves a job past another team's."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"

    def __init__(self, word: str) -> None:
        self.site_factor = {"low": 0, "normal": 20_000, "high": 40_000}[word]
        """What is added to the job's priority inside its leaf's band (0 to 40,000)."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What a job declared. `min_runtime` is in whole seconds; 0 is unallocated: free and never protected.

    `resumable`: the job continues where it stopped when it is requeued. `notice`: the signal it wants before
    it is stopped (`USR1`), None if it asked for none: it would die of a signal it does not expect. The batch
    script gets it; with `steps:USR1` what the script started with srun.
    """

    min_runtime: int = 0
    resumable: bool = False
    priority: Priority = Priority.NORMAL
    notice: str | None = None


# --- durations ------------------------------------------------------------------------------------

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
# Nine digits hold 31 years in seconds and keep every sum exact in Lua's floats.
_WITH_UNITS = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_CLOCK = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?")


def read_duration(text: str) -> int | None:
    """Seconds of a Slurm time or of `90s 15m 4h 1d 1h30m`; None if it is neither.

    >>> read_duration("90"), read_duration("1:30"), read_duration("1-12"), read_duration("1h30m")
    (5400, 90, 129600, 5400)
    >>> read_duration("1h2"), read_duration("-5"), read_duration("")
    (None, None, None)
    """
    text = _lower(text)
    clock = _CLOCK.fullmatch(text)
    if clock:
        return _clock_seconds(*clock.groups())
    units = _WITH_UNITS.fullmatch(text)
    if units is None or not text:
        return None
    return sum(int(amount or 0) * size for amount, (_, size) in zip(units.groups(), _UNITS, strict=True))


def _clock_seconds(days: str | None, first: str, second: str | None, third: str | None) -> int:
    """Slurm counts from hours after a day or with three numbers, else from minutes."""
    a, b, c = int(first), int(second or 0), int(third or 0)
    if days is not None:
        return int(days) * 86_400 + a * 3600 + b * 60 + c
    if third is not None:
        return a * 3600 + b * 60 + c
    return a * 60 + b


def spell(seconds: int) -> str:
    """The shortest exact spelling that `read_duration` reads back.

    >>> spell(0), spell(900), spell(14_400), spell(5400), spell(90_061)
    ('0', '15m', '4h', '1h30m', '1d1h1m1s')
    """
    parts = []
    for unit, size in _UNITS:
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0"


def _clock(seconds: int) -> str:
    """As `sbatch --time` takes it, rounded up to the minute Slurm counts in."""
    minutes = -(-seconds // 60)
    return f"{minutes // 60}:{minutes % 60:02d}:00"


# --- words in a comment ---------------------------------------------------------------------------

_TOKEN = re.compile(r"""[^ \t\n\v\f\r,;"'`()\[\]{}<>]+""")
_KEYS = ("min_runtime", "resumable", "priority", "notice")
_EXAMPLE = {
    "min_runtime": "min_runtime=4h",
    "resumable": "resumable=yes",
    "priority": "priority=high",
    "notice": "notice=USR1",
}
# Letters only, as a near miss is compared.
_BARE = {"minruntime": "min_runtime", "resumable": "resumable", "priority": "priority", "notice": "notice"}
_ALSO_MEANT = {
    "minimumruntime": "min_runtime",
    "minimalruntime": "min_runtime",
    "mintime": "min_runtime",
    "resume": "resumable",
    "prio": "priority",
}
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_TO_STEPS = "steps:"
_SIGNALS = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2")

Said = dict[str, int | bool | Priority | str | None]


def parse_comment(text: str, default: Contract) -> Contract:
    """The contract a comment declares; what it does not say comes from `default`.

    Raises ContractError, whose message says what to write, for a value that cannot be read, a word that looks
    like a misspelt key, and a key given twice with different values. Never falls back to "no protection".

    >>> parse_comment("run 7; min_runtime=4h resumable=yes", Contract()).min_runtime
    14400
    """
    return _with(default, read_words(text))


def _with(default: Contract, said: Said) -> Contract:
    return replace(default, **said)  # type: ignore[arg-type]


def read_words(text: str) -> Said:
    """Only what the comment itself says, by field name; an empty dict is a comment without a contract."""
    said: Said = {}
    previous = ""
    for token in _tokens(text):
        key, equals, value = token.partition("=")
        if not equals:
            _check_bare_word(token)
        elif not key:
            _check_blank_before_equals(previous)
        else:
            _take(said, key, value)
        previous = token
    return said


def _tokens(text: str) -> Iterator[str]:
    # One character per byte, so that "length" and "letter" mean what they mean in Lua.
    octets = text.encode("utf-8", "surrogateescape").decode("latin-1")
    for match in _TOKEN.finditer(octets):
        yield match.group()


def _lower(text: str) -> str:
    return text.translate(_ASCII_LOWER)


def _check_bare_word(token: str) -> None:
    """`min_runtime:4h` and a lone `min_runtime` are no prose; `priority` and `resumable` may well be."""
    if "minruntime" in _letters(token):
        raise ContractError(f'"{_show(token)}" is not understood: write {_EXAMPLE["min_runtime"]}')


def _check_blank_before_equals(previous: str) -> None:
    key = _meant(previous)
    if key is not None:
        raise ContractError(f'no blank may stand before "=": write {_EXAMPLE[key]}')


def _take(said: Said, key: str, value: str) -> None:
    name = _lower(key)
    if name not in _KEYS:
        _check_near_miss(key, value)
        return
    read = _READERS[name](value)
    if name in said and said[name] != read:
        raise ContractError(f"{name} is given twice, as {_say(said[name])} and {_say(read)}: write it once")
    said[name] = read


def _check_near_miss(key: str, value: str) -> None:
    meant = _meant(key)
    if meant is not None:
        raise ContractError(f'"{_show(key)}={_show(value)}" is not understood: write {_suggest(meant, value)}')
    inner, equals, rest = value.partition("=")
    if not equals:
        return
    if _meant(inner) is not None:
        raise ContractError(f'"{_show(inner)}" is glued to "{_show(key)}=": put a blank before it')
    _check_near_miss(inner, rest)


def _suggest(meant: str, value: str) -> str:
    try:
        return f"{meant}={_say(_READERS[meant](value))}"
    except ContractError:
        return _EXAMPLE[meant]


def _meant(word: str) -> str | None:
    """The key a word stands for or was likely meant to be; None for any other word."""
    letters = _letters(word)
    if letters in _BARE or letters in _ALSO_MEANT:
        return _BARE.get(letters) or _ALSO_MEANT[letters]
    if "minruntime" in letters:
        return "min_runtime"
    return next((_BARE[bare] for bare in _BARE_ORDER if _one_slip(letters, bare)), None)


_BARE_ORDER = tuple(_BARE)


def _letters(word: str) -> str:
    return re.sub(r"[^a-z]", "", _lower(word))


def _one_slip(a: str, b: str) -> bool:
    """One letter left out, added, changed, or swapped with its neighbour."""
    if abs(len(a) - len(b)) > 1 or a == b:
        return False
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    left, right = a[same:], b[same:]
    swapped = len(left) > 1 and len(right) > 1 and left[0] == right[1] and left[1] == right[0]
    return left[1:] == right or left == right[1:] or left[1:] == right[1:] or (swapped and left[2:] == right[2:])


def _show(text: str) -> str:
    """A user's own words inside a message: printable, and no longer than a line."""
    shown = re.sub(r"[^ -~]", "?", text)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _say(value: int | bool | Priority | str | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return spell(value)
    if isinstance(value, Priority):
        return value.value
    return value or "none"


def _read_min_runtime(value: str) -> int:
    seconds = read_duration(value)
    if seconds is None:
        raise ContractError(
            f'min_runtime "{_show(value)}" cannot be read: write min_runtime=4h '
            "(or 90s, 15m, 1d, 1h30m, 4:00:00, 1-12; a bare number is minutes; 0 is unallocated)"
        )
    return seconds


def _read_resumable(value: str) -> bool:
    answer = {"yes": True, "true": True, "no": False, "false": False}.get(_lower(value))
    if answer is None:
        raise ContractError(f'resumable "{_show(value)}" is neither yes nor no: write resumable=yes')
    return answer


def _read_priority(value: str) -> Priority:
    try:
        return Priority(_lower(value))
    except ValueError:
        raise ContractError(
            f'priority "{_show(value)}" is not known: write priority=low, priority=normal or priority=high'
        ) from None


def _read_notice(value: str) -> str | None:
    lower = _lower(value)
    where = _TO_STEPS if lower.startswith(_TO_STEPS) else ""
    name = lower.removeprefix(where).removeprefix("sig").upper()
    if name == "NONE" and not where:
        return None
    if name not in _SIGNALS:
        raise ContractError(
            f'notice "{_show(value)}" is not a signal a job can act on: write notice=USR1 '
            f"(or {', '.join(_SIGNALS)}; steps:USR1 for what srun started; none for no notice)"
        )
    return where + name


_READERS: dict[str, Callable[[str], int | bool | Priority | str | None]] = {
    "min_runtime": _read_min_runtime,
    "resumable": _read_resumable,
    "priority": _read_priority,
    "notice": _read_notice,
}


# --- the pin --------------------------------------------------------------------------------------

_PIN = re.compile(
    r"fairshare min_runtime=([0-9]{1,15}) resumable=(yes|no) priority=(low|normal|high)"
    r"(?: notice=((?:steps:)?[A-Z0-9]+))?(?:;.*)?",
    re.DOTALL,
)


def pinned(contract: Contract) -> str:
    """The canonical AdminComment of a contract, for machines: seconds, fixed order.

    >>> pinned(Contract(14_400, resumable=True))
    'fairshare min_runtime=14400 resumable=yes priority=normal'
    """
    notice = f" notice={contract.notice}" if contract.notice else ""
    return (
        f"fairshare min_runtime={contract.min_runtime} resumable={'yes' if contract.resumable else 'no'} "
        f"priority={contract.priority.value}{notice}"
    )


def read_pinned(admin_comment: str) -> Contract | None:
    """The contract pinned in an AdminComment; None if there is none. Words may follow after `;`.

    Raises ContractError for a pin that is there but damaged: nobody may guess what was promised.
    """
    if admin_comment.split(maxsplit=1)[:1] != ["fairshare"]:
        return None
    match = _PIN.fullmatch(admin_comment)
    if match is None:
        raise ContractError(
            f'the pinned contract "{admin_comment[:120]}" is damaged: set it again with '
            f'scontrol update job=ID AdminComment="{pinned(Contract(14_400))}"'
        )
    seconds, resumable, priority, notice = match.groups()
    return Contract(int(seconds), resumable == "yes", Priority(priority), notice)


# --- the ladder -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rung:
    """A QOS and the minimum runtime (seconds) it protects."""

    name: str
    min_runtime: int


@dataclass(frozen=True)
class Ladder:
    """All rungs, ascending; the first is unallocated (0 seconds). Names compare without case, as in Slurm."""

    rungs: tuple[Rung, ...]

    def __post_init__(self) -> None:
        lengths = [rung.min_runtime for rung in self.rungs]
        if not lengths or lengths[0] != 0:
            raise ContractError("the ladder needs unallocated (0 seconds) as its first rung: add it")
        if any(a >= b for a, b in pairwise(lengths)):
            raise ContractError("the rungs must ascend, no two alike: sort them by minimum runtime")
        if len({_lower(rung.name) for rung in self.rungs}) < len(self.rungs):
            raise ContractError("two rungs bear the same name: name each QOS once")

    @classmethod
    def of(cls, lengths: Iterable[int], prefix: str = "fs-") -> Ladder:
        """A ladder with rungs of these lengths (seconds) above unallocated, named after them."""
        charged = tuple(Rung(f"{prefix}{spell(seconds)}", seconds) for seconds in sorted(lengths))
        return cls((Rung(f"{prefix}unallocated", 0), *charged))

    @classmethod
    def default(cls, prefix: str = "fs-") -> Ladder:
        """
        >>> [rung.name for rung in Ladder.default().rungs]
        ['fs-unallocated', 'fs-15m', 'fs-1h', 'fs-2h', 'fs-4h', 'fs-8h']
        """
        return cls.of((900, 3600, 7200, 14_400, 28_800), prefix)

    @property
    def unallocated(self) -> Rung:
        return self.rungs[0]

    @property
    def prefix(self) -> str:
        """What the names of all that is ours in Slurm begin with.

        >>> Ladder.default("lab-").prefix
        'lab-'
        """
        return self.unallocated.name.removesuffix("unallocated")

    @property
    def charged(self) -> tuple[Rung, ...]:
        """The rungs a budget pays for."""
        return self.rungs[1:]

    @property
    def cap(self) -> int:
        """The longest minimum runtime (seconds) a job may declare."""
        return self.rungs[-1].min_runtime

    def for_min_runtime(self, seconds: int) -> Rung:
        """The smallest rung that protects for so long. Raises ContractError over the cap."""
        for rung in self.rungs:
            if seconds <= rung.min_runtime:
                return rung
        raise ContractError(_over_cap(seconds, self.cap))

    def rung(self, qos_name: str) -> Rung | None:
        """The rung this QOS is, None for a QOS outside the ladder."""
        return self._by_name.get(qos_name) or self._by_name.get(_lower(qos_name))

    @cached_property
    def _by_name(self) -> dict[str, Rung]:
        """Lower-case names, as Slurm keeps them; the rungs' own spelling is found without a detour."""
        return {name: rung for rung in self.rungs for name in (_lower(rung.name), rung.name)}

    def is_charged(self, qos_name: str) -> bool:
        """Whether a run in this QOS is paid from a budget: a rung above unallocated, and nothing else.

        A QOS that bears our prefix and is no rung is one of former settings: its runs stay charged.

        >>> [Ladder.default().is_charged(name) for name in ("fs-1h", "fs-12h", "fs-unallocated", "normal")]
        [True, True, False, False]
        """
        rung = self.rung(qos_name)
        if rung is not None:
            return rung.min_runtime > 0
        prefix = _lower(self.unallocated.name).removesuffix("unallocated")
        return bool(prefix) and _lower(qos_name).startswith(prefix) and "," not in qos_name


def _over_cap(seconds: int, cap: int) -> str:
    most = spell(cap)
    return f"min_runtime={spell(seconds)} is over the cap of {most}: write min_runtime={most} or less"


def admit(text: str, ladder: Ladder, default: Contract, time_limit: int | None = None) -> Contract:
    """The contract a submit is accepted with, or ContractError with the message the user is shown.

    `time_limit` is the job's own (seconds), None for none. A minimum runtime the user did not write yields
    to it; one they wrote and the job cannot live to see is refused.
    """
    said = read_words(text)
    contract = _with(default, said)
    if "min_runtime" not in said and time_limit is not None:
        contract = replace(contract, min_runtime=min(contract.min_runtime, time_limit))
    ladder.for_min_runtime(contract.min_runtime)
    if time_limit is not None and contract.min_runtime > time_limit:
        raise ContractError(_over_limit(contract.min_runtime, time_limit))
    return contract


def _over_limit(seconds: int, time_limit: int) -> str:
    return (
        f"min_runtime={spell(seconds)} is longer than the job's time limit of {spell(time_limit)}: "
        f"write --time={_clock(seconds)} or more, or min_runtime={spell(time_limit)} or less"
    )


# --- the debug lane -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DebugLane:
    """The limits of the debug rung's QOS. Slurm enforces them; the plugin only keeps larger jobs out.

    `priority` is that QOS's own: no label with its band reaches it (all stay below 2,000,000,000), and both
    together stay below the 2^32 - 1 at which Slurm clips a job's priority.

    `pool` names a partition over nodes that take only debug and unallocated jobs ("" for none): the plugin offers it
    to those, beside the partition they would have had.
    """

    max_gpus: int = 8
    max_gpus_per_team: int = 40
    priority: int = 2_000_000_000
    max_min_runtime: int = 900
    pool: str = ""

    def covers(self, rung: Rung) -> bool:
        """Whether this rung is a debug rung: charged, and no longer than 15 minutes by default."""
        return 0 < rung.min_runtime <= self.max_min_runtime
