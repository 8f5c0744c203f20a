"""`settings show`: what is in force, wherever it was set."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, output_options
from slurm_fairshare.cli.output import emit
from slurm_fairshare.reports import settings as report
from slurm_fairshare.reports.table import Form


@click.group(context_settings=HELP)
@config_option
def settings() -> None:
    """The settings in force."""


@settings.command(context_settings=HELP)
@output_options()
@config_option
@pass_app
def show(app: App, form: Form) -> None:
    """Show every setting with its value and its default; the database's password is hidden."""
    emit(report.report(report.settings_of(app.config)), form)
