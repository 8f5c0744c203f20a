"""The period of a report on the past: --since and --until, read alike everywhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import rich_click as click

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.options import point_in_time
from slurm_fairshare.core.window import Window

Function = TypeVar("Function", bound=Callable[..., Any])


def period_options(since: str) -> Callable[[Function], Function]:
    """--since with its default, and --until."""

    def decorate(function: Function) -> Function:
        until = click.option("--until", metavar="TIME", help="Up to when: how long ago, or a moment; now without.")
        begin = click.option(
            "--since",
            default=since,
            show_default=True,
            metavar="TIME",
            help="From when: how long ago (30d), or a moment (2026-10-01, in the site's zone).",
        )
        decorated: Function = begin(until(function))
        return decorated

    return decorate


def window_of(app: App, since: str, until: str | None) -> Window:
    """The window asked for. Nothing after now is known, so it ends by now."""
    start = moment_of(app, since)
    end = min(moment_of(app, until), app.now) if until else app.now
    if start >= end:
        raise click.BadParameter("it must lie before --until, and before now", param_hint="--since")
    return Window(start, end)


def moment_of(app: App, text: str) -> datetime:
    return point_in_time(text, app.now, app.config.zone).astimezone(UTC).replace(microsecond=0)
