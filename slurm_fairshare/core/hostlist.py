"""Slurm's shorthand for node names, as far as a job's request uses it. Whoever may import ClusterShell uses that."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PART = re.compile(r"((?:[^,\[\]]|\[[^\[\]]*\])+)(?:,|$)")
_PIECE = re.compile(r"([^\[\]]+)|\[([0-9,-]+)\]")
MOST = 100_000
"""No list names more nodes than any cluster has: a mistyped range must not fill the memory."""


def expand(text: str) -> tuple[str, ...] | None:
    """The names a list stands for; None if it is not understood.

    >>> expand("n[1-3,07],gpu-a03")
    ('n1', 'n2', 'n3', 'n07', 'gpu-a03')
    >>> expand("r[1-2]n[01-02]")
    ('r1n01', 'r1n02', 'r2n01', 'r2n02')
    >>> expand("n[1-") is None, expand("n[3-1]") is None
    (True, True)
    """
    if "".join(match.group() for match in _PART.finditer(text)) != text or not text or text.endswith(","):
        return None
    found: list[str] = []
    for match in _PART.finditer(text):
        names = _names(match.group(1))
        if names is None or len(found) + len(names) > MOST:
            return None
        found += names
    return tuple(found)


def _names(part: str) -> list[str] | None:
    names = [""]
    for text, ranges in _PIECE.findall(part):
        ends = [text] if text else _numbers(ranges)
        if not ends or len(names) * len(ends) > MOST:
            return None
        names = [before + end for before in names for end in ends]
    return names if "".join(f"{text}" or f"[{ranges}]" for text, ranges in _PIECE.findall(part)) == part else None


def _numbers(ranges: str) -> list[str] | None:
    found: list[str] = []
    for one in ranges.split(","):
        first, dash, last = one.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            return None
        end = int(last or first)
        if not int(first) <= end <= int(first) + MOST:
            return None
        found += _run(int(first), end, len(first))
    return found


def _run(first: int, last: int, width: int) -> Iterator[str]:
    return (str(number).zfill(width) for number in range(first, last + 1))
