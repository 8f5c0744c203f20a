"""Users ranked inside their account: a place in the account's band, and nothing outside it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.contract import Priority
from slurm_fairshare.core.plan import (
    BAND,
    TOP_STANDING,
    Association,
    ClearUserPriority,
    Held,
    SetPriority,
    SetUserPriority,
    desired_qos,
    plan,
    removal,
)
from slurm_fairshare.core.users import UserUsage
from tests.core.build import LADDER, ranking, tree

OVER = tree(a=1, b=1)
RANKING = ranking(OVER, a=0.5, b=1.5)
AGE = 19_999
PEOPLE = {"a": ("ann", "bob", "cyd"), "b": ("bob", "dan")}
USED: UserUsage = {("a", "ann"): 5.0, ("a", "bob"): 2.0, ("b", "dan"): 1.0}


def held(own: dict[tuple[str, str], int] | None = None, labels: dict[str, int] | None = None) -> Held:
    """Accounts with their access, their labels if they have any, and their users' own priorities if they have."""
    names, default = frozenset(rung.name for rung in LADDER.rungs), LADDER.unallocated.name
    found = []
    for account, people in PEOPLE.items():
        label = (labels or {}).get(account)
        found.append(Association(account, "", label, names, default))
        found += [
            Association(account, user, (own or {}).get((account, user), label), names, default) for user in people
        ]
    return Held({qos.name: qos for qos in desired_qos(LADDER, None)}, tuple(found))


def after(before: Held, used: UserUsage | None) -> Held:
    """What Slurm holds once the plan is carried out."""
    associations = before.associations
    for change in plan(RANKING, LADDER, None, before, used):
        associations = tuple(_changed(one, change, before) for one in associations)
    return replace(before, associations=associations)


def _changed(one: Association, change: object, before: Held) -> Association:
    match change:
        case SetPriority(accounts, priority) if one.account in accounts:
            own = one.user and one.priority != before.accounts[one.account].priority
            return one if own else replace(one, priority=priority)
        case SetUserPriority(account, user, priority) if (one.account, one.user) == (account, user):
            return replace(one, priority=priority)
        case _:
            return one


def priorities(state: Held, account: str) -> list[str]:
    users = [one for one in state.associations if one.account == account and one.user]
    return [one.user for one in sorted(users, key=lambda one: -(one.priority or 0))]


def test_who_used_less_of_the_account_goes_first_in_it() -> None:
    state = after(held(), USED)
    assert priorities(state, "a") == ["cyd", "bob", "ann"]
    assert priorities(state, "b") == ["bob", "dan"]


def test_no_user_leaves_the_accounts_band() -> None:
    state = after(held(), USED)
    for one in state.associations:
        label = state.accounts[one.account].priority or 0
        most = (one.priority or 0) + Priority.HIGH.site_factor + AGE
        assert label <= (one.priority or 0) <= label + TOP_STANDING
        assert most < label + BAND


def test_a_second_plan_changes_nothing_and_takes_no_standing_back() -> None:
    state = after(held(), USED)
    assert plan(RANKING, LADDER, None, state, USED) == ()


def test_only_users_that_moved_get_a_new_priority() -> None:
    state = after(held(), USED)
    changes = plan(RANKING, LADDER, None, state, {**USED, ("a", "ann"): 1.0})
    assert len(changes) == 1
    assert isinstance(changes[0], SetUserPriority)
    assert changes[0].user in {"ann", "bob"}


def test_without_the_setting_all_users_share_the_label_again() -> None:
    state = after(held(), USED)
    changes = plan(RANKING, LADDER, None, state)
    assert {(one.account, one.user) for one in changes if isinstance(one, ClearUserPriority)} == {
        (account, user) for account, people in PEOPLE.items() for user in people
    }


def test_taking_everything_out_takes_the_users_own_out_too() -> None:
    changes = removal(["a", "b"], after(held(), USED), "fs-")
    assert sum(isinstance(one, ClearUserPriority) for one in changes) == 5
    assert not any(isinstance(one, ClearUserPriority) for one in removal(["a", "b"], after(held(), None), "fs-"))


@given(st.dictionaries(st.sampled_from([("a", "ann"), ("a", "bob"), ("a", "cyd")]), st.floats(0, 1e9)))
def test_nothing_inside_one_account_moves_another(used: dict[tuple[str, str], float]) -> None:
    start = after(held(), USED)
    changes = plan(RANKING, LADDER, None, start, {**USED, **used})
    assert all(isinstance(one, SetUserPriority) and one.account == "a" for one in changes)
