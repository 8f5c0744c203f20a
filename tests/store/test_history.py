"""What reports on the past ask of either store."""

from __future__ import annotations

from slurm_fairshare.store.facts import Holding
from tests.store.build import at, batch, capacity, job, picture, report, run, span
from tests.store.conftest import AnyStore

H = 3600


def test_holdings_tell_charged_and_unallocated_apart_by_user(store: AnyStore) -> None:
    store.record_runs(
        batch(run("1", 1, 3, count=4), run("2", 2, 5, count=2, charged=False), run("3", 1, 3, account="NLP", count=1)),
        at(24),
    )
    assert store.holdings(span(2, 4), at(24)) == (
        Holding("nlp", "alice", False, 4 * H, 4000 * H),
        Holding("nlp", "alice", True, 5 * H, 5000 * H),
    )


def test_holdings_count_what_the_picture_shows_and_cpu_jobs_hold_nothing(store: AnyStore) -> None:
    store.record_runs(batch(run("9", 1, 3, count=0)), at(2))
    store.record_picture(picture(2, job(5, 1, count=8)), [capacity(8)])
    assert store.holdings(span(0, 4), at(3)) == (Holding("nlp", "alice", True, 16 * H, 16_000 * H),)


def test_charged_holdings_are_the_charges(store: AnyStore) -> None:
    store.record_runs(batch(run("1", 1, 3), run("2", 2, 7, account="vision"), run("3", 2, 4, charged=False)), at(24))
    window = span(1.5, 5)
    charged = {one.account: one.milli_gpu_seconds for one in store.holdings(window, at(24)) if one.charged}
    assert charged == store.charges(window, at(24))


def test_ticks_are_told_in_order(store: AnyStore) -> None:
    for hour in (3, 1, 2):
        store.record_tick(report(hour))
    assert store.ticks(span(1, 3)) == (at(1), at(2))


def test_how_busy_a_run_was_is_kept_by_run_and_the_later_word_counts(store: AnyStore) -> None:
    store.record_runs(batch(run("1", 1, 3), run("2", 4, 5)), at(24))
    store.record_busy({"1": 0.5, "2": 0.9})
    store.record_busy({"1": 0.75})
    store.record_busy({})
    assert store.busy(span(0, 3.5)) == {"1": 0.75}
