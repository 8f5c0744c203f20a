"""A Postgres with the site's roles set up, and people and programs who log in as themselves."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.core.tree import Share
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.roles import ADMIN, DAEMON, MANAGER, READER, Readers, set_up
from slurm_fairshare.store.schema import upgrade
from tests.conftest import _create, _drop
from tests.store.build import CLUSTER, batch, decision, report, run

TREE = {
    "": (Share("lab", 1),),
    "lab": (Share("vision", 50), Share("language", 30, "nlp"), Share("robotics", 20, "robotics")),
    "lab/vision": (Share("video", 1, "video"), Share("faces", 1, "faces")),
}
LOGINS = {"anna": MANAGER, "mona": MANAGER, "otto": ADMIN, "rita": READER, "dora": DAEMON}
"""anna manages lab/vision, mona nothing (any more), otto is an admin, rita reads, dora is the daemon."""


@dataclass
class Place:
    """A database with the roles set up, and logins that are their members."""

    owner: str
    suffix: str

    def role(self, name: str) -> str:
        return f"{name}_{self.suffix}"

    def address(self, name: str) -> str:
        return make_conninfo(self.owner, user=self.role(name), password="pw")

    def store(self, name: str) -> PostgresStore:
        return PostgresStore(self.address(name), CLUSTER)

    def do(self, name: str, *statements: str) -> None:
        """As this login, in one transaction."""
        with closing(psycopg.connect(self.address(name))) as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())

    def refuses(self, name: str, *statements: str) -> str:
        """The SQLSTATE with which it ends; nothing of it stays."""
        with pytest.raises(psycopg.Error) as caught:
            self.do(name, *statements)
        return str(caught.value.sqlstate)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.owner) as connection:
            return connection.execute(query.encode()).fetchall()


@contextmanager
def a_place(
    server: str, logins: Mapping[str, Sequence[str]], readers: Readers | None = None, inherit: bool = True
) -> Iterator[Place]:
    """A database with our schema, the site's roles, and logins by the groups they are in; gone afterwards."""
    name = _create(server)
    made = Place(make_conninfo(server, dbname=name), secrets.token_hex(4))
    try:
        upgrade(made.owner)
        set_up(made.owner, readers)
        words = f"create role {{}} login {'inherit' if inherit else 'noinherit'} password 'pw' in role {{}}"
        with psycopg.connect(made.owner, autocommit=True) as connection:
            for login, groups in logins.items():
                members = sql.SQL(", ").join(map(sql.Identifier, groups))
                connection.execute(sql.SQL(words).format(sql.Identifier(made.role(login)), members))
        yield made
    finally:
        _drop(server, name)
        with psycopg.connect(server, autocommit=True) as connection:
            for login in logins:
                connection.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(made.role(login))))


@contextmanager
def made_place(postgres_server: str) -> Iterator[Place]:
    """One with a tree, some ledger and journal."""
    with a_place(postgres_server, {login: (group,) for login, group in LOGINS.items()}) as made:
        now = datetime.now(UTC)
        with PostgresStore(made.owner, CLUSTER) as store:
            past = now - timedelta(days=30)
            store.add_changeset("head", "the programme", past, TREE, created=past)
            store.change_manager("lab/vision", made.role("anna"), True, "head", "leads vision", now)
            store.change_manager("lab/language", made.role("mona"), True, "head", "leads language", now)
            store.change_manager("lab/language", made.role("mona"), False, "head", "has left", now)
            store.record_runs(batch(run("k1", 1, 2)), now)
            store.decide([decision("d1", 1)])
            store.record_tick(report(1))
        yield made
