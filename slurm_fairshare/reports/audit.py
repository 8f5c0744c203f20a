"""`audit`: what of the ledger is not as slurmdbd has it, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurm_fairshare.core.audit import Audit, Difference, Total
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import duration, gpu_hours, moment

COLUMNS: tuple[Column[Difference], ...] = (
    Column("What", lambda one: one.what, "what differs: run, seconds, gpus, account, user, qos, charged, state, ..."),
    Column("Job", lambda one: one.label, "the job as Slurm prints it; of sreport the user"),
    Column("Account", lambda one: one.account, "account", elastic=True),
    Column("Ledger", lambda one: one.ledger, "what the ledger has", elastic=True),
    Column("Slurm", lambda one: one.slurm, "what slurmdbd (or sreport) has", elastic=True),
    Column(
        "GPUSeconds",
        lambda one: one.gpu_seconds,
        "GPU-seconds that the ledger counts more in the period",
        right=True,
        head="GPU-s",
    ),
    Column("Cause", lambda one: one.cause, "why, and what to do about it"),
    Column("Key", lambda one: one.key, "slurmdbd's number of the run (DBIndex)", spare=1),
)


def report(audit: Audit, sreport: Window | None, asked: bool) -> Report[Difference]:
    """The differences; `sreport` are the whole hours that were compared with it, if that was `asked` for."""
    return Report(
        noun="differences",
        columns=COLUMNS,
        rows=audit.differences,
        shown=("What", "Job", "Account", "Ledger", "Slurm", "GPUSeconds", "Cause"),
        script=("What", "Job", "Key", "Account", "Ledger", "Slurm", "GPUSeconds", "Cause"),
        above=(_period(audit.window), *_sreport_line(sreport, asked)),
        below=_sums(audit),
        facts={
            "window_start": audit.window.start,
            "window_end": audit.window.end,
            "zone": "UTC",
            "runs": audit.runs,
            "sreport_start": sreport.start if sreport else None,
            "sreport_end": sreport.end if sreport else None,
            "accounts": {account: _facts(total) for account, total in audit.totals.items()},
        },
        empty=" ".join(("No difference.", *_sums(audit))),
    )


def _period(window: Window) -> str:
    length = duration(window.seconds)
    return f"The ledger against slurmdbd, {moment(window.start)} to {moment(window.end)} ({length}, UTC)."


def _sreport_line(sreport: Window | None, asked: bool) -> Sequence[str]:
    if not asked:
        return ()
    if sreport is None:
        return ("sreport was not compared: the period holds no whole hour that is over.",)
    return (f"sreport was compared for the whole hours {moment(sreport.start)} to {moment(sreport.end)}.",)


def _sums(audit: Audit) -> tuple[str, ...]:
    whole = Total()
    for total in audit.totals.values():
        whole = whole.plus(total)
    mine, theirs = whole.ledger_charged + whole.ledger_unallocated, whole.slurm_charged + whole.slurm_unallocated
    return (
        f"{audit.runs} runs of {len(audit.totals)} accounts; the ledger counts {gpu_hours(mine)} GPU-hours "
        f"({gpu_hours(whole.ledger_charged)} charged), slurmdbd {gpu_hours(theirs)} "
        f"({gpu_hours(whole.slurm_charged)} charged).",
    )


def _facts(total: Total) -> dict[str, Any]:
    return {
        "ledger_charged_gpu_seconds": total.ledger_charged,
        "ledger_unallocated_gpu_seconds": total.ledger_unallocated,
        "slurm_charged_gpu_seconds": total.slurm_charged,
        "slurm_unallocated_gpu_seconds": total.slurm_unallocated,
    }
