"""`audit`: prove the ledger against slurmdbd."""

from __future__ import annotations

from dataclasses import replace

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, list_option, output_options
from slurm_fairshare.cli.output import emit, warn, working
from slurm_fairshare.cli.period import period_options, window_of
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.audit import (
    Audit,
    Difference,
    compare,
    counted,
    expected_report,
    joined,
    report_differences,
    rollup_differences,
    whole_hours,
)
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.ports import Slurm
from slurm_fairshare.errors import StaleData
from slurm_fairshare.reports import audit as report
from slurm_fairshare.reports.table import Form
from slurm_fairshare.slurm.accounting import slices
from slurm_fairshare.units import moment


@click.command(context_settings=HELP)
@period_options("1d")
@list_option("-A", "--account", "accounts", metavar="ACCOUNTS", help="Only these accounts, comma separated.")
@click.option("--sreport", is_flag=True, help="Compare with sreport's GPU-seconds too, over the whole hours.")
@click.option("--repair", is_flag=True, help="Take over what slurmdbd has now, then compare.")
@output_options()
@config_option
@pass_app
@click.pass_context
def audit(
    context: click.Context,
    app: App,
    since: str,
    until: str | None,
    accounts: tuple[str, ...],
    sreport: bool,
    repair: bool,
    form: Form,
) -> None:
    """Read slurmdbd again for a period and compare it with the ledger, run by run; ends with 1 on any difference.

    Every difference comes with its cause. The period ends at the last poll at the latest. With --account roll-ups are
    not checked; they are checked over the whole ledger otherwise.
    """
    asked = window_of(app, since, until)
    wanted = frozenset(account_key(name) for name in accounts)
    with app.store() as store, working("reading slurmdbd again"):
        window = _polled(store, asked)
        slurm = app.slurm(store)
        found = joined([_compare(slurm, store, part, app, wanted, repair) for part in slices(window)])
        hours = whole_hours(window) if sreport else None
        more = _more(slurm, store, app, wanted, hours)
    found = replace(found, differences=(*found.differences, *more))
    if window != asked:
        warn(f"slurm-fairshare: compared up to {moment(window.end)}, when accounting was last read")
    emit(report.report(found, hours, sreport), form)
    context.exit(1 if found.differences else 0)


def _polled(store: Store, asked: Window) -> Window:
    mark = store.watermark()
    if mark is None or mark <= asked.start:
        raise StaleData("accounting has not been read so far: run `slurm-fairshare tick`, or start the daemon")
    return Window(asked.start, min(asked.end, mark))


def _compare(slurm: Slurm, store: Store, part: Window, app: App, wanted: frozenset[str], repair: bool) -> Audit:
    batch = slurm.runs(part)
    if repair:
        store.record_runs(batch, app.now)

    def chosen(account: str) -> bool:
        return not wanted or account_key(account) in wanted

    theirs = [one for run in batch.runs if chosen(run.account) and (one := counted(run)) is not None]
    mine = [one for one in store.counted(part, app.now) if chosen(one.account)]
    return compare(mine, theirs, part, app.now, () if wanted else batch.rejected)


def _more(slurm: Slurm, store: Store, app: App, wanted: frozenset[str], hours: Window | None) -> tuple[Difference, ...]:
    """What sreport says otherwise, and what the roll-ups do."""
    found: tuple[Difference, ...] = () if wanted else rollup_differences(store.differing_rollups())
    if hours is None:
        return found
    expected = expected_report(store.counted(hours, app.now), hours, app.now)
    reported = slurm.reported(hours)
    if wanted:
        expected = {pair: amount for pair, amount in expected.items() if pair[0] in wanted}
        reported = {pair: amount for pair, amount in reported.items() if pair[0] in wanted}
    return (*found, *report_differences(expected, reported))
