"""How alembic runs the migrations: on the connection it is given, or on SLURM_FAIRSHARE_DATABASE_URL."""

from __future__ import annotations

import os
from typing import Any

from alembic import context
from sqlalchemy import Connection, text

from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.tables import SCHEMA, metadata

LOCK = 0x66616972  # "fair": two upgrades at once wait for each other


def include_name(name: str | None, kind: str, _parents: Any) -> bool:
    """Look at our schema only; the rest of the database is somebody else's."""
    return name == SCHEMA if kind == "schema" else True


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=include_name,
    )
    with context.begin_transaction():
        connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": LOCK})
        connection.execute(text(f"create schema if not exists {SCHEMA}"))
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    database = Database(os.environ["SLURM_FAIRSHARE_DATABASE_URL"], statement_timeout=None)
    with database.unchecked() as connection:
        migrate(connection)
    database.close()
