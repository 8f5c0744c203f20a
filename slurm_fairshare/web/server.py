"""The dashboard on Postgres, served by uvicorn."""

from __future__ import annotations

from datetime import UTC, datetime

import uvicorn

from slurm_fairshare.config import Config
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.viewers import PAGES, Sight, Viewers
from slurm_fairshare.web.app import Dashboard, create_app
from slurm_fairshare.web.ports import Store


def application(config: Config) -> Dashboard:
    """The application on the site's Postgres. Nothing is opened before the first page is asked for."""

    def store(sight: Sight) -> Store:
        made = PostgresStore(
            config.database_url,
            config.cluster,
            config.charge_rule,
            config.ladder,
            application=PAGES,
            statement_timeout=config.database_timeout,
        )
        made.database.read_only(sight.role)
        return made

    roles = Database(config.database_url, application=PAGES, statement_timeout=config.database_timeout)
    roles.read_only()
    return create_app(config, store, Viewers(roles), lambda: datetime.now(UTC))


def serve(config: Config) -> None:
    """Serve until SIGTERM or Ctrl-C.

    One process is enough for hundreds of readers, and it keeps what it has read. The proxy's headers about the peer
    are not taken for the peer: whom user_header is believed from is decided by who connects.
    """
    host, port = config.web.host_and_port
    uvicorn.run(
        application(config),
        host=host,
        port=port,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        log_level="info",
        access_log=False,
        timeout_keep_alive=30,
        limit_concurrency=1000,
    )
