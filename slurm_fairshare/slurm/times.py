"""Moments and lengths of time as the tools print them. Nothing unreadable becomes a number."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_NEVER = frozenset({"", "0", "Unknown", "None", "N/A", "NONE", "(null)"})
_NO_LIMIT = frozenset({"UNLIMITED", "NOT_SET", "Partition_Limit", "PARTITION_LIMIT", "", "N/A"})
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def moment(text: str) -> datetime | None:
    """A moment in aware UTC, None for one of Slurm's words for "not known" or "not yet".

    Seconds since 1970 are what we ask for (SLURM_TIME_FORMAT=%s); a time with its offset is accepted as well.
    Without an offset nobody can say when that was: ValueError.
    """
    text = text.strip()
    if text in _NEVER:
        return None
    if text.isdigit() and text.isascii():
        return datetime.fromtimestamp(int(text), UTC)
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f'time "{text}" has no offset from UTC: set SLURM_TIME_FORMAT=%s for the tool')
    return at.astimezone(UTC)


def needed(text: str, name: str) -> datetime:
    """A moment that must be there."""
    at = moment(text)
    if at is None:
        raise ValueError(f'{name} is "{text}"')
    return at


def seconds(text: str) -> int:
    """Slurm's `D-HH:MM:SS`, `HH:MM:SS` or `MM:SS`.

    >>> seconds("1-02:03:04"), seconds("01:00:00"), seconds("10:00")
    (93784, 3600, 600)
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is no length of time')
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def limit(text: str) -> timedelta | None:
    """A time limit, None for none."""
    return None if text.strip() in _NO_LIMIT else timedelta(seconds=seconds(text))


def clock(length: int) -> str:
    """Seconds as `HH:MM:SS`, which every Slurm option for a time reads the same way.

    >>> clock(900), clock(100_000)
    ('00:15:00', '27:46:40')
    """
    return f"{length // 3600:02d}:{length // 60 % 60:02d}:{length % 60:02d}"
