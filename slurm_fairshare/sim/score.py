"""What a simulation amounts to: one value with every figure, from one result."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slurm_fairshare.core.delivery import Delivery, delivery, together
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.sim.engine import Result, quantile
from slurm_fairshare.sim.jobs import JobSpec
from slurm_fairshare.sim.ledger import HOUR, Meter
from slurm_fairshare.sim.tree import tree_of


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from submit to first start. A job that never started waited up to the end."""

    jobs: int
    p50: float
    p90: float
    p99: float
    mean: float
    never: int


@dataclass(frozen=True, slots=True)
class Team:
    """One leaf: GPU-hours owed and charged, and the fractions delivered over the period and hour by hour."""

    path: str
    entitled: float
    owed: float
    used: float
    delivered: float
    hourly: float


@dataclass(frozen=True)
class Score:
    """All figures. Fractions of capacity where no unit is named; times in seconds."""

    policy: str
    jobs: int
    start: int
    end: int
    delivered: float
    hourly: float
    worst: float
    teams_at_95: int
    teams: tuple[Team, ...]
    occupancy: float
    unallocated: float
    demand: float
    lost: float
    lost_unallocated: float
    preempted: int
    evicted: int
    evicted_per_day: float
    preempted_per_day: float
    waits: Mapping[str, Waits]
    large_share: float
    pieces: float
    """Fraction of the time in which the largest waiting job's GPUs were free, but in pieces."""
    drift: float
    """Fairness over time: the mean, over hours and leaves, of how far the usage of a week is from the week's owed."""
    converged: float
    """Seconds from the start until every leaf's usage of the last week is within a tenth of its owed; -1: never."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def score(result: Result, start: int = 0, end: int | None = None) -> Score:
    """Measure a result between two moments; what ran before `start` is warm-up."""
    until = min(end, result.end) if end is not None else result.end
    span = until - start
    ledger = result.ledger
    due = _due(result, start, until)
    whole = sum(due)
    if whole == 0:
        raise ValueError("nothing was in service in the measured period")
    parts, hours = _deliveries(result, due, start, until)
    charged = sum(meter.between(start, until) for meter in ledger.charged.values())
    free = sum(meter.between(start, until) for meter in ledger.unallocated.values())
    lost, lost_free = _lost(result, start, until)
    chosen = [spec for spec in result.workload.jobs if start <= spec.submit < until]
    drift, converged = _over_time(hours)
    counts = _endings(result, start, until)
    return Score(
        policy=result.policy, jobs=len(chosen), start=start, end=until,
        delivered=together([part for _, part in parts]),
        hourly=sum(p.steady for _, p in parts) / max(1e-9, sum(p.owed for _, p in parts)),
        worst=min((part.delivered for _, part in parts), default=1.0),
        teams_at_95=sum(1 for _, part in parts if part.delivered >= 0.95),
        teams=tuple(
            Team(path, sum(entitled) / HOUR, p.owed / HOUR, p.used / HOUR, p.delivered, p.hourly)
            for (path, p), (entitled, _, _) in zip(parts, hours, strict=True)
        ),
        occupancy=(charged + free) / whole, unallocated=free / whole,
        demand=sum(m.between(start, until) for m in ledger.wanted.values()) / whole,
        lost=lost / whole, lost_unallocated=lost_free / whole,
        preempted=counts[0], evicted=counts[1], evicted_per_day=counts[1] * 86_400 / span,
        preempted_per_day=counts[0] * 86_400 / span,
        waits=_waits(result, chosen, until), large_share=_large_share(result, start, until),
        pieces=result.pieces / max(1, result.end), drift=drift, converged=converged,
    )  # fmt: skip


def _due(result: Result, start: int, end: int) -> list[int]:
    """GPU-seconds in service in each hour."""
    meter = Meter()
    meter.change(0, result.machine.gpus)
    before = result.machine.gpus
    for at, gpus in result.ledger.in_service:
        meter.change(at, gpus - before)
        before = gpus
    return meter.bins(start, end)


def _deliveries(
    result: Result, due: Sequence[int], start: int, end: int
) -> tuple[list[tuple[str, Delivery]], list[tuple[list[float], list[int], list[int]]]]:
    ledger = result.ledger
    tree = tree_of(result.workload.shares)
    used, wanted = _by_key(ledger.charged), _by_key(ledger.wanted)
    parts, hours = [], []
    for leaf in tree.leaves:
        key = account_key(leaf.account or "")
        entitled = [hour * leaf.effective for hour in due]
        demand = wanted[key].bins(start, end) if key in wanted else [0] * len(due)
        usage = used[key].bins(start, end) if key in used else [0] * len(due)
        parts.append((leaf.path, delivery(entitled, demand, usage)))
        hours.append((entitled, demand, usage))
    return parts, hours


def _by_key(meters: Mapping[str, Meter]) -> dict[str, Meter]:
    return {account_key(account): meter for account, meter in meters.items()}


def _lost(result: Result, start: int, end: int) -> tuple[int, int]:
    """GPU-seconds whose work was thrown away, by the moment the run ended: all, and the unallocated part."""
    runs, jobs = result.runs, result.workload.jobs
    whole = free = 0
    for number, began, ended, useful in zip(runs.job, runs.start, runs.end, runs.useful, strict=True):
        if start <= ended <= end:
            lost = (ended - began - useful) * jobs[number].gpus
            whole += lost
            free += lost if not result.charged[number] else 0
    return whole, free


def _endings(result: Result, start: int, end: int) -> tuple[int, int]:
    runs = result.runs
    inside = [how for ended, how in zip(runs.end, runs.ended, strict=True) if start <= ended < end]
    return inside.count(1), inside.count(2)


def _waits(result: Result, chosen: Sequence[JobSpec], end: int) -> dict[str, Waits]:
    by_class: dict[str, list[JobSpec]] = {"all": list(chosen)}
    for spec in chosen:
        if spec.klass:
            by_class.setdefault(spec.klass, []).append(spec)
        if spec.gpus >= 8:
            by_class.setdefault("8 GPUs and more", []).append(spec)
    return {name: _wait(result, specs, end) for name, specs in by_class.items()}


def _wait(result: Result, specs: Sequence[JobSpec], end: int) -> Waits:
    begun = [result.first_start[spec.number] for spec in specs]
    values = sorted((at if 0 <= at <= end else end) - spec.submit for spec, at in zip(specs, begun, strict=True))
    return Waits(
        len(values),
        quantile(values, 0.5),
        quantile(values, 0.9),
        quantile(values, 0.99),
        statistics.fmean(values) if values else 0.0,
        sum(1 for at in begun if not 0 <= at <= end),
    )


def _large_share(result: Result, start: int, end: int) -> float:
    """The part of charged GPU time that jobs of class `large` had."""
    runs, jobs = result.runs, result.workload.jobs
    large = whole = 0
    for number, began, ended in zip(runs.job, runs.start, runs.end, strict=True):
        held = max(0, min(ended, end) - max(began, start)) * jobs[number].gpus
        if result.charged[number]:
            whole += held
            large += held if jobs[number].klass == "large" else 0
    return large / whole if whole else 0.0


def _over_time(hours: Sequence[tuple[list[float], list[int], list[int]]], week: int = 168) -> tuple[float, float]:
    """How far each leaf's last week is from its owed, hour by hour; and from when on it stayed close."""
    if not hours:
        return 0.0, -1.0
    lines = []
    for entitled, demand, usage in hours:
        owed = [0.0, *itertools.accumulate(min(a, b) for a, b in zip(entitled, demand, strict=True))]
        used = [0.0, *itertools.accumulate(usage)]
        gaps = []
        for hour in range(1, len(owed)):
            left = max(0, hour - week)
            due = owed[hour] - owed[left]
            gaps.append(max(0.0, 1 - (used[hour] - used[left]) / due) if due > 0 else 0.0)
        lines.append(gaps)
    worst = [max(column) for column in zip(*lines, strict=True)]
    late = next((hour for hour in range(len(worst) - 1, -1, -1) if worst[hour] > 0.1), -1)
    mean = statistics.fmean(gap for line in lines for gap in line)
    return mean, -1.0 if late == len(worst) - 1 else float((late + 1) * HOUR)
