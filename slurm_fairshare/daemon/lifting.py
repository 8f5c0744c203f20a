"""The tick's last step: large jobs that have waited long move to the first rank, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.large import Lift, at_first_rank, kept, lifts
from slurm_fairshare.core.plan import Change, Held, SetPriority
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.daemon.ports import Errands, Notes, Recalls
from slurm_fairshare.errors import SlurmRefused

NAME = "lifts"
"""Slurm tells nobody what a job's site factor is: what was set last is remembered under this name."""


def lift_large(
    slurm: Errands,
    store: Notes,
    config: Config,
    picture: Picture,
    ranking: Ranking,
    held: Held,
    changes: Sequence[Change],
    now: datetime,
) -> tuple[Lift, ...]:
    """Set what differs. A job that has gone since is passed over; it is forgotten at the next tick."""
    last = _last(store)
    labels = labels_after(held, changes)
    todo = lifts(picture.jobs, ranking, labels, config.ladder, config.large_jobs, last, now)
    done = []
    for lift in todo:
        try:
            slurm.lift(lift.job_id, lift.site_factor)
        except SlurmRefused:
            continue  # it ended meanwhile, or it is one that nobody may change: its old place stays
        done.append(lift)
    after = kept(last, done, picture.jobs)
    if after != last:
        store.remember(NAME, {str(job_id): factor for job_id, factor in after.items()}, now)
    return tuple(done)


def _last(store: Recalls) -> dict[int, int]:
    found = store.recall(NAME)
    return {int(job_id): int(factor) for job_id, factor in found[1].items()} if found is not None else {}


def lifted(store: Recalls) -> frozenset[int]:
    """The jobs that stand at the first rank since the last tick: for reports."""
    return at_first_rank(_last(store))


def labels_after(held: Held, changes: Sequence[Change]) -> dict[str, int]:
    """Each account's Priority once the changes are carried out."""
    labels = {account_key(one.account): one.priority for one in held.associations if not one.user and one.priority}
    for change in changes:
        if isinstance(change, SetPriority):
            labels |= dict.fromkeys(map(account_key, change.accounts), change.priority)
    return labels
