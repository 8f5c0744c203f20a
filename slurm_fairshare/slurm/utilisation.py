"""How busy the GPUs of a run were, where the site makes Slurm gather gres/gpuutil (AutoDetect=nvml or rsmi).

Slurm keeps it by step, in per cent and added up over the GPUs of a task; TRESUsageInAve is the mean over the step's
tasks. So, over a run:

    busy = sum over its steps of (mean x tasks x seconds) / (100 x GPUs x seconds of the run)        in [0, 1]

A GPU that Slurm cannot ask shows 0, like one that does nothing. A zero is therefore believed only where some other
run on the same type of GPU shows more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_fairshare.slurm.tres import pairs, resources

FIELDS = ("JobIDRaw", "DBIndex", "NTasks", "ElapsedRaw", "AllocTRES", "TRESUsageInAve")
UTILISATION = "gres/gpuutil"
IMPOSSIBLE = 1_000_000
"""More per cent than any task has GPUs for: Slurm's marks of "no value" are far larger."""


@dataclass
class _Run:
    key: str
    gpus: int
    kinds: tuple[str, ...]
    seconds: int
    told: list[float] = field(default_factory=list)

    @property
    def busy(self) -> float | None:
        whole = 100.0 * self.gpus * self.seconds
        return min(1.0, sum(self.told) / whole) if self.told and whole > 0 else None


def parse_utilisation(text: str, delimiter: str) -> dict[str, float]:
    """Read `sacct -D -p` with FIELDS, jobs followed by their steps. Rows that say nothing of it are passed over: a run
    that is not in the answer is not known."""
    rows = (row.split(delimiter) for row in text.split(f"{delimiter}\n") if row.strip())
    runs = list(_runs(dict(zip(FIELDS, row, strict=True)) for row in rows if len(row) == len(FIELDS)))
    alive = {kind for run in runs if run.busy for kind in run.kinds}
    return {run.key: run.busy for run in runs if run.busy is not None and (run.busy > 0 or alive & set(run.kinds))}


def _runs(rows: Iterable[Mapping[str, str]]) -> Iterable[_Run]:
    current: _Run | None = None
    job = ""
    for values in rows:
        number, dot, _ = values["JobIDRaw"].partition(".")
        if not dot:
            job, current = number, _run(values)
            if current is not None:
                yield current
        elif current is not None and number == job:
            amount = _of_step(values)
            if amount is not None:
                current.told.append(amount)


def _run(values: Mapping[str, str]) -> _Run | None:
    if not (values["DBIndex"].isdigit() and values["ElapsedRaw"].isdigit()):
        return None
    try:
        held, _ = resources(values["AllocTRES"])
    except ValueError:
        return None
    if not held.gpu_count:
        return None
    return _Run(values["DBIndex"], held.gpu_count, tuple(held.gpus), int(values["ElapsedRaw"]))


def _of_step(values: Mapping[str, str]) -> float | None:
    """Per cent x seconds of one step, None where it says nothing."""
    try:
        said = pairs(values["TRESUsageInAve"]).get(UTILISATION, "")
    except ValueError:
        return None
    if not (said.isdigit() and values["NTasks"].isdigit() and values["ElapsedRaw"].isdigit()):
        return None
    if int(said) >= IMPOSSIBLE:
        return None
    return float(int(said) * int(values["NTasks"]) * int(values["ElapsedRaw"]))
