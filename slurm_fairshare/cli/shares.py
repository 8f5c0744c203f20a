"""`shares`: as sshare, from what the last tick recorded."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.basis import last_ranking, warn_if_stale
from slurm_fairshare.cli.options import SlurmLike, config_option, list_option, output_options
from slurm_fairshare.cli.output import emit
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.committed import committed_by_user
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.fairtree import fair_tree
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.reports import fairtree
from slurm_fairshare.reports import shares as report
from slurm_fairshare.reports.table import Form
from slurm_fairshare.reports.ticks import account_notes, failure_notes
from slurm_fairshare.reports.words import Basis


@click.command(cls=SlurmLike, context_settings={"help_option_names": ["--help", "--usage"]})
@list_option("-A", "--accounts", metavar="ACCOUNTS", help="Only these accounts or nodes, comma separated.")
@list_option("-u", "--users", metavar="USERS", help="Only these users beside the accounts, comma separated.")
@click.option("-a", "--all", "everybody", is_flag=True, help="All users. Without -a and -u: you.")
@click.option("-U", "--Users", "users_only", is_flag=True, help="Only the lines of users.")
@click.option("-l", "--long", is_flag=True, help="More columns: NormUsage, LevelFS, Committed, Priority, Standing.")
@click.option("--as-slurm", is_flag=True, help="Slurm's own shares and usage, by its own Fair Tree: what sshare shows.")
@click.option("-e", "--helpformat", is_flag=True, help="List the fields that -o takes.")
@output_options("-n", "-h", "--noheader")
@config_option
@pass_app
def shares(
    app: App,
    accounts: tuple[str, ...],
    users: tuple[str, ...],
    everybody: bool,
    users_only: bool,
    long: bool,
    as_slurm: bool,
    helpformat: bool,
    form: Form,
) -> None:
    """Who was owed what, who used what, who comes next: sshare's columns and options, then budgets.

    It asks Slurm nothing: everything comes from the last tick, and the header says how old that is.

    Differences from sshare: usage is charged GPU-seconds in the lookback window. All users of an account share
    its standing: their RawShares is `parent`, their LevelFS empty. FairShare stands on the lines of accounts too.
    In -p, -P, --csv and --json an account's name is not indented, and Budget holds the whole path. There is no
    GrpTRESMins and no TRESRunMins. As in sshare, -h is --noheader.

    With --as-slurm slurmctld is asked, and budgets play no part: a cluster's old order beside the new one.
    """
    wanted = report.Wanted(accounts, _users(app, users, everybody), users_only)
    if helpformat:
        for name, about in [(c.name, c.about) for c in (fairtree.COLUMNS if as_slurm else report.COLUMNS)]:
            click.echo(f"{name:<16}{about}")
        return
    if as_slurm:
        _as_slurm(app, wanted, long, form)
        return
    with app.store() as store:
        ranking, basis = last_ranking(app, store)
        rows = _rows(app, store, ranking, basis)
        notes = _notes(store)
    strangers = report.unknown(rows, wanted)
    if strangers:
        raise FairshareError(
            f"not in the budget tree: {', '.join(strangers)}; `slurm-fairshare budget show` lists what is"
        )
    warn_if_stale(basis, form)
    emit(report.report(report.select(rows, wanted), basis, long=long, notes=notes), form)


def _as_slurm(app: App, wanted: report.Wanted, long: bool, form: Form) -> None:
    with app.store() as store:
        placed = fair_tree(app.slurm(store).associations())
    strangers = fairtree.unknown(placed, wanted)
    if strangers:
        raise FairshareError(f"Slurm has no account {', '.join(strangers)}; `sacctmgr show account` lists what it has")
    emit(fairtree.report(fairtree.select(placed, wanted), app.now, long=long), form)


def _users(app: App, users: tuple[str, ...], everybody: bool) -> tuple[str, ...] | None:
    """As in sshare: -a or -u -1 is everybody, nothing is whoever asks."""
    if everybody or "-1" in users:
        return None
    return users or (app.user,)


def _rows(app: App, store: Store, ranking: Ranking, basis: Basis) -> tuple[report.ShareRow, ...]:
    used = store.usage_by_user(basis.window, app.config.weight, basis.at) if basis.window else {}
    picture = store.latest_queue()
    jobs, whole = (picture.jobs, picture.whole) if picture is not None else ((), None)
    committed = committed_by_user(jobs, app.config.ladder, basis.now, app.config.charge_rule, whole)
    return report.share_rows(ranking, used, committed, store.labels())


def _notes(store: Store) -> tuple[str, ...]:
    """What the last tick found not to match, and whether ticks have failed since."""
    tick = store.last_tick()
    if tick is None:
        return ()
    return (*account_notes(tick.unknown_accounts, tick.unbudgeted_accounts), *failure_notes(tick))
