"""`budget check`: what is wrong with the budgets, or may surprise somebody."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from slurm_fairshare.core.edits import in_words, told
from slurm_fairshare.core.tree import Changeset, Tree, build, not_cancelled, sets_at, tree_at
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.reports.table import Column, Report, paragraphs
from slurm_fairshare.store.facts import ManagerChange
from slurm_fairshare.units import moment, percent

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` is stable: scripts may rely on it."""

    severity: str
    kind: str
    path: str
    words: str


@dataclass(frozen=True, slots=True)
class Slurm:
    """Accounts as Slurm was last known to have them. `asked` None: it never was."""

    asked: datetime | None = None
    unknown: Collection[str] = ()
    """Bound to a leaf then, and not known to Slurm."""
    unbudgeted: Collection[str] = ()
    """With users, and bound to no leaf then."""


def findings(
    changesets: Sequence[Changeset],
    now: datetime,
    slurm: Slurm,
    managers: Mapping[tuple[str, str], ManagerChange],
    cannot_manage: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes."""
    tree = tree_at(changesets, now)
    found = [
        *_faults(changesets, now),
        *_sums(tree),
        *_zero_shares(tree),
        *_accounts(tree, slurm),
        *_managers(tree, managers, cannot_manage),
        *_scheduled(changesets, now),
    ]
    order = (ERROR, WARNING, NOTE)
    return tuple(sorted(found, key=lambda one: order.index(one.severity)))


def _faults(changesets: Sequence[Changeset], now: datetime) -> Iterator[Finding]:
    """Two leaves of one account, names that differ by case only, leaves with children: now and at each change."""
    for at in (now, *sorted({one.effective for one in not_cancelled(changesets) if one.effective > now})):
        try:
            build(sets_at(changesets, at))
        except BudgetError as error:
            when = "" if at == now else f"from {moment(at)} on: "
            for line in str(error).splitlines()[1:]:
                yield Finding(ERROR, "unusable", "", f"{when}{line.strip().removeprefix('- ')}")


def _sums(tree: Tree) -> Iterator[Finding]:
    """Shares are weights, so any sum is right; one that misses 100 by little is most likely a slip."""
    parents = ["", *(path for path, node in tree.nodes.items() if node.children)]
    for parent in parents:
        children = tree.children_of(parent)
        total = math.fsum(child.weight for child in children)
        for whole in (1.0, 100.0):
            near = 0.75 * whole <= total <= 1.25 * whole and not math.isclose(total, whole, rel_tol=1e-9)
            if near and len(children) > 1:
                one = max(children, key=lambda child: child.weight)
                part = percent(one.weight / total)
                words = (
                    f"the shares below add up to {total:g}, not to {whole:g}; as weights that is fine, and "
                    f"{one.name}'s {one.weight:g} is {part} of {told(parent)}"
                )
                yield Finding(NOTE, "sum", told(parent), words)


def _zero_shares(tree: Tree) -> Iterator[Finding]:
    for node in tree.nodes.values():
        if node.weight == 0:
            words = "has share 0: it is owed nothing, ranks last, and its protected jobs preempt nobody"
            yield Finding(NOTE, "zero-share", node.path, words)
        elif node.children and all(child.weight == 0 for child in node.children):
            words = f"all its children have share 0: its {percent(node.effective)} of the cluster go to nobody"
            yield Finding(WARNING, "given-to-nobody", node.path, words)


def _accounts(tree: Tree, slurm: Slurm) -> Iterator[Finding]:
    if slurm.asked is None:
        yield Finding(NOTE, "slurm", "", "accounts were not compared with Slurm's: there has been no tick yet")
        return
    for account in sorted(slurm.unknown):
        leaf = tree.leaf_of(account)
        if leaf is not None:
            asked = moment(slurm.asked)
            words = f"Slurm does not know account {account} (asked {asked}): sacctmgr add account {account}"
            yield Finding(WARNING, "unknown-account", leaf.path, words)
    for account in sorted(slurm.unbudgeted):
        if tree.leaf_of(account) is None:
            words = f"account {account} has users in Slurm and is in nobody's budget: nothing is owed to it"
            yield Finding(WARNING, "unbudgeted-account", "", words)


def _managers(
    tree: Tree, managers: Mapping[tuple[str, str], ManagerChange], cannot_manage: Collection[str]
) -> Iterator[Finding]:
    for path, role in managers:
        if path and path not in tree.nodes:
            words = f"{role} manages {path}, which is no node (any more): slurm-fairshare budget revoke {path} {role}"
            yield Finding(WARNING, "manager-of-nothing", path, words)
        if role in cannot_manage:
            words = f"{role} is listed as a manager, but is no login of this Postgres in role fairshare_manager"
            yield Finding(WARNING, "manager-without-login", told(path), words)


def _scheduled(changesets: Sequence[Changeset], now: datetime) -> Iterator[Finding]:
    for change in not_cancelled(changesets):
        if change.effective > now:
            what = "; ".join(in_words(change, changesets))
            words = f"changeset {change.id} by {change.author} from {moment(change.effective)}: {what}"
            yield Finding(NOTE, "scheduled", ", ".join(told(parent) for parent in sorted(change.sets)), words)


def _paint(row: Finding) -> str:
    return {ERROR: "red", WARNING: "yellow"}.get(row.severity, "")


COLUMNS: tuple[Column[Finding], ...] = (
    Column("Severity", lambda row: row.severity, "error, warning or note", paint=_paint),
    Column("Kind", lambda row: row.kind, "name of the check; it stays the same", spare=1),
    Column("Budget", lambda row: row.path, "path of the node", elastic=True, spare=2),
    Column("Finding", lambda row: row.words, "what is found, and what to do about it", elastic=True),
)


def report(rows: tuple[Finding, ...], now: datetime, what: str = "the budgets in force") -> Report[Finding]:
    counts = {severity: sum(row.severity == severity for row in rows) for severity in (ERROR, WARNING, NOTE)}
    told_counts = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
    return Report(
        noun="findings",
        columns=COLUMNS,
        rows=rows,
        shown=tuple(column.name for column in COLUMNS),
        above=(f"Checked {what} at {moment(now)} (UTC): {told_counts}.",),
        facts={"at": now, **counts},
        empty="Nothing to say about them.",
    )


def told_rows(rows: tuple[Finding, ...], heading: Report[Finding], width: int | None) -> Text:
    """For people: each finding whole."""
    lines = [Text(line, style="dim") for line in heading.above]
    for row in rows:
        where = f", {row.path}" if row.path else ""
        lines += [Text(f"{row.severity}: {row.kind}{where}", style=_paint(row) or "bold"), Text(f"  {row.words}")]
    return paragraphs(lines or [Text(heading.empty)], width)
