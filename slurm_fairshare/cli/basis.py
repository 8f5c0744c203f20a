"""What every report on the present starts from: the last recorded ranking and how old it is."""

from __future__ import annotations

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.output import warn
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.errors import StaleData
from slurm_fairshare.reports.table import Form, Style
from slurm_fairshare.reports.words import Basis

NOTHING_YET = "no tick has been recorded yet: run `slurm-fairshare tick`, or start the daemon"


def last_ranking(app: App, store: Store) -> tuple[Ranking, Basis]:
    """The ranking and its basis; StaleData before the first tick."""
    last = store.last_ranking()
    if last is None:
        raise StaleData(NOTHING_YET)
    at, ranking = last
    tick = store.last_tick()
    window = tick.window if tick is not None and tick.at == at else None
    return ranking, Basis(at, app.now, app.config.daemon.interval, window, app.config.fairshare.half_life)


def warn_if_stale(basis: Basis, form: Form) -> None:
    """In a table the warning is the first line; programs get it beside their data."""
    if basis.stale and (form.style is not Style.TABLE or not form.header):
        warn(basis.warning())
