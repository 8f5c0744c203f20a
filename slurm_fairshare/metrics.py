"""Metrics for Prometheus, read from the store alone: a scrape costs Slurm nothing.

METRICS names every one; docs/reference/metrics.md is written from it, and a test holds what is served to it. What is
not known is left out, never shown as zero.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_fairshare import __version__
from slurm_fairshare.config import Config
from slurm_fairshare.core.classes import Kind
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.resources import MILLI
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.waits import STOPPED, waits_of_runs
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.loop import CALLS, LEADER
from slurm_fairshare.daemon.rebalancing import DECLINED
from slurm_fairshare.daemon.tick import BACKLOG, PENDING, PHASES, PUSHED, SKEW
from slurm_fairshare.errors import ConfigError, FairshareError, StaleData
from slurm_fairshare.reports.measured import History, measured
from slurm_fairshare.store.facts import TickFacts
from slurm_fairshare.store.tallies import Tallies

PREFIX = "slurm_fairshare_"
FRESH = 10.0
"""Seconds for which what was read is served again, so that a second scraper costs nothing."""

WAIT_BUCKETS = (1, 5, 15, 30, 60, 120, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800)
COUNTED = 60.0
"""Seconds for which counts over the whole journal are served again."""

RARE = 300.0
"""Seconds between two readings of all runs of the day and of the lookback window."""

BEFORE = timedelta(days=7)
"""Runs stopped so long before midnight tell which of today's come again."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A metric as it is documented."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def full(self) -> str:
        return PREFIX + self.name


LEAF = ("account", "path")

METRICS: tuple[Spec, ...] = (
    Spec("store_up", "gauge", "1 where Postgres answered this scrape, 0 where it did not; all else is left out then."),
    Spec("build_info", "gauge", "Always 1; the program's version.", ("version",)),
    Spec("leader_present", "gauge", "1 where a daemon (or a command) leads the cluster at this moment, else 0."),
    Spec("leader_info", "gauge", "Always 1; the host that led last.", ("host",)),
    Spec("push_enabled", "gauge", "1 where Slurm is changed, 0 in shadow mode (daemon.push)."),
    Spec(
        "source_age_seconds",
        "gauge",
        "Age of what is known, by source: accounting, queue, ranking, push, rebalance.",
        ("source",),
        "seconds",
    ),
    Spec("tick_seconds", "gauge", "How long the last tick took.", (), "seconds"),
    Spec("tick_step_seconds", "gauge", "How long each step of the last tick took.", ("step",), "seconds"),
    Spec("pending_differences", "gauge", "Differences between Slurm and what it should hold that are not pushed."),
    Spec(
        "clock_skew_seconds",
        "gauge",
        "How far slurmctld's clock is ahead of the daemon's, beyond what a second's rounding leaves open.",
        (),
        "seconds",
    ),
    Spec(
        "slurmdbd_backlog_messages", "gauge", "Messages for slurmdbd that slurmctld kept back when it was last asked."
    ),
    Spec("slurm_calls_total", "counter", "Slurm's tools run by the leading daemon since it started.", ("tool",)),
    Spec("failures_total", "counter", "Ticks and passes that failed, by the step they were in.", ("step",)),
    Spec("rejected_rows_total", "counter", "Rows of Slurm that could not be read and count for nobody.", ("source",)),
    Spec("decisions_total", "counter", "Runs told to yield, by rule and outcome.", ("rule", "outcome")),
    Spec("share_ratio", "gauge", "The leaf's part of the whole cluster.", LEAF, "ratio"),
    Spec(
        "entitlement_gpu_seconds", "gauge", "What the leaf was entitled to in the lookback window.", LEAF, "GPU-seconds"
    ),
    Spec("usage_gpu_seconds", "gauge", "What the leaf was charged in the lookback window.", LEAF, "GPU-seconds"),
    Spec(
        "usage_ratio",
        "gauge",
        "Usage by entitlement; below 1 is under-served, +Inf where nothing was owed.",
        LEAF,
        "ratio",
    ),
    Spec("rank", "gauge", "The leaf's place, 1 first.", LEAF),
    Spec(
        "owed_gpu_seconds",
        "gauge",
        "What the leaf was owed in the lookback window: the lesser of entitlement and demand, hour by hour.",
        LEAF,
        "GPU-seconds",
    ),
    Spec("delivered_gpu_seconds", "gauge", "What of it was delivered.", LEAF, "GPU-seconds"),
    Spec(
        "unallocated_gpu_seconds",
        "gauge",
        "What the account's unallocated work held in the lookback window.",
        ("account",),
        "GPU-seconds",
    ),
    Spec(
        "demand_gpus",
        "gauge",
        "GPUs that the account's contract jobs held or waited for when the queue was seen last.",
        ("account",),
        "GPUs",
    ),
    Spec(
        "capacity_gpus",
        "gauge",
        "GPUs by type and state: in_service, down, drained; allocated are part of in_service.",
        ("type", "state"),
        "GPUs",
    ),
    Spec(
        "jobs", "gauge", "Jobs of the account in the queue as seen last, by state in lower case.", ("account", "state")
    ),
    Spec(
        "wait_seconds",
        "histogram",
        "How long jobs waited that started since midnight (UTC), by class. Starts anew each midnight.",
        ("class",),
        "seconds",
    ),
)

