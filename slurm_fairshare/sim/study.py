"""Several policies on one workload, over several seeds; and grids over knobs that can be taken up again."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from slurm_fairshare.core.contract import Ladder, read_duration
from slurm_fairshare.core.large import Large
from slurm_fairshare.errors import ConfigError, FairshareError
from slurm_fairshare.sim.budget import Budget, Knobs
from slurm_fairshare.sim.engine import Policy, Result, Timing, Watcher, simulate
from slurm_fairshare.sim.jobs import Machine, Workload
from slurm_fairshare.sim.policies import Easy, Fifo, FirstFit, SlurmFairTree, StrictPriority
from slurm_fairshare.sim.scenario import Feed, Scenario, machine_of
from slurm_fairshare.sim.score import Score, score

POLICIES: Mapping[str, Callable[[Knobs], Policy]] = {
    "fifo": lambda _: Fifo(),
    "first-fit": lambda _: FirstFit(),
    "easy": lambda _: Easy(),
    "strict-priority": lambda _: StrictPriority(),
    "slurm-fairtree": lambda _: SlurmFairTree(),
    "slurm-fairtree-preempt": lambda _: SlurmFairTree(preempts=True),
    "budget": Budget,
}
"""A new policy is a class and a line here."""

IN_GENERAL = ("strict-priority", "slurm-fairtree", "slurm-fairtree-preempt", "budget")


@dataclass(frozen=True)
class Case:
    """One simulation to run: a scenario or a recorded workload, a policy, a seed, and how knobs are turned."""

    policy: str
    seed: int = 1
    scenario: Scenario | None = None
    workload: Workload | None = None
    machine: Machine | None = None
    knobs: Knobs = field(default_factory=Knobs)
    timing: Timing = field(default_factory=Timing.slurm)
    start: int = 0
    end: int | None = None
    turned: Mapping[str, str] = field(default_factory=dict)

    def run(self, watcher: Watcher | None = None) -> tuple[Result, Score]:
        """Simulate and measure."""
        policy = POLICIES[self.policy](self.knobs)
        if self.scenario is not None:
            feed = Feed(self.scenario, self.seed)
            machine = self.machine or machine_of(self.scenario, self.seed)
            until = self.scenario.until
            result = simulate(feed.workload(), machine, policy, self.timing, until=until, watcher=watcher, feed=feed)
            return result, score(result, self.scenario.begin, until)
        if self.workload is None or self.machine is None:
            raise ConfigError("a simulation needs a scenario, or a trace and a machine (--nodes 64x8)")
        result = simulate(self.workload, self.machine, policy, self.timing, watcher=watcher)
        last = max((job.submit for job in self.workload.jobs), default=0) + 1
        return result, score(result, self.start, self.end or last)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure over seeds."""

    mean: float
    least: float
    most: float


def figures(scores: Sequence[Score]) -> dict[str, Figure]:
    """Mean and range of every figure over the seeds of one policy."""
    rows = [flat(one) for one in scores]
    return {
        name: Figure(statistics.fmean(values), min(values), max(values))
        for name in rows[0]
        for values in ([row.get(name, 0.0) for row in rows],)
    }


def flat(one: Score) -> dict[str, float]:
    """A score as plain numbers: the row of a table, of a Parquet file."""
    row = {
        "delivered": one.delivered, "worst_team": one.worst, "teams_at_95": float(one.teams_at_95),
        "hourly": one.hourly, "occupancy": one.occupancy, "unallocated": one.unallocated, "demand": one.demand,
        "lost": one.lost, "lost_unallocated": one.lost_unallocated, "evicted_per_day": one.evicted_per_day,
        "preempted_per_day": one.preempted_per_day, "large_share": one.large_share,
        "in_pieces": one.pieces, "drift": one.drift, "converged": one.converged,
    }  # fmt: skip
    for name, waits in one.waits.items():
        key = name.replace(" ", "_")
        row |= {f"{key}_p50": waits.p50, f"{key}_p90": waits.p90, f"{key}_p99": waits.p99}
    return row


