"""`pyramid`: availability, occupancy, impact and utilisation of a period, each of what the one below leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from slurm_fairshare.core.cluster import Capacity
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import ROOT
from slurm_fairshare.core.window import Step, Window, integrals, overlap_seconds
from slurm_fairshare.reports.measured import Measured
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import HOUR

UNKNOWN = "unknown"
DEFINITIONS = {
    "availability": "GPU-hours in service (not down, not drained) / GPU-hours installed",
    "occupancy": "GPU-hours that runs held, charged or not / GPU-hours in service",
    "impact": "GPU-hours delivered / GPU-hours owed, each team up to its own",
    "utilisation": "GPU-hours in which GPUs were busy / GPU-hours held, of the runs of which it is known",
}


@dataclass(frozen=True, slots=True)
class Level:
    """One level: `part` of `whole`, both in GPU-seconds; None where it is not known."""

    name: str
    part: float | None
    whole: float | None

    @property
    def value(self) -> float | None:
        if self.part is None or not self.whole:
            return None
        return self.part / self.whole

    @property
    def about(self) -> str:
        return DEFINITIONS[self.name]


def levels(
    measured: Measured,
    capacity: Sequence[tuple[datetime, Capacity]],
    runs: Iterable[Run],
    busy: Mapping[str, float],
    now: datetime,
) -> tuple[Level, ...]:
    """From the bottom up, all over the period that is known. GPUs are counted as they are, not by weight."""
    window = measured.period.known
    installed = total_over(capacity, window, lambda one: one.installed)
    in_service = total_over(capacity, window, lambda one: one.in_service)
    held = sum(one.gpu_seconds for one in measured.holdings)
    whole = measured.deliveries[ROOT]
    told = [(overlap_seconds(run, window, now) * run.held.gpu_count, busy[run.key]) for run in runs if run.key in busy]
    known = sum(gpu_seconds for gpu_seconds, _ in told)
    return (
        Level("availability", in_service, installed),
        Level("occupancy", held, in_service),
        Level("impact", whole.got, whole.owed),
        Level("utilisation", sum(amount * part for amount, part in told) if known else None, known or None),
    )


def total_over(
    capacity: Sequence[tuple[datetime, Capacity]], window: Window, count: Callable[[Capacity], int]
) -> float:
    """GPU-seconds of all types: each type is a step function of its own."""
    kinds: dict[str, list[Step]] = {}
    for at, one in capacity:
        kinds.setdefault(one.kind, []).append(Step(at, float(count(one))))
    return sum(sum(integrals(steps, [window])) for steps in kinds.values())


def _hours(value: float) -> str:
    return f"{value:,.1f}"


def _plain_hours(value: float) -> str:
    return f"{value:.2f}"


def _value(level: Level) -> str:
    return UNKNOWN if level.value is None else f"{level.value * 100:.1f}%"


COLUMNS: tuple[Column[Level], ...] = (
    Column("Level", lambda level: level.name, "availability, occupancy, impact or utilisation"),
    Column("Value", lambda level: level.value, "as a fraction; none where it is not known", tell=_value, right=True),
    Column(
        "Part",
        lambda level: None if level.part is None else level.part / HOUR,
        "GPU-hours above the line",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=2,
        head="GPUh",
    ),
    Column(
        "Whole",
        lambda level: None if level.whole is None else level.whole / HOUR,
        "GPU-hours below the line",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=1,
        head="of GPUh",
    ),
    Column("Definition", lambda level: level.about, "what is divided by what"),
)


def report(measured: Measured, found: Sequence[Level]) -> Report[Level]:
    """The pyramid of a measured period."""
    notes = []
    if any(level.name == "utilisation" and level.value is None for level in found):
        notes.append(
            "Utilisation is unknown: no run of this time has gres/gpuutil in accounting (AccountingStorageTRES, "
            "JobAcctGatherType and AutoDetect=nvml make Slurm gather it)."
        )
    return Report(
        noun="levels",
        columns=COLUMNS,
        rows=found,
        shown=("Level", "Value", "Part", "Whole"),
        script=tuple(column.name for column in COLUMNS),
        above=measured.period.lines(),
        below=(*_definitions(), *notes),
        facts={**measured.period.facts(), "definitions": DEFINITIONS, "units": "GPU-hours"},
    )


def _definitions() -> Iterable[str]:
    return (f"{name.capitalize()}: {about}." for name, about in DEFINITIONS.items())
