"""A run: one attempt of a job, as the ledger keeps it. A requeued job has several."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.resources import Resources


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job. Times are aware UTC, half-open `[start, end)`; None means "not yet".

    `key` is Slurm's own record id (DBIndex; the SLUID since 24.11), the only thing that tells the attempts
    of one job, and two jobs with one number, apart. `milli_gpus` is what the run is charged per second, in
    thousandths of a GPU; `charged` says whether a budget pays for it or it was unallocated.
    """

    cluster: str
    key: str
    job_id: int
    label: str  # as Slurm prints it: 123, 123_4, 123+1
    account: str
    user: str
    uid: int
    partition: str
    qos: str
    state: str
    submit: datetime
    eligible: datetime | None
    start: datetime | None
    end: datetime | None
    held: Resources
    milli_gpus: int
    charged: bool
    contract: Contract | None = None
    nodes: str = ""
    flag: str = ""  # why a value was not taken as Slurm gave it ("" = nothing odd)


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A line of accounting that could not be read: kept, counted and shown, never dropped or taken as zero."""

    source: str
    text: str
    reason: str
