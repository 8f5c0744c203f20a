"""`metrics`: what Prometheus would be told now."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option


@click.command(context_settings=HELP)
@config_option
@pass_app
def metrics(app: App) -> None:
    """Print all metrics once, in Prometheus' text format: for a look, or for node_exporter's textfile collector.

    The daemon serves them at /metrics where metrics.listen is set. Slurm is not asked.
    """
    from slurm_fairshare.metrics import exposition

    with app.store() as store:
        click.echo(exposition(store, app.config, lambda: app.now), nl=False)
