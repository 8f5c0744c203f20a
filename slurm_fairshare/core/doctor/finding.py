"""A check, and what it finds: what is wrong, why it matters, the line to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

from slurm_fairshare.core.doctor.facts import Facts, Source


class Severity(IntEnum):
    """Ordered: more is worse."""

    ADVICE = 1
    """It works; this would make it better, or is good to know."""
    WARNING = 2
    """Something works worse than it should, or will break."""
    ERROR = 3
    """A promise of the product is broken: protection, order, accounting, or Slurm's and our own health."""

    @property
    def word(self) -> str:
        return self.name.lower()


ADVICE, WARNING, ERROR = Severity.ADVICE, Severity.WARNING, Severity.ERROR


@dataclass(frozen=True, slots=True)
class Line:
    """What to write, and where: in a file, or `shell` for commands. `text` may be several lines."""

    place: str
    text: str


def slurm_conf(text: str) -> Line:
    return Line("slurm.conf", text)


def slurmdbd_conf(text: str) -> Line:
    return Line("slurmdbd.conf", text)


def settings(text: str) -> Line:
    return Line("slurm-fairshare.toml", text)


def shell(text: str) -> Line:
    return Line("shell", text)


@dataclass(frozen=True, slots=True)
class Fault:
    """What a check says of one fault. `severity` only where it is milder than the check's own."""

    wrong: str
    line: Line
    subject: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault with its check's name and reason. `name` is stable: scripts may rely on it."""

    name: str
    severity: Severity
    subject: str
    wrong: str
    why: str
    line: Line


Look = Callable[[Facts], Iterable[Fault]]


@dataclass(frozen=True, slots=True)
class Check:
    """One question. `asks` is the question in words, `why` the reason to ask; `severity` the worst it finds."""

    name: str
    severity: Severity
    asks: str
    why: str
    needs: frozenset[Source]
    look: Look

    def findings(self, facts: Facts) -> list[Finding]:
        return [
            Finding(self.name, fault.severity or self.severity, fault.subject, fault.wrong, self.why, fault.line)
            for fault in self.look(facts)
        ]


class Checks:
    """The checks of one module, in the order in which they are written."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.all: list[Check] = []

    def check(self, name: str, severity: Severity, asks: str, why: str, *needs: Source) -> Callable[[Look], Look]:
        def register(look: Look) -> Look:
            self.all.append(Check(name, severity, asks, why, frozenset(needs), look))
            return look

        return register


def some(names: Iterable[str]) -> str:
    """Up to eight names.

    >>> some(["a", "b"]), some("abcdefghij")
    ('a, b', 'a, b, c, d, e, f, g, h and 2 more')
    """
    listed = list(names)
    more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return ", ".join(listed[:8]) + more
