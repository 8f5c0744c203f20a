"""What the doctor reads in Postgres."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from slurm_fairshare.errors import StoreUnreachable
from slurm_fairshare.store.condition import condition
from slurm_fairshare.store.roles import DAEMON, MANAGER, READER, set_up
from slurm_fairshare.store.schema import head, upgrade, versions
from slurm_fairshare.store.tables import SCHEMA
from slurm_fairshare.store.viewers import PAGES

ROLE = "doctor_test_reader"


@pytest.fixture
def reader(postgres: str) -> Iterator[str]:
    """The address of a role that may read everything and write nothing but one table."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"create role {ROLE}")
        connection.execute(f"grant usage on schema {SCHEMA} to {ROLE}")
        connection.execute(f"grant select on all tables in schema {SCHEMA} to {ROLE}")
        connection.execute(f"grant insert on {SCHEMA}.run to {ROLE}")
        yield make_conninfo(postgres, options=f"-c role={ROLE}")
        connection.execute(f"drop owned by {ROLE}")
        connection.execute(f"drop role {ROLE}")


def test_a_database_of_ours(postgres: str) -> None:
    facts, clock = condition(postgres)
    assert (facts.version, facts.wanted, facts.known) == (head(), head(), frozenset(versions()))
    assert facts.superuser
    assert facts.lacks == ()
    assert abs(clock.ahead) - clock.doubt < 1


def test_rights_that_are_missing_are_named_as_grant_takes_them(reader: str) -> None:
    facts, _ = condition(reader)
    assert facts.role == ROLE
    assert not facts.superuser
    assert f"insert on {SCHEMA}.tick" in facts.lacks
    assert f"insert on {SCHEMA}.run" not in facts.lacks
    assert not any(right.startswith("select") for right in facts.lacks)


def test_the_daemons_group_role_lacks_nothing(empty_postgres: str) -> None:
    upgrade(empty_postgres)
    set_up(empty_postgres)
    facts, _ = condition(make_conninfo(empty_postgres, options=f"-c role={DAEMON}"))
    assert facts.role == DAEMON
    assert facts.lacks == ()


@pytest.mark.parametrize(("groups", "lacks"), [((READER,), (MANAGER,)), ((READER, MANAGER), ())])
def test_a_dashboard_that_runs_with_a_login_that_lacks_a_role_is_named(
    empty_postgres: str, groups: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    upgrade(empty_postgres)
    set_up(empty_postgres)
    login = f"pages_{secrets.token_hex(4)}"
    with psycopg.connect(empty_postgres, autocommit=True) as connection:
        connection.execute(f"create role {login} login noinherit password 'pw' in role {', '.join(groups)}")
    try:
        with psycopg.connect(make_conninfo(empty_postgres, user=login, password="pw", application_name=PAGES)):
            assert condition(empty_postgres)[0].pages_lack == tuple((login, role) for role in lacks)
        assert condition(empty_postgres)[0].pages_lack == ()
    finally:
        with psycopg.connect(empty_postgres, autocommit=True) as connection:
            connection.execute(f"drop role {login}")


def test_a_database_without_a_schema_of_ours(empty_postgres: str) -> None:
    facts, _ = condition(empty_postgres)
    assert facts.version is None
    assert facts.lacks == ()


def test_another_clock_is_measured_against_the_middle_of_the_question(postgres: str) -> None:
    late = iter([0.0, 10.0])
    _, clock = condition(postgres, lambda: next(late))
    assert clock.doubt == 5.0
    assert clock.ahead > 1e9


def test_no_postgres_at_all() -> None:
    with pytest.raises(StoreUnreachable):
        condition("postgresql://nobody@127.0.0.1:1/none")
