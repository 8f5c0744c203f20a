"""What `budget check` finds, also in what only somebody past all checks could have recorded."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_fairshare.core.edits import Sets
from slurm_fairshare.core.tree import Changeset, Share
from slurm_fairshare.reports.budget_check import ERROR, NOTE, WARNING, Finding, Slurm, findings
from tests.reports.sample import NOW

ASKED = Slurm(NOW)


def found(sets: Sets, *more: Changeset, slurm: Slurm = ASKED) -> tuple[Finding, ...]:
    return findings([Changeset(1, "head", "why", NOW, NOW, sets), *more], NOW, slurm, {})


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({"": (Share("a", 1, "x"), Share("b", 1, "X"))}, "b: account X is already bound to a"),
        ({"": (Share("a", 1, "x"), Share("A", 1, "y"))}, "'a' and 'A' differ by case only"),
        ({"": (Share("a", 1, "x"),), "a": (Share("b", 1, "y"),)}, "a: is bound to account x and has children"),
        ({"": (Share("a", 1),)}, "a: has neither an account nor children"),
    ],
)
def test_a_tree_that_makes_no_sense_is_an_error(sets: Sets, words: str) -> None:
    (one,) = (one for one in found(sets) if one.severity == ERROR)
    assert words in one.words


def test_a_tree_that_will_make_no_sense_is_an_error_with_its_day() -> None:
    later = NOW + timedelta(days=3)
    planned = Changeset(2, "head", "why", NOW, later, {"": (Share("a", 1, "x"), Share("b", 1, "x"))})
    first = found({"": (Share("a", 1, "x"),)}, planned)[0]
    assert (first.severity, first.words) == (
        ERROR,
        "from 2026-10-11T12:00:00Z on: b: account x is already bound to a (case is ignored)",
    )


def test_a_part_that_is_given_to_nobody_is_a_warning() -> None:
    given = found({"": (Share("a", 1), Share("b", 1, "b")), "a": (Share("x", 0, "x"), Share("y", 0, "y"))})
    assert [(one.severity, one.kind, one.path) for one in given] == [
        (WARNING, "given-to-nobody", "a"),
        (NOTE, "zero-share", "a/x"),
        (NOTE, "zero-share", "a/y"),
    ]
    assert "50% of the cluster go to nobody" in given[0].words


@pytest.mark.parametrize(
    ("weights", "noted"),
    [((50, 50), False), ((50, 45), True), ((0.5, 0.4), True), ((3, 1), False), ((60, 70), False), ((100,), False)],
)
def test_a_sum_that_misses_a_hundred_by_little_is_noted(weights: tuple[float, ...], noted: bool) -> None:
    sets: Sets = {"": tuple(Share(f"t{number}", weight, f"t{number}") for number, weight in enumerate(weights))}
    assert any(one.kind == "sum" for one in found(sets)) == noted


def test_before_the_first_tick_accounts_cannot_be_compared_and_it_is_said() -> None:
    assert [one.kind for one in found({"": (Share("a", 1, "a"),)}, slurm=Slurm())] == ["slurm"]


def test_an_account_bound_since_the_last_tick_is_in_somebodys_budget() -> None:
    assert found({"": (Share("a", 1, "Guests"),)}, slurm=Slurm(NOW, (), ("guests",))) == ()
