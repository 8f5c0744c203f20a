"""The site's Postgres roles: group roles that people's and programs' own logins are members of.

| role | may |
| --- | --- |
| fairshare_reader | read what the site allows |
| fairshare_manager | read all; replace sibling sets below the nodes it is listed for |
| fairshare_admin | read all; replace any sibling set, grant and revoke managers, adjust usage by hand |
| fairshare_daemon | read all; write ledger and journal, no budgets |

Nobody updates or deletes budgets, grants or adjustments. The owner of the tables is bound by none of this: it is
for migrations, and no person's login. Roles belong to the whole Postgres server, so two databases on one server
share them; what a manager may edit is kept in each database.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import psycopg
from psycopg import sql
from sqlalchemy import Connection, text

from slurm_fairshare.errors import StoreError
from slurm_fairshare.store.connection import Database, raw, scalar
from slurm_fairshare.store.tables import SCHEMA, metadata

READER, MANAGER, ADMIN, DAEMON = GROUPS = (
    "fairshare_reader",
    "fairshare_manager",
    "fairshare_admin",
    "fairshare_daemon",
)

BUDGETS = ("changeset", "changeset_set", "changeset_share")
"""Managers and admins add to these, row-level security says where. Nobody else does."""
ADMINISTERED = ("manager", "adjustment")
"""Admins alone add to these."""
ADDED_TO = ("decision_outcome",)
"""The daemon adds to these and changes nothing."""
KEPT = ("run", "rejected_row", "poll", "capacity")
"""The daemon adds to these and corrects them; nothing of them is deleted."""
DERIVED = ("usage_hour",)
"""Triggers write these, nobody else."""
SETTLED = "decision"
"""The daemon adds to it, and says later what came of it; the decision itself stays."""
SETTLED_COLUMNS = ("outcome", "changed_at", "detail")

OPEN_TO_ALL = (*BUDGETS, "manager", "tick", "standing", "capacity", "failure")
"""What a reader sees where the site keeps people's jobs to itself: budgets and how the teams stand."""
OPEN_VIEWS = ("manager_now", "standing_now")
INVOKER_VIEWS = 150_000
"""Since this version of Postgres a view can be read with the rights of who reads it."""


class Readers(Enum):
    """What the reader's role may read."""

    ALL = "all"
    """Everything, people's jobs too."""
    BUDGETS = "budgets"
    """Budgets, managers and how the teams stand; no jobs, no runs, no users."""


def set_up(dsn: str, readers: Readers | None = None) -> tuple[str, ...]:
    """Make the roles that are missing and grant each what it may. Returns those that were made.

    `readers` None leaves what readers may see as it is (all, where it was never said). Safe to repeat.
    """
    database = Database(dsn)
    try:
        with database.transaction() as connection:
            made = tuple(name for name in GROUPS if _make(connection, name))
            grant(connection, readers or _readers_now(connection))
    finally:
        database.close()
    return made


def in_force(connection: Connection) -> bool:
    """Whether the roles have been set up in this database."""
    found = "select exists (select from pg_roles where rolname = :role and has_schema_privilege(oid, :schema, 'usage'))"
    return bool(scalar(connection, found, role=DAEMON, schema=SCHEMA))


def refresh(connection: Connection) -> None:
    """Grant again after a migration, so that new tables are not forgotten; nothing where there are no roles."""
    if in_force(connection):
        grant(connection, _readers_now(connection))


def script() -> str:
    """What somebody with CREATEROLE runs where the owner of the tables may not make roles."""
    return "".join(f"create role {name} nologin;\n" for name in GROUPS)


def _make(connection: Connection, name: str) -> bool:
    found = "select rolcanlogin or rolsuper or rolbypassrls or rolcreaterole from pg_roles where rolname = :name"
    too_much = scalar(connection, found, name=name)
    if too_much:
        raise StoreError(
            f"there is a role {name} already, and it may log in, make roles or pass row-level security: it is not "
            "ours. Rename it, or alter it to nologin nosuperuser nobypassrls nocreaterole"
        )
    if too_much is not None:
        return False
    driver = raw(connection)
    try:
        with driver.transaction():
            driver.execute(sql.SQL("create role {} nologin").format(sql.Identifier(name)))
    except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        return False  # somebody else was quicker
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            "the owner of the tables may not make roles: let somebody who may (CREATEROLE) run this, then repeat "
            f"`slurm-fairshare database roles`:\n{script()}".rstrip()
        ) from error
    return True


