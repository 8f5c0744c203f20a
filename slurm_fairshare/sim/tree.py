"""The budget tree of a workload: its shares by path, leaves bound to the account of their name."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_fairshare.core.tree import Share, Tree, build, parent_of


def tree_of(shares: Mapping[str, float]) -> Tree:
    """Build the tree from weights by path; a path nothing stands below is a leaf, its last name the account."""
    parents = {parent_of(path) for path in shares}
    sets: dict[str, list[Share]] = {}
    for path, weight in shares.items():
        name = path.rpartition("/")[2]
        sets.setdefault(parent_of(path), []).append(Share(name, weight, None if path in parents else name))
    return build({parent: tuple(children) for parent, children in sets.items()})
