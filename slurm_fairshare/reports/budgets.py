"""`budget show`: the tree with what each node is given: of its parent, of the cluster, in GPU-hours a day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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


def report(tree: Tree, capacity: float | None, at: datetime, *, notes: tuple[str, ...] = ()) -> Report[BudgetRow]:
    """The tree in force at a moment."""
    since = f", unchanged since {moment(tree.effective_from)}" if tree.effective_from else ""
    known = f"{capacity:g} GPUs in service now" if capacity is not None else "not known before the first tick"
    return Report(
        noun="budgets",
        columns=COLUMNS,
        rows=budget_rows(tree, capacity),
        shown=tuple(column.name for column in COLUMNS),
        above=(f"Budget tree at {moment(at)} (UTC){since}.", f"Capacity: {known}."),
        below=notes,
        facts={"at": at, "effective_from": tree.effective_from, "capacity_gpus": capacity, "zone": "UTC"},
        empty="There is no budget tree yet: write one and load it with `slurm-fairshare budget load FILE`.",
    )


# --- what an edit of the tree changes -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One node before and after an edit; None where it is not part of the tree."""

    path: str
    before: Node | None
    after: Node | None

    @property
    def kind(self) -> str:
        if self.before is None:
            return "added"
        return "retired" if self.after is None else "changed"

    @property
    def account(self) -> str | None:
        """The account afterwards; for a leaf bound anew, both."""
        old = self.before.account if self.before else None
        new = self.after.account if self.after else None
        if self.before is None or self.after is None or old == new:
            return old if self.after is None else new
        return f"{old or 'none'} -> {new or 'none'}"


def differences(old: Tree, new: Tree) -> tuple[Difference, ...]:
    """Every node whose share, part of the cluster or account differs, in the order of their paths."""
    found = []
    for path in sorted(old.nodes.keys() | new.nodes.keys()):
        before, after = old.nodes.get(path), new.nodes.get(path)
        if before is None or after is None or _given(before) != _given(after):
            found.append(Difference(path, before, after))
    return tuple(found)


def _given(node: Node) -> tuple[float, float, str | None]:
    return node.weight, round(node.effective, 12), node.account


DIFFERENCES: tuple[Column[Difference], ...] = (
    Column("Budget", lambda row: row.path, "path of the node", elastic=True),
    Column("Change", lambda row: row.kind, "added, retired or changed"),
    Column("ShareBefore", lambda row: row.before.weight if row.before else None, "share before", _weight, right=True),
    Column("ShareAfter", lambda row: row.after.weight if row.after else None, "share after", _weight, right=True),
    Column(
        "OfClusterBefore",
        lambda row: row.before.effective if row.before else None,
        "fraction of the cluster before",
        percent,
        right=True,
    ),
    Column(
        "OfClusterAfter",
        lambda row: row.after.effective if row.after else None,
        "fraction of the cluster after",
        percent,
        right=True,
    ),
    Column("Account", lambda row: row.account, "Slurm account", elastic=True),
)


def difference_report(rows: tuple[Difference, ...], above: tuple[str, ...]) -> Report[Difference]:
    return Report(
        noun="differences",
        columns=DIFFERENCES,
        rows=rows,
        shown=tuple(column.name for column in DIFFERENCES),
        above=above,
        empty="Nothing to change: the tree is that already.",
    )