# --- knobs by name ---------------------------------------------------------------------------------


def _length(text: str) -> timedelta:
    seconds = read_duration(text)
    if seconds is None:
        raise ConfigError(f"{text!r} is no length of time: write 7d, 15m or 90s")
    return timedelta(seconds=seconds)


def _seconds(text: str) -> int:
    return int(_length(text).total_seconds())


def _on(text: str) -> bool:
    return text not in {"no", "off", "false"}


def _rule(name: str, read: Callable[[str], Any]) -> Callable[[Case, str], Case]:
    return lambda case, text: replace(
        case, knobs=replace(case.knobs, rules=replace(case.knobs.rules, **{name: read(text)}))
    )


def _knob(name: str, read: Callable[[str], Any]) -> Callable[[Case, str], Case]:
    return lambda case, text: replace(case, knobs=replace(case.knobs, **{name: read(text)}))


def _timing(name: str) -> Callable[[Case, str], Case]:
    return lambda case, text: replace(case, timing=replace(case.timing, **{name: _seconds(text)}))


def _cap(case: Case, text: str) -> Case:
    most = _seconds(text)
    lengths = {rung.min_runtime for rung in case.knobs.ladder.charged if rung.min_runtime < most} | {most}
    return replace(case, knobs=replace(case.knobs, ladder=Ladder.of(lengths)))


def _of_large(name: str, read: Callable[[str], Any]) -> Callable[[Case, str], Case]:
    return lambda case, text: replace(
        case, knobs=replace(case.knobs, large=replace(case.knobs.large or Large(), **{name: read(text)}))
    )


def _large(case: Case, text: str) -> Case:
    if text == "off":
        return replace(case, knobs=replace(case.knobs, large=None))
    return _of_large("wait", _length)(case, text)


def _lane(case: Case, text: str) -> Case:
    lane = case.knobs.lane
    if text == "off" or lane is None:
        return replace(case, knobs=replace(case.knobs, lane=None))
    return replace(case, knobs=replace(case.knobs, lane=replace(lane, max_gpus_per_team=int(text))))


def _demand(case: Case, text: str) -> Case:
    if case.scenario is None:
        raise ConfigError("demand can be turned in a scenario only; a trace has the demand it has")
    return replace(case, scenario=case.scenario.model_copy(update={"demand": float(text)}))


KNOBS: Mapping[str, Callable[[Case, str], Case]] = {
    "lookback": _knob("lookback", _length),
    "half_life": _knob("half_life", _length),
    "pool": _knob("pool", int),
    "evicts": _knob("evicts", _on),
    "count_committed": _knob("count_committed", _on),
    "near": _knob("near", int),
    "headroom": _knob("headroom", float),
    "reservations": _knob("reservations", int),
    "reserves": _knob("reserves", str),
    "cap": _cap,
    "large_after": _large,
    "large_ratio": _of_large("max_ratio", float),
    "large_gpus": _of_large("gpus", int),
    "plan_ahead": _of_large("plan_ahead", _length),
    "plan_gpus": _of_large("plan_gpus", int),
    "lane": _lane,
    "hysteresis": _rule("hysteresis", float),
    "hysteresis_restart": _rule("hysteresis_restart", float),
    "preemptors": _rule("preemptors", int),
    "lane_preemptors": _rule("lane_preemptors", int),
    "patience": _rule("patience", _length),
    "in_team": _rule("in_team", _on),
    "max_per_hour": _rule("max_per_hour", int),
    "backfill": _timing("backfill"),
    "kill_wait": _timing("kill_wait"),
    "notice": _timing("notice"),
    "rebalance": _timing("rebalance"),
    "priority_period": _timing("priority_period"),
    "demand": _demand,
}


def turn(case: Case, turned: Mapping[str, str]) -> Case:
    """The case with knobs turned, by name."""
    for name, text in turned.items():
        if name not in KNOBS:
            raise ConfigError(f"there is no knob {name!r}; there are {', '.join(sorted(KNOBS))}")
        try:
            case = KNOBS[name](case, text)
        except ValueError as error:
            raise ConfigError(f"{name}={text}: {error}") from error
    return replace(case, turned=dict(turned))


