"""Units people read: durations, GPU-hours, shares, moments. One place, so that every report agrees."""

from __future__ import annotations

from datetime import UTC, datetime

MINUTE = 60
HOUR = 3600
DAY = 86_400


def duration(seconds: float) -> str:
    """A length of time in at most two units.

    >>> duration(45), duration(90), duration(14_400), duration(100_000), duration(-90)
    ('45s', '1m30s', '4h', '1d3h', '-1m30s')
    """
    if seconds < 0:
        return f"-{duration(-seconds)}"
    left = round(seconds)
    parts: list[str] = []
    for size, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s")):
        amount, left = divmod(left, size)
        if amount or (parts and len(parts) < 2 and left):
            parts.append(f"{amount}{name}")
        if len(parts) == 2:
            break
    return "".join(part for part in parts if not part.startswith("0")) or "0s"


def gpu_hours(gpu_seconds: float) -> str:
    """
    >>> gpu_hours(3600), gpu_hours(900), gpu_hours(36_000_000)
    ('1.00', '0.25', '10,000')
    """
    hours = gpu_seconds / HOUR
    return f"{hours:,.0f}" if abs(hours) >= 1000 else f"{hours:.2f}"


def percent(fraction: float) -> str:
    """
    >>> percent(0.5), percent(0.1234)
    ('50%', '12.3%')
    """
    return f"{fraction * 100:.1f}".rstrip("0").rstrip(".") + "%"


def moment(at: datetime) -> str:
    """A moment as reports print it: UTC, to the second, sortable, with its zone."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
