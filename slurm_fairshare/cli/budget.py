"""`budget`: show the tree, load one from a file, write it to a file."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, dry_run_option, output_options, point_in_time
from slurm_fairshare.cli.output import emit, say, width
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.edits import replace_all
from slurm_fairshare.core.tree import Changeset, tree_at
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.reports import budget_file, budgets
from slurm_fairshare.reports.table import Form
from slurm_fairshare.units import moment

RECENT = timedelta(days=1)


@click.group(context_settings=HELP)
@config_option
def budget() -> None:
    """The budget tree: who is given what part of the cluster."""


@budget.command(context_settings=HELP)
@click.option("--at", "at", metavar="TIME", help="The tree at a moment, or so long ago; now without.")
@output_options()
@config_option
@pass_app
def show(app: App, at: str | None, form: Form) -> None:
    """Show the tree: share, part of the parent, part of the cluster, GPU-hours a day, account."""
    when = point_in_time(at, app.now, app.config.zone) if at else app.now
    with app.store() as store:
        changesets = store.changesets()
        capacity = _capacity(app, store)
    emit(budgets.report(tree_at(changesets, when), capacity, when, notes=_coming(changesets, when)), form)


def _capacity(app: App, store: Store) -> float | None:
    """GPUs in service now, None before the first tick."""
    steps = store.capacity(Window(app.now - RECENT, app.now))
    return steps[-1].value if steps else None


def _coming(changesets: tuple[Changeset, ...], when: datetime) -> tuple[str, ...]:
    later = [change for change in changesets if change.effective > when]
    return tuple(f"Changes at {moment(change.effective)}: {change.reason} ({change.author})." for change in later)


@budget.command(context_settings=HELP)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--reason", default="", help="Why, for those who ask later.")
@dry_run_option
@config_option
@pass_app
def load(app: App, file: Path, reason: str, dry_run: bool) -> None:
    """Make the tree in FILE (YAML, - for standard input) the tree in force from now on.

    What is not in the file is retired; its past usage stays. Loading the same tree again changes nothing.

    \b
    tree:
      lab:
        share: 100
        children:
          vision: {share: 50, account: vision}
          nlp: {share: 50, account: nlp}
    """
    wanted = budget_file.read(_text(file), str(file))
    with app.store() as store:
        changesets = store.changesets()
        sets = replace_all(changesets, wanted, app.now)
        if not sets:
            say(["Nothing to change: the tree in force is this one already."])
            return
        last = max((change.id for change in changesets), default=0)
        before = tree_at(changesets, app.now)
        new = Changeset(last + 1, app.user, reason or f"loaded from {file}", app.now, app.now, sets)
        after = tree_at([*changesets, new], app.now)
        if not dry_run:
            new = store.add_changeset(new.author, new.reason, app.now, sets, expected_last_id=last, created=app.now)
    done = "Would change" if dry_run else f"Changeset {new.id} by {new.author}, in force from {moment(new.effective)}"
    emit(
        budgets.difference_report(budgets.differences(before, after), (f"{done}:",)),
        Form(width=width()),
    )


def _text(file: Path) -> str:
    try:
        with click.open_file(str(file), encoding="utf-8") as stream:
            text: str = stream.read()
            return text
    except OSError as error:
        raise BudgetError(f"{file} cannot be read: {error.strerror}; name a YAML file with a budget tree") from error
    except UnicodeDecodeError as error:
        raise BudgetError(f"{file} is not UTF-8 text: {error.reason}; save it as UTF-8") from error


@budget.command(context_settings=HELP)
@click.option("--at", "at", metavar="TIME", help="The tree at a moment, or so long ago; now without.")
@config_option
@pass_app
def export(app: App, at: str | None) -> None:
    """Write the tree as YAML to standard output; `budget load` reads it back without loss."""
    when = point_in_time(at, app.now, app.config.zone) if at else app.now
    with app.store() as store:
        tree = tree_at(store.changesets(), when)
    if not tree.top:
        raise BudgetError("there is no budget tree yet; load one with `slurm-fairshare budget load FILE`")
    click.echo(budget_file.write(tree), nl=False)
