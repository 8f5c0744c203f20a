"""`budget show`: the tree with what each node is given: of its parent, of the cluster, in GPU-hours a day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurm_fairshare.core.tree import SEPARATOR, Node, Tree, parent_of
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import moment, percent

HOURS_A_DAY = 24


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A node. `of_parent` and `node.effective` are fractions; `hours` are GPU-hours a day, None if not known."""

    node: Node
    of_parent: float
    hours: float | None


def budget_rows(tree: Tree, capacity: float | None) -> tuple[BudgetRow, ...]:
    """Every node, parents before children. `capacity` are the GPUs in service (weighted by type)."""
    rows = []
    for node in tree.nodes.values():
        level = sum(sibling.weight for sibling in tree.children_of(parent_of(node.path)))
        hours = capacity * node.effective * HOURS_A_DAY if capacity is not None else None
        rows.append(BudgetRow(node, node.weight / level if level > 0 else 0.0, hours))
    return tuple(rows)


def _weight(value: float) -> str:
    return f"{value:g}"


def _hours(value: float) -> str:
    return f"{value:,.1f}"


COLUMNS: tuple[Column[BudgetRow], ...] = (
    Column(
        "Budget",
        lambda row: row.node.path,
        "path of the node; in the table its name, indented by its depth",
        tell=lambda row: row.node.name,
        indent=lambda row: 2 * row.node.path.count(SEPARATOR),
        elastic=True,
    ),
    Column("Share", lambda row: row.node.weight, "weight among the siblings", show=_weight, plain=_weight, right=True),
    Column("OfParent", lambda row: row.of_parent, "fraction of the parent's", show=percent, right=True),
    Column("OfCluster", lambda row: row.node.effective, "fraction of the whole cluster", show=percent, right=True),
    Column("GPUhPerDay", lambda row: row.hours, "GPU-hours a day at present capacity", show=_hours, right=True),
    Column("Account", lambda row: row.node.account, "Slurm account of a leaf", elastic=True),
)


def report(
    tree: Tree, capacity: float | None, at: datetime, *, last: int = 0, notes: tuple[str, ...] = ()
) -> Report[BudgetRow]:
    """The tree in force at a moment. `last` is the number of the last changeset: what `--expect` is told."""
    since = f", unchanged since {moment(tree.effective_from)}" if tree.effective_from else ""
    known = f"{capacity:g} GPUs in service now" if capacity is not None else "not known before the first tick"
    return Report(
        noun="budgets",
        columns=COLUMNS,
        rows=budget_rows(tree, capacity),
        shown=tuple(column.name for column in COLUMNS),
        above=(
            f"Budget tree at {moment(at)} (UTC){since}; last changeset {last or 'none'}.",
            f"Capacity: {known}.",
        ),
        below=notes,
        facts={
            "at": at,
            "effective_from": tree.effective_from,
            "last_changeset": last,
            "capacity_gpus": capacity,
            "zone": "UTC",
        },
        empty="There is no budget tree yet: write one and load it with `slurm-fairshare budget load FILE`.",
    )


# --- what an edit of the tree changes -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One node before and after an edit; None where it is not part of the tree. `moved`: its other path."""

    path: str
    before: BudgetRow | None
    after: BudgetRow | None
    moved: str | None = None

    @property
    def kind(self) -> str:
        if self.before is None:
            return f"moved here from {self.moved}" if self.moved else "added"
        if self.after is None:
            return f"moved to {self.moved}" if self.moved else "retired"
        return "changed"

    @property
    def account(self) -> str | None:
        """The account afterwards; for a leaf bound anew, both."""
        old = self.before.node.account if self.before else None
        new = self.after.node.account if self.after else None
        if self.before is None or self.after is None or old == new:
            return old if self.after is None else new
        return f"{old or 'none'} -> {new or 'none'}"

    @property
    def words(self) -> str:
        """What it means for the node, in every unit there is."""
        before, after = self.before, self.after
        if after is None:
            what = self.kind if self.moved else "retired; its past stays"
            return f"{self.path} is {what}. It had {_given_to(before)}." if before else ""
        if before is None:
            return f"{self.path} is {'new' if not self.moved else self.kind}, with {_given_to(after)}."
        return f"{self.path} had {_given_to(before)} and gets {_given_to(after)}."


def _given_to(row: BudgetRow) -> str:
    hours = f", {_hours(row.hours)} GPU-hours a day" if row.hours is not None else ""
    of_parent = f"{percent(row.of_parent)} of {parent_of(row.node.path) or 'the whole'}"
    return f"{of_parent}, {percent(row.node.effective)} of the cluster{hours}"


