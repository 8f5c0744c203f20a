"""The version of the schema: bringing a database up to date, and refusing one that is too old."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Lock

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from slurm_fairshare.errors import StoreError
from slurm_fairshare.store.connection import UPGRADE, Database, scalar
from slurm_fairshare.store.tables import SCHEMA

_ALEMBIC = Lock()
"""alembic keeps what it works on in a global, so one thread at a time. Other processes wait in Postgres."""


def home() -> Path:
    """Where the migrations are: inside an installed package, else in sql/ beside it in a source tree."""
    package = Path(str(files("slurm_fairshare")))
    for place in (package / "sql", package.parent / "sql"):
        if (place / "env.py").is_file():
            return place
    raise StoreError(f"the migrations are missing beside {package}; install slurm-fairshare again")


def upgrade(dsn: str) -> str:
    """Bring the database to this code's version and return it. Safe to repeat, and for two at once.

    Where the site's roles are set up (store/roles.py), they get their rights on what is new.
    """
    from slurm_fairshare.store.roles import refresh

    database = Database(dsn, statement_timeout=None)
    try:
        with _ALEMBIC, database.unchecked() as connection:
            command.upgrade(_config(connection), "head")
            refresh(connection)
    finally:
        database.close()
    return head()


def current(dsn: str) -> str | None:
    """The version the database has, None if it holds no schema of ours."""
    database = Database(dsn)
    try:
        with database.unchecked() as connection:
            return version(connection)
    finally:
        database.close()


def version(connection: Connection) -> str | None:
    """The version the connected database has."""
    if scalar(connection, f"select to_regclass('{SCHEMA}.alembic_version')") is None:
        return None
    found = scalar(connection, f"select version_num from {SCHEMA}.alembic_version")  # noqa: S608 - a constant
    return None if found is None else str(found)


@cache
def versions() -> tuple[str, ...]:
    """All versions this code knows, newest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def head() -> str:
    """The version this code needs."""
    return versions()[0]


def check(connection: Connection) -> None:
    """Refuse a schema older than this code. A newer one is fine: migrations only ever add, so that daemons can
    be replaced one after the other."""
    found = version(connection)
    if found is None:
        raise StoreError(f"the database holds no slurm-fairshare schema yet; {UPGRADE}")
    if found in versions() and found != head():
        raise StoreError(f"the database's schema is version {found} and this program needs {head()}; {UPGRADE}")


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(home()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
