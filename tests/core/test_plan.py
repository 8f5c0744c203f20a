"""What Slurm should hold, the changes that lead there, and labels that move as little as can be."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_fairshare.core import plan as planning
from slurm_fairshare.core.contract import DebugLane
from slurm_fairshare.core.plan import (
    BAND,
    TOP_LABEL,
    AddQos,
    Allow,
    Association,
    ClearUserPriority,
    Disallow,
    Held,
    RemoveQos,
    SetPriority,
    SetQos,
    desired_qos,
    labels,
    plan,
    removal,
    unbudgeted_accounts,
    unknown_accounts,
)
from tests.core.build import LADDER, ranking, tree

RUNGS = frozenset(rung.name for rung in LADDER.rungs)
LANE = DebugLane()


def holding(*accounts: Association) -> Held:
    return Held({qos.name: qos for qos in desired_qos(LADDER, LANE)}, accounts)


def settled(name: str, label: int, user: str = "", own: int | None = None) -> Association:
    return Association(name, user, label * BAND if own is None else own, RUNGS, "fs-unallocated")


def test_each_rung_protects_twice_and_preempts_only_unallocated() -> None:
    for qos in desired_qos(LADDER, LANE):
        assert qos.grace == qos.exempt
        assert qos.preempts == (frozenset() if qos.name == "fs-unallocated" else {"fs-unallocated"})
    assert {qos.name: qos.grace for qos in desired_qos(LADDER, LANE)}["fs-4h"] == 14_400


def test_the_lane_sorts_first_within_its_limits_and_can_be_turned_off() -> None:
    by_name = {qos.name: qos for qos in desired_qos(LADDER, LANE)}
    assert by_name["fs-15m"].priority == 2_000_000_000
    assert by_name["fs-15m"].max_tres_per_job == "gres/gpu=8"
    assert by_name["fs-15m"].max_tres_per_account == "gres/gpu=40"
    assert {qos.priority for qos in desired_qos(LADDER, None)} == {0}


def test_no_label_reaches_the_lane_or_overflows_a_jobs_priority() -> None:
    top = TOP_LABEL * BAND + BAND - 1
    assert top < LANE.priority
    assert top + LANE.priority < 2**32 - 1
    assert TOP_LABEL * BAND < 2**31


def test_a_fresh_slurm_gets_names_then_values_then_access_then_priorities() -> None:
    order = ranking(tree(a=1, b=1), a=0.2, b=0.9)
    changes = plan(order, LADDER, LANE, Held({}, (Association("a"), Association("b"))))
    kinds = [type(change) for change in changes]
    assert kinds == [AddQos] * 6 + [SetQos] * 6 + [Allow] + [SetPriority] * 2
    labels_set = {change.accounts[0]: change.priority for change in changes if isinstance(change, SetPriority)}
    assert labels_set["a"] > labels_set["b"] > 0


def test_nothing_differs_nothing_changes() -> None:
    order = ranking(tree(a=1, b=1), a=0.2, b=0.9)
    assert plan(order, LADDER, LANE, holding(settled("a", 200), settled("b", 100))) == ()


def test_only_the_leaf_that_moved_gets_a_new_label() -> None:
    order = ranking(tree(a=1, b=1, c=1), a=0.5, b=0.9, c=0.1)
    changes = plan(order, LADDER, LANE, holding(settled("a", 300), settled("b", 200), settled("c", 100)))
    assert len(changes) == 1
    assert isinstance(changes[0], SetPriority)
    assert changes[0].accounts == ("c",)
    assert changes[0].priority > 300 * BAND


def test_an_account_slurm_does_not_know_is_named_and_left_out() -> None:
    order = ranking(tree(a=1, ghost=1))
    held = holding(settled("a", 100))
    assert plan(order, LADDER, LANE, held) == ()
    assert unknown_accounts(order, held) == ("ghost",)


def test_an_account_with_users_and_no_budget_is_named() -> None:
    held = holding(settled("a", 100), settled("stray", 5, user="eve"))
    assert unbudgeted_accounts(ranking(tree(a=1)), held) == ("stray",)


def test_a_users_own_priority_is_taken_back() -> None:
    held = holding(settled("a", 100), settled("a", 100, user="eve", own=77), settled("a", 100, user="bob"))
    assert plan(ranking(tree(a=1)), LADDER, LANE, held) == (ClearUserPriority("a", "eve"),)


def test_upper_case_accounts_are_one_with_what_slurm_prints() -> None:
    order = ranking(tree(NLP=1, cv=1), NLP=0.5, cv=0.9)
    assert plan(order, LADDER, LANE, holding(settled("nlp", 200), settled("cv", 100))) == ()


def test_removal_takes_what_is_ours_and_nothing_else() -> None:
    mine = holding(settled("a", 100), Association("b", "", None, frozenset({"normal"})))
    held = Held({**mine.qos, "normal": planning.Qos("normal")}, mine.associations)
    changes = removal(["a", "b"], held, "fs-")
    assert changes[0] == Disallow(("a",), tuple(sorted(RUNGS)))
    assert {change.name for change in changes[1:] if isinstance(change, RemoveQos)} == RUNGS


def test_every_change_has_words() -> None:
    order = ranking(tree(a=1))
    changes = plan(order, LADDER, LANE, Held({}, (Association("a", user="eve", priority=3), Association("a"))))
    assert all(planning.describe(change) for change in changes)
    assert planning.describe(SetPriority(("a", "b"), 5)) == "set Priority 5 for a, b"


names = st.lists(st.integers(0, 10_000).map(str), unique=True, min_size=1, max_size=9)


@given(names, st.data())
def test_labels_fall_along_the_order_and_stay_in_range(order: list[str], data: st.DataObject) -> None:
    current = {name: data.draw(st.integers(-5, TOP_LABEL + 5)) for name in order}
    found = labels(order, current)
    assert all(found[a] > found[b] for a, b in pairwise(order))
    assert all(1 <= label <= TOP_LABEL for label in found.values())


@settings(max_examples=200)
@given(names, st.data())
def test_no_labelling_moves_fewer_leaves(order: list[str], data: st.DataObject) -> None:
    """Against brute force: the largest set that can keep its labels, tried over all subsets."""
    current = {name: data.draw(st.integers(0, 14)) for name in order}
    found = labels(order, current)
    kept = sum(found[name] == current[name] for name in order)
    assert kept >= _most_that_can_stay(order, current)


def _most_that_can_stay(order: list[str], current: dict[str, int]) -> int:
    def can_stay(some: tuple[int, ...]) -> bool:
        edges = [(-1, TOP_LABEL + 1), *((i, current[order[i]]) for i in some), (len(order), 0)]
        return all(high - low >= j - i for (i, high), (j, low) in pairwise(edges))

    return next(
        size
        for size in range(len(order), -1, -1)
        if any(can_stay(some) for some in combinations(range(len(order)), size))
    )


def test_labels_are_idempotent_and_leave_gaps() -> None:
    order = [str(n) for n in range(1000)]
    first = labels(order, {})
    assert labels(order, first) == first
    assert min(first[a] - first[b] for a, b in pairwise(order)) >= 10


def test_more_leaves_than_labels_are_refused() -> None:
    with pytest.raises(planning.BudgetError, match="more than"):
        labels([str(n) for n in range(TOP_LABEL + 1)], {})


def test_ten_thousand_jobs_keep_their_order_whatever_sorts_inside_a_band() -> None:
    """Label, in-team priority and age add up to a job's priority; no sum reaches the next band or 32 bits."""
    leaves = [str(n) for n in range(1000)]
    label = labels(leaves, {})
    jobs = [
        (rank, -factor, -age, label[leaf] * BAND + factor + age)
        for rank, leaf in enumerate(leaves)
        for factor in (0, 20_000, 40_000)
        for age in (0, 1, 9_999, 19_999)
    ]
    assert len(jobs) == 12_000
    assert [job[:3] for job in sorted(jobs, key=lambda job: -job[3])] == sorted(job[:3] for job in jobs)
    priorities = [job[3] + LANE.priority for job in jobs]
    assert min(priorities) > LANE.priority
    assert max(priorities) < 2**32 - 1
