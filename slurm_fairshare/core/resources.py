"""What a run holds, what a job asks for and what a node has: GPUs by type, CPUs, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MILLI = 1000
UNTYPED = ""
"""The GPU type of a GPU whose type Slurm does not tell."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each thing. `gpus` maps a GPU type to a count; its sum is the number of GPUs.

    GPUs whose type is unknown are counted under UNTYPED, so the sum always is the total, never twice.
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    cpus: int = 0
    memory_mb: int = 0
    gpu_count: int = field(init=False, repr=False, compare=False)
    """Asked far more often than anything else, so it is summed once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpu_count", sum(self.gpus.values()))

    def plus(self, other: Resources) -> Resources:
        return self._combine(other, 1)

    def minus(self, other: Resources) -> Resources:
        """May go below zero: the caller compares, and a node that is over-committed must not look free."""
        return self._combine(other, -1)

    def _combine(self, other: Resources, sign: int) -> Resources:
        mine, theirs = self.gpus, other.gpus
        kinds = mine if mine.keys() == theirs.keys() else sorted(mine.keys() | theirs.keys())
        return Resources(
            gpus={kind: mine.get(kind, 0) + sign * theirs.get(kind, 0) for kind in kinds},
            cpus=self.cpus + sign * other.cpus,
            memory_mb=self.memory_mb + sign * other.memory_mb,
        )


@dataclass(frozen=True, slots=True)
class ChargeRule:
    """How many thousandths of a GPU a run is charged for each second it runs.

    By default a GPU is a GPU. `weights` makes a type dearer or cheaper. With `dominant` a run pays for the
    largest of its fractions of the cluster's GPUs, CPUs and memory, expressed in GPUs (Ghodsi et al.,
    "Dominant Resource Fairness", NSDI 2011), so that one GPU with all the memory of a node pays for what it
    blocks. The same rule values the cluster's capacity, so entitlement and usage stay comparable.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    dominant: bool = False

    def spelt(self, cluster: Resources) -> dict[str, object]:
        """What a price depends on, in JSON's terms: equal where every price is."""
        whole = {"gpus": dict(sorted(cluster.gpus.items())), "cpus": cluster.cpus, "memory_mb": cluster.memory_mb}
        weights = {kind: float(weight) for kind, weight in sorted(self.weights.items()) if weight != 1}
        return {"weights": weights, "dominant": whole if self.dominant else None}

    def milli_gpus(self, held: Resources, cluster: Resources | None = None) -> int:
        """The charge per second, in thousandths of a GPU.

        >>> ChargeRule().milli_gpus(Resources(gpus={"h100": 2}))
        2000
        >>> ChargeRule(weights={"a100": 0.5}).milli_gpus(Resources(gpus={"h100": 1, "a100": 2}))
        2000
        """
        by_gpu = sum(round(count * self.weights.get(kind, 1.0) * MILLI) for kind, count in held.gpus.items())
        if not self.dominant or cluster is None:
            return by_gpu
        whole = sum(round(n * self.weights.get(kind, 1.0) * MILLI) for kind, n in cluster.gpus.items())
        fractions = [
            mine / theirs
            for mine, theirs in ((held.cpus, cluster.cpus), (held.memory_mb, cluster.memory_mb))
            if theirs > 0
        ]
        return max([by_gpu, *(round(fraction * whole) for fraction in fractions)])