BY_NAME: Mapping[str, Spec] = {spec.name: spec for spec in METRICS}


class Store(History, Protocol):
    """What the metrics are read from."""

    def led(self) -> bool: ...

    def last_tick(self) -> TickFacts | None: ...

    def last_ranking(self) -> tuple[datetime, Ranking] | None: ...

    def latest_queue(self) -> Picture | None: ...

    def last_picture(self) -> datetime | None: ...

    def watermark(self) -> datetime | None: ...

    def tallies(self, since: datetime) -> Tallies: ...

    def recall(self, name: str) -> tuple[datetime, Any] | None: ...


class FairshareCollector(Collector):
    """Reads the store when it is scraped. What only changes with a tick is reckoned once a tick, and what takes many
    rows once in five minutes."""

    def __init__(
        self,
        store: Store,
        config: Config,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.config, self.clock = store, config, clock
        self._monotonic = monotonic
        self._door = threading.Lock()
        self._made: tuple[float, list[Metric]] | None = None
        self._of_tick: tuple[datetime | None, list[Metric]] | None = None
        self._of_past: tuple[float, list[Metric]] | None = None
        self._counted: tuple[float, Tallies] | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing is read when the collector is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        with self._door:
            now = self._monotonic()
            if self._made is None or now - self._made[0] >= FRESH:
                self._made = (now, self._all())
            yield from self._made[1]

    def _all(self) -> list[Metric]:
        always = [
            _gauge("build_info", {(__version__,): 1}),
            _gauge("push_enabled", {(): float(self.config.daemon.push)}),
        ]
        try:
            tick = self.store.last_tick()
            found = [*self._now(tick), *self._once_a_tick(tick)]
        except FairshareError:
            return [*always, _gauge("store_up", {(): 0})]
        return [*always, _gauge("store_up", {(): 1}), *found]

    def _once_a_tick(self, tick: TickFacts | None) -> list[Metric]:
        at = tick.at if tick is not None else None
        if self._of_tick is None or self._of_tick[0] != at:
            self._of_tick = (at, list(self._quick(tick)))
        return [*self._of_tick[1], *self._now_and_then(tick)]

    def _now_and_then(self, tick: TickFacts | None) -> list[Metric]:
        """What has to read every run of a day or a week."""
        if tick is None:
            return []
        now = self._monotonic()
        if self._of_past is None or now - self._of_past[0] >= RARE:
            self._of_past = (now, [*self._past(tick), self._waits(tick.at)])
        return self._of_past[1]

    # --- what changes all the time

    def _now(self, tick: TickFacts | None) -> Iterator[Metric]:
        store, now = self.store, self.clock()
        names = (LEADER, PENDING, PUSHED, PHASES, SKEW, BACKLOG, CALLS, DECLINED)
        facts = {name: store.recall(name) for name in names}
        values = {name: found[1] for name, found in facts.items() if found is not None}
        yield _gauge("leader_present", {(): float(store.led())})
        if LEADER in values:
            yield _gauge("leader_info", {(str(values[LEADER]["host"]),): 1})
        moments = {
            "accounting": store.watermark(),
            "queue": store.last_picture(),
            "ranking": tick.at if tick is not None else None,
            "push": _at(facts[PUSHED]),
            "rebalance": _at(facts[DECLINED]),
        }
        ages: dict[tuple[str, ...], float] = {
            (name,): (now - at).total_seconds() for name, at in moments.items() if at is not None
        }
        yield _gauge("source_age_seconds", ages)
        if tick is not None:
            yield _gauge("tick_seconds", {(): (tick.finished - tick.at).total_seconds()})
        yield _gauge("tick_step_seconds", _by_word(values.get(PHASES, {})))
        for fact, name in (
            (PENDING, "pending_differences"),
            (SKEW, "clock_skew_seconds"),
            (BACKLOG, "slurmdbd_backlog_messages"),
        ):
            if fact in values:
                yield _gauge(name, {(): float(values[fact])})
        yield _counter("slurm_calls_total", _by_word(values.get(CALLS, {})))
        tallies = self._counts(now)
        yield _counter("failures_total", _by_word(tallies.failures))
        yield _counter("rejected_rows_total", _by_word(tallies.rejected))
        yield _counter("decisions_total", {pair: float(count) for pair, count in tallies.decisions.items()})

    def _counts(self, now: datetime) -> Tallies:
        """Counting years of decisions is no work for every scrape."""
        at = self._monotonic()
        if self._counted is None or at - self._counted[0] >= COUNTED:
            self._counted = (at, self.store.tallies(now))
        return self._counted[1]

    # --- what changes with a tick

    def _quick(self, tick: TickFacts | None) -> Iterator[Metric]:
        last = self.store.last_ranking()
        if last is not None:
            yield from _standings(last[1])
        picture = self.store.latest_queue()
        if picture is not None:
            yield from _queue(picture)
        if tick is not None:
            yield from self._capacity(tick.at)

    def _capacity(self, at: datetime) -> Iterator[Metric]:
        newest = {one.kind: one for _, one in self.store.capacity_history(Window(at, at + timedelta(microseconds=1)))}
        values: dict[tuple[str, ...], float] = {}
        for kind, one in newest.items():
            states = {
                "in_service": one.in_service,
                "down": one.down,
                "drained": one.drained,
                "allocated": one.allocated,
            }
            values |= {(kind, state): float(count) for state, count in states.items() if count is not None}
        yield _gauge("capacity_gpus", values)
        demand = self.store.demand(Window(at, at + timedelta(microseconds=1)))
        yield _gauge(
            "demand_gpus", {(account,): steps[-1].value for account, steps in demand.items() if account and steps}
        )

    def _past(self, tick: TickFacts) -> Iterator[Metric]:
        asked = Window(tick.at - self.config.fairshare.lookback, tick.at)
        try:
            found = measured(self.store, asked, tick.at, self.config.rebalance.checkpoint_interval)
        except StaleData:
            return  # nothing is known of the window yet
        owed: dict[tuple[str, ...], float] = {}
        got: dict[tuple[str, ...], float] = {}
        for node in found.tree.leaves:
            made = found.deliveries.get(found.tree.keys[node.path])
            if made is not None:
                labels = (node.account or node.name, node.path)
                owed[labels], got[labels] = made.owed, made.got
        yield _gauge("owed_gpu_seconds", owed)
        yield _gauge("delivered_gpu_seconds", got)
        free: dict[tuple[str, ...], float] = {}
        for one in found.holdings:
            if not one.charged:
                free[(one.account,)] = free.get((one.account,), 0.0) + one.milli_gpu_seconds / MILLI
        yield _gauge("unallocated_gpu_seconds", free)

    def _waits(self, at: datetime) -> Metric:
        midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
        found = {one.key: one for one in self.store.runs(Window(midnight, at))}
        for state in sorted(STOPPED):
            found |= {one.key: one for one in self.store.runs(Window(midnight - BEFORE, midnight), state)}
        waits = [
            wait
            for wait in waits_of_runs(found.values(), self.config.job_classes)
            if wait.at >= midnight and not wait.again
        ]
        family = HistogramMetricFamily(PREFIX + "wait_seconds", BY_NAME["wait_seconds"].about, labels=["class"])
        for kind in Kind:
            seconds = [wait.seconds for wait in waits if wait.kind is kind]
            family.add_metric([kind.value], buckets(seconds), sum_value=sum(seconds))
        return family


def buckets(seconds: Sequence[float]) -> list[tuple[str, float]]:
    """Cumulative counts up to each bound.

    >>> buckets([0.5, 30, 30, 10**9])[:5], buckets([0.5])[-1]
    ([('1.0', 1), ('5.0', 1), ('15.0', 1), ('30.0', 3), ('60.0', 3)], ('+Inf', 1))
    """
    ordered = sorted(seconds)
    counts: list[tuple[str, float]] = [
        (str(float(bound)), bisect.bisect_right(ordered, bound)) for bound in WAIT_BUCKETS
    ]
    return [*counts, ("+Inf", len(ordered))]


def _standings(ranking: Ranking) -> Iterator[Metric]:
    leaves = {(leaf.account, leaf.path): leaf for leaf in ranking.leaves}
    yield _gauge("share_ratio", {key: leaf.standing.share for key, leaf in leaves.items()})
    yield _gauge("entitlement_gpu_seconds", {key: leaf.standing.entitlement for key, leaf in leaves.items()})
    yield _gauge("usage_gpu_seconds", {key: leaf.standing.usage for key, leaf in leaves.items()})
    yield _gauge("usage_ratio", {key: leaf.standing.ratio for key, leaf in leaves.items()})
    yield _gauge("rank", {key: float(leaf.rank) for key, leaf in leaves.items()})


def _queue(picture: Picture) -> Iterator[Metric]:
    counts: dict[tuple[str, ...], float] = {}
    for job in picture.jobs:
        key = (account_key(job.account), job.state.lower())
        counts[key] = counts.get(key, 0.0) + 1
    yield _gauge("jobs", counts)


def _at(fact: tuple[datetime, Any] | None) -> datetime | None:
    return fact[0] if fact is not None else None


def _by_word(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): float(value) for name, value in sorted(values.items())}


