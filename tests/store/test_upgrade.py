"""Upgrades: from every released schema with its data to the present one, and released code on the present schema.

tests/store/released holds, for each version, the schema with data and the code that wrote it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from psycopg import sql

from slurm_fairshare.store import schema
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.embedded import binaries
from slurm_fairshare.store.schema import current, upgrade, versions
from tests.store.released import smoke

RELEASED = sorted(Path(__file__).parent.glob("released/*.sql"))

released = pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)


def load(dsn: str, dump: Path) -> None:
    words = [str(binaries() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-f", str(dump)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def old_code(dump: Path, place: Path, *words: str) -> None:
    """Run that version's own smoke test with that version's own code."""
    with tarfile.open(dump.with_suffix(".tar.xz")) as tar:
        tar.extractall(place, filter="data")
    environment = os.environ | {"PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.released.smoke", *words],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    where = [sys.executable, "-c", "import slurm_fairshare; print(slurm_fairshare.__file__)"]
    found = subprocess.run(where, cwd=place, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(place)), "it was the present code that ran"


def test_every_released_version_has_its_schema_and_its_code() -> None:
    assert RELEASED
    assert all(dump.with_suffix(".tar.xz").is_file() for dump in RELEASED)


@released
def test_data_of_a_released_version_survives_the_upgrade(empty_postgres: str, dump: Path) -> None:
    load(empty_postgres, dump)
    assert current(empty_postgres) in versions()
    assert upgrade(empty_postgres) == current(empty_postgres) == schema.head()
    smoke.read(empty_postgres)
    smoke.write(empty_postgres, 1)
    smoke.read(empty_postgres, 1)


@released
def test_released_code_goes_on_working_on_the_present_schema(empty_postgres: str, dump: Path, tmp_path: Path) -> None:
    """Daemons are replaced one after the other: the old one meets the new schema."""
    load(empty_postgres, dump)
    upgrade(empty_postgres)
    old_code(dump, tmp_path, empty_postgres, "read", "0")
    old_code(dump, tmp_path, empty_postgres, "write", "1")
    old_code(dump, tmp_path, empty_postgres, "read", "1")
    smoke.read(empty_postgres, 1)


# --- migrations only add --------------------------------------------------------------------------

COLUMNS = """
    select table_name || '.' || column_name, data_type, is_nullable, column_default is not null or is_identity = 'YES'
    from information_schema.columns where table_schema = 'fairshare'
"""
CONSTRAINTS = """
    select conrelid::regclass || ' ' || conname, pg_get_constraintdef(c.oid)
    from pg_constraint c join pg_namespace n on n.oid = c.connamespace where n.nspname = 'fairshare' and contype <> 'n'
"""


def test_each_migration_only_adds(empty_postgres: str) -> None:
    """Code of the version before must go on working: nothing it reads goes, nothing new is asked of what it writes."""
    order = list(reversed(versions()))
    found = re.search(r"alembic_version VALUES \('(\w+)'\)", RELEASED[0].read_text())
    assert found is not None
    begin = order.index(found[1])  # migrations before the first release were never run on anybody's data
    _to(empty_postgres, order[begin])
    before = _shape(empty_postgres)
    for version in order[begin + 1 :]:
        _to(empty_postgres, version)
        after = _shape(empty_postgres)
        assert not broken(before, after), f"migration {version}: {broken(before, after)}"
        before = after


FUNCTIONS = """
    select p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'fairshare'
"""


def test_each_migration_since_the_release_can_be_taken_back(empty_postgres: str) -> None:
    order = list(reversed(versions()))
    for before, version in pairwise(order[order.index("0006") :]):
        _to(empty_postgres, before)
        was = (_shape(empty_postgres), _functions(empty_postgres))
        _to(empty_postgres, version)
        assert (_shape(empty_postgres), _functions(empty_postgres)) != was, version
        _to(empty_postgres, before, command.downgrade)
        assert (_shape(empty_postgres), _functions(empty_postgres)) == was, version


def _functions(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute(FUNCTIONS).fetchall())


Shape = tuple[dict[str, tuple[str, str, bool]], dict[str, str]]


def _to(dsn: str, version: str, move: Callable[[Config, str], None] = command.upgrade) -> None:
    database = Database(dsn, statement_timeout=None)
    with database.unchecked() as connection:
        move(schema._config(connection), version)
    database.close()


def _shape(dsn: str) -> Shape:
    with psycopg.connect(dsn) as connection:
        columns = {row[0]: (row[1], row[2], row[3]) for row in connection.execute(COLUMNS)}
        return columns, dict(connection.execute(CONSTRAINTS).fetchall())


def broken(before: Shape, after: Shape) -> list[str]:
    """What code that knows only `before` would stumble over."""
    found = [f"{name} has gone" for name in before[0].keys() - after[0].keys()]
    tables = {name.partition(".")[0] for name in before[0]}
    for name, (kind, nullable, default) in after[0].items():
        old = before[0].get(name)
        if old is None:
            if name.partition(".")[0] in tables and nullable == "NO" and not default:
                found.append(f"{name} must be given, and old code does not know it")
        elif old[0] != kind:
            found.append(f"{name} was {old[0]} and is {kind}")
        elif old[1] == "YES" and nullable == "NO":
            found.append(f"{name} may not be empty any more")
    for name, definition in after[1].items():
        table = name.partition(" ")[0].removeprefix("fairshare.")
        if table in tables and before[1].get(name) != definition:
            found.append(f"{name} asks more of what old code writes: {definition}")
    return sorted(found)


def test_what_is_no_addition_is_found(empty_postgres: str) -> None:
    upgrade(empty_postgres)
    before = _shape(empty_postgres)
    changes = (
        "alter table fairshare.fact drop column at",
        "alter table fairshare.poll alter column runs type bigint",
        "alter table fairshare.capacity add column watts integer not null",
        "alter table fairshare.capacity alter column allocated set not null",
        "alter table fairshare.failure add constraint words check (error <> '')",
        "alter table fairshare.failure add column hint text",
        "create table fairshare.more (id int primary key)",
    )
    with psycopg.connect(empty_postgres) as connection:
        for change in changes:
            connection.execute(sql.SQL(change))
    assert [line.split(" ")[0] for line in broken(before, _shape(empty_postgres))] == [
        "capacity.allocated",
        "capacity.watts",
        "fact.at",
        "fairshare.failure",
        "poll.runs",
    ]


def test_migrations_name_no_version_of_the_code() -> None:
    """They run for years: what they import may change its meaning."""
    for path in sorted((schema.home() / "versions").glob("*.py")):
        imported = re.findall(r"^(?:from (\S+) )?import \w+", path.read_text(), re.MULTILINE)
        assert {name.partition(".")[0] for name in imported} <= {"__future__", "alembic", "sqlalchemy"}, path.name
