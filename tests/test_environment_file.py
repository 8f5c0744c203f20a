"""The daemon's environment file: who may read it runs commands as the daemon would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_fairshare import config

NAME = "SLURM_FAIRSHARE_DATABASE_URL"
DAEMONS = "postgresql://fairshare_service:secret@dbhost/fairshare"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "environment"
    file.write_text(f"# the daemon's\n{NAME}={DAEMONS}\n")
    monkeypatch.setattr(config, "ENVIRONMENT", file)
    monkeypatch.setattr(config, "PLACES", (tmp_path / "none.toml",))
    monkeypatch.setattr(os, "environ", {key: value for key, value in os.environ.items() if key != NAME})
    return file


def test_who_may_read_it_gets_its_variables(environment: Path) -> None:
    assert config.load().database_url == DAEMONS


def test_what_is_set_already_wins(environment: Path) -> None:
    os.environ[NAME] = "postgresql://anna@dbhost/fairshare"
    assert config.load().database_url == "postgresql://anna@dbhost/fairshare"


def test_without_it_nothing_changes(environment: Path) -> None:
    environment.unlink()
    assert config.load().database_url == "postgresql:///fairshare"
