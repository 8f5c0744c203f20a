"""`shares`: who was owed what, who used what, and who comes next. sshare's columns first, then ours.

An account stands in the table at its node's place in the tree. As in sshare a user's line is the user's part of
its account; all users of an account share the account's standing, so their RawShares says `parent`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from slurm_fairshare.core.fairshare import Ranked, Ranking, Standing
from slurm_fairshare.core.tree import SEPARATOR, Node, account_key, parent_of
from slurm_fairshare.core.users import UserUsage, user_order
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.reports.words import Basis, standing_paint, standing_short, standing_words
from slurm_fairshare.units import HOUR

PARENT = "parent"
"""sshare's word for a user without shares of its own."""


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One node of the tree, or one user of a leaf. Usage and entitlement in GPU-seconds."""

    path: str
    account: str
    user: str
    leaf: bool
    raw_shares: float | str
    norm_shares: float | None
    usage: float
    norm_usage: float
    effective_usage: float
    fair_share: float | None
    standing: Standing | None
    share: float | None
    rank: int | None = None
    priority: int | None = None
    committed: float | None = None
    user_rank: int | None = None

    @property
    def depth(self) -> int:
        return self.path.count(SEPARATOR) + bool(self.user)


def share_rows(
    ranking: Ranking,
    by_user: UserUsage,
    committed: UserUsage,
    labels: Mapping[str, int] | None = None,
) -> tuple[ShareRow, ...]:
    """Every node, parents before children, and below each leaf its users by name."""
    whole = sum(ranking.standings[node.path].usage for node in ranking.tree.top)
    places = {leaf.path: leaf for leaf in ranking.leaves}
    rows: list[ShareRow] = []
    for node in ranking.tree.nodes.values():
        row = _node_row(node, ranking, whole, places.get(node.path), committed, labels or {})
        rows.append(row)
        rows.extend(_user_rows(row, by_user, committed, whole) if node.is_leaf else ())
    return tuple(rows)


def _node_row(
    node: Node,
    ranking: Ranking,
    whole: float,
    place: Ranked | None,
    committed: UserUsage,
    labels: Mapping[str, int],
) -> ShareRow:
    siblings = ranking.tree.children_of(parent_of(node.path))
    level = sum(sibling.weight for sibling in siblings)
    beside = sum(ranking.standings[sibling.path].usage for sibling in siblings)
    standing = ranking.standings[node.path]
    below = {account_key(one.account) for one in node.walk() if one.account is not None}
    return ShareRow(
        path=node.path,
        account=node.account if node.account is not None else node.name,
        user="",
        leaf=node.is_leaf,
        raw_shares=node.weight,
        norm_shares=_part(node.weight, level),
        usage=standing.usage,
        norm_usage=_part(standing.usage, whole),
        effective_usage=_part(standing.usage, beside),
        fair_share=ranking.fair_share(place) if place else None,
        standing=standing,
        share=node.effective,
        rank=place.rank if place else None,
        priority=labels.get(account_key(node.account)) if node.account is not None else None,
        committed=sum(amount for (account, _), amount in committed.items() if account in below),
    )


def _user_rows(leaf: ShareRow, by_user: UserUsage, committed: UserUsage, whole: float) -> Iterator[ShareRow]:
    key = account_key(leaf.account)
    order = user_order(key, {user for account, user in [*by_user, *committed] if account == key}, by_user)
    for user in sorted({user for account, user in [*by_user, *committed] if account == key}):
        used = by_user.get((key, user), 0.0)
        yield replace(
            leaf,
            user=user,
            raw_shares=PARENT,
            norm_shares=None,
            usage=used,
            norm_usage=_part(used, whole),
            effective_usage=_part(used, leaf.usage),
            standing=None,
            share=None,
            committed=committed.get((key, user), 0.0),
            user_rank=order.index(user) + 1,
        )


def _part(amount: float, whole: float) -> float:
    """As in sshare: a part of nothing is 0."""
    return amount / whole if whole > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines, as sshare's options say it. `users` None: all users. `accounts` empty: all accounts."""

    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] | None = None
    users_only: bool = False


def select(rows: Collection[ShareRow], wanted: Wanted) -> tuple[ShareRow, ...]:
    """An account may be named as Slurm names it (in any case), by its node's name or by its path."""
    accounts = {account_key(name) for name in wanted.accounts}
    return tuple(
        row
        for row in rows
        if (not accounts or accounts & _names(row))
        and (not row.user or wanted.users is None or row.user in wanted.users)
        and (row.user or not wanted.users_only)
    )


def _names(row: ShareRow) -> set[str]:
    return {account_key(row.account), account_key(row.path), account_key(row.path.rpartition(SEPARATOR)[2])}


def unknown(rows: Collection[ShareRow], wanted: Wanted) -> tuple[str, ...]:
    """Accounts that were asked for and are no part of the tree."""
    known = {name for row in rows for name in _names(row)}
    return tuple(name for name in wanted.accounts if account_key(name) not in known)


