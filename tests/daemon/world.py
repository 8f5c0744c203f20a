"""A small cluster in memory: two nodes of eight GPUs, three teams, a budget, and a clock one turns by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from slurm_fairshare.config import Config
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.ports import TickReport
from slurm_fairshare.daemon.rebalancing import PassReport, rebalance_pass
from slurm_fairshare.daemon.tick import tick
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.store.memory import MemoryStore

T0 = datetime(2026, 11, 1, tzinfo=UTC)
TEAMS = {"vision": 50.0, "language": 30.0, "robotics": 20.0}
SETS = {"": (Share("lab", 1),), "lab": tuple(Share(name, weight, name) for name, weight in TEAMS.items())}


def terms(min_runtime: int, *, resumable: bool = True, notice: str | None = None) -> Contract:
    return Contract(min_runtime=min_runtime, resumable=resumable, notice=notice)


@dataclass
class World:
    slurm: MemorySlurm
    store: MemoryStore
    config: Config

    @property
    def now(self) -> datetime:
        return self.slurm.now

    def tick(self, *, dry_run: bool = False) -> TickReport:
        with self.leading():
            return tick(self.slurm, self.store, self.config, self.now, dry_run=dry_run)

    def rebalance(self, *, dry_run: bool = False) -> PassReport:
        with self.leading():
            return rebalance_pass(self.slurm, self.store, self.config, self.now, dry_run=dry_run)

    @contextmanager
    def leading(self) -> Iterator[None]:
        with self.store.lead():
            yield

    def run(self, account: str, gpus: int, contract: Contract, *, nodes: int = 1) -> int:
        job = self.slurm.submit(account, f"user-{account}", gpus, nodes=nodes, contract=contract)
        self.slurm.start(job)
        return job

    def wait(self, account: str, gpus: int, contract: Contract) -> int:
        return self.slurm.submit(account, f"user-{account}", gpus, contract=contract)


def world(**settings: object) -> World:
    config = Config(cluster="lab", **settings)  # type: ignore[arg-type]
    slurm = MemorySlurm("lab", config.ladder, now=T0)
    for name in ("n1", "n2"):
        slurm.add_node(name)
    for team in TEAMS:
        slurm.add_account(team, f"user-{team}")
    store = MemoryStore("lab", config.charge_rule, config.ladder)
    store.add_changeset("ada", "the programme", T0, SETS, created=T0)
    return World(slurm, store, config)
