"""What the tick and the rebalancer need of the world. slurm/ and store/ provide it; tests bring twins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

from slurm_fairshare.core.booking import Booking
from slurm_fairshare.core.capacity import Past, PastStep
from slurm_fairshare.core.cluster import Capacity, Job, Picture
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.fairtree import Association
from slurm_fairshare.core.plan import Change, Held
from slurm_fairshare.core.records import Batch as Batch
from slurm_fairshare.core.records import TickReport as TickReport
from slurm_fairshare.core.tree import Changeset
from slurm_fairshare.core.window import Step, Weight, Window


class Accounting(Protocol):
    """History, from slurmdbd."""

    def runs(self, window: Window) -> Batch:
        """Every attempt that overlaps the window, with its own start and end, not cut to the window."""

    def backlog(self) -> int:
        """How many messages slurmctld keeps for slurmdbd, which has not taken them yet."""

    def reported(self, window: Window) -> Mapping[tuple[str, str], int]:
        """sreport's GPU-seconds by account key and user, over whole hours."""


class Utilisation(Protocol):
    """How busy GPUs were, where the site makes Slurm gather it."""

    def busy(self, window: Window) -> Mapping[str, float]:
        """The fraction of its GPU time in which a run's GPUs were busy, by the run's key, where that is known."""


class Cluster(Protocol):
    """The queue and the nodes, from slurmctld."""

    def picture(self, now: datetime) -> Picture: ...

    def queue(self) -> tuple[Job, ...]:
        """The jobs alone: all that can be had where Slurm does not count GPUs (any more)."""

    def clock(self) -> datetime:
        """What slurmctld's clock says, in whole seconds, cut off: it starts runs by it."""

    def past(self, window: Window) -> Past:
        """When the cluster had which GPUs, and when which node was out of service: for the time before a first tick."""

    def job(self, job_id: int) -> Job | None:
        """The job as it is this very moment, None if slurmctld does not know it (any more)."""


class Settings(Protocol):
    """QOS, access and priorities: what Slurm holds, and the way to change it."""

    def held(self) -> Held: ...

    def associations(self) -> tuple[Association, ...]:
        """Slurm's own shares and usage: reports compare with them, no decision stands on them."""

    def carry_out(self, changes: Sequence[Change]) -> None:
        """Carry the changes out in their order; stop with an error at the first that fails."""


class Hands(Protocol):
    """What the rebalancer does to a job."""

    def note(self, job_id: int, words: str) -> None:
        """Add words to the job's AdminComment, behind its pinned contract."""

    def notice(self, job_id: int, signal: str) -> None:
        """Send the signal the job asked for."""

    def requeue(self, job_id: int) -> None: ...

    def end(self, job_id: int) -> None: ...


class Errands(Protocol):
    """What is done and asked now and then."""

    def checkpoints(self) -> Mapping[int, datetime]:
        """When running jobs say they saved last, by job id; those that say nothing are not in it."""

    def tell(self, job_id: int, words: str) -> None:
        """Print a line where the job's owner sees it."""

    def lift(self, job_id: int, site_factor: int) -> None:
        """Set what is added to the job's priority, in place of what the plugin set."""

    def drain(self, nodes: Sequence[str], reason: str) -> None: ...

    def undrain(self, nodes: Sequence[str]) -> None: ...

    def repartition(self, partition: str, nodes: Sequence[str]) -> None:
        """Give the partition these nodes and no others. What runs there goes on."""

    def limit(self, qos: str, gpus: int | None) -> None:
        """Let all jobs of the QOS hold so many GPUs together; None: any number. What runs goes on."""


class Reservations(Protocol):
    """Nodes booked for a waiting job, by reservations of Slurm's."""

    def bookings(self) -> tuple[Booking, ...]:
        """Ours; what others have reserved is not looked at."""

    def book(self, booking: Booking, in_place_of: Booking | None = None) -> None:
        """Make it, or make it out of its job's plan on the same nodes; a guard takes its job in at once."""

    def unbook(self, booking: Booking) -> None:
        """Take its job out of it, waiting or running, and then it away. Either may be gone already."""


class Slurm(Accounting, Utilisation, Cluster, Settings, Hands, Errands, Reservations, Protocol):
    """All of Slurm behind one object, as the command line backend provides it."""

    @property
    def calls(self) -> Counter[str]:
        """What has been asked of Slurm so far, by tool."""


class Ledger(Protocol):
    """Runs, capacity and budgets."""

    def record_runs(self, batch: Batch, now: datetime) -> None:
        """Upsert by key; recording a batch again changes nothing. Moves the watermark to the window's end."""

    def watermark(self) -> datetime | None:
        """Up to when accounting has been read without a gap; None before the first poll."""

    def newest_end(self) -> datetime | None:
        """The newest end of all the runs that have been read; None where none has ended."""

    def record_picture(self, picture: Picture, capacity: Sequence[Capacity]) -> None:
        """Keep the queue as reports show it, the capacity's step, and which open runs were seen alive."""

    def first_capacity(self) -> datetime | None:
        """From when on capacity is known; None before the first picture and without a past."""

    def record_past(self, steps: Sequence[PastStep]) -> None:
        """Keep capacity from before the first picture, in place of what was there at the same moments."""

    def capacity(self, window: Window) -> tuple[Step, ...]:
        """GPUs in service (weighted by type) as a step function that covers the window from where it is known."""

    def usage(self, window: Window, weight: Weight, now: datetime) -> Mapping[str, float]:
        """Charged GPU-seconds by account (lower-case key), live runs up to `now`, weighted."""

    def record_busy(self, busy: Mapping[str, float]) -> None:
        """Keep how busy the GPUs of runs were, by the run's key; a later word counts."""

    def usage_by_user(self, window: Window, weight: Weight, now: datetime) -> Mapping[tuple[str, str], float]:
        """Charged GPU-seconds by account (lower-case key) and user, weighted as `usage` is."""

    def changesets(self) -> tuple[Changeset, ...]: ...


class Journal(Protocol):
    """What was decided and done."""

    def lead(self, lease: timedelta | None = None) -> AbstractContextManager[None]:
        """Hold the cluster's leadership for the block; NotLeading if another daemon holds it.

        With a lease it ends by itself where `assure_lead` is not called for so long (a stopped process)."""

    def assure_lead(self) -> None:
        """NotLeading if leadership was held and is lost or given up, until it is taken anew; nothing where it was
        never held. Asked right before anything is changed in Slurm."""

    def record_tick(self, report: TickReport) -> None: ...

    def record_failure(self, at: datetime, phase: str, error: str) -> None: ...

    def last_ranking(self) -> tuple[datetime, Ranking] | None:
        """The newest recorded ranking and when it was computed."""

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Record decisions before anything is done about them."""

    def settle(self, decision_id: str, outcome: Outcome, at: datetime, detail: str = "") -> None: ...

    def decisions(self, since: datetime) -> tuple[Recorded, ...]: ...


class Recalls(Protocol):
    """Where small things that were remembered are read."""

    def recall(self, name: str) -> tuple[datetime, Any] | None: ...


class Notes(Recalls, Protocol):
    """Small things to be remembered by name, such as what was set last."""

    def remember(self, name: str, value: Any, at: datetime) -> None: ...


class Store(Ledger, Journal, Notes, Protocol):
    """All of Postgres behind one object."""
