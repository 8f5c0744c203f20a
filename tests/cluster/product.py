"""The product as a site runs it, for the cluster tests: real Slurm by command line, real Postgres, real clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from slurm_fairshare.config import Config
from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.daemon.ports import TickReport
from slurm_fairshare.daemon.rebalancing import PassReport, rebalance_pass
from slurm_fairshare.daemon.tick import tick
from slurm_fairshare.slurm.cli import CommandLine
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.store.memo import StoreMemo
from slurm_fairshare.store.postgres import PostgresStore
from tests.cluster.cluster import Cluster

TEAMS = {"vision": 50.0, "language": 30.0, "robotics": 20.0}
PEOPLE = {"vision": ("alice", "bob"), "language": ("carol",), "robotics": ("dan",)}
POOR, RICH = "vision", "robotics"


@dataclass
class Product:
    """`with product.daemon():` ticks and rebalances in the background, quicker than a site would."""

    cluster: Cluster
    config: Config
    store: PostgresStore
    slurm: CommandLine
    errors: list[str] = field(default_factory=list)

    @classmethod
    def on(cls, cluster: Cluster, dsn: str, **settings: object) -> Product:
        """Without a past: what earlier tests ran in accounts of the same names is none of this test's history."""
        settings.setdefault("daemon", {"first_poll": "1s"})
        config = Config(
            cluster="lab",
            database_url=dsn,
            **({"rebalance": {"interval": "1s", "settle": "30s"}} | settings),  # type: ignore[arg-type]
        )
        store = PostgresStore(dsn, "lab", config.charge_rule, config.ladder)
        return cls(cluster, config, store, cls.command_line(cluster, config, store))

    @staticmethod
    def command_line(cluster: Cluster, config: Config, store: PostgresStore) -> CommandLine:
        """Slurm as a new process would open it: it remembers only what Postgres remembers."""
        runner = Runner(tuple(cluster.command_prefix()))
        return CommandLine(config.cluster, config.ladder, config.charge_rule, runner=runner, memo=StoreMemo(store))

    def reopened(self) -> Product:
        return Product(self.cluster, self.config, self.store, self.command_line(self.cluster, self.config, self.store))

    def fund(self, shares: Mapping[str, float] = TEAMS) -> None:
        """Accounts and users in Slurm, and a budget for them."""
        for team in shares:
            self.cluster.add_account(team, *PEOPLE.get(team, ()))
        leaves = tuple(Share(name, weight, name) for name, weight in shares.items())
        now = utc_now()
        self.store.add_changeset("ada", "the programme", now, {"": (Share("lab", 1),), "lab": leaves}, created=now)

    def tick(self) -> TickReport:
        with self.store.lead():
            return tick(self.slurm, self.store, self.config, utc_now())

    def rebalance(self, *, dry_run: bool = False) -> PassReport:
        with self.store.lead():
            return rebalance_pass(self.slurm, self.store, self.config, utc_now(), dry_run=dry_run)

    @contextmanager
    def daemon(self, tick_every: float = 5, pass_every: float = 1) -> Iterator[None]:
        """The daemon's two jobs on threads of this process; an error in either fails the test at the end."""
        stop = threading.Event()

        def repeat(what: object, pause: float) -> None:
            while not stop.is_set():
                try:
                    what(self.slurm, self.store, self.config, utc_now())  # type: ignore[operator]
                except Exception as error:  # noqa: BLE001  reported below, where the test can fail on it
                    self.errors.append(f"{getattr(what, '__name__', what)}: {error!r}")
                stop.wait(pause)

        with self.store.lead():
            tick(self.slurm, self.store, self.config, utc_now())
            threads = [
                threading.Thread(target=repeat, args=args, daemon=True)
                for args in ((tick, tick_every), (rebalance_pass, pass_every))
            ]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                stop.set()
                for thread in threads:
                    thread.join(60)
        assert not self.errors, self.errors
