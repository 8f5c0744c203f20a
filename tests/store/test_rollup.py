"""The hourly roll-ups are what the runs say, whatever is written in whatever order; and usage taken apart adds up."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from slurm_fairshare.core.audit import Basis
from slurm_fairshare.core.cluster import Capacity, Job
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.resources import MILLI, Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.window import Weight, Window, calendar
from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import at, batch, job, picture, run, span
from tests.store.conftest import AnyStore
from tests.store.test_properties import JOBS, POLLS, WINDOWS, _happen, moved, names, runs

RELAXED = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HOUR = 3600


# --- roll-ups -------------------------------------------------------------------------------------


@RELAXED
@given(first=runs(), second=runs(), window=WINDOWS, later=st.floats(0, 50))
def test_rollups_are_the_raw_sum_after_any_writes(
    postgres: str, first: tuple[Run, ...], second: tuple[Run, ...], window: Window, later: float
) -> None:
    """The second poll changes starts, ends, accounts, GPUs and what is charged of the first one's runs."""
    now = window.end + timedelta(hours=later)
    cluster = next(names)
    with PostgresStore(postgres, cluster) as store:
        for hour, found in ((0, first), (1, second), (2, second)):
            store.record_runs(Batch(span(-50, 200), moved(found, cluster)), at(hour))
            assert store.differing_rollups() == 0
        assert store.charges_by_hour(window, now) == store.raw_charges_by_hour(window, now)
        whole: dict[str, int] = defaultdict(int)
        for _, charges in store.raw_charges_by_hour(window, now):
            for account, amount in charges.items():
                whole[account] += amount
        assert store.charges(window, now) == {account: amount for account, amount in whole.items() if amount}


@RELAXED
@given(found=runs(), cut=st.integers(0, 12))
def test_rollups_follow_runs_that_are_deleted(postgres: str, found: tuple[Run, ...], cut: int) -> None:
    cluster = next(names)
    with PostgresStore(postgres, cluster) as store:
        store.record_runs(Batch(span(-50, 200), moved(found, cluster)), at(0))
        with store.database.transaction() as connection:
            gone = [f"k{number}" for number in range(cut)]
            connection.execute(
                text("delete from fairshare.run where cluster = :cluster and key = any(:keys)"),
                {"cluster": cluster, "keys": gone},
            )
        assert store.differing_rollups() == 0


def test_rollups_that_somebody_spoilt_are_found_and_made_anew(pg: PostgresStore) -> None:
    pg.record_runs(batch(run("k1", 0.5, 5.5, count=2), run("k2", 2, None)), at(24))
    with pg.database.transaction() as connection:
        connection.execute(
            text("update fairshare.usage_hour set milli = milli + 1 where hour = :hour"), {"hour": at(2)}
        )
        connection.execute(text("delete from fairshare.usage_hour where hour = :hour"), {"hour": at(3)})
    assert pg.differing_rollups() == 2
    assert pg.rebuild_rollups() == 6
    assert pg.differing_rollups() == 0
    assert pg.charges(span(0, 6), at(6)) == {"nlp": (2 * 5 + 4) * HOUR * MILLI}


def test_a_window_of_a_second_anywhere_in_an_hour_is_exact(pg: PostgresStore) -> None:
    second = 1 / HOUR
    pg.record_runs(batch(run("k1", 1 + 10 * second, 1 + 20 * second), run("k2", 0, 9, count=3)), at(24))
    for offset, expected in ((9, 3), (10, 4), (19, 4), (20, 3)):
        window = span(1 + offset * second, 1 + (offset + 1) * second)
        assert pg.charges(window, at(24)) == {"nlp": expected * MILLI}


def test_a_window_that_ends_in_the_middle_of_the_past_counts_nothing_behind_it(pg: PostgresStore) -> None:
    pg.record_runs(batch(run("k1", 0, 100)), at(200))
    assert pg.charges(span(10.25, 50.75), at(200)) == {"nlp": round(40.5 * HOUR) * MILLI}


# --- taken apart ----------------------------------------------------------------------------------


def test_usage_is_taken_apart_by_user_qos_and_type(store: AnyStore) -> None:
    mixed = replace(run("k3", 1, 2, account="vision"), held=Resources({"a100": 1, "h100": 2, "": 1}), milli_gpus=4000)
    store.record_runs(
        batch(run("k1", 1, 3, count=2), replace(run("k2", 1, 2, charged=False), user="bob"), mixed), at(24)
    )

    def told(*by: str) -> list[tuple[object, ...]]:
        return [
            (one.account, one.user, one.qos, one.type, one.charged, one.gpu_seconds / HOUR, one.runs)
            for one in store.used((span(0, 24),), by, at(24))
        ]

    assert told("account") == [
        ("nlp", "", "", "", False, 1, 1),
        ("nlp", "", "", "", True, 4, 1),
        ("vision", "", "", "", True, 4, 1),
    ]
    assert told("user", "qos") == [
        ("", "alice", "fs-1h", "", True, 8, 2),
        ("", "bob", "fs-unallocated", "", False, 1, 1),
    ]
    assert told("type") == [
        ("", "", "", "", True, 1, 1),
        ("", "", "", "a100", True, 1, 1),
        ("", "", "", "h100", False, 1, 1),
        ("", "", "", "h100", True, 6, 2),
    ]


def test_a_run_over_midnight_lands_on_both_days(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 10, 15)), at(24))
    days = calendar(span(0, 24), "day", UTC)
    assert [(one.part, one.gpu_seconds / HOUR) for one in store.used(days, ("account",), at(24))] == [
        (days[0], 2),
        (days[1], 3),
    ]


