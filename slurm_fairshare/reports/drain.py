"""`drain --status`: nodes that are being emptied, who is still there, and until when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurm_fairshare.core.drain import Emptying, Stay
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import duration, moment


@dataclass(frozen=True, slots=True)
class DrainRow:
    """A run on a node that is being emptied; without a run the node is empty."""

    node: Emptying
    stay: Stay | None
    now: datetime


def _stay(get: Callable[[Stay], Any]) -> Callable[[DrainRow], Any]:
    return lambda row: None if row.stay is None else get(row.stay)


def _left(row: DrainRow) -> str:
    if row.stay is None:
        return ""
    return "open" if row.stay.until is None else duration((row.stay.until - row.now).total_seconds())


COLUMNS: tuple[Column[DrainRow], ...] = (
    Column("Node", lambda row: row.node.node.name, "the node"),
    Column("JobID", _stay(lambda stay: stay.job.label), "a job that is still there", right=True),
    Column("User", _stay(lambda stay: stay.job.user), "its owner", spare=3),
    Column("Account", _stay(lambda stay: stay.job.account), "its account", elastic=True, spare=2),
    Column("GPUs", _stay(lambda stay: stay.job.wanted.gpu_count), "GPUs it holds, on all its nodes", right=True),
    Column("Until", _stay(lambda stay: stay.until), "when it goes; none where that is open", show=moment),
    Column("Left", _stay(lambda stay: stay.until), "the same as a length of time", tell=_left, right=True),
    Column("Why", _stay(lambda stay: stay.words), "why it is still there", elastic=True, spare=1),
    Column("Reason", lambda row: row.node.node.reason, "why the node is drained", elastic=True, spare=5),
    Column("FreeAt", lambda row: row.node.free_at, "when the node is empty", show=moment, spare=6),
)
TABLE = ("Node", "JobID", "User", "Account", "GPUs", "Left", "Why")
SCRIPT = ("Node", "JobID", "User", "Account", "GPUs", "Until", "Why", "FreeAt", "Reason")


def report(nodes: Sequence[Emptying], now: datetime) -> Report[DrainRow]:
    """All nodes that are being emptied, in the order given."""
    rows = [DrainRow(node, stay, now) for node in nodes for stay in node.stays or (None,)]
    return Report(
        noun="drain",
        columns=COLUMNS,
        rows=rows,
        shown=TABLE,
        script=SCRIPT,
        above=[sentence(node, now) for node in nodes],
        facts={"at": now},
        empty="No node is being emptied.",
    )


def sentence(node: Emptying, now: datetime) -> str:
    """When the node will be free.

    The time of runs that cannot be stopped is their time limit, so it may be sooner.
    """
    name, count = node.node.name, len(node.stays)
    if not count:
        return f"{name} is empty ({node.node.reason})."
    runs = "1 run" if count == 1 else f"{count} runs"
    if node.free_at is None:
        return f"{name}: {runs} left, one of them without an end ({node.node.reason})."
    left = duration(max(0.0, (node.free_at - now).total_seconds()))
    return f"{name}: {runs} left, free by {moment(node.free_at)}, in {left} ({node.node.reason})."
