"""Counts over the whole journal and ledger, for those who watch: cheap, and never going down but by pruning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Connection, text

from slurm_fairshare.store.connection import Database


@dataclass(frozen=True, slots=True)
class Tallies:
    """How often what has happened: failures by step, decisions by rule and outcome (dry runs are none), rows of Slurm's
    that could not be read by source, and how many of these are new since the moment asked for."""

    failures: Mapping[str, int] = field(default_factory=dict)
    decisions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    failures_since: int = 0
    rejected_since: int = 0


class TallyStore:
    """What is counted, and when the queue was seen last."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.database, self.cluster = database, cluster

    def tallies(self, since: datetime) -> Tallies:
        """All counts; `since` is from when on something is new."""
        with self.database.transaction() as connection:
            return Tallies(
                failures=dict(self._counts(connection, "select phase, count(*) from fairshare.failure", "phase")),
                decisions={(rule, outcome): count for rule, outcome, count in self._rows(connection, _DECISIONS)},
                rejected=dict(
                    self._counts(connection, "select source, count(*) from fairshare.rejected_row", "source")
                ),
                failures_since=self._since(connection, "failure", "at", since),
                rejected_since=self._since(connection, "rejected_row", "first_at", since),
            )

    def last_picture(self) -> datetime | None:
        """When the queue that reports show was seen."""
        with self.database.transaction() as connection:
            found = self._rows(connection, "select at from fairshare.picture where cluster = :cluster")
            return found[0][0].astimezone(UTC) if found else None

    def _counts(self, connection: Connection, select: str, by: str) -> list[tuple[str, int]]:
        return [
            (name, count) for name, count in self._rows(connection, f"{select} {_OURS} group by {by} order by {by}")
        ]

    def _since(self, connection: Connection, table: str, column: str, since: datetime) -> int:
        sql = f"select count(*) from fairshare.{table} {_OURS} and {column} >= :since"  # noqa: S608 - constants
        return int(connection.execute(text(sql), {"cluster": self.cluster, "since": since}).scalar() or 0)

    def _rows(self, connection: Connection, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        return [tuple(row) for row in connection.execute(text(sql), {"cluster": self.cluster})]


_OURS = "where cluster = :cluster"

_DECISIONS = """
    select rule, outcome, count(*) from fairshare.decision
    where cluster = :cluster and not dry_run group by rule, outcome order by rule, outcome
"""
