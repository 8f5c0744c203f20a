"""`adjust`: debit or credit an account by hand."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import coming_moment, config_option, output_options, point_in_time
from slurm_fairshare.cli.output import emit, say, warn
from slurm_fairshare.core.resources import MILLI
from slurm_fairshare.core.tree import account_key, tree_at
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports import adjustments as report
from slurm_fairshare.reports.table import Form
from slurm_fairshare.units import HOUR

_AMOUNT = re.compile(r"([+-])(\d+(?:\.\d+)?)h")
# No -h for help: "-10h" is an amount, and click would find an h in it.
_SETTINGS = {"help_option_names": ["--help"], "ignore_unknown_options": True}


@click.command(context_settings=_SETTINGS)
@click.argument("account", required=False)
@click.argument("amount", required=False)
@click.option("--reason", metavar="TEXT", help="Why; it is kept with the adjustment.")
@click.option("--expires", metavar="TIME", help="When it ends to count: in how long (30d), or a moment.")
@click.option("--list", "listing", is_flag=True, help="List what was adjusted, expired adjustments too.")
@click.option("--since", default="90d", show_default=True, metavar="TIME", help="With --list: from when.")
@output_options()
@config_option
@pass_app
def adjust(
    app: App,
    account: str | None,
    amount: str | None,
    reason: str | None,
    expires: str | None,
    listing: bool,
    since: str,
    form: Form,
) -> None:
    """Add to an account's usage by hand (+10h, a debit) or take from it (-10h, a credit), in GPU-hours.

    It becomes a row of the ledger with its author, reason and expiry, counts in every lookback window that holds this
    moment, and stays: undo it by its opposite. GPU-hours as budgets pay them, so with the weight of their type.
    """
    zone = app.config.zone
    with app.store() as store:
        if listing:
            window = Window(point_in_time(since, app.now, zone), app.now + timedelta(seconds=1))
            found = [one for one in store.adjustments(window) if not account or _same(account, one.account)]
            emit(report.report(found, window), form)
            return
        if account is None or amount is None:
            raise click.UsageError("name an account and an amount, such as `adjust bio -10h --reason TEXT`")
        if not reason or not reason.strip():
            raise click.UsageError("say why: --reason TEXT is kept with the adjustment")
        until = coming_moment(expires, app.now, zone) if expires else None
        milli = _milli_gpu_seconds(amount)
        if tree_at(store.changesets(), app.now).by_account.get(account_key(account)) is None:
            warn(f"slurm-fairshare: {account} is no account of the budget tree; is its name right?")
        made = store.add_adjustment(account, milli, app.now, app.user, reason.strip(), until)
    say([report.sentence(made)])


def _same(one: str, other: str) -> bool:
    return account_key(one) == account_key(other)


def _milli_gpu_seconds(text: str) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None or not Decimal(match.group(2)):
        raise click.BadParameter(
            f'"{text}" is no amount: write +10h to add ten GPU-hours to the usage, -10h to take them from it',
            param_hint="AMOUNT",
        )
    sign, hours = match.groups()
    return int(Decimal(hours) * HOUR * MILLI) * (1 if sign == "+" else -1)
