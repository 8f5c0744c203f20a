"""Edits of the budget tree: from the sets in force to the sets that a changeset must hold, and into words.

An edit is a mapping from parents to the whole sibling sets they have afterwards; a parent mapped to no children
has none any more. Nothing here knows the clock: the sets that are edited are those of the moment from which the
edit is to be effective.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from slurm_fairshare.core.tree import (
    ROOT,
    SEPARATOR,
    Changeset,
    Node,
    Share,
    Tree,
    build,
    join,
    not_cancelled,
    parent_of,
    sets_at,
    tree_at,
)
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.units import moment, percent

Sets = dict[str, tuple[Share, ...]]
"""Sibling sets by their parent's path."""

_CHILD = re.compile(r"(?P<name>.+?)=(?P<weight>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)(?P<percent>%?)(?::(?P<account>.+))?")


def told(path: str) -> str:
    """A path as people read it: the root has a name too."""
    return path or "the root"


def read_path(text: str) -> str:
    """A path as people write it; `/` and nothing at all are the root.

    >>> read_path("/lab/vision/"), read_path("/")
    ('lab/vision', '')
    """
    return text.strip().strip(SEPARATOR)


def read_child(text: str) -> Share:
    """`child=share` or `child=share:account`.

    >>> read_child("vision=50:cv@lab")
    Share(name='vision', weight=50.0, account='cv@lab')
    """
    found = _CHILD.fullmatch(text)
    if found is None:
        raise BudgetError(f'"{text}" is no child with its share: write vision=50, or vision=50:account for a new leaf')
    if found["percent"]:
        raise BudgetError(f'"{text}": a share is a weight among the siblings; write it without the %')
    try:
        weight = float(found["weight"])
    except ValueError:
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise BudgetError(f'"{text}": {found["weight"]} is no share; write a number of zero or more, such as 50')
    return Share(found["name"], weight, found["account"])


# --- what people do to a tree ---------------------------------------------------------------------


def set_shares(tree: Tree, parent: str, children: Sequence[Share]) -> Sets:
    """Replace the children of a node as a whole. Who is there already keeps its account or what is below it."""
    _must_branch(tree, parent)
    known = {child.name: child for child in tree.children_of(parent)}
    made = []
    for child in children:
        old = known.get(child.name)
        if old is None and child.account is None:
            raise BudgetError(
                f"{told(parent)} has no child {child.name} yet: write {child.name}={child.weight:g}:ACCOUNT for a new "
                "leaf, or make a branch with `slurm-fairshare budget add PATH --share N --child NAME=SHARE:ACCOUNT`"
            )
        if old is not None and old.children and child.account is not None:
            raise BudgetError(f"{old.path} has children, so it is bound to no account: leave :{child.account} out")
        account = child.account if child.account is not None else (old.account if old else None)
        made.append(Share(child.name, child.weight, account))
    gone = [known[name] for name in known.keys() - {child.name for child in made}]
    return {parent: tuple(made), **_ended(tree, (node.path for node in gone))}


def add(tree: Tree, path: str, weight: float, account: str | None, children: Sequence[Share] = ()) -> Sets:
    """A new leaf, bound to `account` (the node's name where none is given), or a new branch of leaves."""
    parent, name = parent_of(path), path.rpartition(SEPARATOR)[2]
    if not name:
        raise BudgetError("the root is there already: name the node to add, such as lab/vision")
    if path in tree.nodes:
        raise BudgetError(
            f"{path} is there already; change its share with `slurm-fairshare budget set {parent or '/'}`"
        )
    _must_branch(tree, parent)
    if children and account is not None:
        raise BudgetError(f"{path}: a node has either children or an account; leave one of them out")
    bound = None if children else account if account is not None else name
    below = tuple(Share(one.name, one.weight, one.account or one.name) for one in children)
    return {parent: (*_shares(tree, parent), Share(name, weight, bound)), **({path: below} if below else {})}