def _standing(row: ShareRow) -> str:
    return standing_paint(row.standing)


def _weight(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _whole(value: float) -> str:
    return str(round(value))


def _hours(value: float) -> str:
    return f"{value:.2f}"


def _grouped(hours: float) -> str:
    """Small amounts keep two decimals: on a young cluster everything would else read 0.0."""
    return f"{hours:,.1f}" if abs(hours) >= 10 else f"{hours:.2f}"


COLUMNS: tuple[Column[ShareRow], ...] = (
    Column(
        "Account",
        lambda row: row.account,
        "Slurm account of a leaf, name of a node above; in the table its indentation shows the tree",
        indent=lambda row: row.depth,
        elastic=True,
    ),
    Column("User", lambda row: row.user, "user, on the lines of users"),
    Column(
        "RawShares",
        lambda row: row.raw_shares,
        "share: the weight among the siblings; `parent` for a user",
        show=_weight,
        plain=_weight,
        right=True,
        spare=4,
    ),
    Column(
        "NormShares", lambda row: row.norm_shares, "share as a fraction of all siblings' shares", right=True, spare=5
    ),
    Column("RawUsage", lambda row: row.usage, "charged GPU-seconds in the window", plain=_whole, right=True, spare=7),
    Column("NormUsage", lambda row: row.norm_usage, "usage as a fraction of all charged usage", right=True, spare=8),
    Column(
        "EffectvUsage",
        lambda row: row.effective_usage,
        "usage as a fraction of the siblings' usage, of the account's for a user",
        right=True,
        spare=6,
    ),
    Column(
        "FairShare",
        lambda row: row.fair_share,
        "1.0 for the account that goes first, 1/N for the last of N",
        right=True,
        spare=3,
    ),
    Column(
        "LevelFS",
        lambda row: row.standing.level_fs if row.standing else None,
        "entitlement / usage: above 1 is under target, inf without usage, 0 without a share",
        right=True,
        spare=9,
    ),
    Column("Budget", lambda row: row.path, "path of the node in the budget tree", elastic=True, spare=10),
    Column(
        "Entitled",
        lambda row: row.standing.entitlement / HOUR if row.standing else None,
        "GPU-hours owed in the window",
        show=_grouped,
        plain=_hours,
        right=True,
    ),
    Column(
        "Used",
        lambda row: row.usage / HOUR,
        "GPU-hours charged in the window",
        show=_grouped,
        plain=_hours,
        right=True,
    ),
    Column(
        "Balance",
        lambda row: row.standing.balance if row.standing else None,
        "(Entitled - Used) / Entitled: how far under target (positive) or over (negative); in words in the table",
        tell=lambda row: standing_short(row.standing) if row.standing else "",
        right=True,
        paint=_standing,
    ),
    Column("Rank", lambda row: row.rank, "place of the account: 1 goes first", right=True),
    Column(
        "UserRank",
        lambda row: row.user_rank,
        "place of a user in the account, who used least first; it orders jobs only where fairshare.rank_users is on",
        right=True,
        spare=15,
    ),
    Column(
        "Committed",
        lambda row: row.committed / HOUR if row.committed is not None else None,
        "GPU-hours that running jobs may still hold under protection",
        show=_grouped,
        plain=_hours,
        right=True,
        spare=11,
    ),
    Column(
        "Priority",
        lambda row: row.priority,
        "label: the Priority that Slurm holds for the account's association",
        right=True,
        spare=12,
    ),
    Column(
        "EffectiveShare",
        lambda row: row.share,
        "fraction of the whole cluster",
        right=True,
        spare=13,
    ),
    Column(
        "Standing",
        lambda row: standing_words(row.standing) if row.standing else "",
        "how the node stands, in words",
        spare=14,
        paint=_standing,
    ),
)


SHORT = ("Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare")
LONG = ("Account", "User", "RawShares", "NormShares", "RawUsage", "NormUsage", "EffectvUsage", "FairShare", "LevelFS")
OURS = ("Entitled", "Used", "Balance", "Rank")
OURS_LONG = ("Entitled", "Used", "Balance", "Rank", "UserRank", "Committed", "Priority", "EffectiveShare", "Standing")


def report(
    rows: Collection[ShareRow], basis: Basis, *, long: bool = False, notes: tuple[str, ...] = ()
) -> Report[ShareRow]:
    """The report over the selected rows."""
    first, ours = (LONG, OURS_LONG) if long else (SHORT, OURS)
    return Report(
        noun="shares",
        columns=COLUMNS,
        rows=tuple(rows),
        shown=(*first, *ours),
        script=(*first, "Budget", *ours),
        above=(*basis.lines(), "Entitled, Used: GPU-hours. Rank 1 goes first. Under target goes before over."),
        below=notes,
        facts={**basis.facts(), "units": {"raw_usage": "GPU-seconds", "entitled": "GPU-hours", "used": "GPU-hours"}},
        empty="No account or user of the budget tree matches.",
    )
