"""The daemon: a tick and a rebalance pass, each on its own clock, while it leads its cluster."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import FrameType

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from slurm_fairshare.config import Config
from slurm_fairshare.core.plan import describe
from slurm_fairshare.daemon.backoff import Backoff
from slurm_fairshare.daemon.ports import Slurm, Store
from slurm_fairshare.daemon.rebalancing import rebalance_pass
from slurm_fairshare.daemon.sdnotify import notify, watchdog
from slurm_fairshare.daemon.tick import tick
from slurm_fairshare.errors import FairshareError, NotLeading, StoreError, StoreUnreachable
from slurm_fairshare.units import moment

log = structlog.get_logger("slurm-fairshare")

LEADER, CALLS = "leader", "calls"
"""What the leader remembers of itself: who it is and since when; the processes of Slurm's tools it has started."""

SHORTEST_LEASE = timedelta(seconds=15)
BEAT = 5.0
"""Seconds between two signs of life, to Postgres and to systemd."""


def utc_now() -> datetime:
    """The one place the daemon reads the clock."""
    return datetime.now(UTC)


class Daemon:
    """Ticks and rebalances while it leads; stands by while another does. An error ends a tick, not the daemon.

    `tick`, `rebalance` and `beat` are each called from a thread of their own.
    """

    def __init__(
        self,
        slurm: Slurm,
        store: Store,
        config: Config,
        clock: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slurm, self.store, self.config, self.clock = slurm, store, config, clock
        self._monotonic = monotonic
        self._lead = ExitStack()
        self._leading = False
        self._door = threading.Lock()
        self._passing = threading.Lock()
        longest = config.daemon.max_backoff.total_seconds()
        self._pauses = {
            "tick": Backoff(config.daemon.interval.total_seconds(), longest, monotonic),
            "rebalance": Backoff(config.rebalance.interval.total_seconds(), longest, monotonic),
        }
        self._progress: object = None
        self._turns = 0
        self._progressed = monotonic()

    @property
    def leading(self) -> bool:
        return self._leading

    def tick(self) -> None:
        """One tick, or one attempt to lead."""
        self._turn("tick", self._tick)
        self._turns += 1
        if self._turns == 1:
            notify("READY=1")  # however it ended: a daemon that cannot tick yet is up, and tries again

    def rebalance(self) -> None:
        """One pass, if this daemon leads and may stop runs."""
        if self.config.rebalance.enabled and self.config.daemon.push:
            with self._passing:
                if self._leading:
                    self._turn("rebalance", self._rebalance)

    def beat(self) -> None:
        """Show Postgres, which ends a silent leader's session, that this one lives; learn if it has done so."""
        if not self._leading:
            return
        try:
            self.store.assure_lead()
        except FairshareError as error:
            self._failed("lead", error)

    def alive(self, within: timedelta) -> bool:
        """Whether anything has moved in so long: a tick's end, or one of Slurm's tools called."""
        progress = (self._turns, self.slurm.calls.total())
        now = self._monotonic()
        if progress != self._progress:
            self._progress, self._progressed = progress, now
        return now - self._progressed < within.total_seconds()

    def close(self) -> None:
        self._stand_by()

    # --- the two steps

    def _turn(self, what: str, step: Callable[[], None]) -> None:
        """Take the step unless it is in a pause after failures; an error is told, and makes the pause longer."""
        pause = self._pauses[what]
        if pause.pausing:
            return
        try:
            step()
        except FairshareError as error:
            self._failed(what, error)
            return
        except Exception as error:  # a fault of ours must not end the daemon: it is told in full, and tried again
            log.exception(f"{what} failed", again_in=pause.failed())
            self._record(what, f"{type(error).__name__}: {error}")
            return
        pause.succeeded()

    def _tick(self) -> None:
        if not self._leads():
            return
        report = tick(self.slurm, self.store, self.config, self.clock())
        self.store.remember(CALLS, dict(self.slurm.calls), report.at)
        log.info(
            "tick",
            leaves=len(report.ranking.leaves),
            changes=[describe(change) for change in report.changes],
            pushed=report.pushed,
            seconds=round((report.finished - report.at).total_seconds(), 2),
            unknown_accounts=report.unknown_accounts,
        )
        mark = self.store.watermark()
        if mark is not None and mark < report.at:
            log.info("accounting is held", complete_up_to=moment(mark), why="slurmctld keeps messages back")

    def _rebalance(self) -> None:
        report = rebalance_pass(self.slurm, self.store, self.config, self.clock())
        for one in report.recorded:
            log.info("decision", id=one.decision.id, outcome=str(one.outcome), detail=one.detail)
        for job_id in report.warned:
            log.info("session warned", job=job_id)
        if report.unbooked:
            log.warning("nodes could not be booked or released", why=report.unbooked)
        if report.unheard:
            log.warning("a session could not be told", why=report.unheard, remedy="set slurm.notify_prefix")

    # --- who leads

    def _leads(self) -> bool:
        """Whether this daemon leads, after an attempt if it did not."""
        with self._door:
            if self._leading:
                return True
            if self._passing.locked():
                # A pass begun under a leadership that was lost must not end under the next one.
                log.info("standing by", why="a rebalance pass of the former leadership has not ended yet")
                return False
            try:
                self._lead.enter_context(self.store.lead(self.lease))
                now = self.clock()
                own = {"host": socket.gethostname(), "pid": os.getpid(), "since": moment(now)}
                self.store.remember(LEADER, own, now)
            except NotLeading as error:
                log.info("standing by", why=str(error))
                return False
            except FairshareError:
                self._lead.close()
                raise
            self._leading = True
            log.info("leading", cluster=self.config.cluster)
            return True

    @property
    def lease(self) -> timedelta:
        """How long a leader may be silent: not longer than a tick, so that another takes over within two."""
        return max(SHORTEST_LEASE, self.config.daemon.interval)

    def _stand_by(self) -> None:
        with self._door:
            self._leading = False
            self._lead.close()

    def _failed(self, what: str, error: FairshareError) -> None:
        told = {"error": str(error), "kind": type(error).__name__, "notes": getattr(error, "__notes__", [])}
        lost = isinstance(error, NotLeading | StoreUnreachable)
        if lost:
            self._stand_by()
        elif what in self._pauses:
            told["again_in"] = self._pauses[what].failed()
        log.error(f"{what} failed", **told)
        if what == "rebalance" and not lost:  # a tick records its own, with the step it was in
            self._record(what, str(error))

    def _record(self, what: str, words: str) -> None:
        try:
            self.store.record_failure(self.clock(), what, words)
        except StoreError as error:
            log.error("the failure could not be recorded", error=str(error))


def run(slurm: Slurm, store: Store, config: Config) -> None:
    """Run until SIGTERM or SIGINT."""
    daemon = Daemon(slurm, store, config)
    stop = threading.Event()

    def leave(signum: int, _frame: FrameType | None) -> None:
        log.info("stopping", signal=signal.Signals(signum).name)
        notify("STOPPING=1")
        stop.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, leave)
    steps: Sequence[tuple[Callable[[], None], float]] = (
        (daemon.tick, config.daemon.interval.total_seconds()),
        (daemon.rebalance, config.rebalance.interval.total_seconds()),
        (daemon.beat, BEAT),
    )
    scheduler, clock = schedule(steps), ClockWatch()
    scheduler.start()
    patience = watchdog()
    while not stop.wait(BEAT):
        if clock.was_set():
            log.warning("the host's clock was set; turns start anew")
            start_anew(scheduler)
        if patience is None or daemon.alive(patience):
            notify(f"WATCHDOG=1\nSTATUS={'leading' if daemon.leading else 'standing by'}")
    scheduler.shutdown(wait=True)
    daemon.close()


def schedule(steps: Sequence[tuple[Callable[[], None], float]]) -> BackgroundScheduler:
    """Each step now and then every so many seconds, on a thread of its own; turns that were missed are left out."""
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # a turn left out is no news
    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(len(steps))}, timezone=UTC)
    for step, every in steps:
        scheduler.add_job(
            step,
            "interval",
            seconds=every,
            next_run_time=utc_now(),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )
    return scheduler


def start_anew(scheduler: BackgroundScheduler) -> None:
    """Let every step have its turn now: after the clock was set back an hour, the next would be an hour away."""
    for job in scheduler.get_jobs():
        job.modify(next_run_time=utc_now())


class ClockWatch:
    """Notices that the host's clock was set, by the clock that cannot be."""

    JUMP = 1.0

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._apart = wall() - monotonic()

    def was_set(self) -> bool:
        """Whether it was set since the last look."""
        before, self._apart = self._apart, self._wall() - self._monotonic()
        return abs(self._apart - before) > self.JUMP
