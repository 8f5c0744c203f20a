"""A pass's bookings: those that are there, and the way from them to those that should be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from slurm_fairshare.config import Config
from slurm_fairshare.core.booking import Booking, Kind, noted, of_note
from slurm_fairshare.daemon.ports import Notes, Recalls, Reservations
from slurm_fairshare.errors import SlurmRefused

NAME = "bookings"
"""What is booked is remembered by job under this name: for reports, and so that it is taken away once it is off."""


def booked_now(slurm: Reservations, store: Notes, config: Config) -> tuple[Booking, ...]:
    """What is booked. Slurm is not asked where both settings are off and nothing is left of earlier ones."""
    large = config.large_jobs
    if config.rebalance.guard or (large is not None and large.plan_ahead):
        return slurm.bookings()
    return slurm.bookings() if recalled(store) else ()


def recalled(store: Recalls) -> dict[int, Booking]:
    """What was booked after the last pass, by job: for reports, which do not ask Slurm."""
    found = store.recall(NAME)
    return {int(job): of_note(job, note) for job, note in found[1].items()} if found is not None else {}


def book(
    slurm: Reservations,
    store: Notes,
    there: Sequence[Booking],
    wanted: Sequence[Booking],
    may_change: Callable[[], None],
    now: datetime,
) -> str:
    """Release what is no longer wanted, then book what is new: says what Slurm refused, "" for nothing.

    A booking is a help: where it is refused, things go on without it.
    """
    plans = {(one.job_id, one.nodes): one for one in there if one.kind is Kind.PLAN}
    becoming = {one: plans[one.job_id, one.nodes] for one in wanted if (one.job_id, one.nodes) in plans}
    after, refused = set(there), ""
    for one in there:
        if one in wanted or one in becoming.values():
            continue
        may_change()
        try:
            slurm.unbook(one)
            after.discard(one)
        except SlurmRefused as error:
            refused = str(error)
    for one in wanted:
        if one in there:
            continue
        may_change()
        try:
            slurm.book(one, becoming.get(one))
            after = (after | {one}) - {becoming.get(one)}
        except SlurmRefused as error:
            refused = str(error)
    kept = {one.job_id: one for one in sorted(after, key=lambda one: one.job_id)}
    if kept != recalled(store):
        store.remember(NAME, {str(job): noted(one) for job, one in kept.items()}, now)
    return refused
