"""The reference pages say what the program does: they are written from it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from slurm_fairshare.cli.main import main
from slurm_fairshare.cli.reference import PAGES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_what_the_code_says(page: str) -> None:
    written = (FOLDER / page).read_text(encoding="utf-8")
    assert written == PAGES[page](), "write it anew: python -m slurm_fairshare.cli.reference"


def _all(command: click.Command) -> list[click.Command]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [command, *(one for child in below for one in _all(child))]


@pytest.mark.parametrize("command", _all(main), ids=lambda command: command.name)
def test_every_command_and_option_explains_itself_and_takes_a_settings_file(command: click.Command) -> None:
    assert command.help
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []
    if command.name != "version":
        assert "--config" in {name for one in options for name in one.opts}
