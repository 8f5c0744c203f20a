"""`shares` by its rules: sshare's columns, our words."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.committed import committed_by_user
from slurm_fairshare.core.fairshare import Standing
from slurm_fairshare.core.resources import ChargeRule
from slurm_fairshare.reports.shares import Wanted, select, share_rows, unknown
from slurm_fairshare.reports.words import Basis, standing_short, standing_words
from tests.reports.sample import BASIS, BY_USER, JOBS, LADDER, NOW, WINDOW, ranking

ROWS = share_rows(ranking(), BY_USER, committed_by_user(JOBS, LADDER, NOW), {})


def names(wanted: Wanted) -> list[tuple[str, str]]:
    return [(row.account, row.user) for row in select(ROWS, wanted)]


def test_the_siblings_of_a_level_add_up_to_one() -> None:
    language = [row for row in ROWS if row.path.startswith("lab/language/") and not row.user]
    assert sum(row.norm_shares or 0 for row in language) == pytest.approx(1)
    assert sum(row.effective_usage for row in language) == pytest.approx(1)


def test_the_users_of_an_account_add_up_to_it() -> None:
    nlp = next(row for row in ROWS if row.account == "nlp" and not row.user)
    assert sum(row.usage for row in ROWS if row.account == "nlp" and row.user) == nlp.usage


def test_a_users_shares_say_parent_as_in_sshare() -> None:
    assert {row.raw_shares for row in ROWS if row.user} == {"parent"}


def test_a_node_without_a_share_ranks_last_and_divides_nothing_by_zero() -> None:
    archive = next(row for row in ROWS if row.path == "lab/archive")
    assert archive.rank == len([row for row in ROWS if row.leaf and not row.user])
    assert archive.standing is not None
    assert archive.standing.level_fs == 0


def test_accounts_are_found_in_any_case_by_node_and_by_path() -> None:
    for name in ("speech@lab", "SPEECH", "lab/language/speech"):
        assert names(Wanted(accounts=(name,), users=())) == [("Speech@Lab", "")]


def test_u_leaves_the_lines_of_accounts_and_big_u_takes_them_away() -> None:
    assert ("vision", "bob") in names(Wanted(users=("bob",)))
    assert ("nlp", "dan") not in names(Wanted(users=("bob",)))
    assert names(Wanted(users=("bob",), users_only=True)) == [("vision", "bob")]


def test_an_account_that_is_not_in_the_tree_is_named() -> None:
    assert unknown(ROWS, Wanted(accounts=("vision", "nobody"))) == ("nobody",)


def test_committed_is_what_running_jobs_may_still_hold_under_protection() -> None:
    committed = committed_by_user(JOBS, LADDER, NOW)
    assert committed["speech@lab", "erin"] == 6 * 3600 * 4
    assert committed["nlp", "dan"] == 0  # past its minimum
    assert committed["robotics", "frank"] == 0  # unallocated


@pytest.mark.parametrize(
    ("standing", "short", "long"),
    [
        (Standing(100, 140, 0.5), "over 40%", "over target by 40%"),
        (Standing(100, 88, 0.5), "under 12%", "under target by 12%"),
        (Standing(100, 100.1, 0.5), "on target", "on target"),
        (Standing(0, 0, 0.5), "new", "new: nothing owed yet, comes first"),
        (Standing(0, 50, 0.0), "no share", "no share: never owed anything, comes last"),
        (Standing(100, 0, 0.5), "under 100%", "under target by 100%"),
    ],
)
def test_a_balance_is_told_in_words_that_leave_no_doubt_which_end_is_good(
    standing: Standing, short: str, long: str
) -> None:
    assert standing_short(standing) == short
    assert standing_words(standing) == long


def test_data_older_than_three_ticks_is_called_stale_and_younger_is_not() -> None:
    basis = Basis(NOW - timedelta(seconds=180), NOW, timedelta(seconds=60), WINDOW)
    assert not basis.stale
    older = replace(basis, at=NOW - timedelta(seconds=181))
    assert older.lines()[0].startswith("STALE: these numbers are 3m1s old")


def test_the_header_states_window_zone_and_age() -> None:
    assert BASIS.lines() == ("Window 2026-10-01T12:00:00Z to 2026-10-08T12:00:00Z (7d, UTC), computed 23s ago.",)


def test_committed_time_is_weighed_as_it_will_be_charged() -> None:
    half = ChargeRule(weights={"h100": 0.5})
    whole, less = committed_by_user(JOBS, LADDER, NOW), committed_by_user(JOBS, LADDER, NOW, half)
    assert sum(whole.values()) > 0
    assert {key: amount / 2 for key, amount in whole.items()} == less


def test_a_users_place_in_the_account_is_told_and_who_used_least_has_the_first() -> None:
    places = {(row.account, row.user): row.user_rank for row in ROWS if row.user}
    assert places["nlp", "erin"] == 1
    assert places["nlp", "dan"] == 2
