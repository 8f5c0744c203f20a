"""The daemon: a tick and a rebalance pass, each on its own clock, while it leads its cluster."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from types import FrameType

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from slurm_fairshare.config import Config
from slurm_fairshare.core.plan import describe
from slurm_fairshare.daemon.ports import Slurm, Store
from slurm_fairshare.daemon.rebalancing import rebalance_pass
from slurm_fairshare.daemon.tick import tick
from slurm_fairshare.errors import FairshareError, NotLeading

log = structlog.get_logger("slurm-fairshare")


def utc_now() -> datetime:
    """The one place the daemon reads the clock."""
    return datetime.now(UTC)


class Daemon:
    """Ticks and rebalances while it leads; stands by while another does. An error ends a tick, not the daemon."""

    def __init__(self, slurm: Slurm, store: Store, config: Config, clock: Callable[[], datetime] = utc_now) -> None:
        self.slurm, self.store, self.config, self.clock = slurm, store, config, clock
        self._lead = ExitStack()
        self._leading = False
        self._door = threading.Lock()

    def tick(self) -> None:
        """One tick, or one attempt to lead."""
        if not self._leads():
            return
        try:
            report = tick(self.slurm, self.store, self.config, self.clock())
        except FairshareError as error:
            self._failed("tick", error)
            return
        log.info(
            "tick",
            leaves=len(report.ranking.leaves),
            changes=[describe(change) for change in report.changes],
            pushed=report.pushed,
            seconds=round((report.finished - report.at).total_seconds(), 2),
            unknown_accounts=report.unknown_accounts,
        )

    def rebalance(self) -> None:
        """One pass, if this daemon leads and may stop runs."""
        if not (self._leading and self.config.rebalance.enabled and self.config.daemon.push):
            return
        try:
            report = rebalance_pass(self.slurm, self.store, self.config, self.clock())
        except FairshareError as error:
            self._failed("rebalance", error)
            return
        for one in report.recorded:
            log.info("decision", id=one.decision.id, outcome=str(one.outcome), detail=one.detail)

    def close(self) -> None:
        self._lead.close()
        self._leading = False

    def _leads(self) -> bool:
        with self._door:
            if self._leading:
                return True
            try:
                self._lead.enter_context(self.store.lead())
            except NotLeading as error:
                log.info("standing by", why=str(error))
                return False
            except FairshareError as error:
                self._failed("lead", error)
                return False
            self._leading = True
            log.info("leading", cluster=self.config.cluster)
            return True

    def _failed(self, what: str, error: FairshareError) -> None:
        log.error(f"{what} failed", error=str(error), kind=type(error).__name__, notes=getattr(error, "__notes__", []))


def run(slurm: Slurm, store: Store, config: Config) -> None:
    """Run until SIGTERM or SIGINT. A step that takes longer than its interval is not started twice."""
    daemon = Daemon(slurm, store, config)
    stop = threading.Event()

    def leave(signum: int, _frame: FrameType | None) -> None:
        log.info("stopping", signal=signal.Signals(signum).name)
        stop.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, leave)
    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(2)}, timezone=UTC)
    once = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
    every_tick = config.daemon.interval.total_seconds()
    every_pass = config.rebalance.interval.total_seconds()
    scheduler.add_job(daemon.tick, "interval", seconds=every_tick, next_run_time=utc_now(), id="tick", **once)
    scheduler.add_job(daemon.rebalance, "interval", seconds=every_pass, id="rebalance", **once)
    scheduler.start()
    stop.wait()
    scheduler.shutdown(wait=True)
    daemon.close()
