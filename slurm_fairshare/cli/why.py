"""`why JOBID`: the recorded decisions about a job, and how it stands now, in words."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, json_option
from slurm_fairshare.cli.output import say
from slurm_fairshare.cli.queue import queue_now
from slurm_fairshare.daemon.rebalancing import DECLINED
from slurm_fairshare.reports import why as report
from slurm_fairshare.reports.table import dump_json


@click.command(context_settings=HELP)
@click.argument("job", metavar="JOBID")
@json_option
@config_option
@pass_app
def why(app: App, job: str, as_json: bool) -> None:
    """Why a job was stopped, who yielded to it, or what it waits for.

    Takes a job's number as squeue prints it: 123, 123_4 (array task), 123+1 (part of a heterogeneous job). The
    number of an array tells of all its tasks.
    """
    if not report.JOB.fullmatch(job):
        raise click.BadParameter(f'"{job}" is no job number: write 123, 123_4 or 123+1', param_hint="JOBID")
    with app.store() as store:
        rows, leaves, basis = queue_now(app, store) if store.latest_queue() is not None else ((), 0, None)
        number = report.number_of(job, rows)
        decided = report.decided(store, job, number, app.now)
        declined = report.not_stopped(store.recall(DECLINED), number)
    known = report.why(job, decided, rows, leaves, basis, declined)
    if as_json:
        click.echo(dump_json(report.facts(known)), nl=False)
    else:
        for place, paragraph in enumerate(report.paragraphs(known)):
            say(["", *paragraph] if place else paragraph)
