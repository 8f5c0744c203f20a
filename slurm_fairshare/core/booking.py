"""Nodes booked for one waiting job, by a reservation of Slurm's.

A *guard* keeps them while those who yield leave: Slurm gives freed GPUs to whoever is first in its order, so a job
that needs whole nodes may lose them again one by one. A *plan* keeps them from a moment to come, at which all that
runs there may yield to a large job: until then whatever ends before it may start there.

No job dies of its guard. Slurm kills what runs in a reservation when its time is over, and holds what waits in one
that is deleted. So a guard has no end, its job is taken out of it as soon as it runs, and a plan is nobody's to run in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.units import moment


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


_NAME = re.compile(r"(guard|plan)-([0-9]{1,15})")


def name_of(booking: Booking, ladder: Ladder) -> str:
    """The reservation's name, under the prefix that says that it is ours."""
    return f"{ladder.prefix}{booking.kind.value}-{booking.job_id}"


def read_name(name: str, ladder: Ladder) -> tuple[Kind, int] | None:
    """What is booked under this name for which job; None if the name is none of ours.

    >>> read_name("fs-guard-17", Ladder.default()), read_name("maintenance", Ladder.default())
    ((<Kind.GUARD: 'guard'>, 17), None)
    """
    if not name.startswith(ladder.prefix):
        return None
    found = _NAME.fullmatch(name, len(ladder.prefix))
    return (Kind(found.group(1)), int(found.group(2))) if found else None


def is_guarded(job: Job, ladder: Ladder) -> bool:
    """Whether a guard of ours has taken the job in."""
    return any(word.startswith(f"reservation={ladder.prefix}{Kind.GUARD.value}-") for word in job.constraints)


def in_words(booking: Booking) -> str:
    """What is kept, and from when, in a few words."""
    nodes = ", ".join(booking.nodes)
    if booking.kind is Kind.GUARD:
        return f"{nodes} guarded for it"
    return f"{nodes} planned for it at {moment(booking.start)}"
