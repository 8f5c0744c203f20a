"""Edits of the tree: what each makes of it, in words, and what it can never change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core import edits
from slurm_fairshare.core.fairshare import Usage, rank
from slurm_fairshare.core.tree import Changeset, Share, Tree, build, epochs, sets_at, tree_at
from slurm_fairshare.core.window import Step, Weight
from slurm_fairshare.errors import BudgetError
from tests.core.build import NOW, ago

DAY = timedelta(days=1)
HOUR = 3600

SETS = {
    "": (Share("lab", 2), Share("company", 1)),
    "lab": (Share("vision", 5), Share("nlp", 3, "nlp"), Share("robotics", 2, "Robotics")),
    "lab/vision": (Share("video", 1, "video"), Share("faces", 3, "faces")),
    "company": (Share("sales", 1, "sales"), Share("web", 1, "web")),
}
TREE = build(SETS)


def change(number: int, sets: edits.Sets, days: float = 0, cancels: int | None = None) -> Changeset:
    """Recorded now, effective in so many days."""
    return Changeset(number, "dan", "why", NOW, NOW + DAY * days, sets, cancels)


FIRST = change(1, SETS, -30)


def after(*changes: Changeset, days: float = 0) -> Tree:
    return tree_at([FIRST, *changes], NOW + DAY * days)


# --- what a tree is after an edit -----------------------------------------------------------------


def test_a_moved_branch_stands_elsewhere_with_all_below_it() -> None:
    moved = after(change(2, edits.move(TREE, "lab/vision", "company")))
    assert {leaf.path for leaf in moved.leaves} == {
        "lab/nlp",
        "lab/robotics",
        "company/sales",
        "company/web",
        "company/vision/video",
        "company/vision/faces",
    }
    assert {leaf.account for leaf in moved.leaves} == {leaf.account for leaf in TREE.leaves}


def test_a_branch_moved_there_and_back_is_the_same_tree() -> None:
    there = change(2, edits.move(TREE, "lab/vision", "company"))
    back = change(3, edits.move(after(there), "company/vision", "lab"))
    assert after(there, back).sets() == TREE.sets() | {}


@pytest.mark.parametrize("parent", ["lab", "lab/vision", "lab/vision/video"])
def test_a_node_below_itself_would_be_a_cycle(parent: str) -> None:
    with pytest.raises(BudgetError, match=r"cycle|is a leaf"):
        edits.move(TREE, "lab", parent)


def test_a_child_named_again_keeps_what_is_below_it() -> None:
    made = edits.set_shares(TREE, "lab", [Share("vision", 1), Share("nlp", 1)])
    assert made == {"lab": (Share("vision", 1), Share("nlp", 1, "nlp"))}


def test_what_stands_below_a_retired_child_is_ended_with_it() -> None:
    made = edits.set_shares(TREE, "lab", [Share("nlp", 1)])
    assert made["lab/vision"] == ()


def test_of_a_cancelled_edit_nothing_is_left() -> None:
    planned = change(2, {"lab": (Share("nlp", 1, "nlp"),)}, 7)
    cancelled = change(3, {}, 0, cancels=2)
    assert after(planned, days=8).sets() != TREE.sets()
    assert after(planned, cancelled, days=8).sets() == TREE.sets()
    assert len(epochs([FIRST, planned, cancelled], NOW, NOW + DAY * 9)) == 1


def test_a_cancelled_edit_does_not_overrule_one_made_after_it() -> None:
    planned = change(2, {"company": (Share("web", 1, "web"),)}, 7)
    between = change(4, {"company": (Share("sales", 9, "sales"), Share("web", 1, "web"))}, 3)
    tree = after(planned, change(3, {}, 0, cancels=2), between, days=8)
    assert tree.nodes["company/sales"].weight == 9


def test_what_was_recorded_never_stops_a_tick() -> None:
    """A tree is judged before it is recorded; read back it is used as it is."""
    odd = Changeset(1, "x", "", NOW, NOW, {"": (Share("a", 1, "X"), Share("A", 1, "x"), Share("empty", 1))})
    assert {node.path for node in tree_at([odd], NOW).nodes.values()} == {"a", "A", "empty"}


# --- what is told ---------------------------------------------------------------------------------


def test_an_edit_is_told_with_shares_and_parts_of_the_parent() -> None:
    edit = change(
        2, {"lab": (Share("vision", 5), Share("nlp", 6, "nlp"), Share("bio", 9, "bio")), "company": SETS["company"]}
    )
    assert edits.in_words(edit, [FIRST, edit]) == (
        "lab: nlp 3 -> 6 (30% -> 30%), bio new with 9 (45%, account bio), robotics retired (had 20%, account Robotics)",
    )


def test_an_edit_that_rebinds_a_leaf_says_so() -> None:
    edit = change(2, {"company": (Share("sales", 1, "market"), Share("web", 1, "web"))})
    assert edits.in_words(edit, [FIRST, edit]) == ("company: sales bound to market, before to sales",)


def test_what_a_changeset_left_is_told_whatever_came_after() -> None:
    later = change(2, {"lab": (Share("nlp", 1, "nlp"),)}, -1)
    assert edits.state_after([FIRST, later], 1)[0].sets() == TREE.sets()
    assert {leaf.path for leaf in edits.state_after([FIRST, later], 2)[0].leaves} >= {"lab/nlp"}


# --- what an edit can never change ----------------------------------------------------------------

WEIGHTS = st.floats(0.01, 1e6)
USED = st.fixed_dictionaries({leaf.account.lower(): st.floats(0, 1e7) for leaf in TREE.leaves if leaf.account})


def order(changes: list[Changeset], used: dict[str, float]) -> list[str]:
    """The leaves in order, over a window in which each epoch saw a like part of the usage."""
    stretches = epochs(changes, ago(24 * HOUR), NOW)
    usage = [Usage(part, {name: amount / len(stretches) for name, amount in used.items()}) for part in stretches]
    return [
        leaf.account for leaf in rank(tree_at(changes, NOW), [Step(ago(48 * HOUR), 8.0)], usage, Weight(), NOW).leaves
    ]


@given(st.tuples(WEIGHTS, WEIGHTS, WEIGHTS), USED, st.floats(0, 30), st.booleans())
def test_no_edit_inside_a_node_changes_the_order_of_leaves_outside_it(
    weights: tuple[float, float, float], used: dict[str, float], hours_ago: float, deeper: bool
) -> None:
    """Whatever becomes of vision's share among its own, whenever: as long as the accounts in it stay."""
    one, two, three = weights
    if deeper:
        inside: edits.Sets = {
            "lab/vision": (Share("video", one, "video"), Share("people", two)),
            "lab/vision/people": (Share("faces", three, "faces"),),
        }
    else:
        inside = {"lab/vision": (Share("video", one, "video"), Share("faces", two, "faces"))}
    edit = replace(change(2, inside), effective=ago(hours_ago * HOUR))
    outside = {"nlp", "Robotics", "sales", "web"}
    before = [name for name in order([FIRST], used) if name in outside]
    assert [name for name in order([FIRST, edit], used) if name in outside] == before


