"""Slurm's own Fair Tree, from Slurm's own shares and usage: what sshare would show, for comparison.

For an association among its siblings, with Slurm's decayed usage:

    S = shares / sum of the siblings' shares
    U = usage / usage of the account above
    LevelFS = S / U        infinite without usage, 0 without shares: 0 wins over no usage

Siblings are sorted by LevelFS, the largest first; the tree is walked in that order and each user's association
is given rank / (number of users' associations), 1.0 for the first.

`fairshare=parent`: such a user comes first in its account. Such an account steps aside: what is below it stands
among the children of the nearest account above that has shares of its own.

Ties, as Slurm really has them: users with an equal LevelFS share a rank, and go before accounts. Two accounts with
an equal LevelFS are visited one after the other, and the first user of the second gets the last rank of the first.
(The documented merging of their children never happens: `_count_tied_accounts` looks for users where it means
accounts.) Which of them is visited first is Slurm's accident; here `first` may say it, else the name does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

ROOT = "root"
PARENT_SHARES = 0x7FFF_FFFF
"""How Slurm keeps `fairshare=parent`."""

ASIDE = 4_294_967_294.0
"""What Slurm holds as LevelFS of an account that stepped aside (its NO_VAL). It has nobody below it any more, but it
stays among its siblings, after everybody without usage, and whoever follows it there is tied with nobody."""


@dataclass(frozen=True, slots=True)
class Association:
    """An account (no user) or a user in an account. `parent` is an account's own parent, "" for the root.

    `shares` None is `fairshare=parent`. `usage` is Slurm's decayed usage of the whole subtree, in its own unit.
    """

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    shares: int | None = 1
    usage: float = 0.0


@dataclass(frozen=True, slots=True)
class Placed:
    """An association with its columns of `sshare -l`. None where sshare prints nothing: the LevelFS of
    `fairshare=parent`, the FairShare of an account, most of the root's."""

    association: Association
    depth: int
    norm_shares: float
    norm_usage: float | None
    effective_usage: float
    level_fs: float | None
    fair_share: float | None


Key = tuple[str, str, str]
First = Callable[[Sequence[Association]], Sequence[Association]]


def key_of(one: Association) -> Key:
    return (one.account, one.user, one.partition)


def by_name(tied: Sequence[Association]) -> Sequence[Association]:
    """Tied associations in the order of their names."""
    return sorted(tied, key=key_of)


@dataclass
class _Tree:
    accounts: Mapping[str, Association]
    members: Mapping[str, list[Association]]
    """What competes in an account: its users and accounts, and those of accounts below it that stepped aside."""
    level: Mapping[str, int]
    """The sum of the shares that compete in an account."""
    own: Mapping[str, list[Association]]
    """What belongs to an account by name."""
    ranks: dict[Key, int] = field(default_factory=dict)


def fair_tree(associations: Sequence[Association], first: First = by_name) -> tuple[Placed, ...]:
    """Every association in sshare's order: below an account its users by name, then its accounts by name.

    `first` orders accounts that tie. Raises ValueError where an account's parent is missing.
    """
    tree = _build(associations)
    if ROOT not in tree.accounts:
        raise ValueError("there is no root association")
    count = sum(1 for one in associations if one.user)
    _walk(tree, ROOT, _Rank(count, count), tied=False, first=first)
    whole = tree.accounts[ROOT].usage
    return tuple(_placed(tree, one, depth, whole, count) for one, depth in _in_order(tree, ROOT, 0))


def _build(associations: Sequence[Association]) -> _Tree:
    accounts = {one.account: one for one in associations if not one.user}
    own: dict[str, list[Association]] = {}
    members: dict[str, list[Association]] = {}
    for one in associations:
        above = one.account if one.user else one.parent
        if not above:
            continue
        if above not in accounts:
            raise ValueError(f"account {above} of {one.account} is missing among the associations")
        own.setdefault(above, []).append(one)
        members.setdefault(_arena(accounts, one), []).append(one)
    level = {name: sum(one.shares or 0 for one in inside) for name, inside in members.items()}
    return _Tree(accounts, members, level, own)


def _arena(accounts: Mapping[str, Association], one: Association) -> str:
    """The account in which this one competes: the nearest above that has shares of its own, in the end the root."""
    above = accounts[one.account if one.user else one.parent]
    while above.shares is None and above.parent:
        above = accounts[above.parent]
    return above.account


def _effective(tree: _Tree, one: Association) -> float:
    """U: the part of the usage of the account in which it competes."""
    whole = tree.accounts[_arena(tree.accounts, one)].usage
    return one.usage / whole if whole > 0 else 0.0


def _norm_shares(tree: _Tree, one: Association) -> float:
    """S. One without shares of its own shows those of the account in which it competes; they decide nothing."""
    above = tree.accounts[_arena(tree.accounts, one)]
    if one.shares is None:
        return _norm_shares(tree, above) if above.parent else 0.0
    level = tree.level[above.account]
    return one.shares / level if level else 0.0


def _level_fs(tree: _Tree, one: Association) -> float:
    """S / U, and what stands for it where there are no shares of one's own."""
    if one.shares is None:
        return math.inf if one.user else ASIDE
    shares, usage = _norm_shares(tree, one), _effective(tree, one)
    if shares == 0:
        return 0.0
    return shares / usage if usage > 0 else math.inf


@dataclass
class _Rank:
    """`next` is the rank of the next user that is not tied, `shown` the one given last."""

    next: int
    shown: int


def _walk(tree: _Tree, account: str, rank: _Rank, *, tied: bool, first: First) -> None:
    before: float | None = None
    for index, (one, level) in enumerate(_sorted(tree, account, first)):
        same = tied if index == 0 else before == level
        if one.user:
            if not same:
                rank.shown = rank.next
            tree.ranks[key_of(one)] = rank.shown
            rank.next -= 1
        else:
            _walk(tree, one.account, rank, tied=same, first=first)
        before = level


def _sorted(tree: _Tree, account: str, first: First) -> list[tuple[Association, float]]:
    """What competes in an account, the largest LevelFS first, users before accounts where that is equal."""
    groups: dict[tuple[float, bool], list[Association]] = {}
    for one in tree.members.get(account, ()):
        groups.setdefault((-_level_fs(tree, one), not one.user), []).append(one)
    return [(one, -level) for (level, _), group in sorted(groups.items()) for one in first(group)]


def _in_order(tree: _Tree, account: str, depth: int) -> list[tuple[Association, int]]:
    found = [(tree.accounts[account], depth)]
    inside = tree.own.get(account, [])
    found += [(one, depth + 1) for one in by_name([one for one in inside if one.user])]
    for one in by_name([one for one in inside if not one.user]):
        found += _in_order(tree, one.account, depth + 1)
    return found


def _placed(tree: _Tree, one: Association, depth: int, whole: float, count: int) -> Placed:
    if one.account == ROOT and not one.user:
        return Placed(one, depth, 0.0, None, 1.0, None, None)
    return Placed(
        association=one,
        depth=depth,
        norm_shares=_norm_shares(tree, one),
        norm_usage=one.usage / whole if whole > 0 else 0.0,
        effective_usage=_effective(tree, one),
        level_fs=_level_fs(tree, one) if one.shares is not None else None,
        fair_share=tree.ranks[key_of(one)] / count if one.user else None,
    )
