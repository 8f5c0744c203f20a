"""`make web`: the dashboard on an invented lab, in a Postgres of its own that is thrown away at the end.

python -m tests.web.demo [HOST:PORT]
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from slurm_fairshare.config import Config, WebSection
from slurm_fairshare.store.embedded import Embedded, default_place
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.schema import upgrade
from slurm_fairshare.web.server import serve
from tests.web.sample import CLUSTER, fill

DAYS, WAITING = 21, 400


def main(listen: str) -> None:
    parent = default_place().parent
    parent.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="web-", dir=parent))
    home.chmod(0o755)
    server = Embedded(home / "pg", quick=True)
    try:
        address = server.start()
        upgrade(address)
        print("inventing three weeks of a lab ...", flush=True)
        with PostgresStore(address, CLUSTER) as store:
            fill(store, now=datetime.now(UTC), days=DAYS, waiting=WAITING)
        config = Config(cluster=CLUSTER, database_url=address, web=WebSection(listen=listen))
        print("nobody ticks here, so it soon says STALE; Ctrl-C ends it", flush=True)
        print(f"the dashboard: http://{listen}/", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            serve(config)
    finally:
        server.remove()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