NAMES = st.sampled_from("abcdef")


@st.composite
def trees(draw: st.DrawFn) -> edits.Sets:
    sets: edits.Sets = {}
    accounts = iter(range(100))

    def fill(path: str, levels: int) -> None:
        found = []
        for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
            leaf = levels == 0 or draw(st.booleans())
            found.append(Share(name, draw(WEIGHTS), f"acc{next(accounts)}" if leaf else None))
            if not leaf:
                fill(f"{path}/{name}" if path else name, levels - 1)
        sets[path] = tuple(sorted(found, key=lambda share: share.name))

    fill("", 3)
    return sets


@given(st.lists(trees(), min_size=1, max_size=4))
def test_whatever_was_before_a_load_makes_the_tree_that_was_wanted(wanted: list[edits.Sets]) -> None:
    """Nothing of an older tree comes back below a name that is used again."""
    known: list[Changeset] = []
    for number, sets in enumerate(wanted, start=1):
        made = edits.replace_all(known, sets, NOW)
        known.append(Changeset(number, "dan", "", NOW, NOW, made))
        assert tree_at(known, NOW).sets() == build(sets).sets() == build(sets_at(known, NOW)).sets()
        assert edits.in_words(known[-1], known)


@given(trees(), st.data())
def test_a_move_keeps_every_account_and_the_tree_usable(sets: edits.Sets, data: st.DataObject) -> None:
    tree = build(sets)
    path = data.draw(st.sampled_from(sorted(tree.nodes)))
    parent = data.draw(st.sampled_from(["", *sorted(tree.nodes)]))
    first = Changeset(1, "dan", "", NOW, NOW, sets)
    try:
        made = edits.move(tree, path, parent)
    except BudgetError:
        return
    moved = build(sets_at([first, Changeset(2, "dan", "", NOW, NOW, made)], NOW))
    assert {leaf.account for leaf in moved.leaves} == {leaf.account for leaf in tree.leaves}
