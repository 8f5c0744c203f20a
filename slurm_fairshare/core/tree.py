"""The budget tree: who is given what fraction of the cluster's GPU time.

A tree mirrors the research programme: organisation > programme > project. A node's *share* is its weight
among its siblings, its *effective share* its fraction of the whole cluster. A leaf is bound to one Slurm
account. The tree at a moment follows from dated changesets, each of which replaces whole sibling sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache

from slurm_fairshare.errors import BudgetError

SEPARATOR = "/"
DEEPEST = 32
"""So many levels a tree may have."""
ROOT = ""
"""The path of the root: the parent of the organisations."""


def account_key(account: str) -> str:
    """Slurm compares account names without regard to case; so does everything here."""
    return account.lower()


def join(parent: str, name: str) -> str:
    return f"{parent}{SEPARATOR}{name}" if parent else name


def parent_of(path: str) -> str:
    return path.rpartition(SEPARATOR)[0]


@dataclass(frozen=True, slots=True)
class Share:
    """One line of a sibling set: a child's name, its weight, and the account it is bound to if it is a leaf."""

    name: str
    weight: float
    account: str | None = None


@dataclass(frozen=True, slots=True)
class Changeset:
    """One dated edit. `sets` maps a parent's path to all the children it has from `effective` on.

    A parent mapped to no children has none any more: what stood below it is retired, its past stays.
    With `cancels` it takes back another one that was not effective yet; it holds no sets then.
    """

    id: int
    author: str
    reason: str
    created: datetime
    effective: datetime
    sets: Mapping[str, tuple[Share, ...]]
    cancels: int | None = None


@dataclass(frozen=True)
class Node:
    """A node of the tree. `effective` is its fraction of the whole cluster, between 0 and 1."""

    path: str
    name: str
    weight: float
    effective: float
    account: str | None = None
    children: tuple[Node, ...] = ()

    @property
    def is_leaf(self) -> bool:
        return self.account is not None

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents before children, siblings by name."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Tree:
    """The tree at one moment. `top` are the children of the root."""

    top: tuple[Node, ...] = ()
    effective_from: datetime | None = field(default=None, compare=False)

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Every node by its path, parents before children."""
        return {node.path: node for child in self.top for node in child.walk()}

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if node.is_leaf)

    @cached_property
    def by_account(self) -> Mapping[str, Node]:
        """Leaves by the key of their account."""
        return {account_key(leaf.account): leaf for leaf in self.leaves if leaf.account is not None}

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """What a node's past is kept under, by its path: a leaf is its account, an inner node its path."""
        return {path: f"@{account_key(n.account)}" if n.account is not None else path for path, n in self.nodes.items()}

    def leaf_of(self, account: str) -> Node | None:
        return self.by_account.get(account_key(account))

    def children_of(self, path: str) -> tuple[Node, ...]:
        return self.top if path == ROOT else self.nodes[path].children

    def sets(self) -> dict[str, tuple[Share, ...]]:
        """The sibling sets that make this tree: what a changeset would hold to build it anew."""
        parents = [ROOT, *(path for path, node in self.nodes.items() if node.children)]
        return {
            path: tuple(Share(child.name, child.weight, child.account) for child in self.children_of(path))
            for path in parents
        }


@lru_cache(maxsize=65_536)
def ancestors(path: str) -> tuple[str, ...]:
    """The path and all above it below the root, from the top: `a/b/c` -> `(a, a/b, a/b/c)`."""
    parts = path.split(SEPARATOR)
    return tuple(SEPARATOR.join(parts[: depth + 1]) for depth in range(len(parts)))


@lru_cache(maxsize=65_536)
def diverging(one: str, other: str) -> tuple[str, str] | None:
    """The two ancestors just below the lowest common one, where two leaves' standing is compared.

    None for a leaf and itself.

    >>> diverging("org/nlp/chat", "org/vision/video")
    ('org/nlp', 'org/vision')
    >>> diverging("org/nlp/chat", "org/nlp/search")
    ('org/nlp/chat', 'org/nlp/search')
    """
    for mine, theirs in zip(ancestors(one), ancestors(other), strict=False):
        if mine != theirs:
            return mine, theirs
    return None


def build(sets: Mapping[str, Sequence[Share]], effective_from: datetime | None = None) -> Tree:
    """Make the tree of the given sibling sets, or say all that is wrong with them.

    Sets below a parent that does not exist (any more) are left out: retiring a node retires what is below.
    """
    problems = list(_problems(sets))
    if problems:
        raise BudgetError("this budget tree cannot be used:\n" + "\n".join(f"  - {line}" for line in problems))
    return Tree(_children(sets, ROOT, 1.0), effective_from)


