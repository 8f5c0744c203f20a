"""One tick: read, recompute, plan, apply, record.

Everything is recomputed from the ledger, so a lost or doubled tick changes nothing, and a tick killed at any
instruction leaves nothing wrong behind: each step is one transaction, and the next tick starts over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from slurm_fairshare.config import Config
from slurm_fairshare.core.capacity import past_steps
from slurm_fairshare.core.cluster import Picture, capacity_of
from slurm_fairshare.core.committed import committed_by_user, counting
from slurm_fairshare.core.fairshare import Ranking, Usage, from_the_first, rank
from slurm_fairshare.core.plan import Change, plan, unbudgeted_accounts, unknown_accounts
from slurm_fairshare.core.tree import Changeset, epochs, tree_at
from slurm_fairshare.core.users import UserUsage
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.clocks import compare
from slurm_fairshare.daemon.headroom import keep_headroom
from slurm_fairshare.daemon.lifting import lift_large
from slurm_fairshare.daemon.pooling import resize_pool
from slurm_fairshare.daemon.ports import Batch, Ledger, Slurm, Store, TickReport
from slurm_fairshare.daemon.utilisation import learn_utilisation
from slurm_fairshare.errors import FairshareError, StaleData, StoreError
from slurm_fairshare.slurm.accounting import slices

BITE = 50
"""Changes carried out before the leadership is made sure of again: a few seconds of sacctmgr."""

PENDING, PUSHED, PHASES, SKEW, BACKLOG = "pending", "pushed", "phases", "skew", "backlog"
"""What is remembered of a tick beside its record: differences left, differences pushed last,
seconds by step, seconds by which slurmctld's clock is ahead, messages that slurmctld keeps for slurmdbd."""


def tick(slurm: Slurm, store: Store, config: Config, now: datetime, *, dry_run: bool = False) -> TickReport:
    """Carry one tick out. `dry_run` reads and computes all, changes nothing in Slurm and records no tick.

    Raises a FairshareError naming what failed; it is also recorded (where Postgres can be reached) with the
    phase it failed in. Nothing is pushed after a failed read.
    """
    steps = _Steps()
    try:
        with steps("compare clocks"):
            _, ahead = compare(slurm, config, now, steps.begun)
        with steps("read accounting"):
            poll(slurm, store, config, now)
        with steps("read the queue"):
            picture = slurm.picture(now)
            learn_past(slurm, store, config, picture)
            store.record_picture(picture, capacity_of(picture.nodes))
        with steps("recompute"):
            window, ranking = recompute(store, config, now)
            ranking = in_order(ranking, picture, config, now)
        with steps("plan"):
            held = slurm.held()
            changes = plan(ranking, config.ladder, config.lane, held, users_ranked(store, config, window, now))
            if not dry_run:
                store.remember(PENDING, len(changes), now)
        push = config.daemon.push and not dry_run
        with steps("apply"):
            if push and changes:
                _refuse_stale(picture, config, steps.elapsed)
                _apply(slurm, store, changes)
                store.remember(PUSHED, len(changes), now)
                store.remember(PENDING, 0, now)
        with steps("lift large jobs"):
            if push:
                store.assure_lead()
                lift_large(slurm, store, config, picture, ranking, held, changes, now)
        report = TickReport(
            at=now,
            finished=now + timedelta(seconds=steps.elapsed),
            ranking=ranking,
            changes=changes,
            pushed=push,
            window=window,
            unknown_accounts=unknown_accounts(ranking, held),
            unbudgeted_accounts=unbudgeted_accounts(ranking, held),
        )
        with steps("record"):
            if not dry_run:
                store.record_tick(report)
        with steps("resize the pool"):
            if push:
                store.assure_lead()
                resize_pool(slurm, store, config, picture)
        with steps("keep headroom"):
            if push:
                store.assure_lead()
                keep_headroom(slurm, store, config, picture)
        with steps("read GPU utilisation"):
            if not dry_run:
                learn_utilisation(slurm, store, config, now)
        if not dry_run:
            store.remember(PHASES, steps.seconds, now)
            store.remember(SKEW, ahead.total_seconds(), now)
    except FairshareError as error:
        _record_failure(store, now, steps.current, error)
        raise
    return report


