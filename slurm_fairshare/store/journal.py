"""The journal in Postgres: ticks, failures, decisions, and who leads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import insert

from slurm_fairshare.core.decisions import OPEN, Decision, Outcome, Recorded
from slurm_fairshare.core.fairshare import Ranked, Ranking, Standing
from slurm_fairshare.core.plan import Change, SetPriority, describe
from slurm_fairshare.core.records import TickReport
from slurm_fairshare.core.tree import ROOT, Node, Tree, account_key, parent_of
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import NotLeading, StoreError
from slurm_fairshare.store import rows, tables
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.facts import Failure, TickFacts
from slurm_fairshare.store.merge import stage
from slurm_fairshare.store.spelling import clean, line

KEEP_TICKS = 240
"""So many of the newest ticks keep their standings; of older ones the first of each hour does."""
KEEP_HOURLY = timedelta(days=400)

LEAD_PATIENCE = 10.0
"""Seconds after which a session that says nothing is taken for lost, and the leadership with it."""

_WORD = 0xFFFF_FFFF

STANDING = rows.columns(tables.standing)


class JournalStore:
    """The Journal half of the store."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.database, self.cluster = database, cluster
        self._leadership: _Leadership | None = None

    # --- who leads --------------------------------------------------------------------------------

    @contextmanager
    def lead(self, lease: timedelta | None = None) -> Iterator[None]:
        """Hold the leadership for the block. It hangs on one session of Postgres, so it ends with this process.

        Every record of a tick or a decision makes sure of it first. A leadership that was lost stays lost, though
        the lock may be free: another may have led meanwhile, so what was read before is not to be acted on.
        """
        leadership = _Leadership(self.database, self.cluster)
        leadership.take(lease)
        self._leadership = leadership
        try:
            yield
        finally:
            leadership.release()

    def led(self) -> bool:
        """Whether anybody leads the cluster now."""
        key = lead_key(self.cluster)
        with self.database.transaction() as connection:
            return bool(connection.execute(text(_LED), {"high": key >> 32 & _WORD, "low": key & _WORD}).scalar())

    def assure_lead(self) -> None:
        """NotLeading if this store led and does not any more, until it leads anew; nothing where it never did."""
        if self._leadership is not None:
            self._leadership.assure()

    # --- ticks ------------------------------------------------------------------------------------

    def record_tick(self, report: TickReport) -> None:
        """Keep the tick, in place of one at the same moment, and let old standings go."""
        self.assure_lead()
        with self.database.transaction() as connection:
            labels = self._labels(connection, report)
            key = {"cluster": self.cluster, "at": report.at}
            connection.execute(text("delete from fairshare.tick where cluster = :cluster and at = :at"), key)
            hourly = not connection.execute(text(_SAME_HOUR), {**key, "hour": _hour(report.at)}).scalar()
            connection.execute(tables.tick.insert(), {**key, **_tick_row(report), "hourly": hourly})
            made = _standing_rows(self.cluster, report, labels)
            staged = stage(connection, tables.standing, STANDING, map(line, made))
            connection.execute(
                text(f"insert into fairshare.standing ({', '.join(STANDING)}) select * from {staged}")  # noqa: S608
            )
            _prune(connection, self.cluster, report.at, KEEP_TICKS, KEEP_HOURLY)

    def _labels(self, connection: Connection, report: TickReport) -> Mapping[str, int]:
        """The label each account holds after the tick: what it held before, and what the tick changed."""
        before = connection.execute(text(_LABELS), {"cluster": self.cluster, "at": report.at})
        held = {row.account_key: row.label for row in before}
        return held | (pushed_labels(report.changes) if report.pushed else {})

    def prune(self, at: datetime, keep_ticks: int = KEEP_TICKS, keep_hourly: timedelta = KEEP_HOURLY) -> None:
        """Keep the newest ticks, and of older ones the first of each hour for as long as told."""
        with self.database.transaction() as connection:
            _prune(connection, self.cluster, at, keep_ticks, keep_hourly)

    def last_ranking(self) -> tuple[datetime, Ranking] | None:
        return self.ranking_at(None)

    def ranking_at(self, at: datetime | None) -> tuple[datetime, Ranking] | None:
        """The newest ranking recorded up to a moment (None = of all), as far as ticks that old are kept."""
        with self.database.transaction() as connection:
            tick = connection.execute(text(_NEWEST_TICK), {"cluster": self.cluster, "at": at}).first()
            if tick is None:
                return None
            found = connection.execute(
                text("select * from fairshare.standing where cluster = :cluster and at = :at order by position"),
                {"cluster": self.cluster, "at": tick.at},
            )
            nodes = [dict(row) for row in found.mappings()]
        since = None if tick.effective_from is None else tick.effective_from.astimezone(UTC)
        return tick.at.astimezone(UTC), _ranking(nodes, since)

    def labels(self) -> Mapping[str, int]:
        """The label each account (lower-case key) is known to hold, from what was pushed."""
        with self.database.transaction() as connection:
            found = connection.execute(text(_LABELS), {"cluster": self.cluster, "at": None})
            return {row.account_key: row.label for row in found}

    def last_tick(self) -> TickFacts | None:
        """The newest tick and the failures since; None before the first tick."""
        with self.database.transaction() as connection:
            tick = connection.execute(text(_NEWEST_TICK), {"cluster": self.cluster, "at": None}).first()
            if tick is None:
                return None
            failures = self._failures(connection, tick.at, "at > :since")
        return TickFacts(
            at=tick.at.astimezone(UTC),
            finished=tick.finished_at.astimezone(UTC),
            window=Window(tick.window_start.astimezone(UTC), tick.window_end.astimezone(UTC)),
            pushed=tick.pushed,
            changes=tuple(tick.changes),
            unknown_accounts=tuple(tick.unknown_accounts),
            unbudgeted_accounts=tuple(tick.unbudgeted_accounts),
            failures=failures,
        )

    def record_failure(self, at: datetime, phase: str, error: str) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                text(
                    "insert into fairshare.failure values (:cluster, :at, :phase, :error) "
                    "on conflict (cluster, at, phase) do update set error = excluded.error"
                ),
                {"cluster": self.cluster, "at": at, "phase": clean(phase), "error": clean(error)},
            )

    def failures(self, since: datetime) -> tuple[Failure, ...]:
        """Failures since then, oldest first, before the first tick too."""
        with self.database.transaction() as connection:
            return self._failures(connection, since, "at >= :since")

    def _failures(self, connection: Connection, since: datetime, condition: str) -> tuple[Failure, ...]:
        found = connection.execute(
            text(
                f"select at, phase, error from fairshare.failure where cluster = :cluster and {condition} "  # noqa: S608
                "order by at, phase"
            ),
            {"cluster": self.cluster, "since": since},
        )
        return tuple(Failure(row.at.astimezone(UTC), row.phase, row.error) for row in found)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Record decisions; one that is there already stays as it is."""
        if not decisions:
            return
        self.assure_lead()
        made = [rows.decision_row(self.cluster, one) for one in decisions]
        columns = rows.columns(tables.decision)
        first = [
            {
                "cluster": self.cluster,
                "decision_id": one.id,
                "at": one.at,
                "outcome": Outcome.DECIDED.value,
                "detail": "",
            }
            for one in decisions
        ]
        with self.database.transaction() as connection:
            whole = [{name: row.get(name) for name in columns} for row in made]
            connection.execute(insert(tables.decision).on_conflict_do_nothing(), whole)
            connection.execute(insert(tables.decision_outcome).on_conflict_do_nothing(), first)

    def settle(self, decision_id: str, outcome: Outcome, at: datetime, detail: str = "") -> None:
        """Say what became of a decision. StoreError if it was never recorded."""
        row = {
            "cluster": self.cluster,
            "id": decision_id,
            "outcome": outcome.value,
            "at": at,
            "detail": clean(detail),
        }
        with self.database.transaction() as connection:
            if not connection.execute(text(_SETTLE), row).rowcount:
                raise StoreError(f"decision {decision_id} was never recorded; record it before carrying it out")
            connection.execute(
                text(
                    "insert into fairshare.decision_outcome values (:cluster, :id, :at, :outcome, :detail) "
                    "on conflict do nothing"
                ),
                row,
            )

    def decisions(self, since: datetime) -> tuple[Recorded, ...]:
        """Decisions taken since then, oldest first."""
        return self._decisions("at >= :since", since=since)

    def open_decisions(self) -> tuple[Recorded, ...]:
        """Decisions about which there is still something to do, oldest first; dry runs are none."""
        return self._decisions("outcome = any(:open) and not dry_run", open=sorted(one.value for one in OPEN))

    def decisions_about(self, job_id: int) -> tuple[Recorded, ...]:
        """Decisions that stopped this job, or stopped another for it, oldest first."""
        return self._decisions("(victim_job_id = :job_id or preemptor_job_id = :job_id)", job_id=job_id)

    def outcomes(self, decision_id: str) -> tuple[tuple[datetime, Outcome, str], ...]:
        """Everything that became of a decision, in order of time."""
        with self.database.transaction() as connection:
            found = connection.execute(
                text(
                    "select at, outcome, detail from fairshare.decision_outcome "
                    "where cluster = :cluster and decision_id = :id order by at, outcome"
                ),
                {"cluster": self.cluster, "id": decision_id},
            )
            return tuple((row.at.astimezone(UTC), Outcome(row.outcome), row.detail) for row in found)

    def _decisions(self, condition: str, **parameters: Any) -> tuple[Recorded, ...]:
        with self.database.transaction() as connection:
            found = connection.execute(
                text(
                    f"select * from fairshare.decision where cluster = :cluster and {condition} "  # noqa: S608
                    "order by at, id"
                ),
                {"cluster": self.cluster, **parameters},
            )
            return tuple(rows.read_recorded(dict(row)) for row in found.mappings())


class _Leadership:
    """An advisory lock of Postgres on a connection of its own (a pooler in transaction mode would lose it)."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.database, self.cluster = database, cluster
        self._connection: psycopg.Connection[Any] | None = None
        self._door = Lock()

    def take(self, lease: timedelta | None = None) -> None:
        with self.database.translated():
            connection = self.database.open(LEAD_PATIENCE)
            try:
                connection.autocommit = True
                _notice_loss(connection, lease)
                row = connection.execute("select pg_try_advisory_lock(%s)", (lead_key(self.cluster),)).fetchone()
            except psycopg.Error:
                connection.close()
                raise
        if row is None or not row[0]:
            connection.close()
            raise NotLeading(
                f"another daemon leads cluster {self.cluster}; this one stands by and takes over when that one ends"
            )
        self._connection = connection

    def assure(self) -> None:
        with self._door:
            if self._connection is not None:
                try:
                    self._connection.execute("select 1")
                    return
                except psycopg.OperationalError:
                    self._connection.close()
                    self._connection = None
            raise NotLeading(
                f"the leadership of cluster {self.cluster} was lost with its session in Postgres; nothing more is "
                "changed in Slurm until it is taken anew"
            )

    def release(self) -> None:
        """Give the lock back; closing the session does so too, somewhat later, where Postgres does not answer."""
        with self._door:
            if self._connection is None:
                return
            with suppress(psycopg.Error):  # it is gone or going, and the lock with it
                self._connection.execute("select pg_advisory_unlock(%s)", (lead_key(self.cluster),))
            self._connection.close()
            self._connection = None


