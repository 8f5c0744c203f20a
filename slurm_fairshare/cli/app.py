"""Where the parts are put together: settings, Postgres, Slurm, the clock. Commands ask here and nowhere else."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import click

from slurm_fairshare.cli.ports import Store
from slurm_fairshare.config import Config, load
from slurm_fairshare.daemon.ports import Slurm
from slurm_fairshare.slurm.run import Runner


def utc_now() -> datetime:
    return datetime.now(UTC)


class App:
    """Everything is opened when it is first asked for, so that `--help` and `version` need nothing.

    Tests bring their own store, Slurm and clock.
    """

    def __init__(
        self,
        config: Config | None = None,
        store: Store | None = None,
        slurm: Slurm | None = None,
        clock: Callable[[], datetime] = utc_now,
        runner: Runner | None = None,
    ) -> None:
        self.config_file: Path | None = None
        self._given_config, self._given_store, self._given_slurm = config, store, slurm
        self._given_runner = runner
        self._clock = clock

    @cached_property
    def config(self) -> Config:
        return self._given_config or load(self.config_file)

    @cached_property
    def now(self) -> datetime:
        """One clock reading for the whole command."""
        return self._clock()

    @property
    def user(self) -> str:
        """Who runs the command: the author of what it records."""
        return getpass.getuser()

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, its connections closed at the end of the block."""
        store = self._given_store or self._postgres()
        try:
            yield store
        finally:
            store.close()

    def _postgres(self) -> Store:
        from slurm_fairshare.store.postgres import PostgresStore

        config = self.config
        return PostgresStore(
            config.database_url,
            config.cluster,
            config.charge_rule,
            config.ladder,
            statement_timeout=config.database_timeout,
        )

    def slurm(self, store: Store) -> Slurm:
        """Slurm by its command line. What sacctmgr said is remembered in the store, across the ticks of a cron."""
        return self._given_slurm or self._command_line(store)

    def _command_line(self, store: Store) -> Slurm:
        from slurm_fairshare.slurm.cli import CommandLine
        from slurm_fairshare.store.memo import StoreMemo

        config, memo = self.config, StoreMemo(store)
        asked = (config.cluster, config.ladder, config.charge_rule)
        if config.slurm.backend == "pyslurm":
            from slurm_fairshare.slurm.pyslurm_backend import PyslurmBackend, load_pyslurm

            return PyslurmBackend(load_pyslurm(), *asked, runner=self.runner(), memo=memo)
        return CommandLine(*asked, runner=self.runner(), memo=memo)

    def runner(self) -> Runner:
        """What runs Slurm's tools."""
        section = self.config.slurm
        return self._given_runner or Runner(section.command_prefix, timeout=section.timeout.total_seconds())


pass_app = click.make_pass_decorator(App, ensure=True)
