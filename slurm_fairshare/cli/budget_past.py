"""`budget log` and `budget diff`: what was decided, by whom, and what it changed."""

from __future__ import annotations

from datetime import datetime

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.editing import capacity_now
from slurm_fairshare.cli.options import HELP, config_option, output_options, point_in_time
from slurm_fairshare.cli.output import emit, write
from slurm_fairshare.core.edits import read_path, state_after
from slurm_fairshare.core.tree import Changeset, Tree, tree_at
from slurm_fairshare.reports import budget_log, budgets
from slurm_fairshare.reports.table import Form, Style
from slurm_fairshare.units import moment


@click.command(context_settings=HELP)
@click.argument("path", default="/")
@click.option("--since", metavar="TIME", help="Recorded since a moment, or so long ago; all without.")
@output_options()
@config_option
@pass_app
def log(app: App, path: str, since: str | None, form: Form) -> None:
    """Every edit at or below PATH, newest first: who, when, from when, what, why. Planned and cancelled ones too."""
    start = point_in_time(since, app.now, app.config.zone) if since else None
    where = read_path(path)
    with app.store() as store:
        changesets = store.changesets()
    rows = budget_log.log_rows(changesets, app.now, start, where)
    report = budget_log.report(rows, app.now, start, where)
    if form.style is Style.TABLE and form.header and not form.fields:
        write(budget_log.told_rows(rows, report, form.width))
    else:
        emit(report, form)


@click.command(context_settings=HELP)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B", required=False)
@output_options()
@config_option
@pass_app
def diff(app: App, first: str, second: str | None, form: Form) -> None:
    """What changed between A and B: numbers of changesets (as each left the tree), or times. A alone: by changeset A.

    A time is a moment (2026-10-08, in the site's zone), how long ago (30d), or `now`.

    \b
    slurm-fairshare budget diff 12
    slurm-fairshare budget diff 9 12
    slurm-fairshare budget diff 90d now
    """
    with app.store() as store:
        changesets = store.changesets()
        capacity = capacity_now(app, store)
    if second is None:
        if not first.isdecimal():
            raise click.UsageError(f'"{first}" alone is no changeset: give its number, or two times')
        new, at = state_after(changesets, int(first))
        change = next(one for one in changesets if one.id == int(first))
        old = tree_at([one for one in changesets if one.id < change.id], at)
        above = f"Changeset {change.id} by {change.author}, from {moment(at)}: {change.reason}"
    else:
        old, was = _state(app, changesets, first)
        new, at = _state(app, changesets, second)
        above = f"From the tree at {moment(was)} ({first}) to the tree at {moment(at)} ({second}), UTC."
    rows = budgets.differences(old, new, capacity)
    known = f"GPU-hours a day at {capacity:g} GPUs." if capacity is not None else "GPU-hours: no tick has been yet."
    emit(budgets.difference_report(rows, (above, known), facts={"at": at, "capacity_gpus": capacity}), form)


def _state(app: App, changesets: tuple[Changeset, ...], word: str) -> tuple[Tree, datetime]:
    if word.isdecimal():
        return state_after(changesets, int(word))
    at = app.now if word == "now" else point_in_time(word, app.now, app.config.zone)
    return tree_at(changesets, at), at
