"""What reports on the past ask Postgres: who held how much, and when somebody looked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert

from slurm_fairshare.core.window import Step, Window
from slurm_fairshare.store import demand as demands
from slurm_fairshare.store import tables
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.facts import Holding


class HistoryStore:
    """The questions of reports over any period."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.database, self.cluster = database, cluster

    def demand(self, window: Window) -> Mapping[str, tuple[Step, ...]]:
        """GPUs that contract jobs hold or wait for, by account key and of all (`""`): step functions, from where
        they are known."""
        with self.database.transaction() as connection:
            return demands.steps(connection, self.cluster, window)

    def holdings(self, window: Window, now: datetime) -> tuple[Holding, ...]:
        """What each user of each account held inside the window, charged and unallocated apart."""
        with self.database.transaction() as connection:
            found = connection.execute(
                text(_HOLDINGS), {"cluster": self.cluster, "start": window.start, "end": window.end, "now": now}
            )
            return tuple(
                Holding(row.account_key, row.user_name, row.charged, int(row.gpu_seconds), int(row.milli_gpu_seconds))
                for row in found
            )

    def ticks(self, window: Window) -> tuple[datetime, ...]:
        """When ticks were carried out, as far as they are kept: of older ones the first in each hour."""
        with self.database.transaction() as connection:
            found = connection.execute(
                text(
                    "select at from fairshare.tick where cluster = :cluster and at >= :start and at < :end order by at"
                ),
                {"cluster": self.cluster, "start": window.start, "end": window.end},
            )
            return tuple(row.at.astimezone(UTC) for row in found)

    def record_busy(self, busy: Mapping[str, float]) -> None:
        """The fraction of its GPU time in which a run's GPUs were busy, by the run's key; a later word counts."""
        if not busy:
            return
        rows = [{"cluster": self.cluster, "key": key, "busy": fraction} for key, fraction in sorted(busy.items())]
        new = insert(tables.utilisation)
        with self.database.transaction() as connection:
            connection.execute(
                new.on_conflict_do_update(constraint="utilisation_pkey", set_={"busy": new.excluded.busy}), rows
            )

    def busy(self, window: Window) -> Mapping[str, float]:
        """The fractions known of runs that overlap the window, by the run's key."""
        with self.database.transaction() as connection:
            found = connection.execute(text(_BUSY), {"cluster": self.cluster, "start": window.start, "end": window.end})
            return {row.key: row.busy for row in found}


_HOLDINGS = """
    select account_key, user_name, charged, sum(gpu_count * (b - a)) as gpu_seconds,
           sum(milli_gpus * (b - a)) as milli_gpu_seconds
    from (
        select account_key, user_name, charged, gpu_count::bigint as gpu_count, milli_gpus,
               floor(date_part('epoch', greatest(start_at, :start)))::bigint as a,
               floor(date_part('epoch', least(coalesce(until_at, :now), :end)))::bigint as b
        from fairshare.run_usage
        where cluster = :cluster and start_at < :end and (until_at is null or until_at > :start)
    ) piece
    where a < b and gpu_count > 0
    group by 1, 2, 3 order by 1, 2, 3
"""

_BUSY = """
    select u.key, u.busy from fairshare.utilisation u
    join fairshare.run r on r.cluster = u.cluster and r.key = u.key
    where u.cluster = :cluster and r.start_at < :end and (r.end_at is null or r.end_at > :start)
"""
