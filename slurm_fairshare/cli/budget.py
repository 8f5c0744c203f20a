"""`budget`: show the tree, load one from a file, write it to a file; its other commands are in modules beside."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from slurm_fairshare.cli import budget_check, budget_edit, budget_past, managers
from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.editing import Asked, capacity_now, edit_options, last_id, read_file, record
from slurm_fairshare.cli.options import HELP, config_option, dry_run_option, output_options, point_in_time
from slurm_fairshare.cli.output import emit, warn
from slurm_fairshare.core.edits import replace_all
from slurm_fairshare.core.tree import not_cancelled, tree_at
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.reports import budget_file, budgets
from slurm_fairshare.reports.table import Form
from slurm_fairshare.units import moment


@click.group(context_settings=HELP)
@config_option
def budget() -> None:
    """The budget tree: who is given what part of the cluster, since when, by whom and why.

    Look: show, log, diff, check, managers, export. Try: preview, or --dry-run with any edit.
    Edit: set, add, move, retire, load, cancel. Who may edit: grant, revoke.
    """


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
        capacity = capacity_now(app, store)
    tree = tree_at(changesets, when)
    notes = tuple(
        f"Changes at {moment(one.effective)}: {one.reason} ({one.author}, changeset {one.id})."
        for one in not_cancelled(changesets)
        if one.effective > when
    )
    emit(budgets.report(tree, capacity, when, last=last_id(changesets), notes=notes), form)


@budget.command(context_settings=HELP)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--reason", default="", help="Why, for those who ask later.")
@edit_options
@dry_run_option
@config_option
@pass_app
def load(app: App, file: Path, reason: str, start: str | None, expect: int | None, dry_run: bool) -> None:
    """Make the tree in FILE (YAML, - for standard input) the tree in force from now on, or from a later time.

    What is not in the file is retired; its past usage stays. Loading the same tree again changes nothing. Other
    edits that are planned stay planned: `budget cancel` takes them back.

    \b
    tree:
      lab:
        share: 100
        children:
          vision: {share: 50, account: vision}
          nlp: {share: 50, account: nlp}
    """
    wanted = read_file(file)
    asked = Asked(reason or f"loaded from {file}", start, expect, dry_run)
    record(app, asked, lambda _tree, changesets, at: replace_all(changesets, wanted, at))


@budget.command(context_settings=HELP)
@click.option("--at", "at", metavar="TIME", help="The tree at a moment, or so long ago; now without.")
@config_option
@pass_app
def export(app: App, at: str | None) -> None:
    """Write the tree as YAML to standard output; `budget load` reads it back without loss.

    It is the tree at one moment: edits planned for later are not in it, and it is said on standard error if there
    are any. --at with a moment to come writes the tree as it is planned for then. The past is in `budget log`.
    """
    when = point_in_time(at, app.now, app.config.zone) if at else app.now
    with app.store() as store:
        changesets = store.changesets()
    tree = tree_at(changesets, when)
    if not tree.top:
        raise BudgetError("there is no budget tree yet; load one with `slurm-fairshare budget load FILE`")
    click.echo(budget_file.write(tree), nl=False)
    for one in not_cancelled(changesets):
        if one.effective > when:
            warn(f"not in it: changeset {one.id} by {one.author}, planned from {moment(one.effective)}")


for command in (
    budget_edit.set_,
    budget_edit.add,
    budget_edit.move,
    budget_edit.retire,
    budget_edit.cancel,
    budget_past.log,
    budget_past.diff,
    budget_check.check,
    budget_check.preview,
    managers.grant,
    managers.revoke,
    managers.managers,
):
    budget.add_command(command)
