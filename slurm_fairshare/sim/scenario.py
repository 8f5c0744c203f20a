"""An invented workload: teams, job classes and a machine, from a YAML file.

Users are a closed loop: they submit at the moments their class's law gives them, but not while their team has as
much of that class outstanding as it has patience for (`depth`). The moments and the jobs are drawn in advance by
seed and source, so two policies see the same users; which moments are used depends on how fast jobs get through.
What was submitted stands in the result as a plain trace, and running that trace gives the same result again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from slurm_fairshare.core.contract import read_duration
from slurm_fairshare.errors import ConfigError
from slurm_fairshare.sim.jobs import JobSpec, Machine, Outage, Workload
from slurm_fairshare.sim.tree import tree_of

DAY = 86_400


def _seconds(value: object) -> object:
    if isinstance(value, str):
        seconds = read_duration(value)
        if seconds is None:
            raise ValueError(f'{value!r} is no length of time: write "15m", "8h" or "7d"')
        return seconds
    return value


Seconds = Annotated[int, BeforeValidator(_seconds)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Law(_Part):
    """A log-normal law of run times, cut at `most`."""

    median: Seconds
    sigma: float = Field(1.0, ge=0)
    least: Seconds = 60
    most: Seconds = 7 * DAY


class JobClass(_Part):
    """One kind of job. `load` is what its users would submit, as a fraction of the capacity's GPU time.

    `depth` is how much of it a team has outstanding before its users wait with the next one, as a fraction of
    the team's entitlement. `day` is how much of the submissions comes in working hours (0 = evenly).
    """

    load: float = Field(ge=0)
    depth: float = Field(gt=0)
    gpus: dict[int, float]
    work: Law
    min_runtime: dict[str, float]
    resumable: float = Field(1.0, ge=0, le=1)
    notice: float = Field(0.0, ge=0, le=1)
    checkpoint: Seconds = 1800
    high: float = Field(0.2, ge=0, le=1)
    low: float = Field(0.2, ge=0, le=1)
    day: float = Field(0.0, ge=0, le=1)
    least_entitlement: float = Field(0.0, ge=0)
    """Teams with fewer GPUs to their name have no such jobs."""


class Nodes(_Part):
    count: int = Field(ge=1)
    gpus: int = Field(ge=1)
    kind: str = ""


class Failures(_Part):
    """Nodes that fail or are drained, at random: mean time between two in all, and how long one is out."""

    every: Seconds
    lasts: Seconds = 4 * 3600
    drained: float = Field(0.5, ge=0, le=1)


class Scenario(_Part):
    """A scenario file."""

    name: str = "scenario"
    days: float = Field(30, gt=0)
    warmup: float = Field(7, ge=0)
    nodes: tuple[Nodes, ...]
    demand: float = Field(1.0, gt=0, description="Multiplies every class's load and depth.")
    users: int = Field(10, ge=1)
    shares: dict[str, Any]
    classes: dict[str, JobClass]
    failures: Failures | None = None
    law: Literal["closed"] = "closed"

    @property
    def until(self) -> int:
        return int((self.days + self.warmup) * DAY)

    @property
    def begin(self) -> int:
        return int(self.warmup * DAY)


def load(path: Path) -> Scenario:
    """Read a scenario; ConfigError names every fault."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path} holds no scenario: write nodes, shares and classes; see docs/explanation/simulator.md"
        )
    try:
        return Scenario(**values)
    except ValidationError as error:
        lines = [f"  - {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise ConfigError(f"{path} cannot be used:\n" + "\n".join(lines)) from error


def flat_shares(shares: dict[str, Any], above: str = "") -> dict[str, float]:
    """Nested shares by path: `{lang: {weight: 2, chat: 3}}` -> `{lang: 2, lang/chat: 3}`."""
    found: dict[str, float] = {}
    for name, value in shares.items():
        path = f"{above}/{name}" if above else name
        if isinstance(value, dict):
            below = {key: weight for key, weight in value.items() if key != "weight"}
            found[path] = float(value.get("weight", 1.0))
            found.update(flat_shares(below, path))
        else:
            found[path] = float(value)
    return found


def machine_of(scenario: Scenario, seed: int) -> Machine:
    nodes = [node for group in scenario.nodes for node in Machine.uniform(group.count, group.gpus, group.kind).nodes]
    named = tuple(node._replace(name=f"n{i:04d}") for i, node in enumerate(nodes, start=1))
    return Machine(named, tuple(_outages(scenario, len(named), random.Random(f"outages {seed}"))))


def _outages(scenario: Scenario, count: int, rng: random.Random) -> Iterator[Outage]:
    law = scenario.failures
    if law is None:
        return
    at, back = 0.0, [0] * count
    while (at := at + rng.expovariate(1 / law.every)) < scenario.until:
        node, drained = rng.randrange(count), rng.random() < law.drained
        if back[node] <= at:
            back[node] = int(at) + law.lasts
            yield Outage(node, int(at), back[node], drained)


@dataclass
class Source:
    """The users of one class in one team."""

    account: str
    klass: str
    law: JobClass
    rate: float
    patience: float
    users: tuple[str, ...]
    rng: random.Random
    outstanding: int = 0
    next: JobSpec | None = None
    sizes: tuple[tuple[int, float], ...] = ()

    def pause(self, now: int) -> int:
        """Seconds to the next moment at which somebody would submit: Poisson, thinned by the time of day."""
        at = float(now)
        most = self.rate * (1 + self.law.day)
        while True:
            at += self.rng.expovariate(most)
            if self.rng.random() * (1 + self.law.day) < 1 + self.law.day * _daylight(at):
                return max(1, int(at) - now)

    def draw(self, number: int, now: int) -> JobSpec:
        law, rng = self.law, self.rng
        gpus = rng.choices([g for g, _ in self.sizes], [w for _, w in self.sizes])[0]
        work = int(
            min(max(rng.lognormvariate(math.log(law.work.median), law.work.sigma), law.work.least), law.work.most)
        )
        rungs = list(law.min_runtime)
        said = rng.choices(rungs, [law.min_runtime[rung] for rung in rungs])[0]
        minimum = read_duration(said) or 0
        limit = max(int(work * rng.uniform(1.0, 2.0)), minimum, 60)
        resumable = rng.random() < law.resumable
        u = rng.random()
        return JobSpec(
            number=number, submit=now, work=work, gpus=gpus, account=self.account, user=rng.choice(self.users),
            limit=-(-limit // 60) * 60, min_runtime=minimum, resumable=resumable,
            priority=2 if u < law.high else 0 if u > 1 - law.low else 1, checkpoint=law.checkpoint,
            notice=resumable and rng.random() < law.notice, klass=self.klass,
        )  # fmt: skip


def _daylight(at: float) -> float:
    """Between -1 at night and 1 in the afternoon, lower at weekends."""
    hour = at % DAY / 3600
    weekday = int(at // DAY) % 7
    wave = math.cos((hour - 14) / 24 * 2 * math.pi)
    return wave if weekday < 5 else wave * 0.3 - 0.6


@dataclass
class Feed:
    """All sources of a scenario, for one run of the engine."""

    scenario: Scenario
    seed: int
    sources: list[Source] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shares = flat_shares(self.scenario.shares)
        gpus = sum(group.count * group.gpus for group in self.scenario.nodes)
        for leaf in tree_of(self.shares).leaves:
            for name, law in self.scenario.classes.items():
                self._add(leaf.account or "", name, law, leaf.effective, gpus)

    def _add(self, account: str, name: str, law: JobClass, share: float, gpus: int) -> None:
        entitled = share * gpus
        if entitled < law.least_entitlement or law.load == 0:
            return
        sizes = tuple((size, weight) for size, weight in law.gpus.items() if size <= max(8, 5 * entitled))
        mean = _mean_work(law.work) * sum(s * w for s, w in sizes) / sum(w for _, w in sizes)
        load = law.load * self.scenario.demand
        self.sources.append(
            Source(
                account,
                name,
                law,
                rate=load * entitled / mean,
                patience=law.depth * self.scenario.demand * entitled,
                users=tuple(f"{account}-{i}" for i in range(1, self.scenario.users + 1)),
                rng=random.Random(f"{self.seed} {account} {name}"),
                sizes=sizes,
            )
        )

    def workload(self) -> Workload:
        return Workload((), self.shares, name=self.scenario.name)

    def first(self) -> list[tuple[int, int]]:
        """For each source the first moment."""
        return [(source.pause(0), index) for index, source in enumerate(self.sources)]

    def offer(self, index: int, number: int, now: int) -> tuple[JobSpec | None, int]:
        """What the source submits now, if anything, and when it would submit next."""
        source = self.sources[index]
        spec = None
        if source.outstanding < source.patience:
            spec = source.draw(number, now)
            source.outstanding += spec.gpus
        return spec, now + source.pause(now)

    def done(self, spec: JobSpec) -> None:
        """A job is over."""
        self._index[spec.account, spec.klass].outstanding -= spec.gpus

    @cached_property
    def _index(self) -> dict[tuple[str, str], Source]:
        return {(source.account, source.klass): source for source in self.sources}


def _mean_work(law: Law) -> float:
    """The mean of the law, by its quantiles: the cut makes it differ from the formula."""
    steps = 200
    values = []
    for i in range(steps):
        z = NormalDist().inv_cdf((i + 0.5) / steps)
        values.append(min(max(law.median * math.exp(law.sigma * z), law.least), law.most))
    return sum(values) / steps
