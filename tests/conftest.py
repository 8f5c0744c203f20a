"""A real Postgres for every test that wants one.

SLURM_FAIRSHARE_TEST_DATABASE_URL names one to use (its role must be allowed to create databases); else a
server of our own is started for the session, and stopped with it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.store.embedded import Embedded, default_place
from slurm_fairshare.store.schema import upgrade


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server whose role may create databases."""
    given = os.environ.get("SLURM_FAIRSHARE_TEST_DATABASE_URL")
    if given:
        yield given
        return
    parent = default_place().parent
    parent.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="test-", dir=parent))
    home.chmod(0o755)
    server = Embedded(home / "pg", quick=True)
    try:
        yield server.start()
    finally:
        server.remove()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Iterator[str]:
    """A database with our schema in it, to be copied."""
    name = _create(postgres_server)
    upgrade(make_conninfo(postgres_server, dbname=name))
    yield name
    _drop(postgres_server, name)


@pytest.fixture
def postgres(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """The address of a fresh database with our schema."""
    name = _create(postgres_server, postgres_template)
    yield make_conninfo(postgres_server, dbname=name)
    _drop(postgres_server, name)


@pytest.fixture
def empty_postgres(postgres_server: str) -> Iterator[str]:
    """The address of a fresh database without a schema."""
    name = _create(postgres_server)
    yield make_conninfo(postgres_server, dbname=name)
    _drop(postgres_server, name)


def _create(server: str, template: str = "template0") -> str:
    name = f"fairshare_test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        made = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
        connection.execute(made)
    return name


def _drop(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