# --- many at once ----------------------------------------------------------------------------------


def scores(cases: Sequence[Case], workers: int = 1) -> Iterator[tuple[int, Score]]:
    """Run the cases, on several cores if asked; scores come as they are done, with the case's index."""
    if workers <= 1:
        for index, case in enumerate(cases):
            yield index, case.run()[1]
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(_scored, enumerate(cases))


def _scored(numbered: tuple[int, Case]) -> tuple[int, Score]:
    index, case = numbered
    return index, case.run()[1]


def grid(base: Case, knobs: Mapping[str, Sequence[str]], seeds: Sequence[int]) -> list[Case]:
    """Every combination of the knobs' values, for every seed."""
    names = list(knobs)
    return [
        replace(turn(base, dict(zip(names, values, strict=True))), seed=seed)
        for values in itertools.product(*knobs.values())
        for seed in seeds
    ]


def name_of(case: Case) -> str:
    """What a case's result is kept under: taken up again, a sweep passes over the names that are there."""
    knobs = " ".join(f"{name}={text}" for name, text in case.turned.items()) or "default"
    return f"{case.policy} {knobs} seed={case.seed}".replace("/", "-")


def sweep(cases: Sequence[Case], folder: Path, workers: int = 1, executor: Any = None) -> Iterator[tuple[int, int]]:
    """Run what is not there yet, a file per case; yields (done, of). With a submitit executor: as a job array."""
    folder.mkdir(parents=True, exist_ok=True)
    left = [case for case in cases if not _kept(folder, case).exists()]
    done = len(cases) - len(left)
    yield done, len(cases)
    if executor is not None:
        jobs = executor.map_array(_score_into, left, itertools.repeat(folder, len(left)))
        for job in jobs:
            job.result()
            done += 1
            yield done, len(cases)
        return
    for index, one in scores(left, workers):
        _keep(folder, left[index], one)
        done += 1
        yield done, len(cases)


def _kept(folder: Path, case: Case) -> Path:
    return folder / f"{name_of(case)}.json"


def _score_into(case: Case, folder: Path) -> None:
    _keep(folder, case, case.run()[1])


def _keep(folder: Path, case: Case, one: Score) -> None:
    """Written beside and moved: a file that is there is whole."""
    place = _kept(folder, case)
    row = {"policy": case.policy, "seed": case.seed, **case.turned, **flat(one)}
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps(row, sort_keys=True), encoding="utf-8")
    fresh.replace(place)


def rows_of(cases: Sequence[Case], folder: Path) -> list[dict[str, Any]]:
    """The sweep's rows in the order of its cases."""
    return [json.loads(_kept(folder, case).read_text(encoding="utf-8")) for case in cases]


def write_parquet(rows: Sequence[Mapping[str, Any]], place: Path) -> None:
    try:
        import polars
    except ImportError as error:
        raise FairshareError("writing Parquet needs polars: pip install 'slurm-fairshare[sim]'") from error
    polars.DataFrame([dict(row) for row in rows], infer_schema_length=None).write_parquet(place)


def by_setting(rows: Sequence[Mapping[str, Any]], knobs: Sequence[str]) -> list[dict[str, Any]]:
    """One row per setting: the mean of each figure over its seeds, and the worst seed of the worst team."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(knob) for knob in knobs), []).append(row)
    found = []
    for setting, members in groups.items():
        means = {
            name: statistics.fmean(row[name] for row in members if isinstance(row.get(name), (int, float)))
            for name in members[0]
            if isinstance(members[0][name], float)
        }
        means["worst_seed"] = min(row["worst_team"] for row in members)
        found.append({**dict(zip(knobs, setting, strict=True)), **means, "seeds": len(members)})
    return sorted(found, key=lambda row: (-row["delivered"] - row["worst_seed"], row["lost"]))
