"""`status`: how the product itself does, for people and for monitoring."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, output_options
from slurm_fairshare.cli.output import emit
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.daemon.headroom import NAME as HEADROOM
from slurm_fairshare.daemon.loop import LEADER
from slurm_fairshare.daemon.pooling import NAME as POOL
from slurm_fairshare.daemon.rebalancing import DECLINED
from slurm_fairshare.daemon.tick import BACKLOG, PENDING, PUSHED, SKEW
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.reports import status as report
from slurm_fairshare.reports.status import Leader, Limits, Source, State, Status
from slurm_fairshare.reports.table import Form
from slurm_fairshare.store.facts import TickFacts

NEW = timedelta(days=1)
"""Rejected rows first met within this time are told as a warning."""


@click.command(context_settings=HELP)
@output_options()
@config_option
@click.pass_context
@pass_app
def status(app: App, context: click.Context, form: Form) -> None:
    """How old each thing is that is known, who leads, what has failed, what is not pushed yet.

    Ends with 0 where all is well, with 1 where something is late or has failed, with 2 where nothing can be decided
    any more (no tick for longer than rebalance.max_age, or Postgres does not answer): as Nagios and its kin read it.
    Slurm is not asked.
    """
    try:
        with app.store() as store:
            found = status_of(app, store)
    except FairshareError as error:
        click.echo(f"CRITICAL: {error}")
        context.exit(State.CRITICAL)
    emit(report.report(found), form)
    context.exit(found.state)


def status_of(app: App, store: Store) -> Status:
    """All that is known, from the store alone."""
    config, now = app.config, app.now
    tick, leader = store.last_tick(), _fact(store, LEADER)
    held = store.led()
    since = tick.at if tick is not None else now - NEW
    return Status(
        now=now,
        cluster=config.cluster,
        sources=_sources(app, store, tick),
        leader=_leader(leader, held) if leader else None,
        held=held,
        push=config.daemon.push,
        pending=_fact(store, PENDING),
        pushed=_fact(store, PUSHED),
        took=tick.finished - tick.at if tick is not None else None,
        skew=_fact(store, SKEW),
        pool=_fact(store, POOL) if config.pool_rule is not None else None,
        most_unallocated=_fact(store, HEADROOM) if config.contract.headroom else None,
        failures=tuple(one for one in store.failures(since) if one.at > since or tick is None),
        tallies=store.tallies(now - NEW),
    )


def _fact(store: Store, name: str) -> Any:
    found = store.recall(name)
    return None if found is None else found[1]


def _leader(value: Any, held: bool) -> Leader:
    return Leader(str(value["host"]), int(value["pid"]), datetime.fromisoformat(value["since"]), held)


def _kept_back(store: Store) -> str:
    messages = _fact(store, BACKLOG)
    return f"slurmctld keeps {messages:,} messages for slurmdbd back" if messages else ""


def _sources(app: App, store: Store, tick: TickFacts | None) -> tuple[Source, ...]:
    now, config = app.now, app.config
    limits = Limits(config.daemon.interval, config.rebalance.max_age)
    pushed, passed = store.recall(PUSHED), store.recall(DECLINED)
    found = [
        Source("accounting", store.watermark(), "complete up to, from slurmdbd", now, limits, _kept_back(store)),
        Source("queue", store.last_picture(), "jobs and nodes, from slurmctld", now, limits),
        Source("ranking", tick.at if tick else None, "the last tick", now, limits),
        Source("push", pushed[0] if pushed else None, "when Slurm was last changed by a tick", now),
    ]
    if config.rebalance.enabled and config.daemon.push:
        found.append(Source("rebalance", passed[0] if passed else None, "reasons of the last pass that had any", now))
    return tuple(found)
