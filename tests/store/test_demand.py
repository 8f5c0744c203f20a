"""Demand over time: a row per change, both stores alike, and old steps as hours without changing a sum."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from slurm_fairshare.core.window import Step, integrals
from slurm_fairshare.store.demand import KEEP_STEPS
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import at, capacity, job, picture, span
from tests.store.conftest import AnyStore


def test_demand_follows_what_runs_and_what_waits_for_room(store: AnyStore) -> None:
    store.record_picture(picture(1, job(1, 0.5, count=4), job(2, None, count=8)), [capacity(16)])
    store.record_picture(picture(2, job(1, 0.5, count=4)), [capacity(16)])
    store.record_picture(picture(3), [capacity(16)])
    steps = (Step(at(1), 12.0), Step(at(2), 4.0), Step(at(3), 0.0))
    assert store.demand(span(0, 9)) == {"": steps, "nlp": steps}


def test_a_look_at_an_empty_queue_is_known_to_be_empty(store: AnyStore) -> None:
    assert store.demand(span(0, 9)) == {}
    store.record_picture(picture(1), [capacity(16)])
    assert store.demand(span(0, 9)) == {"": (Step(at(1), 0.0),)}


def test_the_same_look_twice_and_one_that_shows_nothing_new_add_nothing(store: AnyStore) -> None:
    for hour in (1, 1, 2):
        store.record_picture(picture(hour, job(1, 0.5)), [capacity(16)])
    assert store.demand(span(0, 9))["nlp"] == (Step(at(1), 1.0),)


def test_an_older_picture_leaves_demand_as_it_is(store: AnyStore) -> None:
    store.record_picture(picture(2, job(1, 0.5)), [capacity(16)])
    store.record_picture(picture(1), [capacity(16)])
    assert store.demand(span(0, 9))["nlp"] == (Step(at(2), 1.0),)


def test_the_step_in_force_opens_the_window(store: AnyStore) -> None:
    store.record_picture(picture(1, job(1, 0.5)), [capacity(16)])
    assert store.demand(span(3, 9))["nlp"] == (Step(at(3), 1.0),)
    assert store.demand(span(0, 1)) == {}


def test_accounts_are_one_whatever_their_case(store: AnyStore) -> None:
    store.record_picture(picture(1, job(1, 0.5, account="NLP"), job(2, 0.5, account="nlp")), [capacity(16)])
    assert store.demand(span(0, 9))["nlp"] == (Step(at(1), 2.0),)


@pytest.mark.parametrize("ticks_an_hour", [7, 60])
def test_old_steps_become_hours_and_no_sum_over_hours_changes(pg: PostgresStore, ticks_an_hour: int) -> None:
    hours = 6
    kept: list[Step] = []
    for tick in range(hours * ticks_an_hour + 1):
        hour = 0.3 + tick / ticks_an_hour
        waiting = [job(100 + n, None) for n in range(tick * 7 % 5)]
        pg.record_picture(picture(hour, *waiting), [capacity(16)])
        kept.append(Step(at(hour), float(len(waiting))))
    whole = span(0, hours)
    before = integrals(kept, whole.hours())
    later = KEEP_STEPS + timedelta(hours=hours)
    for _ in range(2):
        pg.record_picture(picture(later / timedelta(hours=1)), [capacity(16)])
        thinned = pg.demand(span(0, hours))["nlp"]
        assert len(thinned) <= hours + 1
        assert integrals(thinned, whole.hours()) == pytest.approx(before)
    with pg.database.transaction() as connection:
        count = text("select count(*) from fairshare.demand where at < :end")
        assert connection.execute(count, {"end": whole.end}).scalar_one() <= 2 * (hours + 1)


def test_the_newest_steps_stay_exact(pg: PostgresStore) -> None:
    for minute in range(0, 180, 10):
        pg.record_picture(picture(minute / 60, *[job(n, None) for n in range(minute % 30)]), [capacity(16)])
    assert len(pg.demand(span(0, 3))["nlp"]) > 15
