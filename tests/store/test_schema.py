"""The migrations: they make what the code says, from nothing, again, and two at once."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from slurm_fairshare.errors import StoreError
from slurm_fairshare.store import schema
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.schema import current, upgrade
from slurm_fairshare.store.tables import SCHEMA, metadata

ROOT = Path(__file__).parents[2]


def test_the_migrations_make_exactly_the_tables_the_code_knows(postgres: str) -> None:
    database = Database(postgres)
    with database.unchecked() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_schemas": True,
                "version_table_schema": SCHEMA,
                "include_name": lambda name, kind, _: name == SCHEMA if kind == "schema" else True,
                "compare_type": True,
            },
        )
        assert compare_metadata(context, metadata) == []
    database.close()


def test_an_empty_database_is_refused_with_what_to_run(empty_postgres: str) -> None:
    assert current(empty_postgres) is None
    with (
        PostgresStore(empty_postgres, "c") as store,
        pytest.raises(StoreError, match="slurm-fairshare database upgrade"),
    ):
        store.watermark()
    assert upgrade(empty_postgres) == current(empty_postgres) == schema.head()
    with PostgresStore(empty_postgres, "c") as store:
        assert store.watermark() is None


def test_upgrading_again_changes_nothing(postgres: str) -> None:
    assert upgrade(postgres) == current(postgres) == schema.head()


def test_upgrades_at_once_wait_for_each_other(empty_postgres: str) -> None:
    program = "import sys; from slurm_fairshare.store.schema import upgrade; print(upgrade(sys.argv[1]))"
    several = [
        subprocess.Popen([sys.executable, "-c", program, empty_postgres], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [one.communicate(timeout=60)[0].strip() for one in several] == [schema.head()] * 3


@pytest.mark.parametrize(("found", "fine"), [("0001", False), ("9999", True)])
def test_an_older_schema_is_refused_and_a_newer_one_is_not(empty_postgres: str, found: str, fine: bool) -> None:
    upgrade(empty_postgres)
    database = Database(empty_postgres)
    with database.unchecked() as connection:
        connection.execute(text("update fairshare.alembic_version set version_num = :found"), {"found": found})
    database.close()
    with PostgresStore(empty_postgres, "c") as store:
        if fine:
            assert store.watermark() is None
        else:
            with pytest.raises(StoreError, match="is version 0001 and this program needs"):
                store.watermark()


def test_other_schemas_in_the_database_are_left_alone(empty_postgres: str) -> None:
    database = Database(empty_postgres)
    with database.unchecked() as connection:
        connection.execute(text("create table public.alembic_version (version_num text)"))
        connection.execute(text("insert into public.alembic_version values ('theirs')"))
    upgrade(empty_postgres)
    with database.unchecked() as connection:
        assert connection.execute(text("select version_num from public.alembic_version")).scalar_one() == "theirs"
    database.close()


def test_everything_is_packaged() -> None:
    """The packages are named one by one, because sql/ moves into the package; none may be missing."""
    named = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    package = ROOT / "slurm_fairshare"
    found = {".".join(place.parent.relative_to(ROOT).parts) for place in package.rglob("__init__.py")}
    assert named == found | {"slurm_fairshare.sql"}
    assert schema.home() == ROOT / "sql"