def _apply(slurm: Slurm, store: Store, changes: Sequence[Change]) -> None:
    """In bites, so that a daemon that lost the leadership half-way stops soon. What is left is the next plan."""
    for start in range(0, len(changes), BITE):
        store.assure_lead()
        slurm.carry_out(changes[start : start + BITE])


def poll(slurm: Slurm, store: Store, config: Config, now: datetime) -> None:
    """Read accounting from the watermark (less an overlap) up to now, a day at a time, and move the watermark on to
    where no end of a run can be missing.

    slurmctld tells slurmdbd of ends in the order in which they happen, and keeps in a queue what slurmdbd has not
    taken yet. So where that queue was empty before slurmdbd is asked, nothing is missing up to now; otherwise nothing
    up to the newest end that had been read before, for whatever ended earlier was handed over earlier. The overlap is
    for the moments between an end and its message. What is read beyond the watermark counts, and is read again.

    A day is recorded before the next is asked for, so what was read once is not lost to a later failure.
    """
    mark, waiting = store.watermark(), slurm.backlog()
    store.remember(BACKLOG, waiting, now)
    start = mark - config.daemon.poll_overlap if mark is not None else now - config.daemon.first_poll
    start = min(start, now).astimezone(UTC).replace(microsecond=0)
    complete = store.newest_end() or start if waiting else now
    for part in slices(Window(start, now)):
        read = Window(part.start, max(part.start, min(part.end, complete)))
        store.record_runs(replace(slurm.runs(part), window=read), now)


def learn_past(slurm: Slurm, store: Ledger, config: Config, picture: Picture) -> None:
    """Before the first picture is recorded: what was in service before it, as far back as accounting is read.

    So a first tick on a cluster that has been running ranks by its real history.
    """
    if store.first_capacity() is not None:
        return
    window = Window.lookback(picture.at, config.daemon.first_poll)
    past = slurm.past(window)
    if past.rejected:
        store.record_runs(Batch(Window(picture.at, picture.at), (), past.rejected), picture.at)
    store.record_past(past_steps(past, picture.nodes, window))


def recompute(
    store: Ledger, config: Config, now: datetime, changesets: Sequence[Changeset] | None = None
) -> tuple[Window, Ranking]:
    """The ranking now, from the ledger alone; with `changesets`, as it would be under those budgets.

    The window starts where capacity is first known: before that nobody was owed anything, so nothing used
    before it counts either. Before the first budget the first one is taken to have held.
    """
    window = Window.lookback(now, config.fairshare.lookback)
    capacity = store.capacity(window)
    known = min((step.at for step in capacity), default=now)
    window = Window(max(window.start, min(known, now)), window.end)
    changesets = store.changesets() if changesets is None else changesets
    tree = tree_at(changesets, now)
    stretches = from_the_first(epochs(changesets, window.start, window.end), tree) if window.seconds else ()
    usage = [
        Usage(stretch, store.usage(Window(stretch.start, stretch.end), config.weight, now)) for stretch in stretches
    ]
    return window, rank(tree, capacity, usage, config.weight, now)


def in_order(ranking: Ranking, picture: Picture | None, config: Config, now: datetime) -> Ranking:
    """The ranking with its leaves in the order that is pushed."""
    if picture is None or not config.fairshare.count_committed:
        return ranking
    return counting(ranking, committed_by_user(picture.jobs, config.ladder, now, config.charge_rule, picture.whole))


def users_ranked(store: Ledger, config: Config, window: Window, now: datetime) -> UserUsage | None:
    """What each user used in the window, where users are ranked inside their account."""
    return store.usage_by_user(window, config.weight, now) if config.fairshare.rank_users else None


def _refuse_stale(picture: Picture, config: Config, elapsed: float) -> None:
    limit = config.rebalance.max_age.total_seconds()
    if elapsed > limit:
        raise StaleData(
            f"the picture of {picture.at} was {elapsed:.0f}s old when it was to be pushed, more than the "
            f"{limit:.0f}s of rebalance.max_age; nothing was pushed (is slurmdbd or Postgres slow?)"
        )


def _record_failure(store: Store, now: datetime, phase: str, error: FairshareError) -> None:
    try:
        store.record_failure(now, phase, str(error))
    except StoreError as second:
        error.add_note(f"and it could not be recorded: {second}")


@dataclass
class _Steps:
    """Which step a tick is in, and how long each has taken."""

    current: str = "start"
    begun: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.current = name
        begun = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begun, 3)
