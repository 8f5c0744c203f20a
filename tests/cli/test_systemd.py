"""The units: they start what there is, as the daemon expects it, and with no more rights than it needs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from slurm_fairshare.cli.main import main

PLACE = Path(__file__).parents[2] / "systemd"
SERVICES = sorted(PLACE.glob("*.service"))
NOT_YET = {"web"}
"""Commands that come with a later part."""


def read(unit: Path) -> dict[str, list[str]]:
    """The settings of a unit by name, in their order; a name may come more than once."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_unit_starts_commands_that_exist(unit: Path) -> None:
    for line in read(unit)["ExecStart"]:
        program, *words = shlex.split(line)
        assert program == "/usr/local/bin/slurm-fairshare"
        command: click.Command = main
        for word in words:
            assert isinstance(command, click.Group)
            if word not in command.commands:
                assert word in NOT_YET
                return
            command = command.commands[word]


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_unit_runs_as_its_own_user_and_may_nothing_else(unit: Path) -> None:
    settings = read(unit)
    assert settings["User"] == ["fairshare"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert settings["NoNewPrivileges"] == settings["PrivateTmp"] == ["yes"]
    assert settings["ProtectSystem"] == ["strict"]


def test_the_daemon_is_waited_for_and_watched() -> None:
    settings = read(PLACE / "slurm-fairshare.service")
    assert settings["Type"] == ["notify"]
    assert settings["Restart"] == ["always"]
    assert settings["WatchdogSec"] == ["10min"]


def test_the_timer_is_that_of_the_tick() -> None:
    assert {unit.stem for unit in PLACE.glob("*.timer")} == {"slurm-fairshare-tick"}


def test_systemd_finds_nothing_to_say(tmp_path: Path) -> None:
    """Only where systemd is: its own check of the units."""
    if shutil.which("systemd-analyze") is None:
        text = "".join(unit.read_text() for unit in PLACE.iterdir())
        assert not re.search(r"^[a-z]", text, re.MULTILINE), "a setting begins with a capital"
        return
    for unit in PLACE.iterdir():
        words = (
            unit.read_text().replace("/usr/local/bin/slurm-fairshare", "/bin/true").replace("=fairshare\n", "=root\n")
        )
        (tmp_path / unit.name).write_text(words)
    units = [str(unit) for unit in tmp_path.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "slurm-fairshare" in line]
    assert not ours, done.stderr
    assert done.returncode == 0
