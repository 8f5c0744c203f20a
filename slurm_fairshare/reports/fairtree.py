"""`shares --as-slurm`: Slurm's own shares, usage and Fair Tree, in sshare's columns and order."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime

from slurm_fairshare.core.fairtree import ROOT, Placed
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.reports.shares import PARENT, Wanted
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import moment


def _is_root(one: Placed) -> bool:
    return one.association.account == ROOT and not one.association.user


def _raw_shares(one: Placed) -> int | str | None:
    if _is_root(one):
        return None
    return PARENT if one.association.shares is None else one.association.shares


COLUMNS: tuple[Column[Placed], ...] = (
    Column(
        "Account",
        lambda one: one.association.account,
        "Slurm account; in the table its indentation shows the tree",
        indent=lambda one: one.depth,
        elastic=True,
    ),
    Column("User", lambda one: one.association.user, "user, on the lines of users"),
    Column("RawShares", _raw_shares, "Slurm's shares, `parent` where it uses those above", right=True),
    Column("NormShares", lambda one: one.norm_shares, "shares / sum of the siblings' shares", right=True),
    Column("RawUsage", lambda one: math.floor(one.association.usage), "Slurm's decayed usage", right=True),
    Column("NormUsage", lambda one: one.norm_usage, "usage / all usage", right=True, spare=1),
    Column("EffectvUsage", lambda one: one.effective_usage, "usage / usage of the account above", right=True),
    Column("FairShare", lambda one: one.fair_share, "Fair Tree's rank: 1.0 goes first", right=True),
    Column("LevelFS", lambda one: one.level_fs, "NormShares / EffectvUsage: above 1 is under-served", right=True),
)
SHORT = ("Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare")
LONG = tuple(column.name for column in COLUMNS)


def select(placed: Sequence[Placed], wanted: Wanted) -> tuple[Placed, ...]:
    """As sshare selects: accounts by name, users beside them."""
    accounts = {account_key(name) for name in wanted.accounts}
    return tuple(
        one
        for one in placed
        if (not accounts or account_key(one.association.account) in accounts)
        and (not one.association.user or wanted.users is None or one.association.user in wanted.users)
        and (one.association.user or not wanted.users_only)
    )


def unknown(placed: Collection[Placed], wanted: Wanted) -> tuple[str, ...]:
    """Accounts that were asked for and Slurm does not have."""
    known = {account_key(one.association.account) for one in placed}
    return tuple(name for name in wanted.accounts if account_key(name) not in known)


def report(placed: Sequence[Placed], now: datetime, *, long: bool = False) -> Report[Placed]:
    """What sshare would show, computed here from what slurmctld holds."""
    return Report(
        noun="shares",
        columns=COLUMNS,
        rows=placed,
        shown=LONG if long else SHORT,
        above=(
            f"Slurm's own shares and usage at {moment(now)} (UTC), ranked by its Fair Tree. No budget plays a part: "
            "`shares` without --as-slurm shows those.",
        ),
        facts={"as_slurm": True, "at": now},
        empty="No account or user of Slurm matches.",
    )
