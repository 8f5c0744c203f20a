"""A budget tree as a YAML file, and back without loss.

    tree:
      lab:
        share: 100
        children:
          vision: {share: 50, account: vision}
          nlp: {share: 50, account: nlp}

A name is what is written, whatever YAML would make of it: `123`, `yes` and `1e3` are names here. The file is
walked as YAML's own nodes, so every message has its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from slurm_fairshare.core.edits import Sets
from slurm_fairshare.core.tree import ROOT, Share, Tree, build, join
from slurm_fairshare.errors import BudgetError

_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_NULL = "tag:yaml.org,2002:null"
_FIELDS = ("share", "account", "children")
_EXAMPLE = "write\n  tree:\n    lab:\n      share: 100\n      account: lab"


class _Loader(yaml.SafeLoader):
    """YAML's safe loader without aliases: a tree has no node twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            words = "an alias (*name) has no place in a tree: write the node out"
            raise _FaultError(event.start_mark.line + 1, "", words)
        return super().compose_node(parent, index)


class _FaultError(Exception):
    """What is wrong, at which line and node."""

    def __init__(self, line: int, path: str, words: str) -> None:
        super().__init__(f"line {line}: {f'{path}: ' if path else ''}{words}")


def read(text: str, source: str) -> Sets:
    """The sibling sets in a file, checked as a tree. BudgetError names the line, the node and the remedy."""
    try:
        root = yaml.compose(text, Loader=_Loader)
        sets = dict(_sets(root))
    except _FaultError as fault:
        raise BudgetError(f"{source}, {fault}") from fault
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BudgetError(f"{source}{line}: this is no YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise BudgetError(f"{source}: this is no YAML: {error}") from error
    except RecursionError as error:
        raise BudgetError(f"{source}: the tree is nested too deep; flatten it") from error
    try:
        build(sets)
    except BudgetError as error:
        raise BudgetError(f"{source}: {error}") from error
    return sets


def _sets(root: yaml.Node | None) -> Iterator[tuple[str, tuple[Share, ...]]]:
    if root is None:
        raise _FaultError(1, "", f"the file is empty; {_EXAMPLE}")
    fields = dict(_pairs(root, "", f"a budget file has one key, tree; {_EXAMPLE}"))
    for name, value in fields.items():
        if name != "tree":
            words = f'"{name}" has no place here; a budget file has one key, tree; {_EXAMPLE}'
            raise _FaultError(_line(value), "", words)
    yield from _children(fields["tree"], ROOT)


def _children(node: yaml.Node, path: str) -> Iterator[tuple[str, tuple[Share, ...]]]:
    """The sibling set below a path, then the sets below its members."""
    shares, below = [], []
    for name, value in _pairs(node, path, "children are written NAME: {share: NUMBER, account: NAME}"):
        share, children = _share(value, name, join(path, name))
        shares.append(share)
        if children is not None:
            below.append((join(path, name), children))
    yield path, tuple(shares)
    for child, children in below:
        yield from _children(children, child)


def _share(node: yaml.Node, name: str, path: str) -> tuple[Share, yaml.Node | None]:
    fields = dict(_pairs(node, path, "a node is written {share: NUMBER, account: NAME} or with children: below it"))
    for field, value in fields.items():
        if field not in _FIELDS:
            raise _FaultError(_line(value), path, f'"{field}" has no place here; a node has {", ".join(_FIELDS)}')
    if "share" not in fields:
        raise _FaultError(_line(node), path, "has no share; write share: NUMBER, its weight among its siblings")
    account = _account(fields["account"], path) if "account" in fields else None
    return Share(name, _weight(fields["share"], path), account), fields.get("children")


def _weight(node: yaml.Node, path: str) -> float:
    if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS:
        try:
            return float(node.value.replace("_", ""))
        except ValueError:
            pass  # 0x10 or 1:30 are numbers to YAML, not to a reader
    shown = node.value if isinstance(node, yaml.ScalarNode) else "this"
    raise _FaultError(_line(node), path, f'share "{shown}" is no number; write share: 50 or share: 12.5, without a %')


def _account(node: yaml.Node, path: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL:
        raise _FaultError(_line(node), path, "account has no name; write account: NAME, as sacctmgr shows it")
    return str(node.value)


def _pairs(node: yaml.Node, path: str, remedy: str) -> Iterator[tuple[str, yaml.Node]]:
    """A mapping's keys as written, each once."""
    if not isinstance(node, yaml.MappingNode):
        raise _FaultError(_line(node), path, remedy)
    seen: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _FaultError(_line(key), path, f"a name is plain text; {remedy}")
        if key.value in seen:
            words = f'"{key.value}" is written twice (first in line {seen[key.value]}): keep one of them'
            raise _FaultError(_line(key), path, words)
        seen[key.value] = _line(key)
        yield key.value, value
    if not seen:
        raise _FaultError(_line(node), path, f"nothing stands here; {remedy}")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


# --- and back -------------------------------------------------------------------------------------


def write(tree: Tree) -> str:
    """The tree as a file that `read` reads back to the same sibling sets."""
    top = _mapping(tree, ROOT)
    dumped: str = yaml.safe_dump({"tree": top}, sort_keys=False, allow_unicode=True, width=2**20, indent=2)
    return dumped


def _mapping(tree: Tree, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for child in tree.children_of(path):
        entry: dict[str, Any] = {"share": int(child.weight) if child.weight.is_integer() else child.weight}
        if child.account is not None:
            entry["account"] = child.account
        else:
            entry["children"] = _mapping(tree, child.path)
        found[child.name] = entry
    return found
