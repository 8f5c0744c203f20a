"""`why JOBID`: the recorded decisions about a job, and how it stands now, in words."""

from __future__ import annotations

import re
from datetime import timedelta

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, json_option
from slurm_fairshare.cli.output import say
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.cli.queue import queue_now
from slurm_fairshare.core.decisions import Recorded
from slurm_fairshare.reports import why as report
from slurm_fairshare.reports.queue import QueueRow
from slurm_fairshare.reports.table import dump_json

LABELS_BACK = timedelta(days=7)
"""So far back decisions are looked through for a label."""

_JOB = re.compile(r"([0-9]{1,15})(?:_[0-9]+|\+[0-9]+)?")


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
    number = _JOB.fullmatch(job)
    if number is None:
        raise click.BadParameter(f'"{job}" is no job number: write 123, 123_4 or 123+1', param_hint="JOBID")
    with app.store() as store:
        rows, leaves, basis = queue_now(app, store) if store.latest_queue() is not None else ((), 0, None)
        decided = _decided(app, store, job, _job_id(job, int(number.group(1)), rows))
    known = report.why(job, decided, rows, leaves, basis)
    if as_json:
        click.echo(dump_json(report.facts(known)), nl=False)
    else:
        for place, paragraph in enumerate(report.paragraphs(known)):
            say(["", *paragraph] if place else paragraph)


def _decided(app: App, store: Store, label: str, number: int) -> tuple[Recorded, ...]:
    """Decisions by the job's number, and recent ones by its label: a task's own number is not in its label, and
    nobody knows it any more once the task has left the queue."""
    found = {one.decision.id: one for one in store.decisions_about(number)}
    named = (one for one in store.decisions(app.now - LABELS_BACK) if report.names(one, label))
    return tuple({**{one.decision.id: one for one in named}, **found}.values())


def _job_id(label: str, number: int, rows: tuple[QueueRow, ...]) -> int:
    """A task of an array has a number of its own behind its label; the queue tells it while the job is there."""
    return next((row.job.job_id for row in rows if row.job.label == label), number)
