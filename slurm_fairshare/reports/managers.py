"""`budget managers`: who may edit what is below which node."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_fairshare.core.edits import is_below, told
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.store.facts import ManagerChange, managers_now

COLUMNS: tuple[Column[ManagerChange], ...] = (
    Column("Budget", lambda row: told(row.path), "path of the node below which the manager edits", elastic=True),
    Column("Manager", lambda row: row.role, "login role in Postgres", elastic=True),
    Column("Change", lambda row: "granted" if row.granted else "revoked", "granted or revoked", spare=3),
    Column("Since", lambda row: row.at, "when that was recorded", spare=1),
    Column("Author", lambda row: row.author, "who granted or revoked it", elastic=True),
    Column("Reason", lambda row: row.reason, "why", elastic=True, spare=2),
)


def manager_rows(changes: Sequence[ManagerChange], path: str, *, past: bool) -> tuple[ManagerChange, ...]:
    """Who manages the node or something below it, or the node by managing one above; with `past` all there was."""
    found = changes if past else managers_now(changes).values()
    return tuple(one for one in found if is_below(one.path, path) or is_below(path, one.path))


def report(rows: tuple[ManagerChange, ...], path: str, notes: tuple[str, ...] = ()) -> Report[ManagerChange]:
    where = f" of {path}, above and below it" if path else ""
    return Report(
        noun="managers",
        columns=COLUMNS,
        rows=rows,
        shown=tuple(column.name for column in COLUMNS),
        above=(f"Managers{where}: each replaces the sibling sets below the node, nothing else.",),
        below=notes,
        facts={"path": path},
        empty="Nobody but admins edits there: `slurm-fairshare budget grant PATH USER` makes somebody a manager.",
    )
