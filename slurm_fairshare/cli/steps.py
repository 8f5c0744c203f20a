"""`tick`, `rebalance` and `daemon`: what the product does, once or for ever."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.logs import configure_logs
from slurm_fairshare.cli.options import HELP, config_option, dry_run_option, json_option
from slurm_fairshare.cli.output import say, working
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.reports import ticks
from slurm_fairshare.reports.table import dump_json


@click.command(context_settings=HELP)
@dry_run_option
@json_option
@config_option
@pass_app
def tick(app: App, dry_run: bool, as_json: bool) -> None:
    """Once: read usage and queue, recompute the ranking, push what changed to Slurm, record it.

    For cron, where no daemon runs. With --dry-run Slurm is only read, and no tick is recorded.
    """
    from slurm_fairshare.daemon.tick import tick as run_tick

    with app.store() as store, _leading(store, dry_run), working("reading Slurm, recomputing the ranking"):
        report = run_tick(app.slurm(store), store, app.config, app.now, dry_run=dry_run)
    if as_json:
        click.echo(dump_json(ticks.tick_facts(report)), nl=False)
    else:
        say(ticks.tick_sentences(report))


@click.command(context_settings=HELP)
@dry_run_option
@json_option
@config_option
@pass_app
def rebalance(app: App, dry_run: bool, as_json: bool) -> None:
    """Once: decide which runs past their minimum runtime yield to whom, and carry it out.

    Says for each job it looked at why somebody yields, or why nobody does.
    """
    from slurm_fairshare.daemon.rebalancing import rebalance_pass

    with app.store() as store, _leading(store, dry_run), working("reading the queue, deciding"):
        report = rebalance_pass(app.slurm(store), store, app.config, app.now, dry_run=dry_run)
    if as_json:
        click.echo(dump_json(ticks.pass_facts(report.recorded, report.declined, dry_run)), nl=False)
    else:
        say(ticks.pass_sentences(report.recorded, report.declined, dry_run))


@click.command(context_settings=HELP)
@config_option
@pass_app
def daemon(app: App) -> None:
    """Tick and rebalance for ever, while leading the cluster; others stand by. Stops on SIGTERM."""
    from slurm_fairshare.daemon.loop import run, utc_now
    from slurm_fairshare.metrics import served

    configure_logs(app.config.log_format)
    with app.store() as store, served(store, app.config, utc_now):
        run(app.slurm(store), store, app.config)


def _leading(store: Store, dry_run: bool) -> AbstractContextManager[None]:
    """Only the leader acts, so that two never stop runs for the same job at once."""
    return nullcontext() if dry_run else store.lead()
