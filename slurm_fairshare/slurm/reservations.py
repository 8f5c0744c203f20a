"""Bookings as reservations of Slurm's: made, listed, taken away."""

from __future__ import annotations

import re
from datetime import timedelta

from slurm_fairshare.core.booking import Booking, Kind, is_guarded, name_of, read_name
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

    def book(self, booking: Booking) -> None:
        """Make the reservation. A guard takes its job in at once; if that is refused, there is no guard either."""
        name = name_of(booking, self._ladder)
        words = (f"ReservationName={name}", f"Nodes={','.join(booking.nodes)}", *_terms(booking))
        self.runner.write("scontrol", "create", "reservation", *words, level=OPERATOR)
        if booking.kind is Kind.PLAN:
            return
        try:
            self._move(booking.job_id, name)
        except SlurmError:
            self._delete(name)
            raise

    def unbook(self, booking: Booking) -> None:
        """Take the job out, waiting or running, and the reservation away. Either may be gone already."""
        name = name_of(booking, self._ladder)
        job = self._one(booking.job_id)
        if job is not None and is_guarded(job, self._ladder):
            self._move(booking.job_id, "")
        self._delete(name)

    def _move(self, job_id: int, name: str) -> None:
        job = self._one(job_id)
        if job is None:
            raise SlurmRefused(f"job {job_id} is not in the queue (any more): no nodes can be kept for it")
        words = (f"JobId={hands.address(job)}", f"ReservationName={name}")
        self.runner.write("scontrol", "update", *words, level=OPERATOR)

    def _delete(self, name: str) -> None:
        self.runner.write("scontrol", "delete", f"ReservationName={name}", level=OPERATOR, unchanged=_GONE)


def _terms(booking: Booking) -> tuple[str, ...]:
    """A guard has no end, since Slurm kills what runs in a reservation that ends; and what waits in it is not held
    when it goes. In a plan nobody can run: none but root may, and who is root needs no reservation."""
    if booking.kind is Kind.GUARD:
        flags = f"IGNORE_JOBS,NO_HOLD_JOBS_AFTER,{FORGOTTEN}"
        return "StartTime=now", "Duration=UNLIMITED", f"Users={booking.user}", f"Flags={flags}"
    start = f"uts{int(booking.start.timestamp())}"
    minutes = int(PLANNED_FOR.total_seconds()) // 60
    return f"StartTime={start}", f"Duration={minutes}", "Users=root", "Flags=IGNORE_JOBS"


def _booking(line: str, ladder: Ladder) -> Booking | None:
    fields = dict(_FIELD.findall(line))
    found = read_name(fields.get("ReservationName", ""), ladder)
    if found is None:
        return None
    try:
        start, nodes = needed(fields["StartTime"], "StartTime"), node_names(fields["Nodes"])
        return Booking(*found, fields.get("Users", ""), nodes, start)
    except (KeyError, ValueError) as error:
        raise SlurmUnreadable(
            f'scontrol show reservation printed a line that is not understood ({error}): "{line[:300]}"'
        ) from error
