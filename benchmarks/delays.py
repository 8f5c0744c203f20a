"""How long things took beside real runs: the simulator's constants, read off the clocks and never fitted.

Nothing here looks at when jobs started or what became of them, but for how much longer than its work a job ran, and
how long after a decision a run was stopped.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from benchmarks.compared import Outcome
from slurm_fairshare.sim.jobs import Workload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delays:
    """Means in seconds over all real runs of a study."""

    launch: float
    """By how much a run is longer than its work."""
    kill: float
    """From Slurm's word that a run is preempted until its last process has ended."""
    act: float
    """From what a rebalance pass saw until the run that it stops has ended."""
    notice: float
    """By how much longer that takes when the run is given a notice."""
    tick: float
    passes: float

    @classmethod
    def of(cls, made: Workload, real: Sequence[Outcome]) -> Delays:
        at_once: list[float] = []
        noticed: list[float] = []
        for number, took in _together(_acts(one) for one in real):
            (noticed if made.jobs[number].notice else at_once).append(took)
        act, gaps = statistics.fmean(at_once), [one for one in map(_gaps, real) if one]
        return cls(
            launch=statistics.fmean(_together(_launches(made, one) for one in real)),
            kill=statistics.fmean(_together(_kills(one) for one in real)),
            act=act,
            notice=statistics.fmean(noticed) - act,
            tick=statistics.fmean(tick for tick, _ in gaps),
            passes=statistics.fmean(passes for _, passes in gaps),
        )


def _together(parts: Iterable[Iterable[T]]) -> list[T]:
    return list(itertools.chain.from_iterable(parts))


def _launches(made: Workload, one: Outcome) -> Iterator[float]:
    """First runs only: one that goes on has less to do than its job says."""
    seen: set[int] = set()
    for run in sorted(one.runs, key=lambda run: run.start):
        if run.job not in seen and run.state == "COMPLETED":
            yield run.end - run.start - made.jobs[run.job].work
        seen.add(run.job)


PREEMPTED = re.compile(r"^(\S+) .*preempted JobId=(\d+) has been requeued")
GONE = re.compile(r"^(\S+) .*Requeuing JobId=(\d+)")


def _kills(one: Outcome) -> Iterator[float]:
    told: dict[str, datetime] = {}
    for line in one.notes["log"]:
        if found := PREEMPTED.match(line):
            told[found[2]] = _moment(found[1])
        elif (found := GONE.match(line)) and found[2] in told:
            yield (_moment(found[1]) - told.pop(found[2])).total_seconds()


def _moment(text: str) -> datetime:
    """Docker writes nanoseconds, which is more than Python reads."""
    return datetime.fromisoformat(text[:26])


def _acts(one: Outcome) -> Iterator[tuple[int, float]]:
    """For each run that the rebalancer stopped: its job, and seconds from the decision to the end."""
    begun = one.notes["begun"]
    number_of = {str(job_id): int(number) for number, job_id in one.notes["job_ids"].items()}
    stopped = [(number_of[d["victim"]], d["at"] - begun) for d in one.notes["decisions"] if d["outcome"] == "requeued"]
    for run in one.runs:
        decided = [at for number, at in stopped if number == run.job and at <= run.end + 1]
        if run.state == "REQUEUED" and decided:
            yield run.job, run.end - max(decided)


def _gaps(one: Outcome) -> tuple[float, float] | None:
    """Mean seconds between two looks of the thread that ticks, and of the one that rebalances."""
    looks: dict[str, list[float]] = {}
    for thread, at in one.notes["pictures"]:
        looks.setdefault(thread, []).append(at)
    means = sorted((at[-1] - at[0]) / (len(at) - 1) for at in looks.values() if len(at) > 2)
    return (means[-1], means[0]) if means else None
