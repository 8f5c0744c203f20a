"""docs/howto/backup.md, followed: its commands, in its order, bring a ledger that was lost back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg

from slurm_fairshare.store.embedded import binaries
from slurm_fairshare.store.schema import current, head, upgrade
from tests.store.released import smoke

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "backup.md"


def commands(section: str) -> list[str]:
    """The commands of one section of the page."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    found = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    assert found, f"no commands in {section}"
    return found


def follow(line: str, dsn: str, place: Path) -> subprocess.CompletedProcess[str]:
    """What an admin types, with the tools of the Postgres that the tests use."""
    line = re.sub(
        r"^slurm-fairshare ", f"{sys.executable} -c 'from slurm_fairshare.cli.main import main; main()' ", line
    )
    path = f"{binaries()}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "DATABASE": dsn, "SLURM_FAIRSHARE_DATABASE_URL": dsn}
    words = ["bash", "-c", line]
    return subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)


def test_a_ledger_that_was_lost_comes_back(empty_postgres: str, tmp_path: Path) -> None:
    upgrade(empty_postgres)
    smoke.write(empty_postgres)
    for line in commands("Back up"):
        done = follow(line, empty_postgres, tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    smoke.write(empty_postgres, 1)
    with psycopg.connect(empty_postgres, autocommit=True) as connection:
        connection.execute("drop schema fairshare cascade")
    restore, again, tick = commands("Restore")[:3]
    for line in (restore, again):
        done = follow(line, empty_postgres, tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert current(empty_postgres) == head()
    smoke.read(empty_postgres)
    smoke.write(empty_postgres, 2)
    smoke.read(empty_postgres, 2)
    missing = follow(tick, empty_postgres, tmp_path)
    assert "scontrol" in missing.stderr, "it gets as far as asking Slurm, which is not here"


def test_the_page_names_commands_that_exist() -> None:
    from slurm_fairshare.cli.main import main

    named = {line.split()[1] for part in ("Back up", "Restore") for line in commands(part) if line.startswith("slurm-")}
    assert named <= main.commands.keys()
