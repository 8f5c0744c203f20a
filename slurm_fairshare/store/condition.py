"""What the doctor looks at in Postgres: the schema's version, what our role may do, the server's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Connection, text

from slurm_fairshare.core.doctor.facts import Clocks, DatabaseFacts
from slurm_fairshare.store.connection import Database, scalar
from slurm_fairshare.store.roles import ADMINISTERED, BUDGETS, DERIVED, MANAGER, READER, in_force
from slurm_fairshare.store.schema import head, version, versions
from slurm_fairshare.store.tables import SCHEMA, metadata
from slurm_fairshare.store.viewers import PAGES

NOT_WRITTEN = {*BUDGETS, *ADMINISTERED, *DERIVED}
"""Tables that the daemon only reads: budgets and what admins add are people's, the rest is filled by triggers."""


def condition(dsn: str, clock: Callable[[], float] = time.time) -> tuple[DatabaseFacts, Clocks]:
    """Raises StoreError, StoreUnreachable or ConfigError where nothing can be read."""
    database = Database(dsn)
    try:
        with database.unchecked() as connection:
            began = clock()
            theirs = float(scalar(connection, "select extract(epoch from clock_timestamp())"))
            ended = clock()
            found = version(connection)
            facts = DatabaseFacts(
                version=found,
                wanted=head(),
                known=frozenset(versions()),
                superuser=bool(scalar(connection, "select rolsuper from pg_roles where rolname = current_user")),
                role=str(scalar(connection, "select current_user")),
                lacks=() if found is None else tuple(_lacks(connection)),
                pages_lack=() if found is None else _pages_lack(connection),
            )
    finally:
        database.close()
    return facts, Clocks("Postgres", theirs - (began + ended) / 2, (ended - began) / 2)


def _needed(table: str) -> tuple[str, ...]:
    """What the daemon does to a table. Some are append-only, so no more than adding is asked for."""
    return ("select",) if table.removeprefix(f"{SCHEMA}.") in NOT_WRITTEN else ("select", "insert")


def _pages_lack(connection: Connection) -> tuple[tuple[str, str], ...]:
    """Logins of dashboards that are connected now, each with a role that it takes on for viewers and is not in."""
    if not in_force(connection):
        return ()
    rows = connection.execute(text(_PAGES_LACK), {"pages": PAGES, "roles": [READER, MANAGER]})
    return tuple((row.login, row.role) for row in rows)


_PAGES_LACK = """
    select distinct session.usename as login, groups.rolname as role
    from pg_stat_activity session, pg_roles groups
    where session.application_name = :pages and session.datname = current_database()
      and groups.rolname = any(cast(:roles as text[])) and not pg_has_role(session.usename, groups.oid, 'member')
    order by login, role
"""


def _lacks(connection: Connection) -> list[str]:
    """Rights that are missing, as `grant` takes them. A table of a version that is not there yet lacks nothing."""
    return [
        f"{right} on {table}"
        for table in (f"{SCHEMA}.{one.name}" for one in metadata.sorted_tables)
        if scalar(connection, "select to_regclass(:name)", name=table) is not None
        for right in _needed(table)
        if not scalar(connection, "select has_table_privilege(:name, :right)", name=table, right=right)
    ]
