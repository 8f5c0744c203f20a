"""`budget check` and `budget preview`: what is wrong, and what would be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.budget_edit import (
    account_option,
    adding,
    child_option,
    moving,
    retiring,
    setting,
    share_option,
)
from slurm_fairshare.cli.editing import Make, capacity_now, last_id, read_file
from slurm_fairshare.cli.options import HELP, config_option, output_options
from slurm_fairshare.cli.output import emit, working, write
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.edits import Sets, check_addition, replace_all
from slurm_fairshare.core.fairshare import Ranked, Ranking, Standing
from slurm_fairshare.core.plan import unbudgeted_accounts, unknown_accounts
from slurm_fairshare.core.tree import Changeset, Tree, tree_at
from slurm_fairshare.daemon.tick import recompute
from slurm_fairshare.reports import budget_check, budget_preview
from slurm_fairshare.reports.table import Form, Style
from slurm_fairshare.store.facts import managers_now


@click.command(context_settings=HELP)
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--ask-slurm", is_flag=True, help="Ask sacctmgr now, in place of what the last tick was told.")
@output_options()
@config_option
@pass_app
@click.pass_context
def check(context: click.Context, app: App, file: Path | None, ask_slurm: bool, form: Form) -> None:
    """Look for what is wrong with the budgets in force, or would be with those in FILE.

    Accounts bound twice, names that differ by case only, sums that miss 100, shares of 0, accounts that Slurm does
    not know, accounts with users that are in nobody's budget, managers of nothing, and what is planned. Cycles
    cannot be: a node's place is its path, and `budget move` refuses to hang a node below itself.

    Ends with 2 where there is an error, with 1 where there is a warning, else with 0.
    """
    with app.store() as store:
        changesets = store.changesets()
        what = "the budgets in force"
        if file is not None:
            changesets, what = _with(app, changesets, replace_all(changesets, read_file(file), app.now)), str(file)
        slurm = _asked(app, store, tree_at(changesets, app.now)) if ask_slurm else _remembered(store)
        held = managers_now(store.manager_changes())
        absent = store.cannot_manage(sorted({role for _, role in held}))
    rows = budget_check.findings(changesets, app.now, slurm, held, absent)
    report = budget_check.report(rows, app.now, what)
    if form.style is Style.TABLE and form.header and not form.fields:
        write(budget_check.told_rows(rows, report, form.width))
    else:
        emit(report, form)
    severities = {row.severity for row in rows}
    context.exit(2 if budget_check.ERROR in severities else 1 if budget_check.WARNING in severities else 0)


def _remembered(store: Store) -> budget_check.Slurm:
    tick = store.last_tick()
    if tick is None:
        return budget_check.Slurm()
    return budget_check.Slurm(tick.at, tick.unknown_accounts, tick.unbudgeted_accounts)


def _asked(app: App, store: Store, tree: Tree) -> budget_check.Slurm:
    with working("asking sacctmgr"):
        held = app.slurm(store).held()
    nothing = Standing(0.0, 0.0, 0.0)
    ranking = Ranking(tree, {}, tuple(Ranked(leaf.path, leaf.account or "", 0, nothing) for leaf in tree.leaves))
    return budget_check.Slurm(app.now, unknown_accounts(ranking, held), unbudgeted_accounts(ranking, held))


def _with(app: App, changesets: tuple[Changeset, ...], sets: Sets) -> tuple[Changeset, ...]:
    """The changesets with one more, from now on; BudgetError if the tree could not be used."""
    if not sets:
        return changesets
    new = Changeset(last_id(changesets) + 1, app.user, "a preview", app.now, app.now, sets)
    check_addition(changesets, new, None)
    return (*changesets, new)


@click.command(context_settings=HELP)
@click.argument("words", nargs=-1, required=True, metavar="FILE | set|add|move|retire ...")
@share_option
@account_option
@child_option
@output_options()
@config_option
@pass_app
def preview(
    app: App,
    words: tuple[str, ...],
    weight: float | None,
    account: str | None,
    children: tuple[str, ...],
    form: Form,
) -> None:
    """What the tree in FILE, or an edit, would give from now on, and how today's ranking would change. Saves nothing.

    The ranking is shown three times: now; right after the edit, when the lookback window still holds what was
    decided before; and had the edit held through all the window, which is where it leads if usage stays the same.

    \b
    slurm-fairshare budget preview tree.yaml
    slurm-fairshare budget preview set lab vision=60 language=40
    slurm-fairshare budget preview add lab/video --share 10 --account video
    slurm-fairshare budget preview move lab/vision company
    """
    make = _make(words, weight, account, children)
    with app.store() as store:
        changesets = store.changesets()
        sets = make(tree_at(changesets, app.now), changesets, app.now)
        after = _with(app, changesets, sets)
        whole = Changeset(1, app.user, "a preview", _LONG_AGO, _LONG_AGO, tree_at(after, app.now).sets())
        window, now = recompute(store, app.config, app.now, changesets)
        _, at_once = recompute(store, app.config, app.now, after)
        _, in_time = recompute(store, app.config, app.now, (whole,))
        rows = budget_preview.preview_rows(now, at_once, in_time, capacity_now(app, store))
        report = budget_preview.report(rows, window, capacity_now(app, store))
    emit(report, form)


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""Before every lookback window."""


def _make(words: Sequence[str], weight: float | None, account: str | None, children: Sequence[str]) -> Make:
    """The edit that the words name, spelt as its own command spells it; else a file's."""
    match words:
        case ["set", path, *pairs] if pairs:
            return setting(path, pairs)
        case ["add", path] if weight is not None:
            return adding(path, weight, account, children)
        case ["move", path, parent]:
            return moving(path, parent, weight)
        case ["retire", path]:
            return retiring(path)
        case [file]:
            wanted = read_file(Path(file))
            return lambda _tree, changesets, at: replace_all(changesets, wanted, at)
        case _:
            raise click.UsageError(
                "preview takes a file, or an edit: set PATH CHILD=SHARE..., add PATH --share N, move PATH NEWPARENT, "
                "retire PATH"
            )