def lead_key(cluster: str) -> int:
    """The number of the advisory lock: 64 bits, signed."""
    digest = hashlib.sha256(f"slurm-fairshare lead {cluster}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _notice_loss(connection: psycopg.Connection[Any], lease: timedelta | None) -> None:
    """Let the server end the session soon after it has lost us: by default it would hold the lock for two hours."""
    wanted = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
    if lease is not None and connection.info.server_version >= 140_000:
        wanted["idle_session_timeout"] = int(lease.total_seconds() * 1000)
    for name, value in wanted.items():
        connection.execute("select set_config(%s, %s, false)", (name, str(value)))


def pushed_labels(changes: Sequence[Change]) -> dict[str, int]:
    """The labels these changes give, by account key."""
    return {
        account_key(account): change.priority
        for change in changes
        if isinstance(change, SetPriority)
        for account in change.accounts
    }


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _tick_row(report: TickReport) -> dict[str, Any]:
    return {
        "finished_at": report.finished,
        "window_start": report.window.start,
        "window_end": report.window.end,
        "effective_from": report.ranking.tree.effective_from,
        "pushed": report.pushed,
        "changes": [clean(describe(change)) for change in report.changes],
        "unknown_accounts": [clean(name) for name in report.unknown_accounts],
        "unbudgeted_accounts": [clean(name) for name in report.unbudgeted_accounts],
    }


def _standing_rows(cluster: str, report: TickReport, labels: Mapping[str, int]) -> Iterator[rows.Row]:
    ranks = {leaf.path: leaf.rank for leaf in report.ranking.leaves}
    for position, (path, node) in enumerate(report.ranking.tree.nodes.items()):
        standing = report.ranking.standings[path]
        key = None if node.account is None else account_key(node.account)
        yield (
            cluster,
            report.at,
            path,
            position,
            node.name,
            node.weight,
            standing.share,
            standing.entitlement,
            standing.usage,
            node.account,
            key,
            ranks.get(path),
            None if key is None else labels.get(key),
        )


def _ranking(found: Sequence[rows.Read], since: datetime | None) -> Ranking:
    """The ranking as it was: rows come in the tree's order, parents first."""
    below: dict[str, list[rows.Read]] = {}
    for row in found:
        below.setdefault(parent_of(row["path"]), []).append(row)

    def nodes(parent: str) -> tuple[Node, ...]:
        return tuple(
            Node(
                path=row["path"],
                name=row["name"],
                weight=row["weight"],
                effective=row["share"],
                account=row["account"],
                children=nodes(row["path"]),
            )
            for row in below.get(parent, ())
        )

    standings = {row["path"]: Standing(row["entitlement"], row["usage"], row["share"]) for row in found}
    leaves = sorted((row for row in found if row["rank"] is not None), key=lambda row: int(row["rank"]))
    return Ranking(
        tree=Tree(nodes(ROOT), since),
        standings=standings,
        leaves=tuple(Ranked(row["path"], row["account"] or "", row["rank"], standings[row["path"]]) for row in leaves),
    )


def _prune(connection: Connection, cluster: str, at: datetime, keep_ticks: int, keep_hourly: timedelta) -> None:
    connection.execute(text(_PRUNE), {"cluster": cluster, "keep": max(keep_ticks, 1) - 1, "oldest": at - keep_hourly})


_LED = """
    select exists (
        select from pg_locks where locktype = 'advisory' and objsubid = 1 and granted
        and database = (select oid from pg_database where datname = current_database())
        and classid::bigint = :high and objid::bigint = :low
    )
"""

_NEWEST_TICK = """
    select * from fairshare.tick where cluster = :cluster and (cast(:at as timestamptz) is null or at <= :at)
    order by at desc limit 1
"""

_SAME_HOUR = """
    select exists (
        select from fairshare.tick
        where cluster = :cluster and hourly and at >= :hour and at < cast(:hour as timestamptz) + interval '1 hour'
    )
"""

# Standings go with their tick.
_PRUNE = """
    delete from fairshare.tick
    where cluster = :cluster and (
        (not hourly and at < (
            select at from fairshare.tick where cluster = :cluster order by at desc offset :keep limit 1
        ))
        or at < :oldest
    )
"""

_LABELS = """
    select account_key, label from fairshare.standing
    where cluster = :cluster and label is not null and at = (
        select max(at) from fairshare.tick
        where cluster = :cluster and (cast(:at as timestamptz) is null or at < :at)
    )
"""

_SETTLE = """
    update fairshare.decision set outcome = :outcome, changed_at = :at, detail = :detail
    where cluster = :cluster and id = :id
"""
