"""The budget tree: shares, effective shares, and how dated changesets make the tree of a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.tree import Changeset, Share, build, diverging, epochs, tree_at
from slurm_fairshare.errors import BudgetError

T0 = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def change(number: int, days: float, **sets: tuple[Share, ...]) -> Changeset:
    named = {path.replace("_", "/").removeprefix("top"): shares for path, shares in sets.items()}
    return Changeset(number, "ada", "because", T0, T0 + DAY * days, named)


def test_effective_shares_multiply_down_the_tree() -> None:
    tree = build(
        {
            "": (Share("lab", 1),),
            "lab": (Share("nlp", 60), Share("vision", 40, "vision")),
            "lab/nlp": (Share("chat", 3, "chat"), Share("search", 1, "search")),
        }
    )
    assert {leaf.path: leaf.effective for leaf in tree.leaves} == pytest.approx(
        {"lab/nlp/chat": 0.45, "lab/nlp/search": 0.15, "lab/vision": 0.4}
    )


@given(st.lists(st.just(0.0) | st.floats(1e-6, 1e6), min_size=1, max_size=8).filter(any), st.floats(1e-3, 1e3))
def test_scaling_all_siblings_changes_no_effective_share(weights: list[float], factor: float) -> None:
    def shares(scale: float) -> list[float]:
        children = tuple(Share(f"n{i}", w * scale, f"a{i}") for i, w in enumerate(weights))
        return [leaf.effective for leaf in build({"": children}).leaves]

    assert shares(factor) == pytest.approx(shares(1.0), abs=1e-12)
    assert sum(shares(1.0)) == pytest.approx(1.0)


def test_accounts_are_found_without_regard_to_case() -> None:
    tree = build({"": (Share("lab", 1, "NLP@Lab.x_y+z-1"),)})
    leaf = tree.leaf_of("nlp@lab.X_y+z-1")
    assert leaf is not None
    assert leaf.account == "NLP@Lab.x_y+z-1"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({"": (Share("a", 1, "x"), Share("b", 1, "X"))}, "already bound to a"),
        ({"": (Share("a", 1, "x"), Share("A", 1, "y"))}, "differ by case only"),
        ({"": (Share("a", 1),)}, "neither an account nor children"),
        ({"": (Share("a", -1, "x"),)}, "zero or more"),
        ({"": (Share("a", float("nan"), "x"),)}, "zero or more"),
        ({"": (Share("a/b", 1, "x"),)}, "no '/'"),
        ({"": (Share("a", 1, "x"),), "a": (Share("b", 1, "y"),)}, "has children"),
        ({"": (Share("", 1, "x"),)}, "no name"),
        ({"": (Share("a", 1, " "),)}, "account's name is empty"),
    ],
)
def test_a_tree_that_makes_no_sense_is_refused_with_words(sets: dict[str, tuple[Share, ...]], words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        build(sets)


def test_every_fault_of_a_tree_is_named_at_once() -> None:
    with pytest.raises(BudgetError) as caught:
        build({"": (Share("a", -1, "x"), Share("b", 1, "X"), Share("c", 1))})
    assert str(caught.value).count("\n  - ") == 3


def test_a_zero_share_is_allowed_and_gets_nothing() -> None:
    tree = build({"": (Share("a", 0, "a"), Share("b", 0, "b"))})
    assert [leaf.effective for leaf in tree.leaves] == [0.0, 0.0]


def test_a_later_changeset_replaces_a_sibling_set_as_a_whole() -> None:
    first = change(1, 0, top=(Share("a", 1, "a"), Share("b", 1, "b")))
    second = change(2, 5, top=(Share("a", 3, "a"), Share("c", 1, "c")))
    assert [leaf.path for leaf in tree_at([first, second], T0 + DAY * 4).leaves] == ["a", "b"]
    after = tree_at([second, first], T0 + DAY * 5)
    assert [(leaf.path, leaf.effective) for leaf in after.leaves] == [("a", 0.75), ("c", 0.25)]


def test_before_the_first_changeset_there_is_no_tree() -> None:
    assert tree_at([change(1, 0, top=(Share("a", 1, "a"),))], T0 - DAY).leaves == ()


def test_retiring_a_node_retires_what_stands_below_it() -> None:
    first = change(1, 0, top=(Share("p", 1), Share("q", 1, "q")), p=(Share("a", 1, "a"),))
    second = change(2, 1, top=(Share("q", 1, "q"),))
    assert [leaf.path for leaf in tree_at([first, second], T0 + DAY).leaves] == ["q"]


def test_of_two_edits_at_one_moment_the_later_recorded_counts() -> None:
    one = change(1, 0, top=(Share("a", 1, "a"),))
    two = change(2, 0, top=(Share("b", 1, "b"),))
    assert [leaf.path for leaf in tree_at([two, one], T0).leaves] == ["b"]


def test_epochs_touch_and_cover_the_window() -> None:
    edits = [change(n, n, top=(Share("a", n, "a"),)) for n in range(1, 5)]
    cut = epochs(edits, T0 + DAY * 1.5, T0 + DAY * 3.5)
    assert [(part.start, part.end) for part in cut] == [
        (T0 + DAY * 1.5, T0 + DAY * 2),
        (T0 + DAY * 2, T0 + DAY * 3),
        (T0 + DAY * 3, T0 + DAY * 3.5),
    ]
    assert [part.tree.top[0].weight for part in cut] == [1, 2, 3]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("lab/a/x", "lab/b/y", ("lab/a", "lab/b")),
        ("lab/a/x", "lab/a/y", ("lab/a/x", "lab/a/y")),
        ("lab/a", "lab/b/y", ("lab/a", "lab/b")),
        ("a", "b", ("a", "b")),
        ("lab/a", "lab/a", None),
    ],
)
def test_two_leaves_are_compared_just_below_their_lowest_common_ancestor(
    one: str, other: str, expected: tuple[str, str] | None
) -> None:
    assert diverging(one, other) == expected


def test_the_sets_of_a_tree_build_it_anew() -> None:
    tree = build({"": (Share("lab", 1),), "lab": (Share("b", 2, "B"), Share("a", 0.5, "a@x"))})
    assert build(tree.sets()) == tree
