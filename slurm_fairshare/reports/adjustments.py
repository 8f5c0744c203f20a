"""`adjust --list`: what was debited or credited by hand."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_fairshare.core.resources import MILLI
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.store.facts import Adjustment
from slurm_fairshare.units import HOUR, gpu_hours, moment


def hours_of(one: Adjustment) -> float:
    """GPU-hours, positive for a debit."""
    return one.milli_gpu_seconds / MILLI / HOUR


def _signed(hours: float) -> str:
    return f"{'+' if hours > 0 else '-'}{gpu_hours(abs(hours) * HOUR)}"


COLUMNS: tuple[Column[Adjustment], ...] = (
    Column("At", lambda one: one.at, "when it was made: it counts in windows that hold this moment"),
    Column("Account", lambda one: one.account, "account", elastic=True),
    Column("GPUh", hours_of, "GPU-hours: + adds to the account's usage, - takes from it", show=_signed, right=True),
    Column("Expires", lambda one: one.expires, "from when on it counts no more; empty for never"),
    Column("Author", lambda one: one.author, "who made it"),
    Column("Reason", lambda one: one.reason, "why", elastic=True),
    Column("Id", lambda one: one.id, "its own name", spare=1),
)


def report(adjustments: Sequence[Adjustment], window: Window) -> Report[Adjustment]:
    return Report(
        noun="adjustments",
        columns=COLUMNS,
        rows=adjustments,
        shown=("At", "Account", "GPUh", "Expires", "Author", "Reason"),
        script=("At", "Account", "GPUh", "Expires", "Author", "Reason", "Id"),
        above=(f"Adjustments made {moment(window.start)} to {moment(window.end)} (UTC).",),
        facts={"window_start": window.start, "window_end": window.end, "zone": "UTC"},
        empty="No adjustment was made in this time.",
    )


def sentence(one: Adjustment) -> str:
    """What an adjustment does, in words: the sign alone has misled people before.

    >>> from datetime import datetime
    >>> at = datetime.fromisoformat("2026-10-08T12:00:00+00:00")
    >>> sentence(Adjustment("x", "bio", -36_000_000, at, "ada", "the switch failed"))
    'Credited bio with 10.00 GPU-hours: its usage counts that much less.'
    """
    hours = gpu_hours(abs(one.milli_gpu_seconds) / MILLI)
    until = "" if one.expires is None else f", up to {moment(one.expires)}"
    if one.milli_gpu_seconds < 0:
        return f"Credited {one.account} with {hours} GPU-hours: its usage counts that much less{until}."
    return f"Debited {one.account} {hours} GPU-hours: its usage counts that much more{until}."
