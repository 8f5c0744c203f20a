"""`doctor`: what is wrong with how Slurm, Postgres and the daemon are set up. Changes nothing."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, output_options
from slurm_fairshare.cli.output import emit, working, write
from slurm_fairshare.cli.plugin import plugin_settings
from slurm_fairshare.config import ENVIRONMENT, WEB_ENVIRONMENT, Config
from slurm_fairshare.core.doctor import Examination, Severity, examine
from slurm_fairshare.core.doctor.facts import Facts, Source, TickState, Wanted
from slurm_fairshare.core.tree import tree_at
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.reports import doctor as report
from slurm_fairshare.reports.table import Form, Style

EXIT = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.ADVICE: 0, None: 0}


@click.command(context_settings=HELP)
@output_options()
@config_option
@click.pass_context
@pass_app
def doctor(app: App, context: click.Context, form: Form) -> None:
    """Say what is wrong with the set-up of Slurm, Postgres and the daemon, why, and what to write. Changes nothing.

    Ends with 2 where there is an error, with 1 where there is a warning, else with 0.
    """
    with working("looking at Slurm and Postgres"):
        examination = examine(gather(app))
    show(examination, form)
    context.exit(EXIT[examination.worst])


def show(examination: Examination, form: Form) -> None:
    if form.style is Style.TABLE and not form.fields:
        write(report.told(examination, form.width))
    else:
        emit(report.report(examination), form)


def gather(app: App) -> Facts:
    """All facts. Postgres first: the tree says which accounts to look at."""
    from slurm_fairshare.slurm.configuration import read
    from slurm_fairshare.slurm.plugin import render

    facts = _postgres(app, Facts(app.now, wanted(app.config)))

    def rendered(uids: frozenset[int]) -> str:
        return render(plugin_settings(app.config, tuple(sorted(uids))))

    return read(app.runner(), facts, rendered)


def wanted(config: Config) -> Wanted:
    """The settings, as far as a check compares something with them."""
    return Wanted(
        cluster=config.cluster,
        ladder=config.ladder,
        lane=config.lane,
        prefix=config.contract.qos_prefix,
        partitions=config.contract.partitions,
        trusted_users=config.slurm.trusted_users,
        lookback=config.fairshare.lookback,
        half_life=config.fairshare.half_life,
        first_poll=config.daemon.first_poll,
        interval=config.daemon.interval,
        max_age=config.rebalance.max_age,
        push=config.daemon.push,
        open_secrets=open_to_all(ENVIRONMENT, WEB_ENVIRONMENT),
    )


def open_to_all(*places: Path) -> tuple[str, ...]:
    """Those files that everybody may read."""
    return tuple(str(place) for place in places if place.is_file() and place.stat().st_mode & stat.S_IROTH)


def _postgres(app: App, facts: Facts) -> Facts:
    """Facts with what Postgres knows; each part that cannot be read is noted with the reason."""
    from slurm_fairshare.store.condition import condition

    unread: dict[Source, str] = {}
    try:
        database, clock = condition(app.config.database_url)
        facts = replace(facts, database=database, clocks=(clock,))
    except FairshareError as error:
        unread[Source.DATABASE] = str(error)
    try:
        facts = _recorded(app, facts)
    except FairshareError as error:
        unread |= {Source.TREE: str(error), Source.TICK: str(error)}
    return replace(facts, unread=unread)


def _recorded(app: App, facts: Facts) -> Facts:
    with app.store() as store:
        last, changesets = store.last_tick(), store.changesets()
    failure = max(last.failures, key=lambda one: one.at, default=None) if last is not None else None
    return replace(
        facts,
        tree=tree_at(changesets, app.now),
        tick=TickState(
            at=last.at if last is not None else None,
            pushed=last.pushed if last is not None else True,
            failure=f"{failure.phase}: {failure.error}" if failure is not None else "",
        ),
    )
