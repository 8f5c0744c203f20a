"""Connections to Postgres: opened the same way everywhere, their errors told in words a reader can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from slurm_fairshare.errors import ConfigError, StoreDenied, StoreError, StoreUnreachable
from slurm_fairshare.store.deadline import PatientConnection

APPLICATION = "slurm-fairshare"
CONNECT_TIMEOUT = 10  # seconds
STATEMENT_TIMEOUT = timedelta(minutes=2)
SILENCE = 10.0
"""Seconds beyond the limit of a statement after which the server is not waited for any more."""
UPGRADE = "run `slurm-fairshare database upgrade`"

_UNREACHABLE = ("08", "25006", "28", "3D", "53", "57P", "58")
"""SQLSTATE classes of: connection lost, a standby, login refused, no such database, no room, server going down, its
disk fails."""


# As SET TRANSACTION READ ONLY and SET LOCAL ROLE, in one statement.
_READ_AS = "select set_config('transaction_read_only', 'on', true), set_config('role', :role, true)"


class Database:
    """One Postgres database. Nothing is opened before it is needed, so a store can be made while it is down."""

    def __init__(
        self,
        dsn: str,
        *,
        application: str = APPLICATION,
        statement_timeout: timedelta | None = STATEMENT_TIMEOUT,
    ) -> None:
        self.dsn = dsn.replace("postgresql+psycopg://", "postgresql://", 1)
        self._place = _place(self.dsn)
        self._application = application
        self._limit = statement_timeout or timedelta(0)
        self._checked = False
        self._reader: str | None = None
        self._engine = create_engine(
            "postgresql+psycopg://",
            creator=self.open,
            pool_pre_ping=True,
            pool_size=4,
            max_overflow=4,
            pool_timeout=30,
        )

    def open(self, patience: float | None = None) -> psycopg.Connection[Any]:
        """A connection outside the pool. Times come back in UTC whatever the server's own zone is.

        It is given up where the server says nothing for `patience` seconds, or else somewhat longer than a
        statement may take: then the server itself has not kept its limit.
        """
        connection = PatientConnection.connect(
            self.dsn,
            application_name=self._application,
            connect_timeout=CONNECT_TIMEOUT,
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
        )
        limit = self._limit.total_seconds()
        connection.patience = patience or (limit + SILENCE if limit else None)
        milliseconds = str(int(self._limit.total_seconds() * 1000))
        try:
            connection.execute(
                "select set_config('timezone', 'UTC', false), set_config('statement_timeout', %s, false)",
                (milliseconds,),
            )
            connection.commit()
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def read_only(self, role: str = "none") -> None:
        """From now on every transaction only reads, and does so with the rights of this role (`none`: of the login)."""
        self._reader = role

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction, committed at the end of the block and rolled back on any error.

        Raises StoreUnreachable or StoreError; the first use checks that the schema is not older than the code.
        """
        with self.unchecked() as connection:
            if not self._checked:
                from slurm_fairshare.store.schema import check

                check(connection)
                self._checked = True
            yield connection

    @contextmanager
    def unchecked(self) -> Iterator[Connection]:
        """A transaction that does not ask which version the schema has."""
        with self.translated(), self._engine.begin() as connection:
            if self._reader is not None:
                connection.execute(text(_READ_AS), {"role": self._reader})
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the driver raises into our errors."""
        try:
            yield
        except DBAPIError as error:
            raise self.error_of(error.orig if isinstance(error.orig, psycopg.Error) else error) from error
        except psycopg.Error as error:
            raise self.error_of(error) from error

    def error_of(self, error: BaseException) -> StoreError:
        """Our error for one of the driver's."""
        state = getattr(error, "sqlstate", None)
        words = (str(error).strip().splitlines() or [type(error).__name__])[0]
        never_got_there = state is None and isinstance(error, psycopg.OperationalError)
        if never_got_there or (state or "").startswith(_UNREACHABLE):
            return StoreUnreachable(
                f"Postgres at {self._place} cannot be used: {words}; check that it runs and that database_url "
                "(SLURM_FAIRSHARE_DATABASE_URL) names it, its role and its password"
            )
        match state:
            case "42P01" | "3F000" | "42703":
                return StoreError(f"the database at {self._place} lacks something ({words}); {UPGRADE}")
            case "42501":
                return StoreDenied(f"this Postgres role may not do that: {words}; use one that may, or ask an admin")
            case "57014":
                return StoreError(
                    f"Postgres at {self._place} took longer than {self._limit.total_seconds():g}s for one statement "
                    "and was stopped; see whether it is overloaded or locked (pg_stat_activity)"
                )
            case _:
                return StoreError(f"Postgres at {self._place} refused ({state}): {words}")

    def close(self) -> None:
        self._engine.dispose()


def _place(dsn: str) -> str:
    """Where the database is, without its password. ConfigError if that cannot be read; it is not repeated, since
    there may be a password in it."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error:
        raise ConfigError(
            "database_url (SLURM_FAIRSHARE_DATABASE_URL) is no address of a Postgres: write "
            "postgresql://user:password@host:port/database, with %-escapes for special characters in the password"
        ) from None
    host, port = parts.get("host") or "the local socket", parts.get("port")
    return f"{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"


def scalar(connection: Connection, sql: str, **parameters: Any) -> Any:
    """The one value a query gives."""
    return connection.execute(text(sql), parameters).scalar()


def raw(connection: Connection) -> psycopg.Connection[Any]:
    """The driver's own connection below, inside the same transaction: for COPY."""
    found = connection.connection.driver_connection
    if not isinstance(found, psycopg.Connection):
        raise TypeError(f"expected a psycopg connection, found {type(found).__name__}")
    return found
