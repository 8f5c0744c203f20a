"""A Postgres of one's own for a test, a benchmark or a show: there for a block, gone after it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_fairshare.store.embedded import Embedded, default_place


@contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """One that the server's user may enter, whoever that is."""
    parent = default_place().parent
    parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def own_postgres(prefix: str) -> Iterator[str]:
    """The address of its superuser."""
    with folder(prefix) as home:
        server = Embedded(home / "pg", quick=True)
        try:
            yield server.start()
        finally:
            server.remove()


@contextmanager
def a_postgres(prefix: str) -> Iterator[str]:
    """The one that SLURM_FAIRSHARE_TEST_DATABASE_URL names, else one of our own: the address of a role that may create
    databases."""
    given = os.environ.get("SLURM_FAIRSHARE_TEST_DATABASE_URL")
    if given:
        yield given
        return
    with own_postgres(prefix) as address:
        yield address