def retire(tree: Tree, path: str) -> Sets:
    """Take a node and all below it out of the tree. Its past stays: usage is kept by account."""
    _must_exist(tree, path)
    parent = parent_of(path)
    left = tuple(share for share in _shares(tree, parent) if join(parent, share.name) != path)
    if not left and parent != ROOT:
        raise BudgetError(f"{path} is the last child of {parent}: retire {parent} itself, or add another child first")
    return {parent: left, **_ended(tree, [path])}


def move(tree: Tree, path: str, parent: str, weight: float | None = None) -> Sets:
    """Hang a node and all below it below another one. Leaves keep their past: it is their account's."""
    node = _must_exist(tree, path)
    if parent == path or parent.startswith(path + SEPARATOR):
        raise BudgetError(f"{path} cannot be moved below itself ({parent}): that would be a cycle; name another parent")
    _must_branch(tree, parent)
    if parent == parent_of(path):
        raise BudgetError(f"{path} stands below {told(parent)} already; change its share with `budget set`")
    there = join(parent, node.name)
    if there in tree.nodes:
        raise BudgetError(f"{told(parent)} has a child {node.name} already; retire or rename one of them first")
    moved = Share(node.name, node.weight if weight is None else weight, node.account)
    below = {there + one.path.removeprefix(path): _shares(tree, one.path) for one in node.walk() if one.children}
    return {**retire(tree, path), parent: (*_shares(tree, parent), moved), **below}


def replace_all(changesets: Iterable[Changeset], wanted: Mapping[str, tuple[Share, ...]], at: datetime) -> Sets:
    """The sets that make the tree `wanted` from `at` on; empty if it is that already.

    A parent that is to have no children any more is mapped to none, so that what once stood below it does not
    come back with its name.
    """
    current = sets_at(changesets, at)
    ended: Sets = {path: () for path, shares in current.items() if shares and path not in wanted}
    changed = {path: shares for path, shares in wanted.items() if _sorted(shares) != _sorted(current.get(path, ()))}
    return {**changed, **ended}


def _sorted(shares: Iterable[Share]) -> list[Share]:
    return sorted(shares, key=lambda share: share.name)


def _shares(tree: Tree, parent: str) -> tuple[Share, ...]:
    return tuple(Share(child.name, child.weight, child.account) for child in tree.children_of(parent))


def _ended(tree: Tree, paths: Iterable[str]) -> Sets:
    """Every set at or below the paths, emptied."""
    return {node.path: () for path in paths for node in tree.nodes[path].walk() if node.children}


def _must_exist(tree: Tree, path: str) -> Node:
    node = tree.nodes.get(path)
    if node is None:
        raise BudgetError(f"{told(path)} is no node below the root; see `slurm-fairshare budget show`")
    return node


def _must_branch(tree: Tree, path: str) -> None:
    """The root, or a node that is bound to no account."""
    if path == ROOT:
        return
    node = _must_exist(tree, path)
    if node.account is not None:
        raise BudgetError(
            f"{path} is a leaf, bound to account {node.account}, and a leaf has no children: to make it a branch "
            "export the tree, edit the file and load it (`budget export`, `budget load`)"
        )


# --- is it allowed --------------------------------------------------------------------------------


def check_addition(known: Sequence[Changeset], new: Changeset, expected_last_id: int | None) -> None:
    """Refuse an edit of a state that has changed since it was looked at, and one that makes an unusable tree,
    be it from its own moment on or together with one that takes effect later."""
    if expected_last_id is not None:
        refuse_outdated(known, expected_last_id)
    if new.cancels is not None:
        check_cancel(known, new.cancels, new.created)
    elif not new.sets:
        raise BudgetError("this edit changes nothing; name at least one sibling set")
    everything = [*known, new]
    later = {change.effective for change in known if change.effective > new.effective}
    for at in (new.effective, *sorted(later)):
        build(sets_at(everything, at))


def refuse_outdated(known: Sequence[Changeset], expected_last_id: int) -> None:
    meanwhile = [change for change in known if change.id > expected_last_id]
    if meanwhile:
        raise BudgetError(
            "the budget has changed since you looked at it; look again and repeat your edit. Meanwhile:\n"
            + "\n".join(f"  - {_told(change, known)}" for change in meanwhile)
        )


