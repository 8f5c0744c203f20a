"""What every store promises of the budgets."""

from __future__ import annotations

import pytest

from slurm_fairshare.core.tree import Share, tree_at
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.store.facts import managers_now
from tests.store.build import at, shares
from tests.store.conftest import AnyStore

FIRST = {"": (Share("org", 1),), "org": (*shares(nlp=2.5, vision=1), Share("Robots", 0.1, "test@x.y-z_+"))}


def test_a_changeset_comes_back_as_it_was_made(store: AnyStore) -> None:
    made = store.add_changeset("dan", "the first\nbudget", at(1), FIRST, created=at(0))
    assert (made.id, made.author, made.created, made.effective) == (1, "dan", at(0), at(1))
    assert store.changesets() == (made,)
    assert store.changesets()[0].sets == FIRST


def test_the_order_of_siblings_is_kept(store: AnyStore) -> None:
    backwards = (Share("z", 1, "z"), Share("a", 1, "a"), Share("m", 1, "m"))
    store.add_changeset("dan", "why", at(0), {"": backwards})
    assert store.changesets()[0].sets[""] == backwards


def test_a_sibling_set_is_replaced_as_a_whole_from_its_moment_on(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST)
    store.add_changeset("eve", "more vision", at(10), {"org": shares(nlp=1, vision=3)})
    then, now = (tree_at(store.changesets(), moment) for moment in (at(5), at(10)))
    assert {leaf.path for leaf in then.leaves} == {"org/nlp", "org/vision", "org/Robots"}
    assert {leaf.path: leaf.effective for leaf in now.leaves} == {"org/nlp": 0.25, "org/vision": 0.75}


def test_an_empty_sibling_set_retires_what_stood_there(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST)
    retired = store.add_changeset("dan", "over", at(5), {"": (), "org": ()})
    assert retired.sets == store.changesets()[1].sets == {"": (), "org": ()}
    assert tree_at(store.changesets(), at(6)).leaves == ()


def test_an_edit_of_an_older_state_is_refused_and_told_what_changed(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST, expected_last_id=0)
    store.add_changeset("eve", "more vision", at(1), {"org": shares(nlp=1, vision=3)}, expected_last_id=1)
    with pytest.raises(BudgetError, match=r"(?s)has changed since.*2: eve, .*below org: more vision"):
        store.add_changeset("dan", "more nlp", at(2), {"org": shares(nlp=9, vision=1)}, expected_last_id=1)
    assert len(store.changesets()) == 2


def test_an_edit_that_makes_an_unusable_tree_is_refused(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST)
    with pytest.raises(BudgetError, match="already bound"):
        store.add_changeset("dan", "twice", at(1), {"org": (Share("a", 1, "nlp"), Share("b", 1, "NLP"))})
    assert len(store.changesets()) == 1


def test_an_edit_that_breaks_one_planned_for_later_is_refused(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST)
    store.add_changeset("dan", "planned", at(10), {"org": shares(nlp=1, speech=1)})
    with pytest.raises(BudgetError, match="already bound"):
        store.add_changeset("eve", "speech at once", at(5), {"": (Share("org", 1), Share("lab", 1, "speech"))})


def test_an_edit_of_nothing_is_refused(store: AnyStore) -> None:
    with pytest.raises(BudgetError, match="changes nothing"):
        store.add_changeset("dan", "why", at(0), {})


# --- cancelling -----------------------------------------------------------------------------------


def test_an_edit_not_in_force_yet_is_cancelled_by_another_that_stays_beside_it(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST, created=at(0))
    planned = store.add_changeset("dan", "planned", at(10), {"org": shares(nlp=1)}, created=at(1))
    made = store.add_changeset("eve", "not yet", at(2), {}, created=at(2), cancels=planned.id)
    assert (made.cancels, made.sets) == (2, {})
    assert store.changesets()[1:] == (planned, made)
    assert tree_at(store.changesets(), at(11)).sets() == tree_at(store.changesets(), at(1)).sets()


def test_what_cannot_be_cancelled_is_refused(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST, created=at(0))
    planned = store.add_changeset("dan", "planned", at(10), {"org": shares(nlp=1)}, created=at(1))
    store.add_changeset("eve", "not yet", at(2), {}, created=at(2), cancels=planned.id)
    for number, words in ((1, "the past stays"), (2, "cancelled already"), (3, "itself cancels"), (9, "there is no")):
        with pytest.raises(BudgetError, match=words):
            store.add_changeset("eve", "why", at(3), {}, created=at(3), cancels=number)


def test_a_cancellation_that_would_leave_an_unusable_tree_is_refused(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST, created=at(0))
    frees = store.add_changeset("dan", "frees nlp", at(10), {"org": shares(vision=1)}, created=at(1))
    lab = {"": (Share("org", 1), Share("lab", 1, "nlp"))}
    store.add_changeset("dan", "takes it", at(11), lab, created=at(2))
    with pytest.raises(BudgetError, match="already bound"):
        store.add_changeset("dan", "why", at(3), {}, created=at(3), cancels=frees.id)


def test_a_cancellation_counts_as_a_change_meanwhile(store: AnyStore) -> None:
    store.add_changeset("dan", "first", at(0), FIRST, created=at(0))
    store.add_changeset("dan", "planned", at(10), {"org": shares(nlp=1)}, created=at(1))
    store.add_changeset("eve", "not yet", at(2), {}, created=at(2), cancels=2)
    with pytest.raises(BudgetError, match=r"3: eve, .*cancels changeset 2"):
        store.add_changeset("dan", "more", at(3), {"org": shares(nlp=2)}, expected_last_id=2, created=at(3))


# --- managers -------------------------------------------------------------------------------------


def test_grants_and_their_ends_are_kept_and_the_newest_counts(store: AnyStore) -> None:
    first = store.change_manager("org", "anna", True, "dan", "leads it", at(0))
    store.change_manager("", "otto", True, "dan", "", at(1))
    store.change_manager("org", "anna", False, "dan", "has left", at(2))
    assert [change.id for change in store.manager_changes()] == [1, 2, 3]
    assert store.manager_changes()[0] == first
    assert list(managers_now(store.manager_changes())) == [("", "otto")]
    store.change_manager("org", "anna", True, "dan", "is back", at(3))
    assert list(managers_now(store.manager_changes())) == [("", "otto"), ("org", "anna")]


def test_without_roles_nobody_is_forced_to_sign_otherwise(store: AnyStore) -> None:
    assert store.login() is None
