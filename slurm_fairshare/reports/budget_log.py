"""`budget log`: every edit of the tree, who made it, why, from when, and what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from slurm_fairshare.core.edits import in_words, is_below, told
from slurm_fairshare.core.tree import Changeset, join
from slurm_fairshare.reports.table import Column, Form, Report, paragraphs, render
from slurm_fairshare.units import moment


@dataclass(frozen=True, slots=True)
class LogRow:
    """One changeset. `state`: in force, scheduled, cancelled, or a cancellation itself."""

    change: Changeset
    words: tuple[str, ...]
    state: str


def log_rows(
    changesets: Sequence[Changeset], now: datetime, since: datetime | None = None, path: str = ""
) -> tuple[LogRow, ...]:
    """The edits recorded since then that touch what is at or below a node, newest first."""
    by_id = {change.id: change for change in changesets}
    found = [
        LogRow(change, in_words(change, changesets), _state(change, changesets, now))
        for change in changesets
        if (since is None or change.created >= since) and _touches(_meant(change, by_id), path)
    ]
    return tuple(reversed(found))


def _meant(change: Changeset, by_id: dict[int, Changeset]) -> Changeset:
    """A cancellation is about what the cancelled one was about."""
    return by_id.get(change.cancels, change) if change.cancels is not None else change


def _touches(change: Changeset, path: str) -> bool:
    """Whether it gave the node a share, or changed what is below it."""
    return any(
        is_below(parent, path) or any(join(parent, share.name) == path for share in shares)
        for parent, shares in change.sets.items()
    )


def _state(change: Changeset, changesets: Sequence[Changeset], now: datetime) -> str:
    by = next((one for one in changesets if one.cancels == change.id), None)
    if by is not None:
        return f"cancelled by {by.id}"
    if change.cancels is not None:
        return "cancellation"
    return "scheduled" if change.effective > now else "done"


COLUMNS: tuple[Column[LogRow], ...] = (
    Column("ID", lambda row: row.change.id, "number of the changeset", right=True),
    Column("Effective", lambda row: row.change.effective, "from when it holds"),
    Column("Author", lambda row: row.change.author, "who made it", elastic=True),
    Column("State", lambda row: row.state, "done, scheduled, cancelled by another, or a cancellation", spare=2),
    Column(
        "Below",
        lambda row: ", ".join(told(parent) for parent in sorted(row.change.sets)),
        "the nodes whose children it replaced",
        elastic=True,
        spare=3,
    ),
    Column("What", lambda row: "; ".join(row.words), "what it did, in words", elastic=True),
    Column("Reason", lambda row: row.change.reason, "why", elastic=True),
    Column("Recorded", lambda row: row.change.created, "when it was made", spare=4),
    Column("Cancels", lambda row: row.change.cancels, "the changeset it cancels", right=True, spare=5),
)
SHOWN = ("ID", "Recorded", "Effective", "Author", "State", "What", "Reason")


def report(rows: tuple[LogRow, ...], now: datetime, since: datetime | None = None, path: str = "") -> Report[LogRow]:
    where = f" at or below {path}" if path else ""
    when = f" since {moment(since)}" if since is not None else ""
    return Report(
        noun="changesets",
        columns=COLUMNS,
        rows=rows,
        shown=SHOWN,
        script=tuple(column.name for column in COLUMNS),
        above=(f"Edits of the budget tree{where}{when}, newest first, at {moment(now)} (UTC).",),
        below=("One of them as a table, with per cents and GPU-hours: `slurm-fairshare budget diff ID`.",),
        facts={"since": since, "path": path, "at": now, "zone": "UTC"},
        empty="No edit is recorded there.",
    )


def told_rows(rows: tuple[LogRow, ...], heading: Report[LogRow], width: int | None) -> Text:
    """For people: each edit whole, however long its reason."""
    if not rows:
        return render(heading, Form(width=width))
    lines = [Text(line, style="dim") for line in heading.above]
    for row in rows:
        change = row.change
        planned = "" if change.effective <= change.created else f", from {moment(change.effective)}"
        state = "" if row.state == "done" else f" ({row.state})"
        lines += [
            Text(""),
            Text(f"{change.id}  {change.author}, {moment(change.created)}{planned}{state}", style="bold"),
        ]
        lines += [Text(f"   {words}") for words in (*row.words, f"Why: {change.reason}")]
    lines += [Text(""), *(Text(line, style="dim") for line in heading.below)]
    return paragraphs(lines, width)
