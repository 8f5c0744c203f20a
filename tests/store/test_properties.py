"""Both stores against the core, and against each other, over whatever hypothesis makes up."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_fairshare.core.cluster import Capacity, Job, Picture
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Piece, Weight, Window, milli_gpu_seconds, weighed
from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import START, at, capacity, job, picture, run, span

names = (f"c{number}" for number in itertools.count())
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

ACCOUNTS = st.sampled_from(["nlp", "NLP", "vision", "robots"])
MOMENTS = st.integers(-20 * 3600, 200 * 3600).map(lambda seconds: START + timedelta(seconds=seconds))
WINDOWS = st.tuples(st.floats(-30, 210, allow_nan=False).map(at), st.floats(-30, 210, allow_nan=False).map(at)).map(
    lambda ends: Window(min(ends), max(ends))
)


@st.composite
def runs(draw: st.DrawFn, cluster: str = "c") -> tuple[Run, ...]:
    """Up to a dozen runs: ended, open, never started, and with an end before their start."""
    found = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(st.none() | st.integers(-50, 200))
        length = draw(st.none() | st.integers(-3, 120))
        end = None if start is None or length is None else start + length / 7
        found.append(
            run(
                f"k{number}",
                start,
                end,
                account=draw(ACCOUNTS),
                count=draw(st.integers(0, 9)),
                charged=draw(st.booleans()),
                cluster=cluster,
            )
        )
    return tuple(found)


def moved(found: tuple[Run, ...], cluster: str) -> tuple[Run, ...]:
    return tuple(replace(one, cluster=cluster) for one in found)


def by_account(found: tuple[Run, ...]) -> dict[str, list[Run]]:
    accounts = defaultdict(list)
    for one in found:
        if one.charged:
            accounts[account_key(one.account)].append(one)
    return accounts


@RELAXED
@given(found=runs(), window=WINDOWS, later=st.floats(0, 50))
def test_usage_is_what_the_core_says(postgres: str, found: tuple[Run, ...], window: Window, later: float) -> None:
    now = window.end + timedelta(hours=later)
    cluster = next(names)
    with PostgresStore(postgres, cluster) as store:
        store.record_runs(Batch(span(-50, 200), moved(found, cluster)), now)
        charges = store.charges(window, now)
        usage = store.usage(window, Weight(), now)
    expected = {account: milli_gpu_seconds(some, window, now) for account, some in by_account(found).items()}
    assert charges == {account: amount for account, amount in expected.items() if amount}
    assert usage == {account: amount / 1000 for account, amount in charges.items()}


@RELAXED
@given(found=runs(), window=WINDOWS, half_life=st.floats(1, 400))
def test_weighted_usage_is_what_the_core_says(
    postgres: str, found: tuple[Run, ...], window: Window, half_life: float
) -> None:
    """Against the exact integral over each run: an hour is short beside any half-life worth having."""
    weight = Weight(timedelta(hours=half_life))
    now = Window(window.start.replace(microsecond=0), window.end.replace(microsecond=0)).end
    window = Window(min(window.start.replace(microsecond=0), now), now)
    cluster = next(names)
    twin = MemoryStore(cluster)
    with PostgresStore(postgres, cluster) as store:
        for one in (store, twin):
            one.record_runs(Batch(span(-50, 200), moved(found, cluster)), now)
        usage = store.usage(window, weight, now)
    assert usage == twin.usage(window, weight, now)
    for account, some in by_account(found).items():
        parts = [
            (window.cut(one.start, one.end or now), one) for one in some if one.start and one.start < (one.end or now)
        ]
        exact = weighed([Piece(part, one.milli_gpus / 1000) for part, one in parts if part], weight, now)
        assert usage.get(account, 0.0) == pytest.approx(exact, rel=0.2 / half_life + 0.001, abs=3600)


@RELAXED
@given(found=runs(), edges=st.lists(st.floats(-30, 210, allow_nan=False), min_size=2, max_size=6))
def test_adjacent_windows_add_up(postgres: str, found: tuple[Run, ...], edges: list[float]) -> None:
    cuts = [at(edge) for edge in sorted(edges)]
    now = cuts[-1]
    cluster = next(names)
    with PostgresStore(postgres, cluster) as store:
        store.record_runs(Batch(span(-50, 200), moved(found, cluster)), now)
        whole = store.charges(Window(cuts[0], cuts[-1]), now)
        total: dict[str, int] = defaultdict(int)
        for left, right in itertools.pairwise(cuts):
            for account, amount in store.charges(Window(left, right), now).items():
                total[account] += amount
    assert whole == total


@RELAXED
@given(found=runs(), seed=st.integers(), cuts=st.integers(1, 5))
def test_the_order_and_repetition_of_polls_change_nothing(
    postgres: str, found: tuple[Run, ...], seed: int, cuts: int
) -> None:
    chance = random.Random(seed)
    results = []
    with PostgresStore(postgres, "unused") as store:
        for _ in range(2):
            store.cluster = cluster = next(names)
            polls = [moved(found[piece::cuts], cluster) for piece in range(cuts)] * 2
            chance.shuffle(polls)
            for poll in polls:
                shuffled = chance.sample(poll, len(poll))
                store.record_runs(Batch(span(-50, 200), tuple(shuffled)), at(200))
            results.append((store.charges(span(-50, 200), at(200)), len(store.runs(span(-50, 300)))))
    assert results[0] == results[1]


JOBS = st.lists(
    st.builds(
        lambda number, start, state, account, count: job(
            number, None if state == "PENDING" else start, state=state, account=account, count=count
        ),
        st.integers(1, 5),
        st.integers(0, 20),
        st.sampled_from(["RUNNING", "PENDING", "COMPLETING", "COMPLETED"]),
        ACCOUNTS,
        st.integers(1, 4),
    ),
    max_size=5,
    unique_by=lambda one: one.job_id,
)
POLLS = st.lists(
    st.builds(
        lambda key, number, start, length, state, count: run(
            f"k{key}",
            start,
            None if length is None else start + length,
            job_id=number,
            count=count,
            state=state if length is not None else "RUNNING",
        ),
        st.integers(1, 8),
        st.integers(1, 5),
        st.integers(0, 20),
        st.none() | st.integers(0, 6),
        st.sampled_from(["COMPLETED", "RESIZING", "REQUEUED"]),
        st.integers(1, 4),
    ),
    max_size=4,
)
STORIES = st.lists(st.tuples(st.integers(0, 30), JOBS | POLLS, st.integers(0, 16)), max_size=8)


@settings(RELAXED, max_examples=150)
@given(story=STORIES, window=st.tuples(st.integers(-2, 30), st.integers(0, 30)))
def test_both_stores_tell_the_same_story(
    postgres: str, story: list[tuple[int, list[Job] | list[Run], int]], window: tuple[int, int]
) -> None:
    """Pictures and polls in any order, with runaways, requeues, resizes and rows that come late or never."""
    cluster = next(names)
    twin = MemoryStore(cluster)
    where = span(window[0], window[0] + window[1])
    with PostgresStore(postgres, cluster) as store:
        for hour, content, installed in story:
            for one in (store, twin):
                _happen(one, cluster, at(hour), content, installed)
            now = at(hour + 1)
            assert store.charges(where, now) == twin.charges(where, now)
            assert store.capacity(where) == twin.capacity(where)
        assert store.latest_queue() == twin.latest_queue()
        assert store.charges_by_hour(where, at(40)) == twin.charges_by_hour(where, at(40))


def _happen(
    store: MemoryStore | PostgresStore, cluster: str, when: datetime, content: list[Job] | list[Run], installed: int
) -> None:
    jobs = tuple(one for one in content if isinstance(one, Job))
    found = tuple(one for one in content if isinstance(one, Run))
    if found:
        store.record_runs(Batch(Window(at(0), when), moved(found, cluster)), when)
    else:
        seen: tuple[Capacity, ...] = (capacity(installed),) if installed else ()
        store.record_picture(Picture(cluster, when, jobs, ()), seen)


@RELAXED
@given(
    start=st.integers(0, 10),
    ticks=st.lists(st.integers(1, 7200), min_size=1, max_size=6),
    rest=st.integers(0, 3600),
    count=st.integers(1, 8),
)
def test_usage_of_a_run_grows_with_the_clock_and_does_not_jump_at_its_end(
    postgres: str, start: int, ticks: list[int], rest: int, count: int
) -> None:
    cluster = next(names)
    window = span(0, 100)
    begun = at(start)
    with PostgresStore(postgres, cluster) as store:
        store.record_runs(Batch(window, moved((run("k1", start, None, count=count),), cluster)), begun)
        now = begun
        for step in ticks:
            now += timedelta(seconds=step)
            store.record_picture(picture(0, job(1, start, count=count), cluster=cluster), ())
            assert store.usage(window, Weight(), now) == {"nlp": count * (now - begun).total_seconds()}
        before = store.usage(window, Weight(), now + timedelta(seconds=rest))
        ended = (now - START) / timedelta(hours=1) + rest / 3600
        closed = moved((run("k1", start, ended, count=count),), cluster)
        store.record_runs(Batch(window, closed), now + timedelta(seconds=rest))
        assert store.usage(window, Weight(), at(99)) == before
