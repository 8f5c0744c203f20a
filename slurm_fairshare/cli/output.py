"""How text leaves: colours on a terminal, plain elsewhere; warnings and progress beside it on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.text import Text

from slurm_fairshare.reports.table import Form, Report, Row, Style, render, wrap


def width() -> int | None:
    """The terminal's width. Where no terminal reads, none: like Slurm's tools, unless COLUMNS is set."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def emit(report: Report[Row], form: Form) -> None:
    write(render(report, form), coloured=form.style is Style.TABLE)


def write(text: Text, *, coloured: bool = True) -> None:
    console = Console()
    if coloured and console.is_terminal:
        console.print(text, soft_wrap=True, end="", highlight=False)
    else:
        click.echo(text.plain, nl=False)


def say(lines: Iterable[str]) -> None:
    """Sentences, wrapped to the terminal."""
    room = width()
    for line in lines:
        for part in wrap(Text(_printable(line)), room):
            click.echo(part.plain)


def warn(line: str) -> None:
    """A sentence for people that must not get among what programs read."""
    click.echo(_printable(line), err=True)


def _printable(line: str) -> str:
    """Names come from users: nothing in them may reach the terminal as a command."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in line)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something takes its time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{what} ..."):
        yield
