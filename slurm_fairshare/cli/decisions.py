"""`decisions`: what the rebalancer decided in a stretch of time."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, list_option, output_options, point_in_time
from slurm_fairshare.cli.output import emit
from slurm_fairshare.core.decisions import Recorded
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.reports import decisions as report
from slurm_fairshare.reports.table import Form


@click.command(context_settings=HELP)
@click.option("--since", default="1d", show_default=True, metavar="TIME", help="From when: how long ago, or a moment.")
@list_option("-A", "--account", "accounts", metavar="ACCOUNTS", help="Only where one of these accounts is a side.")
@output_options()
@config_option
@pass_app
def decisions(app: App, since: str, accounts: tuple[str, ...], form: Form) -> None:
    """Who was told to yield to whom, by which rule, and what came of it."""
    start = point_in_time(since, app.now, app.config.zone)
    with app.store() as store:
        found = store.decisions(start)
    emit(report.report([one for one in found if _concerns(one, accounts)], start, app.now), form)


def _concerns(one: Recorded, accounts: tuple[str, ...]) -> bool:
    wanted = {account_key(name) for name in accounts}
    sides = [side for side in (one.decision.victim, one.decision.preemptor) if side is not None]
    return not wanted or any(account_key(side.account) in wanted for side in sides)