def _told(change: Changeset, known: Sequence[Changeset]) -> str:
    """Who, when, where, why, and what it did."""
    below = ", ".join(told(parent) for parent in sorted(change.sets)) or "nothing"
    from_when = "" if change.effective <= change.created else f", in force from {moment(change.effective)}"
    what = "; ".join(in_words(change, known))
    return f"{change.id}: {change.author}, {moment(change.created)}{from_when}, below {below}: {change.reason} ({what})"


def check_cancel(known: Sequence[Changeset], wanted: int, now: datetime) -> Changeset:
    """The changeset that is to be cancelled; BudgetError if that cannot be done (any more)."""
    found = {change.id: change for change in known}.get(wanted)
    if found is None:
        raise BudgetError(f"there is no changeset {wanted}; see `slurm-fairshare budget log`")
    by = next((change for change in known if change.cancels == wanted), None)
    if by is not None:
        raise BudgetError(f"changeset {wanted} is cancelled already, by {by.author} at {moment(by.created)}")
    if found.cancels is not None:
        raise BudgetError(f"changeset {wanted} itself cancels {found.cancels}; make that edit again instead")
    if found.effective <= now:
        raise BudgetError(
            f"changeset {wanted} is in force since {moment(found.effective)} and the past stays; make a new edit"
        )
    return found


def is_below(path: str, top: str) -> bool:
    """Whether a path is `top` or stands below it; everything stands below the root."""
    return top in (ROOT, path) or path.startswith(top + SEPARATOR)


# --- in words -------------------------------------------------------------------------------------


def in_words(change: Changeset, changesets: Sequence[Changeset]) -> tuple[str, ...]:
    """What an edit did to each sibling set, against what would be in force at its moment without it.

    Of siblings whose share stayed nothing is said, although their part of the parent may be another one.
    """
    if change.cancels is not None:
        return (f"cancels changeset {change.cancels}",)
    before = sets_at([one for one in changesets if one.id < change.id and one.cancels != change.id], change.effective)
    return tuple(
        f"{told(parent)}: {', '.join(words)}"
        for parent, shares in sorted(change.sets.items())
        if (words := list(_set_in_words(before.get(parent, ()), shares)))
    ) or ("nothing changes",)


def _set_in_words(before: Sequence[Share], after: Sequence[Share]) -> Iterator[str]:
    old, new = ({share.name: share for share in shares} for shares in (before, after))
    totals = math.fsum(share.weight for share in before), math.fsum(share.weight for share in after)
    for name, share in new.items():
        was = old.get(name)
        bound = f", account {share.account}" if share.account is not None else ""
        if was is None:
            yield f"{name} new with {share.weight:g} ({_part(share, totals[1])}{bound})"
            continue
        if was.weight != share.weight:
            yield f"{name} {was.weight:g} -> {share.weight:g} ({_part(was, totals[0])} -> {_part(share, totals[1])})"
        if was.account != share.account:
            yield f"{name} bound to {share.account or 'no account'}, before to {was.account or 'none'}"
    for name, share in old.items():
        if name not in new:
            bound = f", account {share.account}" if share.account is not None else ""
            yield f"{name} retired (had {_part(share, totals[0])}{bound})"


def _part(share: Share, total: float) -> str:
    return percent(share.weight / total if total > 0 else 0.0)


def replaced_later(changesets: Sequence[Changeset], new: Changeset) -> tuple[Changeset, ...]:
    """Edits that are already recorded and will replace a set of this one again, in the order in which they do."""
    return tuple(
        one
        for one in not_cancelled(changesets)
        if one.id != new.id and one.effective > new.effective and one.sets.keys() & new.sets.keys()
    )


def state_after(changesets: Sequence[Changeset], wanted: int) -> tuple[Tree, datetime]:
    """The tree as changeset `wanted` left it at its own moment, whatever was recorded after it."""
    found = {change.id: change for change in changesets}.get(wanted)
    if found is None:
        raise BudgetError(f"there is no changeset {wanted}; see `slurm-fairshare budget log`")
    return tree_at([change for change in changesets if change.id <= wanted], found.effective), found.effective
