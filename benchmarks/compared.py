"""What a simulated run and real runs of one workload have in common, in figures. Pure: tested on known numbers."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from slurm_fairshare.sim.engine import quantile
from slurm_fairshare.sim.jobs import Workload


class Ran(NamedTuple):
    """One attempt of a job, in seconds from the beginning, with the state that accounting has for its end."""

    job: int
    start: float
    end: float
    state: str
    nodes: str


@dataclass
class Outcome:
    """What happened to a workload, on a real cluster or in the simulator."""

    submitted: dict[int, int] = field(default_factory=dict)
    runs: list[Ran] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """What was measured beside it on a real cluster."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Outcome:
        submitted = {int(number): moment for number, moment in found["submitted"].items()}
        return cls(submitted, [Ran(*one) for one in found["runs"]], found["notes"])

    @property
    def first_start(self) -> dict[int, float]:
        found: dict[int, float] = {}
        for run in self.runs:
            found[run.job] = min(run.start, found.get(run.job, run.start))
        return found

    def waits(self, jobs: Sequence[int]) -> list[float]:
        started = self.first_start
        return [started[job] - self.submitted[job] for job in jobs]


STOPPED = {"PREEMPTED": "preempted", "REQUEUED": "evicted"}
"""Stopped by Slurm itself, and by the rebalancer."""

AIMS = {"makespan": 2, "wait_mean_all": 10, "wait_p90_all": 15, "stopped": 10, "gpu_s": 2}
"""By how many percent a prediction may be off; `gpu_s` for each team."""


def figures(made: Workload, outcome: Outcome) -> dict[str, float]:
    """Everything that is one number of one run."""
    found: dict[str, float] = {}
    classes = sorted({job.klass for job in made.jobs})
    for name in ("all", *classes):
        waits = outcome.waits([job.number for job in made.jobs if name in ("all", job.klass)])
        found[f"wait_mean_{name}"] = statistics.fmean(waits)
        found[f"wait_p90_{name}"] = quantile(waits, 0.9)
    found["makespan"] = max(run.end for run in outcome.runs) - min(outcome.submitted.values())
    for state, name in STOPPED.items():
        found[name] = sum(run.state == state for run in outcome.runs)
    found["stopped"] = sum(found[name] for name in STOPPED.values())
    for team in made.accounts:
        found[f"gpu_s_{team}"] = sum(
            (run.end - run.start) * made.jobs[run.job].gpus
            for run in outcome.runs
            if made.jobs[run.job].account == team
        )
    return found


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's, equals sharing the mean of their ranks. 1 = the same order, -1 = the reverse."""
    return statistics.correlation(_ranks(one), _ranks(other))


def _ranks(values: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [statistics.fmean(places[value]) for value in values]


def start_order(made: Workload, one: Outcome, other: Outcome) -> float:
    """How alike the order is in which the jobs first started."""
    jobs = [job.number for job in made.jobs]
    mine, theirs = one.first_start, other.first_start
    return rank_correlation([mine[job] for job in jobs], [theirs[job] for job in jobs])


def wait_by_job(made: Workload, one: Outcome, others: Sequence[Outcome]) -> float:
    """Mean seconds by which a job's wait is away from its mean in the other runs."""
    jobs = [job.number for job in made.jobs]
    usual = [statistics.fmean(waits) for waits in zip(*(other.waits(jobs) for other in others), strict=True)]
    return statistics.fmean(abs(mine - mean) for mine, mean in zip(one.waits(jobs), usual, strict=True))


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: what each real run shows, and each simulated one."""

    name: str
    real: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.real)

    @property
    def spread(self) -> float:
        return statistics.stdev(self.real) if len(self.real) > 1 else 0.0

    @property
    def predicted(self) -> float:
        return statistics.fmean(self.ours)

    @property
    def error(self) -> float:
        """Percent of the real mean."""
        off = self.predicted - self.mean
        return 100 * off / self.mean if self.mean else math.copysign(math.inf, off) if off else 0.0

    @property
    def inside(self) -> bool:
        return min(self.real) <= self.predicted <= max(self.real)

    @property
    def aim(self) -> int | None:
        return next((most for name, most in AIMS.items() if self.name == name or name in self.name[:5]), None)

    def figures(self) -> dict[str, float]:
        return {"real_min": min(self.real), "real_mean": self.mean, "real_max": max(self.real),
                "real_sd": self.spread, "ours": self.predicted, "error_pct": self.error}  # fmt: skip


def lines(made: Workload, real: Sequence[Outcome], ours: Sequence[Outcome]) -> list[Line]:
    """Every figure of the runs, and last how far one run is from the others."""
    theirs, mine = [figures(made, one) for one in real], [figures(made, one) for one in ours]
    found = [Line(name, tuple(one[name] for one in theirs), tuple(one[name] for one in mine)) for name in mine[0]]
    if len(real) > 1:
        others = [[other for other in real if other is not one] for one in real]
        found.append(
            Line(
                "wait_off_by_job",
                tuple(wait_by_job(made, one, rest) for one, rest in zip(real, others, strict=True)),
                tuple(wait_by_job(made, one, real) for one in ours),
            )
        )
        found.append(
            Line(
                "start_order",
                tuple(start_order(made, one, other) for one, other in itertools.combinations(real, 2)),
                tuple(start_order(made, one, other) for one in ours for other in real),
            )
        )
    return found


def report(found: Sequence[Line]) -> Iterator[str]:
    """A table, and a line for each figure."""
    yield f"{'':<23}{'real min':>9}{'mean':>9}{'max':>9}{'sd':>9}{'ours':>9}{'(min':>9}{'max)':>9}{'error':>8}  aim"
    for one in found:
        digits = 1 if one.mean >= 2 else 3
        numbers = [min(one.real), one.mean, max(one.real), one.spread, one.predicted, min(one.ours), max(one.ours)]
        shown = "".join(f"{number:>9.{digits}f}" for number in numbers)
        aim = "" if one.aim is None else f"  {one.aim}%: {'met' if abs(one.error) <= one.aim else 'missed'}"
        yield f"{one.name:<23}{shown}{one.error:>+7.1f}%{aim}{'' if one.inside else '  outside the spread'}"
    for one in found:
        for name, value in one.figures().items():
            yield f"FIGURE validate_{one.name}_{name} {value:.3f}"
