"""`make bench-thousand`: 1,000 GPUs, 15 teams, demand 2.5x, over three seeds, against all aims at once. FIGURE lines.

The knobs are those a site of this kind would turn (docs/howto/large-site.md). Every figure is that of the worst seed;
`slurm-fairtree` runs the same scenario for the one aim that is measured against it. Options: DAYS (30), WARM-UP (7).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from slurm_fairshare.sim.scenario import load
from slurm_fairshare.sim.score import Score
from slurm_fairshare.sim.study import Case, scores, turn

SEEDS = (1, 2, 3)
WORKERS = 2
TURNED = {
    "near": "22", "reservations": "0", "headroom": "0.025", "patience": "30m", "large_gpus": "8",
    "large_after": "1h", "large_ratio": "1.0", "plan_ahead": "2h", "plan_gpus": "512", "notice": "10s",
    "count_committed": "yes",
}  # fmt: skip


class Aim(NamedTuple):
    """A figure of one seed, and what it should be: at least `bound`, or with `at_most` no more."""

    name: str
    of: Callable[[Score], float]
    bound: float
    at_most: bool = False

    def worst(self, found: Sequence[Score]) -> float:
        values = [self.of(one) for one in found]
        return max(values) if self.at_most else min(values)

    def met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


AIMS = (
    Aim("delivered", lambda one: one.delivered, 0.98),
    Aim("worst_team", lambda one: one.worst, 0.95),
    Aim("occupancy", lambda one: one.occupancy, 0.98),
    Aim("debug_p90_s", lambda one: one.waits["debug"].p90, 30, at_most=True),
    Aim("small_p50_s", lambda one: one.waits["small"].p50, 24, at_most=True),
    Aim("lost", lambda one: one.lost, 0.03, at_most=True),
)


def row(name: str, seed: int, one: Score) -> str:
    waits = {klass: one.waits[klass] for klass in ("debug", "small", "medium", "large")}
    told = " ".join(f"{klass} {found.p50:.0f}/{found.p90:.0f}" for klass, found in waits.items())
    return (
        f"{name:14s} seed {seed}: delivered {one.delivered:.3f} worst {one.worst:.3f} ({one.teams_at_95} of "
        f"{len(one.teams)} at .95) occupancy {one.occupancy:.3f} unallocated {one.unallocated:.3f} lost {one.lost:.3f} "
        f"({one.lost_unallocated:.3f}); waits p50/p90 in s: {told}"
    )


def main() -> None:
    days, warmup = (*map(float, sys.argv[1:3]), *(30.0, 7.0)[len(sys.argv) - 1 :])
    place = Path(__file__).parent / "scenarios/thousand.yaml"
    scenario = load(place).model_copy(update={"days": days, "warmup": warmup})
    cases = [turn(Case("budget", seed=seed, scenario=scenario), TURNED) for seed in SEEDS]
    cases += [Case("slurm-fairtree", seed=seed, scenario=scenario) for seed in SEEDS]
    begun = time.monotonic()
    found: dict[tuple[str, int], Score] = {}
    for index, one in scores(cases, WORKERS):
        found[cases[index].policy, cases[index].seed] = one
        print(row(cases[index].policy, cases[index].seed, one), flush=True)
    ours = [found["budget", seed] for seed in SEEDS]
    missed = []
    for aim in AIMS:
        value = aim.worst(ours)
        print(f"FIGURE thousand_{aim.name} {value:.4g}", flush=True)
        missed += [] if aim.met(value) else [aim.name]
    large = max(
        one.waits["large"].p90 / found["slurm-fairtree", seed].waits["large"].p90
        for seed, one in zip(SEEDS, ours, strict=True)
    )
    print(f"FIGURE thousand_large_p90_vs_fairtree {large:.3g}")
    missed += ["large_p90_vs_fairtree"] if large > 1 else []
    print(f"FIGURE thousand_seconds {time.monotonic() - begun:.0f}")
    print(f"Missed: {', '.join(missed) or 'none'}.")


if __name__ == "__main__":
    main()
