"""`make web`: the dashboard on an invented lab, in a Postgres of its own that is thrown away at the end.

python -m tests.web.demo [HOST:PORT]
"""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime

from slurm_fairshare.config import Config, WebSection
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.schema import upgrade
from slurm_fairshare.web.server import serve
from tests.postgres import own_postgres
from tests.web.sample import CLUSTER, fill

DAYS, WAITING = 21, 400


def main(listen: str) -> None:
    with own_postgres("web-") as address:
        upgrade(address)
        print("inventing three weeks of a lab ...", flush=True)
        with PostgresStore(address, CLUSTER) as store:
            fill(store, now=datetime.now(UTC), days=DAYS, waiting=WAITING)
        config = Config(cluster=CLUSTER, database_url=address, web=WebSection(listen=listen))
        print("nobody ticks here, so it soon says STALE; Ctrl-C ends it", flush=True)
        print(f"the dashboard: http://{listen}/", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            serve(config)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
