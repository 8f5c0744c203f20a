"""Owed and delivered: the definitions, and what may never break them."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.delivery import Delivery, deliveries, delivery, hourly, joined, owed, stretches, together
from slurm_fairshare.core.fairshare import entitlements
from slurm_fairshare.core.tree import ROOT, Changeset, Epoch, Share, Tree, build, epochs
from slurm_fairshare.core.window import Step, Weight, Window
from tests.core.build import NOW, ago

H = 3600.0
amounts = st.floats(0, 1e9)
hours = st.lists(st.tuples(amounts, amounts, amounts), max_size=30)


def one(*triples: tuple[float, float, float]) -> Delivery:
    """A leaf from (entitled, demand, used) of each hour."""
    columns = list(zip(*triples, strict=True)) or [(), (), ()]
    return delivery(columns[0], columns[1], columns[2])


# --- one leaf -------------------------------------------------------------------------------------


def test_what_came_too_late_counts_over_the_period_and_not_hour_by_hour() -> None:
    made = one((10, 10, 0), (10, 0, 10))
    assert (made.owed, made.got, made.delivered, made.hourly) == (20, 10, 0.5, 0.5)
    late = one((10, 10, 0), (10, 20, 20))
    assert (late.delivered, late.hourly) == (1.0, 0.5)


def test_nobody_is_owed_gpus_that_nobody_asked_for() -> None:
    idle = one((10, 0, 0), (10, 0, 0))
    assert (idle.owed, idle.delivered, idle.served, idle.worst()) == (0, 1.0, True, None)


def test_a_waiting_job_is_owed_again_each_hour() -> None:
    assert one((10, 4, 0), (10, 4, 0), (10, 4, 0)).owed == 12


def test_what_ran_was_wanted_even_where_no_tick_saw_it() -> None:
    assert one((10, 0, 6)).owed == 6


def test_a_surplus_is_not_delivered_twice() -> None:
    made = one((10, 50, 50))
    assert (made.owed, made.got, made.used, made.delivered) == (10, 10, 50, 1.0)


def test_the_worst_hour_is_the_one_that_misses_most_and_the_earliest_of_equals() -> None:
    made = one((10, 10, 9), (10, 10, 2), (10, 10, 2), (10, 10, 9.6))
    assert (made.worst(), made.under()) == (1, (0, 1, 2))


@given(amounts, amounts, amounts)
def test_owed_never_exceeds_entitlement_or_demand(entitled: float, demand: float, used: float) -> None:
    assert owed(entitled, demand, used) <= entitled
    assert owed(entitled, demand, used) <= max(demand, used)


@given(hours)
def test_hour_by_hour_is_never_better_than_over_the_period(triples: list[tuple[float, float, float]]) -> None:
    made = one(*triples)
    assert 0 <= made.hourly <= made.delivered + 1e-9
    assert made.delivered <= 1 + 1e-9


@given(hours, st.integers(0, 30))
def test_what_is_owed_of_adjacent_periods_adds_up(triples: list[tuple[float, float, float]], cut: int) -> None:
    whole, first, second = one(*triples), one(*triples[:cut]), one(*triples[cut:])
    for name in ("owed", "entitled", "used", "steady"):
        assert getattr(first, name) + getattr(second, name) == pytest.approx(getattr(whole, name))
    assert first.got + second.got <= whole.got * (1 + 1e-9)


@given(st.lists(st.lists(st.tuples(amounts, amounts, amounts), min_size=3, max_size=3), min_size=1, max_size=5))
def test_one_teams_surplus_never_pays_for_anothers_shortfall(teams: list[list[tuple[float, float, float]]]) -> None:
    parts = [one(*team) for team in teams]
    whole = joined(parts, 3)
    assert whole.got == pytest.approx(sum(min(part.used, part.owed) for part in parts))
    assert whole.delivered == pytest.approx(together(parts))


# --- from the ledger ------------------------------------------------------------------------------

TREE = build({"": (Share("p", 3), Share("c", 1, "c")), "p": (Share("a", 1, "a"), Share("b", 2, "B"))})


def measured(
    stretched: list[Epoch] | tuple[Epoch, ...],
    used: list[dict[str, float]],
    demand: dict[str, list[Step]] | None = None,
    gpus: float = 12.0,
) -> dict[str, Delivery]:
    start = stretched[0].start
    return deliveries(stretches(hourly(stretched), [Step(start, gpus)], demand or {}, used))


def test_nodes_roll_up_what_their_leaves_were_owed_and_got() -> None:
    wants = {name: [Step(ago(2 * H), 100.0)] for name in ("a", "b", "c")}
    found = measured([Epoch(ago(2 * H), NOW, TREE)], [{"a": 9 * H}, {"b": 6 * H, "c": 3 * H}], wants)
    assert (found["@a"].owed, found["@b"].owed, found["p"].owed) == (6 * H, 12 * H, 18 * H)
    assert (found["@a"].got, found["@b"].got, found["p"].got) == (6 * H, 6 * H, 12 * H)
    assert found[ROOT].owed == 24 * H
    assert found[ROOT].got == 15 * H


def test_accounts_are_found_whatever_their_case() -> None:
    assert measured([Epoch(ago(H), NOW, TREE)], [{"b": H}])["@b"].used == H


def test_an_hour_counts_for_whoever_the_team_belonged_to_then() -> None:
    moved = {"": (Share("p", 3), Share("q", 1)), "p": (Share("a", 1, "a"),), "q": (Share("B", 1, "B"),)}
    edits = [
        Changeset(
            1,
            "ada",
            "",
            NOW,
            ago(2 * H),
            {"": (Share("p", 3), Share("q", 1, "x")), "p": (Share("a", 1, "a"), Share("b", 2, "B"))},
        ),
        Changeset(2, "ada", "", NOW, ago(H), moved),
    ]
    found = measured(epochs(edits, ago(2 * H), NOW), [{"b": 2 * H}, {"b": 3 * H}])
    assert found["@b"].used == 5 * H
    assert found["p"].used == 2 * H
    assert found["q"].used == 3 * H


def test_a_budget_changed_inside_an_hour_cuts_the_hour_there() -> None:
    half = build({"": (Share("a", 1, "a"), Share("c", 1, "c"))})
    whole = build({"": (Share("a", 1, "a"),)})
    middle = NOW - timedelta(minutes=30)
    found = measured(
        [Epoch(ago(H), middle, half), Epoch(middle, NOW, whole)], [{}, {}], {"a": [Step(ago(H), 99.0)]}, gpus=8.0
    )
    assert found["@a"].owed == 4 * H / 2 + 8 * H / 2


@given(st.lists(st.integers(1, 10 * 3600 - 1), max_size=4, unique=True).map(sorted), st.integers(1, 99))
def test_entitlement_hour_by_hour_is_the_one_formulas(cuts: list[int], gpus: int) -> None:
    """The hours of delivery and the window of fair-share integrate to the same, however the period is cut."""
    edges = [ago(10 * H), *(ago(10 * H - cut) for cut in cuts), NOW]
    parts = [Epoch(a, b, TREE) for a, b in itertools.pairwise(edges)]
    steps = [Step(ago(10 * H), float(gpus)), Step(ago(5 * H + 17), gpus / 2)]
    hours = hourly(parts)
    found = deliveries(stretches(hours, steps, {}, [{} for _ in hours]))
    whole = entitlements([Epoch(ago(10 * H), NOW, TREE)], steps, Weight(), NOW)
    for key in ("@a", "@b", "@c"):
        assert found[key].entitled == pytest.approx(whole[key])


@given(st.dictionaries(st.sampled_from(["a", "b"]), amounts), st.dictionaries(st.sampled_from(["a", "b"]), amounts))
def test_nothing_inside_one_node_changes_what_another_was_owed(one: dict[str, float], other: dict[str, float]) -> None:
    def outside(used: dict[str, float]) -> Delivery:
        return measured([Epoch(ago(H), NOW, TREE)], [used | {"c": H}], {"c": [Step(ago(H), 2.0)]})["@c"]

    assert outside(one) == outside(other)


def test_before_capacity_is_known_nobody_is_owed_anything() -> None:
    hours = hourly([Epoch(ago(2 * H), NOW, TREE)])
    found = deliveries(stretches(hours, [Step(ago(H), 12.0)], {"c": [Step(ago(9 * H), 99.0)]}, [{}, {}]))
    assert found["@c"].owed_by_hour == (0.0, 3 * H)


def test_an_empty_tree_owes_nobody() -> None:
    found = measured([Epoch(ago(H), NOW, Tree())], [{"a": H}])
    assert set(found) == {ROOT}
    assert Window(ago(H), NOW).seconds == H
