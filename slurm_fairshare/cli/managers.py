"""`budget managers`, `grant`, `revoke`: who may edit what is below which node."""

from __future__ import annotations

from collections.abc import Iterator

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, output_options
from slurm_fairshare.cli.output import emit, say
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.edits import is_below, read_path, told
from slurm_fairshare.core.tree import not_cancelled, tree_at
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.reports import managers as report
from slurm_fairshare.reports.table import Form
from slurm_fairshare.store.facts import managers_now
from slurm_fairshare.units import moment

why_option = click.option("--reason", default="", help="Why, for those who ask later.")


@click.command(context_settings=HELP)
@click.argument("path")
@click.argument("user")
@why_option
@config_option
@pass_app
def grant(app: App, path: str, user: str, reason: str) -> None:
    """Make USER, a login role in Postgres, a manager of PATH: they may replace every sibling set below it.

    Not PATH's own share: that is its parent's manager's. Admins alone grant.
    """
    where = read_path(path)
    with app.store() as store:
        node = tree_at(store.changesets(), app.now).nodes.get(where)
        if where and node is None:
            raise BudgetError(f"{where} is no node; see `slurm-fairshare budget show`")
        if node is not None and node.is_leaf:
            raise BudgetError(f"{where} is a leaf, there is nothing below it to manage; name the node above it")
        if (where, user) in managers_now(store.manager_changes()):
            say([f"{user} manages {told(where)} already."])
            return
        made = store.change_manager(where, user, True, app.user, reason, app.now)
        say([f"{user} manages what is below {told(where)}, granted by {made.author}.", *_no_login(store, user)])


def _no_login(store: Store, user: str) -> Iterator[str]:
    if store.cannot_manage([user]):
        yield (
            f"{user} cannot do so yet: no login of that name is in role fairshare_manager. Somebody who may make roles "
            f'runs in psql: create role "{user}" login in role fairshare_manager (or: grant fairshare_manager to '
            f'"{user}"); the page on roles says more.'
        )


@click.command(context_settings=HELP)
@click.argument("path")
@click.argument("user")
@why_option
@config_option
@pass_app
def revoke(app: App, path: str, user: str, reason: str) -> None:
    """USER manages PATH no more, from now on. What they changed stays, what they planned too: it is named."""
    where = read_path(path)
    with app.store() as store:
        held = managers_now(store.manager_changes())
        if (where, user) not in held:
            mine = ", ".join(told(one) for one, role in held if role == user) or "nothing"
            raise BudgetError(f"{user} does not manage {told(where)}; they manage {mine}")
        made = store.change_manager(where, user, False, app.user, reason, app.now)
        planned = [
            one
            for one in not_cancelled(store.changesets())
            if one.effective > app.now and one.author == user and all(is_below(parent, where) for parent in one.sets)
        ]
    say(
        [
            f"{user} manages {told(where)} no more, revoked by {made.author}.",
            *(
                f"Changeset {one.id} of {user} is planned from {moment(one.effective)}: "
                f"slurm-fairshare budget cancel {one.id} --reason ..."
                for one in planned
            ),
        ]
    )


@click.command("managers", context_settings=HELP)
@click.argument("path", default="/")
@click.option("--all", "past", is_flag=True, help="Every grant and revocation there was, oldest first.")
@output_options()
@config_option
@pass_app
def managers(app: App, path: str, past: bool, form: Form) -> None:
    """Who may edit PATH: managers of it, of a node above, and of nodes below. Admins may edit all."""
    where = read_path(path)
    with app.store() as store:
        changes = store.manager_changes()
        rows = report.manager_rows(changes, where, past=past)
        absent = store.cannot_manage(sorted({row.role for row in rows}))
    notes = tuple(f"{role} is no login in role fairshare_manager: Postgres lets them edit nothing." for role in absent)
    emit(report.report(rows, where, notes), form)
