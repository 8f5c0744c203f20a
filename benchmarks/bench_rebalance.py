"""How long a rebalance pass takes on a large, busy cluster, and how that grows with the cluster.

    make bench-rebalance

The cluster is invented from a seed: nodes of eight GPUs, full of runs under contract past their minimum, many more
jobs waiting, so that every pass has to search among all of them. The scene is made anew in each pass, as the
daemon makes it. The growth is the ratio of the CPU times at twice and at half the size.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from slurm_fairshare.core.cluster import PENDING, RUNNING, Job, Node, Picture
from slurm_fairshare.core.contract import Contract, DebugLane, Ladder, Priority
from slurm_fairshare.core.fairshare import Ranking, Standing, ranked
from slurm_fairshare.core.rebalance import Rules, rebalance
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.tree import Share, build

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
LADDER = Ladder.default()
TEAMS = 40
PASSES = 7


def ranking() -> Ranking:
    """Four programmes of ten projects; one far behind its target in each, the others over it."""
    programmes = [f"p{n}" for n in range(4)]
    sets = {"": tuple(Share(name, 1) for name in programmes)}
    for place, name in enumerate(programmes):
        first = place * TEAMS // 4
        sets[name] = tuple(Share(f"t{n}", 1, f"team{n}") for n in range(first, first + TEAMS // 4))
    tree = build(sets)
    rng = random.Random(1)
    standings = {}
    for path, node in tree.nodes.items():
        owed = 1e6 * node.effective
        poor = path.endswith("t0") or path == "p0"
        standings[path] = Standing(owed, owed * (0.2 if poor else rng.uniform(1.05, 2.0)), node.effective)
    return Ranking(tree, standings, ranked(tree, standings))


def busy(nodes: int, running: int, pending: int, seed: int = 1) -> Picture:
    """Nodes filled with runs until there are so many, then jobs that wait: small ones, and large ones at the head."""
    rng = random.Random(seed)
    free = dict.fromkeys((f"n{n:04d}" for n in range(nodes)), 8)
    jobs: list[Job] = []
    open_nodes = list(free)
    wide = 0
    while len(open_nodes) > 0.8 * nodes:
        wide += 1
        names = tuple(open_nodes.pop() for _ in range(rng.choice((2, 2, 4, 8))))
        free.update(dict.fromkeys(names, 0))
        jobs.append(_job(wide, rng, 8 * len(names), len(names), names))
    for number in range(wide + 1, running + 1):
        if not open_nodes:
            break
        name = rng.choice(open_nodes)
        left = running - number + 1
        most = max(1, min(free[name], sum(free.values()) - left + 1, 2))
        size = rng.randint(1, most)
        free[name] -= size
        if not free[name]:
            open_nodes.remove(name)
        jobs.append(_job(number, rng, size, 1, (name,)))
    for number in range(running + 1, running + pending + 1):
        large = rng.random() < 0.05
        count = rng.choice((2, 4, 8, 16)) if large else 1
        jobs.append(_job(number, rng, 8 * count if large else rng.choice((1, 2, 4, 8)), count, ()))
    seen = tuple(
        Node(
            name,
            frozenset({"MIXED"}),
            Resources({"h100": 8}, 64, 512_000),
            Resources({"h100": 8 - left}, 8 - left, 0),
            ("gpu",),
        )
        for name, left in free.items()
    )
    return Picture("lab", NOW, tuple(jobs), seen)


def _job(number: int, rng: random.Random, gpus: int, count: int, nodes: tuple[str, ...]) -> Job:
    minimum = rng.choice((0, 900, 3600, 14_400)) if nodes or rng.random() < 0.02 else rng.choice((3600, 28_800))
    started = NOW - timedelta(seconds=rng.randint(60, 90_000)) if nodes else None
    team = rng.randrange(TEAMS) if nodes else rng.choice((0, 0, 0, rng.randrange(TEAMS)))
    share = Resources({"h100": gpus}, gpus, 0)
    qos = LADDER.for_min_runtime(minimum).name
    lane = not nodes and qos == "fs-15m" and gpus <= 8
    return Job(
        job_id=number,
        label=str(number),
        account=f"team{team}",
        user=f"user{number % 97}",
        uid=1000,
        partitions=("gpu",),
        qos=qos,
        state=RUNNING if nodes else PENDING,
        reason="None" if nodes else rng.choice(("Priority", "Resources")),
        priority=(2_000_000_000 if lane else 0) + 100_000 * (TEAMS - team) + 20_000,
        submit=NOW - timedelta(seconds=rng.randint(60, 90_000)),
        eligible=NOW - timedelta(hours=1),
        start=started,
        time_limit=timedelta(days=1),
        wanted=share,
        node_count=count,
        nodes=nodes,
        by_node=dict.fromkeys(nodes, Resources({"h100": gpus // count}, gpus // count, 0)),
        contract=Contract(minimum, rng.random() < 0.7, rng.choice(tuple(Priority))),
    )


def seconds(work: Callable[[], object]) -> tuple[float, float, float]:
    """The shortest of some passes, which others on the machine disturb least, their median, and the least CPU time."""
    taken, busy_for = [], []
    for _ in range(PASSES):
        begun, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append(time.perf_counter() - begun)
        busy_for.append(time.process_time() - cpu)
    return min(taken), statistics.median(taken), min(busy_for)


def measure(nodes: int, running: int, pending: int) -> tuple[float, float]:
    """Seconds a pass takes, by the clock and of the processor."""
    picture, order = busy(nodes, running, pending), ranking()
    rules = Rules(max_per_pass=1000)

    def once() -> object:
        return rebalance(picture, order, NOW, LADDER, DebugLane(), rules, (), NOW)

    found = rebalance(picture, order, NOW, LADDER, DebugLane(), rules, (), NOW)
    shortest, median, cpu = seconds(once)
    print(
        f"{nodes} nodes, {running:,} running, {pending:,} pending: {len(found.decisions)} decisions, "
        f"{len(found.declined)} declined; shortest of {PASSES} passes {shortest:.3f} s "
        f"({cpu:.3f} s CPU), median {median:.3f} s"
    )
    return shortest, cpu


def main() -> int:
    _, half = measure(250, 2_500, 25_000)
    whole, _ = measure(500, 5_000, 50_000)
    _, twice = measure(1_000, 10_000, 100_000)
    print(f"FIGURE rebalance_pass_seconds {whole:.3f}")
    print(f"FIGURE rebalance_growth {twice / half:.2f}  (four times the size)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