def _readers_now(connection: Connection) -> Readers:
    """As the rights in force say it."""
    if not in_force(connection):
        return Readers.ALL
    sees_runs = scalar(connection, "select has_table_privilege(:role, 'fairshare.run', 'select')", role=READER)
    return Readers.ALL if sees_runs else Readers.BUDGETS


def grant(connection: Connection, readers: Readers) -> None:
    """Give each role what it may, on all there is and on what later migrations add; take back everything else."""
    driver = raw(connection)
    views = set(_views(connection))
    for statement in statements(readers, views):
        driver.execute(statement.encode())
    for function in connection.execute(text(_ASKED), {"schema": SCHEMA}).scalars():
        driver.execute(f"grant execute on function {function} to {', '.join(GROUPS)}".encode())
    if driver.info.server_version >= INVOKER_VIEWS:
        for view in sorted(views):  # who reads a view needs rights on what it shows
            driver.execute(f"alter view {SCHEMA}.{view} set (security_invoker = true)".encode())


def _views(connection: Connection) -> Iterator[str]:
    found = text("select viewname from pg_views where schemaname = :schema")
    yield from connection.execute(found, {"schema": SCHEMA}).scalars()


def statements(readers: Readers, views: set[str]) -> Iterator[str]:
    """The grants as SQL. All names are our own."""
    everybody = ", ".join(GROUPS)
    insiders = f"{MANAGER}, {ADMIN}, {DAEMON}"
    for kind in ("tables", "sequences", "functions"):
        yield f"revoke all on all {kind} in schema {SCHEMA} from public, {everybody}"
        yield f"alter default privileges in schema {SCHEMA} revoke all on {kind} from {everybody}"
    yield f"revoke all on schema {SCHEMA} from public"
    yield f"grant usage on schema {SCHEMA} to {everybody}"
    yield f"grant select on all tables in schema {SCHEMA} to {insiders}"
    yield f"alter default privileges in schema {SCHEMA} grant select on tables to {insiders}"
    yield f"alter default privileges in schema {SCHEMA} grant insert, update, delete on tables to {DAEMON}"
    yield f"grant usage on all sequences in schema {SCHEMA} to {DAEMON}"
    yield from _reading(readers, views)
    for table in metadata.tables.values():
        yield from _writing(table.name)


def _reading(readers: Readers, views: set[str]) -> Iterator[str]:
    if readers is Readers.ALL:
        yield f"grant select on all tables in schema {SCHEMA} to {READER}"
        yield f"alter default privileges in schema {SCHEMA} grant select on tables to {READER}"
        return
    for name in (*OPEN_TO_ALL, "alembic_version", *sorted(views.intersection(OPEN_VIEWS))):
        yield f"grant select on {SCHEMA}.{name} to {READER}"


def _writing(table: str) -> Iterator[str]:
    """What beside reading. A table not named above is the daemon's own working copy of something."""
    name = f"{SCHEMA}.{table}"
    if table in BUDGETS:
        yield f"grant insert on {name} to {MANAGER}, {ADMIN}"
    elif table in ADMINISTERED:
        yield f"grant insert on {name} to {ADMIN}"
    elif table in ADDED_TO:
        yield f"grant insert on {name} to {DAEMON}"
    elif table in KEPT:
        yield f"grant insert, update on {name} to {DAEMON}"
    elif table in DERIVED:
        return
    elif table == SETTLED:
        yield f"grant insert, update ({', '.join(SETTLED_COLUMNS)}) on {name} to {DAEMON}"
    else:
        yield f"grant insert, update, delete on {name} to {DAEMON}"


# Functions that policies, reports and people ask: they run with the rights of who asks. Those that run with the
# owner's are for triggers alone.
_ASKED = """
    select oid::regprocedure::text from pg_proc
    where pronamespace = to_regnamespace(:schema) and prorettype <> 'trigger'::regtype and not prosecdef
"""