def _gauge(name: str, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    spec = BY_NAME[name]
    family = GaugeMetricFamily(spec.full, spec.about, labels=spec.labels)
    for labels, value in values.items():
        family.add_metric(list(labels), value)
    return family


def _counter(name: str, values: Mapping[tuple[str, ...], float]) -> CounterMetricFamily:
    spec = BY_NAME[name]
    family = CounterMetricFamily(spec.full, spec.about, labels=spec.labels)
    for labels, value in values.items():
        family.add_metric(list(labels), value)
    return family


# --- serving --------------------------------------------------------------------------------------


def registry(store: Store, config: Config, clock: Callable[[], datetime]) -> CollectorRegistry:
    """A registry with these metrics and nothing else."""
    made = CollectorRegistry(auto_describe=False)
    made.register(FairshareCollector(store, config, clock))
    return made


def exposition(store: Store, config: Config, clock: Callable[[], datetime]) -> str:
    """All metrics in Prometheus' text format."""
    return generate_latest(registry(store, config, clock)).decode()


def address(listen: str) -> tuple[str, int]:
    """Host and port.

    >>> address("127.0.0.1:9341"), address("[::1]:9341"), address(":9341")
    (('127.0.0.1', 9341), ('::1', 9341), ('0.0.0.0', 9341))
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or not 0 <= int(port) < 65_536:
        raise ConfigError(f'metrics.listen "{listen}" is no address: write host:port, such as 127.0.0.1:9341')
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - only where the site leaves the host out


@contextmanager
def served(store: Store, config: Config, clock: Callable[[], datetime]) -> Iterator[int | None]:
    """Serve /metrics for the block where the site wants it; the port."""
    if not config.metrics.listen:
        yield None
        return
    host, port = address(config.metrics.listen)
    try:
        server, thread = start_http_server(port, host, registry(store, config, clock))
    except OSError as error:
        raise ConfigError(
            f"metrics.listen {config.metrics.listen} cannot be listened on: {error.strerror}; choose another, or end "
            "what listens there"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
