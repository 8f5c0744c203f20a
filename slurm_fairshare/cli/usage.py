"""`usage`: who used how much of what, and when."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, list_option, output_options
from slurm_fairshare.cli.output import emit
from slurm_fairshare.cli.period import period_options, window_of
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import PERIODS, calendar
from slurm_fairshare.reports import usage as report
from slurm_fairshare.reports.table import Form
from slurm_fairshare.store.breakdown import DIMENSIONS, Used
from slurm_fairshare.store.facts import Adjustment

CHOICES = (*DIMENSIONS, *PERIODS)


@click.command(context_settings=HELP)
@period_options("7d")
@list_option("--by", "by", metavar="WORDS", help=f"How it is taken apart: {', '.join(CHOICES)}. Without: account.")
@list_option("-A", "--account", "accounts", metavar="ACCOUNTS", help="Only these accounts, comma separated.")
@list_option("-u", "--user", "users", metavar="USERS", help="Only these users, comma separated.")
@output_options()
@config_option
@pass_app
def usage(
    app: App,
    since: str,
    until: str | None,
    by: tuple[str, ...],
    accounts: tuple[str, ...],
    users: tuple[str, ...],
    form: Form,
) -> None:
    """GPU-hours by account, user, QOS, GPU type, hour, day or month; charged and unallocated apart.

    Read from Postgres alone: it costs Slurm nothing. GPU-hours are unweighted; Paid is what budgets pay for them.
    Hours, days and months begin as in the site's zone (time_zone); the header says which window it is, exactly.
    """
    groups = _groups(by)
    dimensions = tuple(one for one in groups if one in DIMENSIONS)
    period = next((one for one in groups if one in PERIODS), None)
    window = window_of(app, since, until)
    zone, rule = app.config.zone, app.config.charge_rule
    parts = calendar(window, period, zone) if period else (window,)
    asked = {*dimensions, *(("account",) if accounts else ()), *(("user",) if users else ())}
    with app.store() as store:
        used = [one for one in store.used(parts, asked, app.now) if _wanted(one, accounts, users)]
        adjustments = [one for one in store.adjustments(window) if one.counts(window, app.now)]
        read_until = store.watermark()
    if accounts:
        wanted = {account_key(name) for name in accounts}
        adjustments = [one for one in adjustments if account_key(one.account) in wanted]
    shown = tuple(one for one in DIMENSIONS if one in asked)
    rows = report.usage_rows(used, adjustments, asked, rule, zone, period is not None)
    notes = _notes(adjustments, rows)
    weighted = bool(rule.weights) or rule.dominant
    emit(report.report(rows, window, read_until, app.now, zone, shown, notes, weighted), form)


def _groups(by: tuple[str, ...]) -> tuple[str, ...]:
    for word in by:
        if word not in CHOICES:
            raise click.BadParameter(f'"{word}" is none of {", ".join(CHOICES)}', param_hint="--by")
    if len([word for word in by if word in PERIODS]) > 1:
        raise click.BadParameter(f"only one of {', '.join(PERIODS)}", param_hint="--by")
    return by or ("account",)


def _wanted(one: Used, accounts: tuple[str, ...], users: tuple[str, ...]) -> bool:
    named = not accounts or one.account in {account_key(name) for name in accounts}
    return named and (not users or one.user in users)


def _notes(adjustments: list[Adjustment], rows: tuple[report.UsageRow, ...]) -> tuple[str, ...]:
    if not adjustments or any(row.adjusted for row in rows):
        return ()
    return (f"Beside this, {len(adjustments)} adjustments by hand count: `slurm-fairshare adjust --list`.",)
