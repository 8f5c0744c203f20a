"""What only Postgres promises: what is touched on disk, what survives a kill, and what its errors say."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from sqlalchemy import text

from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.decisions import Outcome
from slurm_fairshare.core.resources import ChargeRule
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Weight
from slurm_fairshare.daemon.ports import Store
from slurm_fairshare.errors import BudgetError, ConfigError, NotLeading, StoreError, StoreUnreachable
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.spelling import clean
from tests.store.build import CLUSTER, at, batch, capacity, decision, job, node, picture, report, run, shares, span


def implements(store: Store) -> Store:
    return store


def ask(dsn: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(sql.encode(), values).fetchall()


def test_it_is_the_store_the_daemon_asks_for(pg: PostgresStore) -> None:
    assert implements(pg) is pg


# --- what is touched ------------------------------------------------------------------------------


def test_a_repeated_poll_touches_no_row(pg: PostgresStore, postgres: str) -> None:
    bad = RejectedRow("sacct", "garbage", "why")
    one = batch(run("k1", 1, 2), run("k2", 1, None), rejected=(bad,))
    pg.record_runs(one, at(24))
    tables = "select key, xmin::text, xmax::text, ctid::text from fairshare.run"
    before = ask(postgres, f"{tables} order by key")
    for hour in (25, 26, 27):
        pg.record_runs(one, at(hour))
    assert ask(postgres, f"{tables} order by key") == before
    assert ask(postgres, "select count(*) from fairshare.rejected_row") == [(1,)]


def test_a_correction_touches_only_what_differs(pg: PostgresStore, postgres: str) -> None:
    pg.record_runs(batch(run("k1", 1, 2), run("k2", 1, None)), at(24))
    before = dict(ask(postgres, "select key, xmin::text from fairshare.run"))
    pg.record_runs(batch(run("k1", 1, 2), run("k2", 1, 5)), at(25))
    after = dict(ask(postgres, "select key, xmin::text from fairshare.run"))
    assert after["k1"] == before["k1"]
    assert after["k2"] != before["k2"]


def test_a_picture_that_shows_the_same_touches_only_its_moment(pg: PostgresStore, postgres: str) -> None:
    def rows() -> list[tuple[Any, ...]]:
        return [
            *ask(postgres, "select job_id, xmin::text, xmax::text from fairshare.queue_job order by job_id"),
            *ask(postgres, "select name, xmin::text, xmax::text from fairshare.slurm_node"),
        ]

    pg.record_picture(picture(1, job(1, 0), job(2, None), nodes=(node(),)), (capacity(8),))
    before = rows()
    pg.record_picture(picture(2, job(1, 0), job(2, None), nodes=(node(),)), (capacity(8),))
    assert rows() == before
    seen = pg.latest_queue()
    assert seen is not None
    assert seen.at == at(2)


# --- text from outside ----------------------------------------------------------------------------


def test_text_that_postgres_cannot_hold_is_kept_in_escapes(pg: PostgresStore) -> None:
    odd = "a\0b\udcff\ttab\nline\\n|\u00e9"
    pg.record_runs(
        batch(replace(run("k1", 1, 2), user=odd, account=odd), rejected=(RejectedRow("sacct", odd, odd),)), at(24)
    )
    pg.record_picture(picture(3, job(1, 1, name=odd, nodes=(odd,), by_node={odd: node().total})), ())
    pg.record_failure(at(1), "plan", odd)
    assert pg.runs_of(1)[0].account == clean(odd) == "a\\x00b\\udcff\ttab\nline\\n|\u00e9"
    assert pg.rejected(at(0))[0].row.text == clean(odd)
    assert pg.failures(at(0))[0].error == clean(odd)
    seen = pg.latest_queue()
    assert seen is not None
    assert (seen.jobs[0].name, seen.jobs[0].nodes, list(seen.jobs[0].by_node)) == (
        clean(odd),
        (clean(odd),),
        [clean(odd)],
    )


def test_moments_come_back_in_utc_whatever_zone_they_came_in(pg: PostgresStore, postgres: str) -> None:
    tokyo = datetime.fromisoformat("2026-11-22T21:00:00+09:00")
    pg.record_runs(batch(replace(run("k1", 0, 1), start=tokyo)), at(2))
    found = pg.runs_of(1)[0].start
    assert found == tokyo == at(0)
    assert found is not None
    assert found.tzinfo is UTC


# --- append only ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "update fairshare.changeset_share set weight = 99",
        "delete from fairshare.changeset",
        "truncate fairshare.changeset_share",
        "delete from fairshare.changeset_set",
        "update fairshare.adjustment set milli_gpu_seconds = 0",
        "delete from fairshare.decision_outcome",
    ],
)
def test_the_past_cannot_be_rewritten(pg: PostgresStore, postgres: str, sql: str) -> None:
    pg.add_changeset("dan", "why", at(0), {"": shares(nlp=1)})
    with psycopg.connect(postgres) as connection, pytest.raises(psycopg.Error, match="what was recorded stays"):
        connection.execute(sql.encode())


# --- at the same time -----------------------------------------------------------------------------


def test_of_two_edits_at_once_one_is_told_of_the_other(postgres: str) -> None:
    said: list[str] = []
    start = threading.Barrier(4)

    def edit(number: int) -> None:
        with PostgresStore(postgres, CLUSTER) as store:
            start.wait()
            try:
                store.add_changeset(f"user{number}", "mine", at(0), {"": shares(nlp=1)}, expected_last_id=0)
                said.append("done")
            except BudgetError as error:
                said.append(str(error))

    _together([threading.Thread(target=edit, args=(number,)) for number in range(4)])
    assert said.count("done") == 1
    assert all("has changed since" in words for words in said if words != "done")


def test_the_same_poll_from_two_writers_at_once_is_one_poll(postgres: str) -> None:
    one = batch(*(run(f"k{number}", 1, 2) for number in range(500)))
    failed: list[Exception] = []

    def write() -> None:
        with PostgresStore(postgres, CLUSTER) as store:
            try:
                for _ in range(5):
                    store.record_runs(one, at(24))
                    store.record_picture(picture(24, *(job(n, 1) for n in range(50))), (capacity(8),))
            except StoreError as error:
                failed.append(error)

    _together([threading.Thread(target=write) for _ in range(3)])
    with PostgresStore(postgres, CLUSTER) as store:
        assert failed == []
        assert store.usage(span(0, 24), Weight(), at(24)) == {"nlp": 500 * 3600}


def _together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_clusters_share_one_database(postgres: str) -> None:
    with PostgresStore(postgres, "one") as one, PostgresStore(postgres, "two") as two:
        one.record_runs(batch(run("k1", 1, 2, cluster="one")), at(24))
        two.record_runs(batch(run("k1", 1, 5, cluster="two")), at(24))
        one.record_picture(picture(3, job(1, 1), cluster="one"), (capacity(8),))
        two.add_changeset("dan", "why", at(0), {"": shares(nlp=1)})
        assert one.usage(span(0, 24), Weight(), at(24)) == {"nlp": 3600}
        assert two.usage(span(0, 24), Weight(), at(24)) == {"nlp": 4 * 3600}
        assert (two.latest_queue(), two.capacity(span(0, 24)), one.changesets()) == (None, (), ())
        with one.lead(), two.lead():
            pass


# --- killed ---------------------------------------------------------------------------------------


def _write_for_ever(dsn: str, ready: Any) -> None:
    with PostgresStore(dsn, CLUSTER) as store:
        for round_ in range(10_000):
            length = 1 + round_ % 2
            store.record_runs(batch(*(run(f"k{n}", 0, length) for n in range(200)), until=length), at(30 + round_))
            store.record_picture(picture(30 + round_, *(job(1000 + n, round_) for n in range(100))), (capacity(8),))
            store.record_tick(report(30 + round_))
            ready.set()


def test_a_writer_killed_anywhere_leaves_nothing_half_done(postgres: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    for pause in (0.0, 0.013, 0.031):
        ready = spawn.Event()
        writer = spawn.Process(target=_write_for_ever, args=(postgres, ready))
        writer.start()
        assert ready.wait(60)
        threading.Event().wait(pause)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        with PostgresStore(postgres, CLUSTER) as store:
            lengths = {one.end for one in store.runs(span(0, 24))}
            assert len(store.runs(span(0, 24))) == 200
            assert len(lengths) == 1
            seen = store.latest_queue()
            assert seen is not None
            assert {one.start for one in seen.jobs} == {seen.at - timedelta(hours=30)}
            assert len(seen.jobs) == 100
            newest = store.last_ranking()
            assert newest is not None
            assert newest[1] == report((newest[0] - at(0)) / timedelta(hours=1)).ranking


# --- who leads ------------------------------------------------------------------------------------


def test_the_leadership_ends_with_the_session_and_another_may_take_it(postgres: str) -> None:
    with PostgresStore(postgres, CLUSTER) as one, PostgresStore(postgres, CLUSTER) as two:
        with one.lead(), pytest.raises(NotLeading), two.lead():
            pass
        with two.lead():
            pass


def test_a_leader_whose_session_was_lost_is_fenced_until_it_leads_anew(pg: PostgresStore, postgres: str) -> None:
    with pg.lead():
        _cut(postgres)
        for _ in range(2):
            with pytest.raises(NotLeading, match="lost with its session"):
                pg.record_tick(report(24))
    with pytest.raises(NotLeading):
        pg.assure_lead()
    with pg.lead():
        pg.record_tick(report(24))


def test_who_leads_is_seen_by_everybody(pg: PostgresStore, postgres: str) -> None:
    with PostgresStore(postgres, CLUSTER) as other, PostgresStore(postgres, "another cluster") as elsewhere:
        assert not other.led()
        with pg.lead():
            assert other.led()
            assert not elsewhere.led()
        assert not other.led()


def test_a_lease_ends_with_the_silence_of_its_holder(pg: PostgresStore, postgres: str) -> None:
    """A stopped process keeps its session; the server ends it, so that another can take over."""
    with pg.lead(lease=timedelta(seconds=1)), PostgresStore(postgres, CLUSTER) as other:
        threading.Event().wait(2)
        with other.lead(), pytest.raises(NotLeading):
            pg.assure_lead()


def test_a_leader_that_was_replaced_stops_nobody_any_more(pg: PostgresStore, postgres: str) -> None:
    with pg.lead(), PostgresStore(postgres, CLUSTER) as other:
        _cut(postgres)
        with other.lead():
            with pytest.raises(NotLeading):
                pg.decide((decision("d1", 1),))
            with pytest.raises(NotLeading):
                pg.record_tick(report(24))
        assert other.decisions(at(0)) == ()
        assert other.last_tick() is None


def _cut(dsn: str) -> None:
    ask(
        dsn,
        "select pg_terminate_backend(pid, 5000) from pg_locks "
        "where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())",
    )


def test_the_pool_survives_a_cut_of_all_connections(pg: PostgresStore, postgres: str) -> None:
    pg.record_runs(batch(run("k1", 1, 2)), at(24))
    ask(
        postgres,
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()",
    )
    assert pg.usage(span(0, 24), Weight(), at(24)) == {"nlp": 3600}


# --- errors ---------------------------------------------------------------------------------------


def test_a_postgres_that_is_not_there_is_said_with_what_to_check() -> None:
    store = PostgresStore("postgresql://me:secret@127.0.0.1:1/ledger", CLUSTER)
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1/ledger cannot be used.*database_url") as said:
        store.watermark()
    assert "secret" not in str(said.value)
    with pytest.raises(StoreUnreachable), store.lead():
        pass


def test_a_database_that_does_not_exist_is_unreachable(postgres_server: str) -> None:
    with pytest.raises(StoreUnreachable, match="does not exist"):
        PostgresStore(make_conninfo(postgres_server, dbname="nowhere"), CLUSTER).watermark()


def test_an_address_that_cannot_be_read_is_said() -> None:
    with pytest.raises(ConfigError, match="database_url") as said:
        PostgresStore("nonsense with pass=word", CLUSTER)
    assert "word" not in str(said.value).replace("password", "")


def test_a_statement_that_takes_too_long_is_stopped_and_said(postgres: str) -> None:
    with (
        PostgresStore(postgres, CLUSTER, statement_timeout=timedelta(milliseconds=50)) as store,
        pytest.raises(StoreError, match=r"took longer than 0\.05s"),
        store.database.transaction() as connection,
    ):
        connection.execute(text("select pg_sleep(5)"))


def test_connections_say_who_they_are(pg: PostgresStore) -> None:
    with pg.database.transaction() as connection:
        found = connection.execute(text("select current_setting('application_name'), current_setting('timezone')"))
        assert tuple(found.one()) == ("slurm-fairshare", "UTC")


def test_a_failed_record_changes_nothing(pg: PostgresStore) -> None:
    with pytest.raises(StoreError):
        pg.record_runs(batch(run("k1", 1, 2), replace(run("k2", 1, 2), milli_gpus=2**70)), at(24))
    assert pg.runs(span(0, 24)) == ()
    assert pg.watermark() is None


def test_settling_is_seen_by_other_stores_at_once(pg: PostgresStore, postgres: str) -> None:
    pg.decide((decision("d1", 1),))
    with PostgresStore(postgres, CLUSTER) as other:
        other.settle("d1", Outcome.REFUSED, at(2), "no")
    assert [one.detail for one in pg.decisions(at(0))] == ["no"]


# --- the views people read ------------------------------------------------------------------------


def test_the_views_tell_usage_and_standing(postgres: str) -> None:
    with PostgresStore(postgres, CLUSTER, ChargeRule(), Ladder.default()) as store:
        store.record_runs(batch(run("k1", 1, 2)), at(3))
        store.record_picture(picture(3, job(2, 2)), ())
        store.record_tick(report(24))
        store.record_tick(report(25))
    assert ask(postgres, "select job_id, start_at, until_at from fairshare.run_usage order by 1") == [
        (1, at(1), at(2)),
        (2, at(2), None),
    ]
    found = ask(postgres, "select path, rank, round(ratio::numeric, 4) from fairshare.standing_now")
    assert [(path, rank) for path, rank, _ in found] == [
        ("org", None),
        ("org/a", None),
        ("org/a/robots", 1),
        ("org/a/vision", 2),
        ("org/b", 3),
    ]
