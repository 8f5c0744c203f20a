"""Every contract test runs on both stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import CLUSTER

AnyStore = MemoryStore | PostgresStore


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    if request.param == "memory":
        yield MemoryStore(CLUSTER)
        return
    with PostgresStore(request.getfixturevalue("postgres"), CLUSTER) as made:
        yield made


@pytest.fixture
def pg(postgres: str) -> Iterator[PostgresStore]:
    """A store for what only Postgres promises."""
    with PostgresStore(postgres, CLUSTER) as made:
        yield made
