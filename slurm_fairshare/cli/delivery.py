"""`delivery`, `pyramid`, `waits` and `habits`: what came of the budgets over a period."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, list_option, output_options
from slurm_fairshare.cli.output import emit
from slurm_fairshare.cli.period import moment_of, period_options, window_of
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.reports import delivery as delivery_report
from slurm_fairshare.reports import habits as habits_report
from slurm_fairshare.reports import pyramid as pyramid_report
from slurm_fairshare.reports import waits as waits_report
from slurm_fairshare.reports.measured import measured
from slurm_fairshare.reports.table import Form

account_option = list_option(
    "-A", "--account", "accounts", metavar="ACCOUNTS", help="Only these accounts or nodes, comma separated."
)
users_option = click.option("-a", "--all", "users", is_flag=True, help="With a line for each user.")


@click.command(context_settings=HELP)
@period_options("30d")
@account_option
@users_option
@output_options()
@config_option
@pass_app
def delivery(app: App, since: str, until: str | None, accounts: tuple[str, ...], users: bool, form: Form) -> None:
    """What each team was owed and what of it was delivered; what evictions threw away; unallocated hours.

    Owed is, hour by hour, the smaller of a team's entitlement and its demand. Delivered is what it was charged, up
    to what it was owed over the whole time. The strict figure, each hour by itself, stands beside it.
    """
    asked = window_of(app, since, until)
    with app.store() as store:
        found = measured(store, asked, app.now, app.config.rebalance.checkpoint_interval)
    rows = delivery_report.delivery_rows(found)
    strangers = delivery_report.unknown(rows, accounts)
    if strangers:
        raise FairshareError(
            f"not in the budget tree then: {', '.join(strangers)}; `slurm-fairshare budget show` lists what is"
        )
    emit(delivery_report.report(found, delivery_report.select(rows, accounts, users=users), users=users), form)


@click.command(context_settings=HELP)
@period_options("30d")
@output_options()
@config_option
@pass_app
def pyramid(app: App, since: str, until: str | None, form: Form) -> None:
    """Availability, occupancy, impact and utilisation of the cluster, each with its definition."""
    asked = window_of(app, since, until)
    with app.store() as store:
        found = measured(store, asked, app.now, app.config.rebalance.checkpoint_interval)
        known = found.period.known
        busy = store.busy(known)
        told = store.runs(known) if busy else ()
        levels = pyramid_report.levels(found, store.capacity_history(known), told, busy, app.now)
    emit(pyramid_report.report(found, levels), form)


@click.command(context_settings=HELP)
@period_options("30d")
@click.option("--before", metavar="DATE", help="Compare what lies before this date with what lies after it.")
@click.option("--after", metavar="DATE", help="The same; with both, what lies between them is left out.")
@click.option("-t", "--teams", is_flag=True, help="By team and class.")
@account_option
@output_options()
@config_option
@pass_app
def waits(
    app: App,
    since: str,
    until: str | None,
    before: str | None,
    after: str | None,
    teams: bool,
    accounts: tuple[str, ...],
    form: Form,
) -> None:
    """How long jobs waited, by class (debug, small, medium, large, unallocated) or by team, before and after a date."""
    asked = window_of(app, since, until)
    parts = waits_report.parts_of(
        asked, moment_of(app, before) if before else None, moment_of(app, after) if after else None
    )
    with app.store() as store:
        found = waits_report.gathered(store, asked, app.config.job_classes, app.config.ladder)
    wanted = tuple(account_key(name) for name in accounts)
    rows = waits_report.wait_rows(found, parts, teams=teams or bool(accounts), accounts=wanted)
    emit(waits_report.report(rows, parts, app.config.job_classes, teams=teams or bool(accounts)), form)


@click.command(context_settings=HELP)
@period_options("30d")
@account_option
@users_option
@output_options()
@config_option
@pass_app
def habits(app: App, since: str, until: str | None, accounts: tuple[str, ...], users: bool, form: Form) -> None:
    """How the contract is used: unallocated part, declared against actual run time, idle GPUs, in-team priorities.

    Facts only: a run that ends before its minimum may have failed, or been quicker than its owner thought.
    """
    asked = window_of(app, since, until)
    with app.store() as store:
        busy = store.busy(asked)
        found = habits_report.habits(store.runs(asked), asked, app.now, app.config.ladder, busy)
    chosen = habits_report.select(found, accounts, users=users)
    emit(habits_report.report(chosen, asked, users=users, known=bool(busy)), form)
