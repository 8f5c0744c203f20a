"""`why JOBID`: the recorded decisions about a job, and how it stands now, in words."""

from __future__ import annotations

import re

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, json_option
from slurm_fairshare.cli.output import say
from slurm_fairshare.cli.queue import queue_now
from slurm_fairshare.reports import why as report
from slurm_fairshare.reports.queue import QueueRow
from slurm_fairshare.reports.table import dump_json

_JOB = re.compile(r"([0-9]{1,15})(?:_[0-9]+|\+[0-9]+)?")


@click.command(context_settings=HELP)
@click.argument("job", metavar="JOBID")
@json_option
@config_option
@pass_app
def why(app: App, job: str, as_json: bool) -> None:
    """Why a job was stopped, who yielded to it, or what it waits for.

    Takes a job's number as squeue prints it: 123, 123_4 (array task), 123+1 (part of a heterogeneous job).
    """
    number = _JOB.fullmatch(job)
    if number is None:
        raise click.BadParameter(f'"{job}" is no job number: write 123, 123_4 or 123+1', param_hint="JOBID")
    with app.store() as store:
        rows, leaves, basis = queue_now(app, store) if store.latest_queue() is not None else ((), 0, None)
        decided = store.decisions_about(_job_id(job, int(number.group(1)), rows))
    known = report.why(job, decided, rows, leaves, basis)
    if as_json:
        click.echo(dump_json(report.facts(known)), nl=False)
    else:
        for place, paragraph in enumerate(report.paragraphs(known)):
            say(["", *paragraph] if place else paragraph)


def _job_id(label: str, number: int, rows: tuple[QueueRow, ...]) -> int:
    """A task of an array has a number of its own behind its label; the queue tells it while the job is there."""
    return next((row.job.job_id for row in rows if row.job.label == label), number)