def differences(old: Tree, new: Tree, capacity: float | None = None) -> tuple[Difference, ...]:
    """Every node whose share, part of the cluster or account differs, in the order of their paths."""
    befores, afters = ({row.node.path: row for row in budget_rows(tree, capacity)} for tree in (old, new))
    moves = _moves(old, new)
    found = []
    for path in sorted(befores.keys() | afters.keys()):
        before, after = befores.get(path), afters.get(path)
        if before is None or after is None or _given(before.node) != _given(after.node):
            found.append(Difference(path, before, after, moves.get(path)))
    return tuple(found)


def _given(node: Node) -> tuple[float, float, str | None]:
    return node.weight, round(node.effective, 12), node.account


def _moves(old: Tree, new: Tree) -> dict[str, str]:
    """A leaf is its account: where it stands under another path it has moved. Both paths, each with the other."""
    found: dict[str, str] = {}
    for key, leaf in old.by_account.items():
        there = new.by_account.get(key)
        if there is not None and there.path != leaf.path and there.path not in old.nodes and leaf.path not in new.nodes:
            found |= {leaf.path: there.path, there.path: leaf.path}
    return found


def _arrow(row: Difference, show: Callable[[BudgetRow], str]) -> str:
    """Before and after, once where both read the same."""
    parts = [show(one) if one is not None else "-" for one in (row.before, row.after)]
    return parts[0] if parts[0] == parts[1] else " -> ".join(parts)


def _side(name: str, about: str, get: Callable[[BudgetRow], Any]) -> tuple[Column[Difference], Column[Difference]]:
    """The same value before and after, as numbers for programs."""

    def of(row: BudgetRow | None) -> Any:
        return get(row) if row is not None else None

    return (
        Column(f"{name}Before", lambda row: of(row.before), f"{about} before", right=True),
        Column(f"{name}After", lambda row: of(row.after), f"{about} after", right=True),
    )


SIDES: tuple[Column[Difference], ...] = (
    *_side("Share", "weight among the siblings", lambda row: row.node.weight),
    *_side("OfParent", "fraction of the parent's", lambda row: row.of_parent),
    *_side("OfCluster", "fraction of the whole cluster", lambda row: row.node.effective),
    *_side("GPUhPerDay", "GPU-hours a day at present capacity", lambda row: row.hours),
)
DIFFERENCES: tuple[Column[Difference], ...] = (
    Column("Budget", lambda row: row.path, "path of the node", elastic=True),
    Column(
        "Change",
        lambda row: row.kind,
        "added, retired, changed, or where it moved; in the table without the other path",
        tell=lambda row: row.kind.partition(" from ")[0].partition(" to ")[0],
    ),
    Column(
        "Share",
        lambda row: _arrow(row, lambda one: _weight(one.node.weight)),
        "weight among the siblings, before and after",
        right=True,
        spare=3,
    ),
    Column(
        "OfParent",
        lambda row: _arrow(row, lambda one: percent(one.of_parent)),
        "part of the parent's, before and after",
        right=True,
        spare=1,
    ),
    Column(
        "OfCluster",
        lambda row: _arrow(row, lambda one: percent(one.node.effective)),
        "part of the whole cluster, before and after",
        right=True,
    ),
    Column(
        "GPUhPerDay",
        lambda row: _arrow(row, lambda one: "" if one.hours is None else _hours(one.hours)),
        "GPU-hours a day at present capacity, before and after",
        right=True,
    ),
    Column("Account", lambda row: row.account, "Slurm account", elastic=True, spare=4),
    *SIDES,
    Column("Words", lambda row: row.words, "the same as a sentence", spare=9),
)
DIFFERENCES_SHOWN = ("Budget", "Change", "Share", "OfParent", "OfCluster", "GPUhPerDay", "Account")


def difference_report(
    rows: tuple[Difference, ...],
    above: tuple[str, ...],
    *,
    below: tuple[str, ...] = (),
    facts: Mapping[str, Any] | None = None,
) -> Report[Difference]:
    return Report(
        noun="differences",
        columns=DIFFERENCES,
        rows=rows,
        shown=DIFFERENCES_SHOWN,
        script=("Budget", "Change", *(column.name for column in SIDES), "Account"),
        above=above,
        below=below,
        facts=facts or {},
        empty="Nothing changes: the tree is that already.",
    )
