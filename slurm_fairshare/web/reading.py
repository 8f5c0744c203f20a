"""What one tick recorded, read once for everybody, and asked for anew only when there may be a newer one.

Two hundred people who refresh a page cost Postgres what one does: a `Source` asks at most every few seconds whether
something new was recorded, and each piece of a `Reading` is read when the first page needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from threading import Lock, Thread
from typing import Generic, TypeVar

import structlog

from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.delivery import Delivery
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.projection import Turns, turns
from slurm_fairshare.core.rebalance import Pass
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import Changeset, account_key
from slurm_fairshare.core.waits import Wait, waits_of_queue, waits_of_runs
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.booking import recalled
from slurm_fairshare.daemon.lifting import lifted
from slurm_fairshare.errors import FairshareError, StaleData, StoreDenied, StoreUnreachable
from slurm_fairshare.reports import waits
from slurm_fairshare.reports.course import capacity_now, course_of, pass_now
from slurm_fairshare.reports.explain import Known, UserUsage
from slurm_fairshare.reports.measured import Measured, measured
from slurm_fairshare.reports.overtime import Hour, by_day, hours_of_nodes
from slurm_fairshare.reports.pyramid import Level, levels
from slurm_fairshare.reports.queue import QueueRow, queue_rows
from slurm_fairshare.reports.words import Basis
from slurm_fairshare.store.facts import TickFacts
from slurm_fairshare.units import moment
from slurm_fairshare.web.ports import Store

T = TypeVar("T")
log = structlog.get_logger(__name__)

PAST_EVERY = timedelta(minutes=5)
"""Sums over weeks are made anew so often: a minute more changes nothing that one could see in them."""

RECENT = timedelta(hours=1)
"""Capacity now is looked for so far back."""


class Once(Generic[T]):
    """A value made when it is first asked for, once, whoever asks at the same time. An error is not kept."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._door, self._made = make, Lock(), False
        self._value: T

    def __call__(self) -> T:
        with self._door:
            if not self._made:
                self._value, self._made = self._make(), True
            return self._value


@dataclass(frozen=True)
class Past:
    """A period of weeks with what is shown of it."""

    measured: Measured
    hours: dict[str, tuple[Hour, ...]]
    levels: tuple[Level, ...]
    runs: tuple[Run, ...]
    ended: tuple[Wait, ...]
    days: tuple[tuple[date, Mapping[str, Delivery]], ...]
    recent: Window
    """The stretch at its end that `runs` and `ended` are about: the lookback window."""


class Reading:
    """Everything one tick recorded. Pieces raise StoreDenied where the sight's role may not see them."""

    def __init__(
        self,
        store: Store,
        config: Config,
        tick: TickFacts | None,
        changesets: tuple[Changeset, ...],
        past: Callable[[datetime], Past],
        turns: Callable[[datetime], Mapping[str, Turns]],
    ) -> None:
        self.store, self.config, self.tick, self.changesets = store, config, tick, changesets
        self.past, self.turns = past, turns
        self.ranked: Once[tuple[datetime, Ranking] | None] = Once(store.last_ranking)
        self.picture: Once[Picture | None] = Once(store.latest_queue)
        self.rows: Once[tuple[QueueRow, ...]] = Once(self._rows)
        self.passed = Once(self._passed)
        self.used = Once(self._used)
        self.going = Once(self._going)
        self.trouble = ""
        """Why nothing newer could be read, where that is so."""

    def ranking(self) -> tuple[datetime, Ranking]:
        """StaleData before the first tick."""
        found = self.ranked()
        if found is None:
            raise StaleData("No tick has been recorded yet: start the daemon, or run `slurm-fairshare tick`.")
        return found

    def basis(self, now: datetime) -> Basis:
        at, _ = self.ranking()
        window = self.tick.window if self.tick is not None and self.tick.at == at else None
        return Basis(at, now, self.config.daemon.interval, window, self.config.fairshare.half_life)

    def queue_basis(self, now: datetime) -> Basis:
        picture = self.picture()
        if picture is None:
            raise StaleData("The queue has not been read yet: start the daemon, or run `slurm-fairshare tick`.")
        return Basis(picture.at, now, self.config.daemon.interval)

    def _rows(self) -> tuple[QueueRow, ...]:
        picture, found = self.picture(), self.ranked()
        if picture is None:
            return ()
        ranking, ladder = found[1] if found else None, self.config.ladder
        return queue_rows(picture.jobs, ranking, ladder, picture.at, recalled(self.store), lifted(self.store))

    def _used(self) -> UserUsage:
        at, _ = self.ranking()
        window = self.tick.window if self.tick is not None and self.tick.at == at else None
        return self.store.usage_by_user(window, self.config.weight, at) if window is not None else {}

    def _passed(self) -> Pass | None:
        """What a pass of the rebalancer decides on the picture as of the picture."""
        picture = self.picture()
        return pass_now(self.store, self.config, picture.at) if picture is not None else None

    def known(self, now: datetime) -> Known:
        """What an explanation is made of."""
        picture = self.picture()
        old = picture is None or now - picture.at > self.config.rules.max_age
        return Known(
            ranking=self.ranking()[1],
            basis=self.basis(now),
            rows=self.rows(),
            capacity=self.capacity_now(now),
            turns=self.turns(now),
            passed=None if old else self.passed(),
            used=self.used(),
        )

    def capacity_now(self, now: datetime) -> float | None:
        return capacity_now(self.store, self.config, now)

    def waits(self, past: Past) -> tuple[Wait, ...]:
        """Those that ended in the lookback window, and those that go on."""
        return (*past.ended, *self.going())

    def _going(self) -> tuple[Wait, ...]:
        picture = self.picture()
        return waits_of_queue(picture, self.config.job_classes, self.config.ladder) if picture is not None else ()


