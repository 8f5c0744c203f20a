"""The command line on a store and a Slurm in memory, with a clock that tests set."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.config import Config
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.store.memory import MemoryStore

START = datetime(2026, 10, 8, 6, 0, tzinfo=UTC)
TREE = """
tree:
  lab:
    share: 100
    children:
      vision: {share: 50, account: vision}
      language: {share: 30, account: NLP}
      robotics: {share: 20, account: robotics}
"""


@dataclass
class Site:
    """A cluster of two nodes, three teams, and somebody at the keyboard."""

    slurm: MemorySlurm
    store: MemoryStore
    config: Config
    folder: Path
    columns: str | None = None

    def run(self, *words: str, stdin: str | None = None) -> Result:
        """What a user types behind `slurm-fairshare`, and what comes of it."""
        app = App(self.config, self.store, self.slurm, clock=lambda: self.slurm.now)
        environment = {"COLUMNS": self.columns} if self.columns else {"COLUMNS": ""}
        result = CliRunner().invoke(main, list(words), obj=app, input=stdin, env=environment)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def says(self, *words: str) -> str:
        """The standard output of a command that must succeed."""
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refuses(self, code: int, *words: str) -> str:
        """The one message of a command that must end with this code."""
        result = self.run(*words)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        return result.stderr

    def after(self, **length: float) -> None:
        self.slurm.advance(timedelta(**length).total_seconds())

    def load(self) -> None:
        file = self.folder / "tree.yaml"
        file.write_text(TREE, encoding="utf-8")
        self.says("budget", "load", str(file))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment wins over what a test says, so whoever runs the tests must not be heard."""
    for name in os.environ:
        if name.startswith("SLURM_FAIRSHARE_") and not name.startswith("SLURM_FAIRSHARE_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    config = Config(cluster="lab")
    slurm = MemorySlurm("lab", config.ladder, config.charge_rule, START)
    for name in ("n1", "n2"):
        slurm.add_node(name)
    slurm.add_account("vision", "alice")
    slurm.add_account("nlp", "dan", "erin")
    slurm.add_account("robotics", "carol")
    return Site(slurm, MemoryStore("lab", config.charge_rule, config.ladder), config, tmp_path)


@pytest.fixture
def contest(site: Site) -> Site:
    """Language has taken the whole cluster for hours; vision, which is owed half of it, waits."""
    site.load()
    site.says("tick")
    four = Contract(4 * 3600, resumable=True)
    jobs = [site.slurm.submit("nlp", "dan", 8, contract=four) for _ in range(2)]
    for job, node in zip(jobs, ("n1", "n2"), strict=True):
        site.slurm.start(job, node)
    site.after(hours=1)
    site.slurm.submit("vision", "alice", 8, contract=four)
    site.after(hours=3, minutes=10)
    site.says("tick")
    return site
