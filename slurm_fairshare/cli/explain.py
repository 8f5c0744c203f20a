"""`explain`: an account, a job or a user, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.basis import last_ranking
from slurm_fairshare.cli.options import HELP, config_option, json_option
from slurm_fairshare.cli.output import say
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.cli.queue import queue_now
from slurm_fairshare.core.projection import turns
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.reports import explain as report
from slurm_fairshare.reports import why as why_report
from slurm_fairshare.reports.course import capacity_now, course_of, pass_now
from slurm_fairshare.reports.table import dump_json


@click.command(context_settings=HELP)
@click.argument("what", metavar="ACCOUNT|JOBID|USER")
@json_option
@config_option
@pass_app
def explain(app: App, what: str, as_json: bool) -> None:
    """Where it stands at each level of the tree, what it is owed, why it waits or runs, and when that turns.

    An account's name, a node of the tree (by name or path), a job's number or a user's name. What is said about the
    future supposes that what runs goes on and nothing else starts.
    """
    with app.store() as store:
        kind, paths, told, known = _explained(app, store, what)
    if as_json:
        click.echo(dump_json(report.facts(known, what, kind, paths, told)), nl=False)
        return
    for place, paragraph in enumerate(part for part in told if part):
        say(["", *paragraph] if place else paragraph)


def _explained(app: App, store: Store, what: str) -> tuple[str, Sequence[str], list[list[str]], report.Known]:
    ranking, basis = last_ranking(app, store)
    rows, leaves, queue_basis = queue_now(app, store) if store.latest_queue() is not None else ((), 0, None)
    used = store.usage_by_user(basis.window, app.config.weight, basis.at) if basis.window else {}
    job: why_report.Why | None = None
    paths: tuple[str, ...] = ()
    if why_report.JOB.fullmatch(what) and not report.nodes_named(ranking, what):
        decided = why_report.decided(store, what, why_report.number_of(what, rows), app.now)
        job = why_report.why(what, decided, rows, leaves, queue_basis)
        row = job.row
        kind = "job"
        if row is not None and row.leaf is not None:
            paths = (row.leaf.path,)
    else:
        kind, paths = "node", report.nodes_named(ranking, what)
        if not paths:
            kind, paths = "user", report.paths_of_user(ranking, what, used, rows)
    if not paths and job is None:
        raise FairshareError(
            f"{what} is no account or node of the budget tree, no job number, and no user with jobs or usage in it; "
            "`slurm-fairshare budget show` lists the tree"
        )
    known = report.Known(
        ranking=ranking,
        basis=basis,
        rows=rows,
        capacity=capacity_now(store, app.config, app.now),
        turns=turns(course_of(store, app.config, basis.window or Window(basis.at, basis.at)), ranking, paths),
        passed=pass_now(store, app.config, app.now),
        used=used,
    )
    if job is not None:
        return kind, paths, report.explain_job(known, job), known
    if kind == "user":
        return kind, paths, report.explain_user(known, what, paths), known
    return kind, paths, [part for path in paths for part in report.explain_node(known, path)], known