PARTS = st.lists(st.floats(-30, 60, allow_nan=False), min_size=2, max_size=5, unique=True).map(
    lambda edges: tuple(Window(at(a), at(b)) for a, b in itertools.pairwise(sorted(edges)))
)
STORIES = st.lists(st.tuples(st.integers(0, 30), JOBS | POLLS, st.integers(0, 16)), max_size=6)


@RELAXED
@given(story=STORIES, parts=PARTS, by=st.sets(st.sampled_from(["account", "user", "qos", "type"])))
def test_both_stores_take_usage_apart_alike_and_its_charged_part_is_the_usage(
    postgres: str, story: list[tuple[int, list[Job] | list[Run], int]], parts: tuple[Window, ...], by: set[str]
) -> None:
    cluster = next(names)
    twin = MemoryStore(cluster)
    now = at(40)
    whole = Window(parts[0].start, parts[-1].end)
    with PostgresStore(postgres, cluster) as store:
        for hour, content, installed in story:
            for one in (store, twin):
                _happen(one, cluster, at(hour), content, installed)
        assert store.used(parts, by, now) == twin.used(parts, by, now)
        assert store.counted(whole, now) == twin.counted(whole, now)
        assert store.differing_rollups() == 0
        charged = sum(one.milli_gpu_seconds or 0 for one in store.used(parts, ("account",), now) if one.charged)
        assert charged == sum(store.charges(whole, now).values())
        counted = sum(one.milli_gpus * one.seconds(whole, now) for one in store.counted(whole, now) if one.charged)
        assert counted == charged


def test_what_counts_says_on_what_basis(store: AnyStore) -> None:
    store.record_runs(
        batch(run("k1", 1, 2, job_id=1), run("k2", 1, None, job_id=2), run("k3", 1, None, job_id=3)), at(2)
    )
    store.record_picture(picture(2, job(2, 1), job(3, 1), job(5, 1)), ())
    store.record_picture(picture(3, job(2, 1), job(4, 2)), ())
    assert {(one.job_id, one.basis) for one in store.counted(span(0, 24), at(4))} == {
        (1, Basis.ENDED),
        (2, Basis.RUNNING),
        (3, Basis.RUNAWAY),
        (4, Basis.QUEUE),
        (5, Basis.SIGHTING),
    }


# --- capacity of the past -------------------------------------------------------------------------


def test_capacity_of_the_past_stands_before_the_first_picture(store: AnyStore) -> None:
    assert store.first_capacity() is None
    past = [(at(-9), (Capacity("h100", 16, 0, 0, None),)), (at(-5), (Capacity("h100", 16, 8, 0, None),))]
    for _ in range(2):
        store.record_past(past)
    store.record_picture(picture(1), (Capacity("h100", 16, 8, 0, 3),))
    assert store.first_capacity() == at(-9)
    assert store.capacity_history(span(-24, 24)) == (
        (at(-9), Capacity("h100", 16, 0, 0, None)),
        (at(-5), Capacity("h100", 16, 8, 0, None)),
        (at(1), Capacity("h100", 16, 8, 0, 3)),
    )
    assert [step.value for step in store.capacity(span(-24, 24))] == [16, 8]


@pytest.mark.parametrize("zone_hour", [23.5, 24])
def test_several_clusters_share_a_database_and_nothing_else(postgres: str, zone_hour: float) -> None:
    """The same record numbers, jobs, accounts and GPU types on both."""
    now = at(zone_hour)
    with PostgresStore(postgres, next(names)) as one, PostgresStore(postgres, next(names)) as other:
        for store, count, size in ((one, 1, 16), (other, 5, 64)):
            store.record_runs(
                Batch(
                    span(0, 24), moved((run("k1", 1, 3, count=count), run("k2", 4, None, count=count)), store.cluster)
                ),
                now,
            )
            store.record_picture(
                picture(5, job(2, 4, count=count), cluster=store.cluster), (Capacity("h100", size, 0, 0, 0),)
            )
            store.add_adjustment("nlp", count * HOUR * MILLI, at(6), "ada", "because")
        for store, count, size in ((one, 1, 16), (other, 5, 64)):
            expected = count * HOUR * (2 + (zone_hour - 4) + 1)
            assert store.usage(span(0, 24), Weight(), now) == {"nlp": expected}
            assert [step.value for step in store.capacity(span(0, 24))] == [size]
            assert store.used((span(0, 24),), ("type",), now)[0].gpu_seconds == expected - count * HOUR
            assert store.differing_rollups() == 0


def test_a_time_in_the_databases_zone_is_the_same_moment(postgres: str) -> None:
    """Where the server, the role or the session keeps another zone, over the night in which clocks go back."""
    night = datetime(2026, 10, 24, 22, tzinfo=UTC)
    with PostgresStore(postgres, next(names)) as store:
        with store.database.transaction() as connection:
            connection.execute(text("set local timezone = 'America/New_York'"))
            connection.execute(
                text(
                    "insert into fairshare.usage_hour values (:c, to_timestamp(:h), 'x', 1, 0) on conflict do nothing"
                ),
                {"c": store.cluster, "h": night.timestamp()},
            )
        store.rebuild_rollups()
        long = replace(run("k1", 0, 1), cluster=store.cluster, start=night, end=night + timedelta(hours=6))
        store.record_runs(Batch(Window(night, night + timedelta(days=1)), (long,)), night + timedelta(days=1))
        hours = store.charges_by_hour(Window(night, night + timedelta(hours=6)), night + timedelta(days=1))
        assert [charges["nlp"] for _, charges in hours] == [HOUR * MILLI] * 6
