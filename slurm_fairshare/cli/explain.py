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
from slurm_fairshare.core.projection import Course, turns
from slurm_fairshare.core.rebalance import Pass, rebalance
from slurm_fairshare.core.resources import MILLI, Resources
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.reports import explain as report
from slurm_fairshare.reports import why as why_report
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
        capacity=_capacity(app, store),
        turns=turns(_course(app, store, basis.window or Window(basis.at, basis.at)), ranking, paths),
        passed=_pass(app, store),
        used=used,
    )
    if job is not None:
        return kind, paths, report.explain_job(known, job), known
    if kind == "user":
        return kind, paths, report.explain_user(known, what, paths), known
    return kind, paths, [part for path in paths for part in report.explain_node(known, path)], known


def _capacity(app: App, store: Store) -> float | None:
    steps = store.capacity(Window(app.now - app.config.fairshare.lookback, app.now))
    return steps[-1].value if steps else None


def _course(app: App, store: Store, window: Window) -> Course:
    """How things go on from the last tick."""
    config = app.config
    hours = store.charges_by_hour(window, window.end) if window.seconds else ()
    picture = store.latest_queue()
    rates: dict[str, float] = {}
    whole = Resources()
    for node in picture.nodes if picture is not None else ():
        whole = whole.plus(node.total)
    for job in picture.jobs if picture is not None else ():
        if job.holding and config.ladder.is_charged(job.qos):
            key = account_key(job.account)
            rates[key] = rates.get(key, 0.0) + config.charge_rule.milli_gpus(job.wanted, whole) / MILLI
    return Course(
        now=window.end,
        known=window.start,
        used=[(part, {account: amount / MILLI for account, amount in by.items()}) for part, by in hours],
        rates=rates,
        capacity=store.capacity(window),
        changesets=store.changesets(),
        lookback=config.fairshare.lookback,
        weight=config.weight,
    )


def _pass(app: App, store: Store) -> Pass | None:
    """What a rebalance pass decides on the last picture, None where that is too old to say."""
    picture, last = store.latest_queue(), store.last_ranking()
    rules = app.config.rules
    if picture is None or last is None or app.now - picture.at > rules.max_age:
        return None
    recent = store.decisions(app.now - rules.cooldown)
    return rebalance(picture, last[1], last[0], app.config.ladder, app.config.lane, rules, recent, app.now)
