"""`budget preview`: what an edit would give, and how today's ranking would change, before anything is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports.budgets import DIFFERENCES, SIDES, BudgetRow, Difference, budget_rows
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.reports.words import standing_short
from slurm_fairshare.units import duration, moment


@dataclass(frozen=True, slots=True)
class Preview(Difference):
    """A node before and after, and its places: now, right after the edit, and had the edit held all the window."""

    rank_now: int | None = None
    rank_next: int | None = None
    rank_then: int | None = None
    standing_then: str = ""


def preview_rows(now: Ranking, at_once: Ranking, in_time: Ranking, capacity: float | None) -> tuple[Preview, ...]:
    """Every node of either tree: parents before children, what is retired last."""
    befores, afters = (_rows(one, capacity) for one in (now, at_once))
    ranks_now, ranks_next, ranks_then = (
        {leaf.path: leaf.rank for leaf in one.leaves} for one in (now, at_once, in_time)
    )
    paths = [*afters, *(path for path in befores if path not in afters)]
    return tuple(
        Preview(
            path=path,
            before=befores.get(path),
            after=afters.get(path),
            rank_now=ranks_now.get(path),
            rank_next=ranks_next.get(path),
            rank_then=ranks_then.get(path),
            standing_then=standing_short(in_time.standings[path]) if path in in_time.standings else "",
        )
        for path in paths
    )


def _rows(ranking: Ranking, capacity: float | None) -> dict[str, BudgetRow]:
    return {row.node.path: row for row in budget_rows(ranking.tree, capacity)}


def _ranks(row: Preview) -> str:
    """The three places; one number where nothing moves."""
    places = [row.rank_now, row.rank_next, row.rank_then]
    if places == [None, None, None]:
        return ""
    words = ["-" if place is None else str(place) for place in places]
    return words[0] if len(set(words)) == 1 else " -> ".join(words)


def _changed(row: Difference) -> str:
    if row.before is None or row.after is None:
        return row.kind
    same = (row.before.node.weight, round(row.before.node.effective, 12), row.before.node.account) == (
        row.after.node.weight,
        round(row.after.node.effective, 12),
        row.after.node.account,
    )
    return "" if same else "changed"


_BY_NAME: dict[str, Column[Any]] = {column.name: column for column in DIFFERENCES}
_SIDES: tuple[Column[Any], ...] = SIDES

COLUMNS: tuple[Column[Preview], ...] = (
    _BY_NAME["Budget"],
    Column("Change", _changed, "added, retired, changed, or nothing", spare=5),
    *(_BY_NAME[name] for name in ("Share", "OfParent", "OfCluster", "GPUhPerDay")),
    Column(
        "Ranks",
        _ranks,
        "place of the account now, right after the edit, and had the edit held through all the window",
        right=True,
    ),
    Column("InTime", lambda row: row.standing_then, "how it would stand then, with what it has used", spare=2),
    Column("Account", lambda row: row.account, "Slurm account", elastic=True, spare=4),
    *_SIDES,
    Column("RankNow", lambda row: row.rank_now, "place of the account now", right=True),
    Column("RankNext", lambda row: row.rank_next, "place right after the edit", right=True),
    Column("RankThen", lambda row: row.rank_then, "place had the edit held through all the window", right=True),
)
SHOWN = ("Budget", "Change", "Share", "OfParent", "OfCluster", "GPUhPerDay", "Ranks", "InTime", "Account")


def report(
    rows: Sequence[Preview], window: Window, capacity: float | None, above: Sequence[str] = ()
) -> Report[Preview]:
    length = duration(window.seconds) if window.seconds else "none yet"
    known = f"{capacity:g} GPUs in service now" if capacity is not None else "not known before the first tick"
    return Report(
        noun="preview",
        columns=COLUMNS,
        rows=tuple(rows),
        shown=SHOWN,
        script=(
            "Budget",
            "Change",
            *(column.name for column in SIDES),
            "RankNow",
            "RankNext",
            "RankThen",
            "InTime",
            "Account",
        ),
        above=(
            *above,
            f"Nothing is saved. Capacity: {known}.",
            f"Ranks: now -> right after the edit -> had it held through all the window ({length} up to "
            f"{moment(window.end)}), with what was used in it. 1 goes first.",
        ),
        facts={"window_start": window.start, "window_end": window.end, "capacity_gpus": capacity, "zone": "UTC"},
        empty="The tree would be empty.",
    )
