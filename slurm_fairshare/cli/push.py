"""`plan` and `apply`: what Slurm should hold beside what it holds, and the way from one to the other."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, dry_run_option, output_options
from slurm_fairshare.cli.output import emit, say, width, working
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core import plan as planning
from slurm_fairshare.core.plan import Change, ClearUserPriority, Held, SetPriority
from slurm_fairshare.daemon.ports import Slurm
from slurm_fairshare.reports import changes as report
from slurm_fairshare.reports.table import Form
from slurm_fairshare.reports.ticks import account_notes

LABELS_LEFT = (
    "Priorities are left to the next tick: there is no ranking of the last few minutes, and nothing is pushed "
    "from stale data."
)

remove_option = click.option("--remove", is_flag=True, help="Take everything of ours out of Slurm again.")


@click.command(context_settings=HELP)
@remove_option
@output_options()
@config_option
@pass_app
def plan(app: App, remove: bool, form: Form) -> None:
    """Show the changes that take Slurm from what it holds to what it should hold. Changes nothing."""
    with app.store() as store, working("reading what Slurm holds"):
        changes, notes = _changes(app, store, app.slurm(store), remove)
    emit(report.report(changes, notes=notes), form)


@click.command(context_settings=HELP)
@dry_run_option
@remove_option
@config_option
@pass_app
def apply(app: App, dry_run: bool, remove: bool) -> None:
    """Carry the plan out: QOS ladder, access, priorities. Needs Slurm's AdminLevel Administrator for the QOS.

    Only QOS under our prefix and accounts of the budget tree are touched. A second run changes nothing.
    """
    with app.store() as store:
        slurm = app.slurm(store)
        with working("reading what Slurm holds"):
            changes, notes = _changes(app, store, slurm, remove)
        emit(report.report(changes, notes=notes), Form(width=width()))
        if dry_run or not changes:
            return
        with working(f"carrying out {len(changes)} changes"):
            slurm.carry_out(changes)
    say([f"Done: {len(changes)} {'change' if len(changes) == 1 else 'changes'} carried out."])


def _changes(app: App, store: Store, slurm: Slurm, remove: bool) -> tuple[Sequence[Change], tuple[str, ...]]:
    held = slurm.held()
    return _removal(app, store, held) if remove else _plan(app, store, held)


def _plan(app: App, store: Store, held: Held) -> tuple[Sequence[Change], tuple[str, ...]]:
    from slurm_fairshare.daemon.tick import recompute

    _, ranking = recompute(store, app.config, app.now)
    changes = planning.plan(ranking, app.config.ladder, app.config.lane, held)
    notes = account_notes(planning.unknown_accounts(ranking, held), planning.unbudgeted_accounts(ranking, held))
    if _fresh(app, store):
        return changes, notes
    return [one for one in changes if not isinstance(one, SetPriority | ClearUserPriority)], (LABELS_LEFT, *notes)


def _fresh(app: App, store: Store) -> bool:
    tick = store.last_tick()
    return tick is not None and app.now - tick.at <= app.config.rebalance.max_age


def _removal(app: App, store: Store, held: Held) -> tuple[Sequence[Change], tuple[str, ...]]:
    """Accounts of every tree there ever was: one that has left the tree may still hold what is ours."""
    accounts = sorted(
        {
            share.account
            for changeset in store.changesets()
            for shares in changeset.sets.values()
            for share in shares
            if share.account is not None
        }
    )
    return planning.removal(accounts, held, app.config.contract.qos_prefix), ()
