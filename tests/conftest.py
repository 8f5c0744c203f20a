"""A real Postgres for every test that wants one.

SLURM_FAIRSHARE_TEST_DATABASE_URL names one to use (as a superuser of it); else a server of our own is started for
the session, and stopped with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.store.schema import upgrade
from slurm_fairshare.store.tables import SCHEMA, metadata
from tests.postgres import a_postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server whose role may create databases."""
    with a_postgres("test-") as address:
        yield address


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[str]:
    """The name of a database with our schema. Emptying it is ten times quicker than making another."""
    name = _create(postgres_server)
    upgrade(make_conninfo(postgres_server, dbname=name))
    yield name
    _drop(postgres_server, name)


@pytest.fixture
def postgres(postgres_server: str, postgres_database: str) -> Iterator[str]:
    """The address of a database with our schema and nothing in it. A test that changes the schema, or the rights
    in it, takes `empty_postgres` instead."""
    address = make_conninfo(postgres_server, dbname=postgres_database)
    yield address
    _empty(address)


@pytest.fixture
def empty_postgres(postgres_server: str) -> Iterator[str]:
    """The address of a fresh database without a schema."""
    name = _create(postgres_server)
    yield make_conninfo(postgres_server, dbname=name)
    _drop(postgres_server, name)


def _create(server: str) -> str:
    name = f"fairshare_test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    return name


def _empty(address: str) -> None:
    """Delete every row and end every session that a test left open (they may hold the leadership)."""
    with psycopg.connect(address) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
        connection.execute("set session_replication_role = replica")  # or what is append-only stays
        for table in metadata.sorted_tables:
            connection.execute(sql.SQL("delete from {}.{}").format(sql.Identifier(SCHEMA), sql.Identifier(table.name)))


def _drop(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
