"""`queue`: the last tick's picture of the queue."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.basis import NOTHING_YET, warn_if_stale
from slurm_fairshare.cli.options import HELP, SlurmLike, config_option, list_option, output_options
from slurm_fairshare.cli.output import emit
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.daemon.booking import recalled
from slurm_fairshare.daemon.lifting import lifted
from slurm_fairshare.errors import StaleData
from slurm_fairshare.reports import queue as report
from slurm_fairshare.reports.table import Form
from slurm_fairshare.reports.words import Basis


@click.command(cls=SlurmLike, context_settings=HELP)
@list_option("-A", "--account", "accounts", metavar="ACCOUNTS", help="Only jobs of these accounts, comma separated.")
@list_option("-u", "--user", "users", metavar="USERS", help="Only jobs of these users, comma separated.")
@list_option("-t", "--states", "states", metavar="STATES", help="Only these states: PD, R, CG, ... or all.")
@output_options()
@config_option
@pass_app
def queue(app: App, accounts: tuple[str, ...], users: tuple[str, ...], states: tuple[str, ...], form: Form) -> None:
    """Pending jobs in the order Slurm takes them, then running ones: rank, balance, contract, protected until when.

    Balance: "under 12%" means the account has had 12% less than it was owed in the lookback window, and goes
    before one that is "over". A running job is protected for its minimum runtime and may yield after it.
    """
    with app.store() as store:
        rows, _, basis = queue_now(app, store)
    warn_if_stale(basis, form)
    emit(report.report(report.select(rows, report.Wanted(accounts, users, states)), basis), form)


def queue_now(app: App, store: Store) -> tuple[tuple[report.QueueRow, ...], int, Basis]:
    """The whole queue in order, the number of ranked accounts, and how old the picture is."""
    picture = store.latest_queue()
    if picture is None:
        raise StaleData(NOTHING_YET)
    last = store.last_ranking()
    ranking = last[1] if last is not None else None
    basis = Basis(picture.at, app.now, app.config.daemon.interval)
    ladder = app.config.ladder
    rows = report.queue_rows(picture.jobs, ranking, ladder, app.now, recalled(store), lifted(store))
    return rows, len(ranking.leaves) if ranking is not None else 0, basis
