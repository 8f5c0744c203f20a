"""The command line: one group, each command in its own module."""

from __future__ import annotations

from typing import Any

import rich_click as click

from slurm_fairshare import __version__
from slurm_fairshare.cli import (
    adjust,
    audit,
    budget,
    database,
    decisions,
    delivery,
    doctor,
    drain,
    explain,
    metrics,
    plugin,
    push,
    queue,
    settings,
    shares,
    simulate,
    status,
    steps,
    uninstall,
    usage,
    web,
    why,
)
from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.options import HELP, config_option
from slurm_fairshare.cli.output import warn
from slurm_fairshare.errors import FairshareError


class Commands(click.RichGroup):
    """Turns our errors into one message on stderr and the exit code they carry."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairshareError as error:
            warn(f"slurm-fairshare: {error}")
            for note in getattr(error, "__notes__", ()):
                warn(f"slurm-fairshare: {note}")
            ctx.exit(error.exit_code)


@click.group(cls=Commands, context_settings=HELP)
@config_option
@click.pass_context
def main(context: click.Context) -> None:
    """Budgets, fair-share and a minimum-runtime contract for a GPU cluster run by Slurm.

    Look: shares, queue, why, explain, decisions, budget show. Look back: usage, delivery,
    pyramid, waits, habits, audit. Predict: simulate. Act: budget load, tick, rebalance, apply, daemon.
    """
    context.ensure_object(App)


@main.command("version", context_settings=HELP)
def version() -> None:
    """Print the version."""
    click.echo(f"slurm-fairshare {__version__}")


for command in (
    shares.shares,
    queue.queue,
    why.why,
    explain.explain,
    decisions.decisions,
    delivery.delivery,
    delivery.pyramid,
    delivery.waits,
    delivery.habits,
    usage.usage,
    audit.audit,
    adjust.adjust,
    budget.budget,
    steps.tick,
    steps.rebalance,
    steps.daemon,
    simulate.simulate,
    drain.drain,
    drain.undrain,
    push.plan,
    push.apply,
    doctor.doctor,
    status.status,
    metrics.metrics,
    uninstall.uninstall,
    web.web,
    database.database,
    plugin.plugin,
    settings.settings,
):
    main.add_command(command)