def _children(sets: Mapping[str, Sequence[Share]], parent: str, effective: float) -> tuple[Node, ...]:
    siblings = sorted(sets.get(parent, ()), key=lambda share: share.name)
    total = sum(share.weight for share in siblings)
    nodes = []
    for share in siblings:
        path = join(parent, share.name)
        mine = effective * share.weight / total if total > 0 else 0.0
        below = () if share.account is not None else _children(sets, path, mine)
        nodes.append(Node(path, share.name, share.weight, mine, share.account, below))
    return tuple(nodes)


def _problems(sets: Mapping[str, Sequence[Share]]) -> Iterator[str]:
    accounts: dict[str, str] = {}
    for path, share in _reachable(sets):
        where = path or "(no name)"
        if not share.name.strip():
            yield f"a child of {parent_of(path) or 'the root'} has no name"
        elif SEPARATOR in share.name or share.name != share.name.strip() or not share.name.isprintable():
            yield f"{where}: a name has no {SEPARATOR!r}, no blanks at its ends and nothing unprintable"
        if path.count(SEPARATOR) >= DEEPEST:
            yield f"{where}: stands deeper than {DEEPEST} levels; flatten the tree"
            continue
        if not 0 <= share.weight < float("inf"):
            yield f"{where}: share {share.weight} is not a number of zero or more"
        if share.account is None and not sets.get(path):
            yield f"{where}: has neither an account nor children; bind it to a Slurm account (account: NAME)"
        if share.account is not None:
            if sets.get(path):
                yield f"{where}: is bound to account {share.account} and has children; a leaf has no children"
            key = account_key(share.account)
            if not share.account.strip():
                yield f"{where}: the account's name is empty"
            elif key in accounts:
                yield f"{where}: account {share.account} is already bound to {accounts[key]} (case is ignored)"
            accounts.setdefault(key, path)
    yield from _name_clashes(sets)


def _name_clashes(sets: Mapping[str, Sequence[Share]]) -> Iterator[str]:
    for parent, siblings in sets.items():
        seen: dict[str, str] = {}
        for share in siblings:
            key = share.name.lower()
            if key in seen:
                both = f"{seen[key]!r} and {share.name!r}"
                yield f"{parent or 'the root'}: children {both} differ by case only, or not at all"
            seen.setdefault(key, share.name)


def _reachable(sets: Mapping[str, Sequence[Share]]) -> Iterator[tuple[str, Share]]:
    waiting = [ROOT]
    while waiting:
        parent = waiting.pop()
        for share in sets.get(parent, ()):
            path = join(parent, share.name)
            yield path, share
            if share.account is None and share.name and path.count(SEPARATOR) < DEEPEST:
                waiting.append(path)


def not_cancelled(changesets: Iterable[Changeset]) -> tuple[Changeset, ...]:
    """The edits that count, in the order in which they do: those that were not cancelled, by their moment.

    Of two that take effect at once the one recorded later counts.
    """
    found = tuple(changesets)
    cancelled = {change.cancels for change in found}
    kept = (change for change in found if change.cancels is None and change.id not in cancelled)
    return tuple(sorted(kept, key=lambda change: (change.effective, change.id)))


def sets_at(changesets: Iterable[Changeset], at: datetime) -> dict[str, tuple[Share, ...]]:
    """For each parent the newest sibling set that is effective by then, also below nodes that are retired."""
    current: dict[str, tuple[Share, ...]] = {}
    for change in not_cancelled(changesets):
        if change.effective <= at:
            current.update(change.sets)
    return current


def tree_at(changesets: Iterable[Changeset], at: datetime) -> Tree:
    """The tree in force at a moment.

    It is not judged here: an edit is judged before it is recorded (`build` on its sets), and what was recorded
    never stops a tick.
    """
    found = tuple(changesets)
    since = [change.effective for change in not_cancelled(found) if change.effective <= at]
    return Tree(_children(sets_at(found, at), ROOT, 1.0), since[-1] if since else None)


@dataclass(frozen=True, slots=True)
class Epoch:
    """A half-open stretch of time in which one tree was in force."""

    start: datetime
    end: datetime
    tree: Tree


def epochs(changesets: Sequence[Changeset], start: datetime, end: datetime) -> tuple[Epoch, ...]:
    """Cut `[start, end)` where the tree changed. Adjacent epochs touch; their union is the whole."""
    inside = {change.effective for change in not_cancelled(changesets) if start < change.effective < end}
    edges = [start, *sorted(inside), end]
    return tuple(Epoch(left, right, tree_at(changesets, left)) for left, right in itertools.pairwise(edges))
