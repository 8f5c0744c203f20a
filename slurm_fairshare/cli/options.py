"""Options that many commands share, so that one letter means one thing everywhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.output import width
from slurm_fairshare.core.contract import read_duration
from slurm_fairshare.reports.table import Form, Style

Function = TypeVar("Function", bound=Callable[..., Any])

HELP = {"help_option_names": ["-h", "--help"]}


def _set_config(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.find_root().ensure_object(App).config_file = value


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_set_config,
    expose_value=False,
    is_eager=True,
    metavar="FILE",
    help="Settings file, in place of ./slurm-fairshare.toml or the one in /etc.",
)

dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


class _NoSuchOption(click.UsageError):
    exit_code = 1


class SlurmLike(click.RichCommand):
    """A command that stands beside one of Slurm's: options it does not know end with 1 there, not with 2."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _NoSuchOption(error.format_message(), error.ctx) from error


def output_options(*no_header: str) -> Callable[[Function], Function]:
    """The forms of a report, as sshare and sacct name them, handed on as `form`. `no_header`: the names of -n."""
    flags = [
        click.option(*(no_header or ("-n", "--noheader")), "noheader", is_flag=True, help="No header, no sentences."),
        click.option("-p", "--parsable", is_flag=True, help="Fields separated by |, with a | at the end."),
        click.option("-P", "--parsable2", is_flag=True, help="Fields separated by |, none at the end."),
        click.option("--csv", "as_csv", is_flag=True, help="CSV."),
        click.option("--json", "as_json", is_flag=True, help="JSON with every field; -o and -n play no part."),
        click.option(
            "-o",
            "--format",
            "fields",
            multiple=True,
            metavar="FIELDS",
            help="Fields, comma separated; the beginning of a name is enough, Name%20 sets its width.",
        ),
    ]

    def decorate(function: Function) -> Function:
        @wraps(function)
        def with_form(*args: Any, **kwargs: Any) -> Any:
            return function(*args, form=_form(kwargs), **kwargs)

        decorated: Any = with_form
        for flag in reversed(flags):
            decorated = flag(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def _form(kwargs: dict[str, Any]) -> Form:
    asked = {name: kwargs.pop(name) for name in ("parsable", "parsable2", "as_csv", "as_json")}
    style = Style.TABLE
    for name, one in (
        ("parsable", Style.PARSABLE),
        ("parsable2", Style.PARSABLE2),
        ("as_csv", Style.CSV),
        ("as_json", Style.JSON),
    ):
        style = one if asked[name] else style
    return Form(style, not kwargs.pop("noheader"), ",".join(kwargs.pop("fields")), width())


def names(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Comma separated lists, as Slurm takes them; the option may also be repeated."""
    return tuple(name.strip() for words in value for name in words.split(",") if name.strip())


def list_option(*declaration: str, metavar: str, help: str) -> Callable[[Function], Function]:  # noqa: A002
    return click.option(*declaration, multiple=True, callback=names, metavar=metavar, help=help)


def point_in_time(text: str, now: datetime, zone: tzinfo) -> datetime:
    """A moment, or how long ago: `2026-10-08T12:00Z`, `2026-10-08` (in the site's zone), `1d`, `90m`."""
    seconds = read_duration(text)
    if seconds is not None and not text.isdecimal():
        return now - timedelta(seconds=seconds)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f'"{text}" is no moment: write 2026-10-08, 2026-10-08T12:00Z, or how long ago, such as 1d or 90m'
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def coming_moment(text: str | None, now: datetime, zone: tzinfo) -> datetime:
    """A moment to come, or in how long: `2027-01-01` (in the site's zone), `7d`; now without. Never the past."""
    if text is None:
        return now
    seconds = read_duration(text.removeprefix("+"))
    if seconds is not None and not text.isdecimal():
        return now + timedelta(seconds=seconds)
    at = point_in_time(text, now, zone)
    if at < now:
        raise click.BadParameter(f'"{text}" is past, and the past stays: name a moment to come, or leave --from out')
    return at
