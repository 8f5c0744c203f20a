"""Two hundred people refresh the dashboard and run `shares`: Slurm is asked nothing, Postgres next to nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.config import Config
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.web.server import application
from tests.web.conftest import Desk
from tests.web.crowd import Watch, refresh, straight
from tests.web.sample import CLUSTER, fill
from tests.web.test_answers import Counted

READERS = 200
PAGES = (
    "/",
    "/team/lab/vision",
    "/team/lab/language/chat",
    "/queue",
    "/queue?page=2",
    "/cluster",
    "/budget",
    "/api/v1/tree",
)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch(tmp_path)
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    return made


def test_slurm_is_asked_nothing(make_desk: Callable[..., Desk], watch: Watch) -> None:
    desk = make_desk()
    slurm = Counted(MemorySlurm(CLUSTER, desk.config.ladder))
    store = Counted(desk.store)
    desk = replace(desk, store=store)
    crowd = asyncio.run(refresh(straight(desk.app), PAGES, READERS, 4.0))
    for _ in range(20):
        result = CliRunner().invoke(main, ["shares", "-a"], obj=App(desk.config, desk.store, slurm, lambda: desk.now))
        assert result.exit_code == 0, result.output
    assert crowd.wrong == []
    assert len(crowd.seconds) > READERS
    assert slurm.asked == 0
    assert watch.calls == []


def test_postgres_is_asked_by_the_tick_not_by_the_reader(postgres: str, watch: Watch) -> None:
    with PostgresStore(postgres, CLUSTER) as store:
        fill(store, now=datetime.now(UTC), days=2, every=6)
    app = application(Config(cluster=CLUSTER, database_url=postgres))
    try:
        first = asyncio.run(refresh(straight(app), PAGES, 1, 2.0))
        assert first.wrong == []
        before = transactions(postgres)
        crowd = asyncio.run(refresh(straight(app), PAGES, READERS, 4.0))
        spent = transactions(postgres) - before
    finally:
        app.close()
    assert crowd.wrong == []
    assert crowd.kept > 0
    # Two looks at the newest tick in four seconds, each with what pages draw from it anew; whoever reads.
    assert spent < len(crowd.seconds) / 4
    assert spent < 200
    assert watch.calls == []


def transactions(address: str) -> int:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        row: Any = connection.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        ).fetchone()
    return int(row[0])
