"""Nodes booked for one waiting job, by a reservation of Slurm's.

A *guard* keeps them while those who yield leave: Slurm gives freed GPUs to whoever is first in its order, so a job
that needs whole nodes may lose them again one by one. A *plan* keeps them from a moment to come, at which all that
runs there may yield to a large job: until then whatever ends before it may start there.

No job dies of its guard. Slurm kills what runs in a reservation when its time is over, and holds what waits in one
that is deleted. So a guard has no end, its job is taken out of it as soon as it runs, and a plan is nobody's to run in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.units import duration, moment


class Kind(StrEnum):
    """What a booking is for."""

    GUARD = "guard"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Booking:
    """Nodes that from `start` on are this job's. `user` may run there: of a guard the job's owner."""

    kind: Kind
    job_id: int
    user: str
    nodes: tuple[str, ...]
    start: datetime


_NUMBER = re.compile(r"[0-9]{1,15}")


def name_of(job_id: int, ladder: Ladder) -> str:
    """The name of a job's reservation, under the prefix that says that it is ours."""
    return f"{ladder.prefix}job-{job_id}"


def job_of(name: str, ladder: Ladder) -> int | None:
    """The job that a reservation of this name is for; None if the name is none of ours.

    >>> job_of("fs-job-17", Ladder.default()), job_of("maintenance", Ladder.default())
    (17, None)
    """
    number = name.removeprefix(name_of(0, ladder)[:-1])
    return int(number) if number != name and _NUMBER.fullmatch(number) else None


def is_guarded(job: Job, ladder: Ladder) -> bool:
    """Whether a guard of ours has taken the job in."""
    return f"reservation={name_of(job.job_id, ladder)}" in job.constraints


def noted(booking: Booking) -> dict[str, Any]:
    """The booking as a note for reports keeps it."""
    return {
        "kind": booking.kind.value,
        "user": booking.user,
        "nodes": list(booking.nodes),
        "start": booking.start.isoformat(),
    }


def of_note(job_id: str, note: Mapping[str, Any]) -> Booking:
    """The booking of a note, kept under its job's number.

    >>> one = Booking(Kind.PLAN, 17, "ada", ("n1", "n2"), datetime.fromisoformat("2026-11-29T12:00:00+00:00"))
    >>> of_note("17", noted(one)) == one
    True
    """
    start = datetime.fromisoformat(note["start"])
    return Booking(Kind(note["kind"]), int(job_id), note["user"], tuple(note["nodes"]), start)


def in_words(booking: Booking) -> str:
    """What is kept, and from when, in a few words."""
    nodes = ", ".join(booking.nodes)
    if booking.kind is Kind.GUARD:
        return f"{nodes} guarded for it"
    return f"{nodes} planned for it at {moment(booking.start)}"


def reason(booking: Booking, settle: timedelta) -> str:
    """Why the nodes are kept and until when. `settle` is the time that a job has to start in its room."""
    wait = duration(settle.total_seconds())
    if booking.kind is Kind.GUARD:
        return (
            f"Since {moment(booking.start)} nobody else starts there, while those who yield to it leave: until it "
            f"starts, or has had {wait} for that since the last of them was told to go."
        )
    return (
        f"At {moment(booking.start)} all that runs there has ended or may yield to it. Until then whatever ends before "
        f"that may start there; given up if it has not started {wait} after it."
    )
