"""Slurm's Fair Tree by itself; tests/cluster/test_conformance.py holds it to sshare on a real cluster."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.fairtree import Association, Placed, fair_tree


def tree(*below: Association) -> dict[tuple[str, str], Placed]:
    """The placed associations by account and user; accounts get the usage of what is below them."""

    def usage(account: str) -> float:
        own = sum(one.usage for one in below if one.user and one.account == account)
        return own + sum(usage(one.account) for one in below if not one.user and one.parent == account)

    filled = [
        one if one.user else Association(one.account, "", "", one.parent, one.shares, usage(one.account))
        for one in below
    ]
    root = Association("root", usage=usage("root"))
    return {(p.association.account, p.association.user): p for p in fair_tree([root, *filled])}


def account(name: str, shares: int | None = 1, parent: str = "root") -> Association:
    return Association(name, parent=parent, shares=shares)


def user(name: str, where: str, usage: float = 0.0, shares: int | None = 1) -> Association:
    return Association(where, name, shares=shares, usage=usage)


def order(found: dict[tuple[str, str], Placed]) -> list[str]:
    users = [(placed.fair_share or 0.0, name) for (_, name), placed in found.items() if name]
    return [name for _, name in sorted(users, key=lambda one: (-one[0], one[1]))]


def test_level_fs_is_shares_over_usage_among_siblings() -> None:
    found = tree(account("a", 3), account("b", 1), user("u", "a", 60), user("v", "b", 40))
    assert found["a", ""].level_fs == pytest.approx(0.75 / 0.6)
    assert found["b", ""].level_fs == pytest.approx(0.25 / 0.4)
    assert found["a", "u"].fair_share == 1.0
    assert found["b", "v"].fair_share == 0.5


def test_no_shares_is_last_even_with_no_usage() -> None:
    found = tree(user("none", "root", 0, 0), user("hog", "root", 1e9))
    assert found["root", "none"].level_fs == 0.0
    assert order(found) == ["hog", "none"]


def test_no_usage_is_infinite_and_ties() -> None:
    found = tree(user("a", "root"), user("b", "root"), user("c", "root", 5))
    assert found["root", "a"].level_fs == math.inf
    assert [found["root", name].fair_share for name in "abc"] == [1.0, 1.0, pytest.approx(1 / 3)]


def test_users_go_before_an_account_they_tie_with_and_its_first_user_shares_their_rank() -> None:
    found = tree(account("a"), user("in", "a", 5), user("late", "a", 0, 0), user("out", "root", 5))
    shares = [found[where, name].fair_share for where, name in (("root", "out"), ("a", "in"), ("a", "late"))]
    assert shares == [1.0, 1.0, pytest.approx(1 / 3)]


def test_a_user_with_the_parents_shares_comes_first_in_its_account() -> None:
    found = tree(account("a"), user("p", "a", 1e9, None), user("q", "a", 1))
    assert order(found) == ["p", "q"]
    assert found["a", "p"].level_fs is None


def test_an_account_with_the_parents_shares_hands_its_children_up() -> None:
    """Below `a` are then b's users and its own; their shares add up to one level."""
    found = tree(account("a"), account("b", None, "a"), user("x", "b", 30, 2), user("y", "a", 70, 3))
    assert found["b", "x"].norm_shares == pytest.approx(2 / 5)
    assert found["b", "x"].effective_usage == pytest.approx(0.3)
    assert found["b", ""].level_fs is None
    assert order(found) == ["x", "y"]


def test_of_two_accounts_that_tie_the_second_begins_with_the_last_rank_of_the_first() -> None:
    """The documented merge of their children never happens: a1=1.0, a2=.75, b1=.75, b2=.25 (not 1, .75, .5, .25)."""
    found = tree(
        account("a"), account("b"), user("a1", "a", 20, 4), user("a2", "a", 80, 4),
        user("b1", "b", 40, 4), user("b2", "b", 60, 4),
    )  # fmt: skip
    shares = [found[where, name].fair_share for where, name in (("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"))]
    assert shares == [1.0, 0.75, 0.75, 0.25]


def test_whoever_follows_an_account_that_stepped_aside_is_tied_with_nobody() -> None:
    found = tree(account("a"), account("b"), account("c", None, "b"), user("u", "a"), user("z", "c", 0, 0))
    assert found["a", "u"].fair_share == 1.0
    assert found["c", "z"].fair_share == 0.5


def test_a_missing_parent_is_an_error_and_not_a_root() -> None:
    with pytest.raises(ValueError, match="account ghost of a is missing"):
        tree(account("a", parent="ghost"))
    with pytest.raises(ValueError, match="no root"):
        fair_tree([])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6)), min_size=1, max_size=8), st.integers(2, 50))
def test_scaling_all_siblings_shares_changes_no_rank(people: list[tuple[int, int]], factor: int) -> None:
    def ranks(times: int) -> list[float | None]:
        found = tree(*(user(f"u{i}", "root", usage, shares * times) for i, (shares, usage) in enumerate(people)))
        return [found["root", f"u{i}"].fair_share for i in range(len(people))]

    assert ranks(1) == ranks(factor)


@given(
    st.permutations([user("a", "root", 3), user("b", "root", 3), user("c", "root"), account("d"), user("e", "d", 1)])
)
def test_the_order_of_what_is_read_changes_nothing(below: list[Association]) -> None:
    assert tree(*below) == tree(*sorted(below, key=lambda one: (one.account, one.user)))
