"""Budget trees as YAML: read with every fault named, written back without loss."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.edits import Sets, replace_all
from slurm_fairshare.core.tree import Changeset, Share, build, tree_at
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.reports.budget_file import read, write
from tests.reports.sample import CHANGESET, NOW, SETS, TREE

SMALL = """
tree:
  lab:
    share: 100
    children:
      Vision_2.0+x: {share: 62.5, account: Vision@Lab-1.0+x}
      nlp:
        share: 37.5
        account: 0123
"""


def test_names_and_accounts_are_what_is_written() -> None:
    assert read(SMALL, "f")["lab"] == (Share("Vision_2.0+x", 62.5, "Vision@Lab-1.0+x"), Share("nlp", 37.5, "0123"))


@pytest.mark.parametrize(
    "name", ["yes", "123", "1e3", "null", "~", "0o17", "2026-10-08", ".inf", "a b", "研究", "a: b"]
)
def test_names_that_yaml_would_take_for_something_else_stay_names(name: str) -> None:
    tree = build({"": (Share(name, 1.0, name),)})
    assert read(write(tree), "f") == tree.sets()


NAMES = st.text(st.characters(blacklist_categories=["C", "Z"], blacklist_characters="/"), min_size=1, max_size=200)
WEIGHTS = st.one_of(st.integers(0, 10**6).map(float), st.floats(0, 1e9))


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Sets:
    sets: Sets = {}
    number = iter(range(1000))

    def siblings(path: str, left: int) -> None:
        chosen = draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
        shares = []
        for name in chosen:
            leaf = left == 0 or draw(st.booleans())
            shares.append(Share(name, draw(WEIGHTS), f"{draw(NAMES)}{next(number)}" if leaf else None))
            if not leaf:
                siblings(f"{path}/{name}" if path else name, left - 1)
        sets[path] = tuple(sorted(shares, key=lambda share: share.name))

    siblings("", depth)
    return sets


@given(trees())
def test_a_tree_written_and_read_is_the_same_tree(sets: Sets) -> None:
    try:
        tree = build(sets)
    except BudgetError:
        return  # two accounts that differ by case only, and the like
    assert read(write(tree), "f") == tree.sets() == sets


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the file is empty; write"),
        ("tree:\n", "nothing stands here|children are written NAME"),
        ("tree: {}\n", "nothing stands here"),
        ("lab: {share: 1}\n", '"lab" has no place here; a budget file has one key, tree'),
        ("tree:\n  a: 5\n", "line 2: a: a node is written"),
        ("tree:\n  a: {account: a}\n", "line 2: a: has no share; write share: NUMBER"),
        ("tree:\n  a: {share: 50%, account: a}\n", 'line 2: a: share "50%" is no number; write share: 50'),
        ("tree:\n  a: {share: yes, account: a}\n", 'share "yes" is no number'),
        ("tree:\n  a: {share: 0x10, account: a}\n", 'share "0x10" is no number'),
        ("tree:\n  a: {share: -1, account: a}\n", "a: share -1.0 is not a number of zero or more"),
        ("tree:\n  a: {share: .inf, account: a}\n", "share"),
        ("tree:\n  a: {share: 1, account: }\n", "line 2: a: account has no name"),
        ("tree:\n  a: {share: 1}\n", "a: has neither an account nor children; bind it"),
        ("tree:\n  a: {share: 1, acount: a}\n", '"acount" has no place here; a node has share, account, children'),
        (
            "tree:\n  a: {share: 1, account: a}\n  b: {share: 1, account: b}\n  a: {share: 2, account: c}\n",
            r'line 4: "a" is written twice \(first in line 2\)',
        ),
        ("tree:\n  a: {share: 1, account: x}\n  b: {share: 1, account: X}\n", "already bound to a .case is ignored"),
        ("tree:\n  a: {share: 1, account: x}\n  A: {share: 1, account: y}\n", "differ by case only"),
        ("tree:\n  a: {share: 1, account: x, children: {b: {share: 1, account: y}}}\n", "a leaf has no children"),
        ("tree:\n  a: &x {share: 1, account: x}\n  b: *x\n", "line 3: an alias"),
        ("tree:\n  a: {share: 1\n", "this is no YAML"),
        ("tree:\n  a:\n\tshare: 1\n", "line 3: this is no YAML"),
        ("tree: \x00\n", "this is no YAML"),
        ("tree:\n  ? [a, b]\n  : {share: 1}\n", "a name is plain text"),
        ("tree: " + "{a: {share: 1, children: " * 2000, "nested too deep|this is no YAML"),
    ],
)
def test_a_fault_is_named_with_its_line_and_remedy(text: str, words: str) -> None:
    with pytest.raises(BudgetError, match=words) as caught:
        read(text, "budget.yaml")
    assert str(caught.value).startswith("budget.yaml")


def test_loading_the_tree_in_force_changes_nothing() -> None:
    assert replace_all([CHANGESET], read(write(TREE), "f"), NOW) == {}


def test_only_the_sibling_sets_that_differ_are_changed() -> None:
    wanted = {**SETS, "lab/language": (Share("nlp", 1.0, "nlp"), Share("speech", 1.0, "Speech@Lab"))}
    assert set(replace_all([CHANGESET], wanted, NOW)) == {"lab/language"}


def test_what_stood_below_a_retired_node_does_not_come_back_with_its_name() -> None:
    without = {"": SETS[""], "lab": (Share("vision", 1.0, "vision"),)}
    first = Changeset(2, "head", "", NOW, NOW, replace_all([CHANGESET], without, NOW))
    again = {"": SETS[""], "lab": (Share("vision", 1.0, "vision"), Share("language", 1.0, "language"))}
    later = NOW + timedelta(hours=1)
    second = Changeset(3, "head", "", later, later, replace_all([CHANGESET, first], again, later))
    tree = tree_at([CHANGESET, first, second], later)
    assert [leaf.path for leaf in tree.leaves] == ["lab/language", "lab/vision"]
