"""Hierarchical fair-share: the formula, the odd cases by name, and what may never change an order."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.fairshare import Standing, Usage, entitlements, rank, ranked
from slurm_fairshare.core.tree import Changeset, Epoch, Share, Tree, build, epochs, tree_at
from slurm_fairshare.core.window import Step, Weight, Window
from tests.core.build import NOW, ago

HOUR = 3600
BOX = Weight()


def one_epoch(tree: Tree, seconds: float = HOUR, **used: float) -> list[Usage]:
    return [Usage(Epoch(ago(seconds), NOW, tree), used)]


def test_entitlement_is_capacity_times_effective_share_over_the_window() -> None:
    tree = build({"": (Share("a", 3, "a"), Share("b", 1, "b"))})
    ranking = rank(tree, [Step(ago(HOUR), 16.0)], one_epoch(tree, a=12 * HOUR, b=2 * HOUR), BOX, NOW)
    assert ranking.standings["a"] == Standing(12.0 * HOUR, 12.0 * HOUR, 0.75)
    assert ranking.standings["b"].ratio == 0.5
    assert [leaf.path for leaf in ranking.leaves] == ["b", "a"]


def test_entitlement_follows_capacity_and_shares_as_both_change() -> None:
    edits = [
        Changeset(1, "ada", "", NOW, ago(2 * HOUR), {"": (Share("a", 1, "a"), Share("b", 1, "b"))}),
        Changeset(2, "ada", "", NOW, ago(HOUR), {"": (Share("a", 3, "a"), Share("b", 1, "b"))}),
    ]
    stretches = epochs(edits, ago(2 * HOUR), NOW)
    owed = entitlements(stretches, [Step(ago(2 * HOUR), 8.0), Step(ago(1800), 16.0)], BOX, NOW)
    assert owed["@a"] == pytest.approx(8 * HOUR * 0.5 + (8 * 1800 + 16 * 1800) * 0.75)


def test_siblings_go_by_ratio_and_ties_by_path() -> None:
    tree = build({"": (Share("c", 1, "c"), Share("a", 1, "a"), Share("b", 1, "b"))})
    ranking = rank(tree, [Step(ago(HOUR), 9.0)], one_epoch(tree, b=100.0, a=200.0, c=200.0), BOX, NOW)
    assert [leaf.path for leaf in ranking.leaves] == ["b", "a", "c"]
    assert [ranking.fair_share(leaf) for leaf in ranking.leaves] == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3)]


def test_a_team_without_a_share_ranks_last_even_with_no_usage() -> None:
    tree = build({"": (Share("none", 0, "none"), Share("hog", 1, "hog"))})
    ranking = rank(tree, [Step(ago(HOUR), 8.0)], one_epoch(tree, hog=100.0 * HOUR), BOX, NOW)
    assert [leaf.path for leaf in ranking.leaves] == ["hog", "none"]
    assert ranking.standings["none"].level_fs == 0.0


def test_a_new_team_with_a_share_ranks_first() -> None:
    edits = [
        Changeset(1, "ada", "", NOW, ago(HOUR), {"": (Share("old", 1, "old"),)}),
        Changeset(2, "ada", "", NOW, NOW, {"": (Share("old", 1, "old"), Share("new", 1, "new"))}),
    ]
    usage = [Usage(part, {}) for part in epochs(edits, ago(HOUR), NOW)]
    ranking = rank(tree_at(edits, NOW), [Step(ago(HOUR), 8.0)], usage, BOX, NOW)
    assert [leaf.path for leaf in ranking.leaves] == ["new", "old"]


def test_no_usage_is_an_infinite_level_fs() -> None:
    assert Standing(100.0, 0.0, 0.5).level_fs == math.inf


def test_a_moved_team_keeps_its_own_past_and_its_old_parent_bears_what_it_used_there() -> None:
    before = {
        "": (Share("p", 1), Share("q", 1)),
        "p": (Share("t", 1, "t"), Share("u", 1, "u")),
        "q": (Share("v", 1, "v"),),
    }
    after = {"p": (Share("u", 1, "u"),), "q": (Share("v", 1, "v"), Share("t", 1, "t"))}
    edits = [
        Changeset(1, "ada", "", NOW, ago(2 * HOUR), before),
        Changeset(2, "ada", "", NOW, ago(HOUR), after),
    ]
    first, second = epochs(edits, ago(2 * HOUR), NOW)
    usage = [Usage(first, {"t": 10.0 * HOUR}), Usage(second, {"t": 1.0 * HOUR})]
    ranking = rank(tree_at(edits, NOW), [Step(ago(2 * HOUR), 8.0)], usage, BOX, NOW)
    assert ranking.standings["q/t"].usage == 11.0 * HOUR
    assert ranking.standings["p"].usage == 10.0 * HOUR
    assert ranking.standings["q"].usage == 1.0 * HOUR


def test_a_retired_teams_past_stays_with_its_parent() -> None:
    edits = [
        Changeset(
            1, "ada", "", NOW, ago(2 * HOUR), {"": (Share("p", 1),), "p": (Share("t", 1, "t"), Share("u", 1, "u"))}
        ),
        Changeset(2, "ada", "", NOW, ago(HOUR), {"p": (Share("u", 1, "u"),)}),
    ]
    first, second = epochs(edits, ago(2 * HOUR), NOW)
    usage = [Usage(first, {"t": 500.0}), Usage(second, {"t": 70.0})]
    ranking = rank(tree_at(edits, NOW), [Step(ago(2 * HOUR), 8.0)], usage, BOX, NOW)
    assert ranking.standings["p"].usage == 500.0
    assert "p/t" not in ranking.standings


numbers = st.floats(0, 1e9)


@st.composite
def trees_with_usage(draw: st.DrawFn) -> tuple[Tree, dict[str, float]]:
    programmes = draw(st.integers(2, 4))
    sets: dict[str, tuple[Share, ...]] = {"": tuple(Share(f"p{i}", draw(st.integers(0, 5))) for i in range(programmes))}
    used = {}
    for i in range(programmes):
        leaves = [f"t{i}{j}" for j in range(draw(st.integers(1, 3)))]
        sets[f"p{i}"] = tuple(Share(name, draw(st.integers(0, 5)), name) for name in leaves)
        used |= {name: draw(numbers) for name in leaves}
    return build(sets), used


@given(trees_with_usage(), st.data())
def test_nothing_inside_one_programme_changes_the_order_of_two_leaves_outside_it(
    made: tuple[Tree, dict[str, float]], data: st.DataObject
) -> None:
    """Usage moved between the leaves of one programme, its sum kept, moves nobody outside."""
    tree, used = made
    inside = data.draw(st.sampled_from([child.path for child in tree.top]))
    mine = [leaf.account or "" for leaf in tree.leaves if leaf.path.startswith(f"{inside}/")]
    total = sum(used[name] for name in mine)
    moved = used | dict.fromkeys(mine, 0.0) | {data.draw(st.sampled_from(mine)): total}

    def outside(usage: dict[str, float]) -> list[str]:
        ranking = rank(tree, [Step(ago(HOUR), 8.0)], one_epoch(tree, **usage), BOX, NOW)
        return [leaf.path for leaf in ranking.leaves if leaf.account not in mine]

    assert outside(used) == outside(moved)


@given(trees_with_usage())
def test_the_same_ledger_and_the_same_now_give_the_same_bytes(made: tuple[Tree, dict[str, float]]) -> None:
    tree, used = made
    backwards = dict(reversed(list(used.items())))
    args = ([Step(ago(HOUR), 8.0)],)
    assert repr(rank(tree, *args, one_epoch(tree, **used), BOX, NOW)) == repr(
        rank(tree, *args, one_epoch(tree, **backwards), BOX, NOW)
    )


@given(trees_with_usage())
def test_a_parents_standing_is_the_sum_of_its_childrens(made: tuple[Tree, dict[str, float]]) -> None:
    tree, used = made
    ranking = rank(tree, [Step(ago(HOUR), 8.0)], one_epoch(tree, **used), BOX, NOW)
    for top in tree.top:
        below = [ranking.standings[child.path] for child in top.children]
        assert ranking.standings[top.path].usage == pytest.approx(sum(one.usage for one in below))
        if any(child.weight for child in top.children):
            assert ranking.standings[top.path].entitlement == pytest.approx(sum(one.entitlement for one in below))


@given(st.lists(st.integers(1, HOUR - 1), min_size=1, max_size=4, unique=True).map(sorted), numbers)
def test_entitlement_of_adjacent_windows_adds_up(cuts: list[int], gpus: float) -> None:
    tree = build({"": (Share("a", 2, "a"), Share("b", 1, "b"))})
    steps = [Step(ago(HOUR), gpus), Step(ago(HOUR / 2), gpus / 2)]
    edges = [ago(HOUR), *(ago(HOUR - cut) for cut in cuts), NOW]
    parts = [entitlements([Epoch(a, b, tree)], steps, BOX, NOW)["@a"] for a, b in itertools.pairwise(edges)]
    assert sum(parts) == pytest.approx(entitlements([Epoch(ago(HOUR), NOW, tree)], steps, BOX, NOW)["@a"])


def test_computing_every_minute_or_once_gives_the_same_value() -> None:
    tree = build({"": (Share("a", 1, "a"),)})
    half = Weight(timedelta(hours=1))
    steps = [Step(ago(HOUR), 8.0)]
    once = entitlements([Epoch(ago(HOUR), NOW, tree)], steps, half, NOW)["@a"]
    again = [entitlements([Epoch(ago(HOUR), NOW, tree)], steps, half, NOW)["@a"] for _ in range(3)]
    assert again == [once] * 3


def test_usage_of_an_account_outside_the_tree_is_in_nobodys_budget() -> None:
    tree = build({"": (Share("a", 1, "a"),)})
    ranking = rank(tree, [Step(ago(HOUR), 8.0)], one_epoch(tree, stranger=1e6), BOX, NOW)
    assert ranking.standings["a"].usage == 0.0


def test_an_empty_window_ranks_by_path() -> None:
    tree = build({"": (Share("b", 1, "b"), Share("a", 1, "a"))})
    assert [leaf.path for leaf in rank(tree, [], [], BOX, NOW).leaves] == ["a", "b"]
    assert ranked(Tree(), {}) == ()
    assert Window(NOW, NOW).seconds == 0
