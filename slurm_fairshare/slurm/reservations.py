"""Bookings as reservations of Slurm's: made, listed, taken away."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from slurm_fairshare.core.booking import Booking, Kind, is_guarded, job_of, name_of
from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.errors import SlurmError, SlurmRefused, SlurmUnreadable
from slurm_fairshare.slurm import hands
from slurm_fairshare.slurm.changes import OPERATOR
from slurm_fairshare.slurm.queue import node_names
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.slurm.times import needed

FORGOTTEN = "PURGE_COMP=00:05:00"
"""Slurm itself takes a guard away that nobody has used for so long: a daemon that died leaves none behind."""

PLANNED_FOR = timedelta(minutes=10)
"""How long a plan lasts beyond its moment, where no daemon takes it away."""

NOBODY = "root"
"""Who may run in a plan."""

_GONE = re.compile(r"reservation is invalid|reservation not found|invalid reservation", re.IGNORECASE)
_FIELD = re.compile(r"(\w+)=(\S*)")


class Reservations:
    """The part of the Slurm port that books nodes."""

    runner: Runner
    _ladder: Ladder

    def _one(self, job_id: int) -> Job | None:
        raise NotImplementedError

    def bookings(self) -> tuple[Booking, ...]:
        """Reservations that bear our names; whatever others have reserved is not looked at."""
        text = self.runner.read("scontrol", "-o", "show", "reservation").stdout
        found = (_booking(line, self._ladder) for line in text.split("\n"))
        return tuple(one for one in found if one is not None)

    def book(self, booking: Booking, in_place_of: Booking | None = None) -> None:
        """Make the reservation. A guard takes its job in at once; if that is refused, there is no guard either.

        A plan becomes a guard by a change of the reservation: between its end and a new one others would start there.
        """
        name = name_of(booking.job_id, self._ladder)
        if in_place_of is None:
            words = ["create", "reservation", f"ReservationName={name}", f"Nodes={','.join(booking.nodes)}"]
            start = booking.start if booking.kind is Kind.PLAN else None
        else:
            words = ["update", f"ReservationName={name}"]
            start = in_place_of.start if in_place_of.start <= booking.start else None
        self.runner.write("scontrol", *words, *_terms(booking, start), level=OPERATOR)
        if booking.kind is Kind.PLAN:
            return
        try:
            self._move(booking.job_id, name)
        except SlurmError:
            self._delete(name)
            raise

    def unbook(self, booking: Booking) -> None:
        """Take the job out, waiting or running, and the reservation away. Either may be gone already."""
        job = self._one(booking.job_id)
        if job is not None and is_guarded(job, self._ladder):
            self._move(booking.job_id, "")
        self._delete(name_of(booking.job_id, self._ladder))

    def _move(self, job_id: int, name: str) -> None:
        job = self._one(job_id)
        if job is None:
            raise SlurmRefused(f"job {job_id} is not in the queue (any more): no nodes can be kept for it")
        words = (f"JobId={hands.address(job)}", f"ReservationName={name}")
        self.runner.write("scontrol", "update", *words, level=OPERATOR)

    def _delete(self, name: str) -> None:
        self.runner.write("scontrol", "delete", f"ReservationName={name}", level=OPERATOR, unchanged=_GONE)


def _terms(booking: Booking, start: datetime | None) -> tuple[str, ...]:
    """What a guard or a plan is. `start` is None for now; Slurm does not let a start that has passed be changed.

    A guard has no end, since Slurm kills what runs in a reservation that ends; and what waits in it is not held when
    it goes. In a plan nobody can run: none but root may, and who is root needs no reservation.
    """
    if booking.kind is Kind.GUARD:
        begin = ("StartTime=now",) if start is None else ()
        flags = f"IGNORE_JOBS,NO_HOLD_JOBS_AFTER,{FORGOTTEN}"
        return *begin, "Duration=UNLIMITED", f"Users={booking.user}", f"Flags={flags}"
    minutes = int(PLANNED_FOR.total_seconds()) // 60
    epoch = int(booking.start.timestamp())
    return f"StartTime=uts{epoch}", f"Duration={minutes}", f"Users={NOBODY}", "Flags=IGNORE_JOBS"


def _booking(line: str, ladder: Ladder) -> Booking | None:
    fields = dict(_FIELD.findall(line))
    job_id = job_of(fields.get("ReservationName", ""), ladder)
    if job_id is None:
        return None
    try:
        start, nodes, user = needed(fields["StartTime"], "StartTime"), node_names(fields["Nodes"]), fields["Users"]
        return Booking(Kind.PLAN if user == NOBODY else Kind.GUARD, job_id, user, nodes, start)
    except (KeyError, ValueError) as error:
        raise SlurmUnreadable(
            f'scontrol show reservation printed a line that is not understood ({error}): "{line[:300]}"'
        ) from error