def as_of(rows: Sequence[QueueRow], now: datetime) -> tuple[QueueRow, ...]:
    """The same rows, looked at now: only those that are shown are made anew."""
    return tuple(replace(row, now=now) for row in rows)


def of_accounts(rows: Sequence[QueueRow], accounts: frozenset[str]) -> tuple[QueueRow, ...]:
    return tuple(row for row in rows if account_key(row.job.account) in accounts)


class Source:
    """The newest reading of one sight."""

    def __init__(self, store: Store, config: Config) -> None:
        self.store, self.config = store, config
        self._door = Lock()
        self._asked: datetime | None = None
        self._reading: Reading | None = None
        self._past = Slow(lambda now: read_past(store, config, now))
        self._turns = Slow(self._read_turns)

    def current(self, now: datetime) -> Reading:
        """The newest reading; the last one while Postgres does not answer, which then says so."""
        with self._door:
            due = self._asked is None or now - self._asked >= self.config.web.refresh or now < self._asked
            if self._reading is None or due:
                self._reading = self._read(now)
                self._asked = now
            return self._reading

    def _read(self, now: datetime) -> Reading:
        try:
            tick, changesets = self.store.last_tick(), self.store.changesets()
        except StoreUnreachable as error:
            if self._reading is None:
                raise
            self._reading.trouble = f"Postgres has not answered since {moment(now)}; shown is what was read before."
            log.warning("postgres does not answer", error=str(error))
            return self._reading
        old = self._reading
        if old is not None and old.tick == tick and old.changesets == changesets:
            old.trouble = ""
            return old
        return Reading(self.store, self.config, tick, changesets, self._past, self._turns)

    def _read_turns(self, now: datetime) -> Mapping[str, Turns]:
        """When the standing of every node turns: all of them together, since they share what takes time."""
        at, ranking = self.current(now).ranking()
        window = Window(max(at - self.config.fairshare.lookback, self.store.first_capacity() or at), at)
        return turns(course_of(self.store, self.config, window), ranking, tuple(ranking.tree.nodes))


class Slow(Generic[T]):
    """What takes long to make. Who asks first waits for it; later it is made anew beside the readers, now and then,
    and they are served the former one meanwhile."""

    def __init__(self, make: Callable[[datetime], T], every: timedelta = PAST_EVERY) -> None:
        self._make, self._every, self._door = make, every, Lock()
        self._made: tuple[datetime, T] | None = None
        self._renewing = False

    def __call__(self, now: datetime) -> T:
        former = self._made
        if former is None:
            with self._door:
                if self._made is None:
                    self._made = (now, self._make(now))
                return self._made[1]
        if now - former[0] >= self._every and not self._renewing:
            self._renewing = True
            Thread(target=self._renew, args=(now,), daemon=True, name="renew").start()
        return former[1]

    def _renew(self, now: datetime) -> None:
        try:
            self._made = (now, self._make(now))
        except FairshareError as error:
            log.warning("not made anew; the former one stays", error=str(error))
        finally:
            self._renewing = False


def read_past(store: Store, config: Config, now: datetime) -> Past:
    """StaleData where nothing was recorded; StoreDenied where the role may not see what it is made of."""
    end = now.replace(microsecond=0)
    found = measured(store, Window(end - config.web.history, end), now, config.rebalance.checkpoint_interval)
    known = found.period.known
    recent = Window(max(known.start, end - config.fairshare.lookback), end)
    busy = store.busy(known)
    runs = store.runs(Window(recent.start - waits.BEFORE, recent.end))
    whole = levels(found, store.capacity_history(known), store.runs(known) if busy else (), busy, now)
    ended = tuple(one for one in waits_of_runs(runs, config.job_classes) if recent.start <= one.at < recent.end)
    days = by_day(found.stretches, config.zone)
    return Past(found, hours_of_nodes(found.stretches), whole, runs, ended, days, recent)


def seen(make: Callable[[], T]) -> T | None:
    """What the role may see of it: None where it may not."""
    try:
        return make()
    except StoreDenied:
        return None
