"""Small builders, so that a test says only what it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from slurm_fairshare.core.cluster import Job, Node, Picture
from slurm_fairshare.core.contract import Contract, Ladder, Priority
from slurm_fairshare.core.fairshare import Ranking, Standing, ranked
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.tree import Share, Tree, build

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
LADDER = Ladder.default()


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def contract(min_runtime: int = 60, *, resumable: bool = True, priority: Priority = Priority.NORMAL) -> Contract:
    return Contract(min_runtime=min_runtime, resumable=resumable, priority=priority, notice=None)


def gpus(count: int, kind: str = "h100") -> Resources:
    return Resources(gpus={kind: count}, cpus=count, memory_mb=0)


def node(name: str, busy: int = 0, size: int = 8, *states: str) -> Node:
    return Node(
        name=name,
        states=frozenset(states or ("MIXED",)),
        total=Resources(gpus={"h100": size}, cpus=64, memory_mb=64_000),
        allocated=gpus(busy),
        partitions=("gpu",),
    )


def job(
    job_id: int,
    account: str,
    count: int,
    *,
    state: str = "PENDING",
    nodes: tuple[str, ...] = (),
    node_count: int = 1,
    started: float = 0,
    terms: Contract | None = None,
    qos: str | None = None,
    priority: int = 100_000,
    reason: str = "Resources",
    partitions: tuple[str, ...] = ("gpu",),
    **more: object,
) -> Job:
    """A job; with nodes it runs there since `started` seconds ago, its GPUs divided evenly."""
    terms = terms or contract()
    if nodes and state == "PENDING":
        state = "RUNNING"
    each = gpus(count // max(1, len(nodes)))
    return Job(
        job_id=job_id,
        label=str(job_id),
        account=account,
        user=f"user-{account}",
        uid=1000,
        partitions=partitions,
        qos=qos or LADDER.for_min_runtime(terms.min_runtime).name,
        state=state,
        reason=reason if state == "PENDING" else "None",
        priority=priority,
        submit=ago(started + 10),
        eligible=ago(started + 10),
        start=ago(started) if nodes else None,
        time_limit=timedelta(hours=24),
        wanted=gpus(count),
        node_count=len(nodes) or node_count,
        nodes=nodes,
        by_node=dict.fromkeys(nodes, each),
        contract=terms,
        **more,  # type: ignore[arg-type]
    )


def picture(nodes: list[Node], *jobs: Job) -> Picture:
    """The picture; what runs on a node is counted as allocated there."""
    seen = []
    for one in nodes:
        held = one.allocated
        for running in jobs:
            if running.holding:
                held = held.plus(running.by_node.get(one.name, Resources()))
        seen.append(replace(one, allocated=held))
    return Picture("test", NOW, tuple(jobs), tuple(seen))


def tree(**shares: float) -> Tree:
    """One organisation `lab` with a leaf per name, bound to the account of that name."""
    return build({"": (Share("lab", 1),), "lab": tuple(Share(name, weight, name) for name, weight in shares.items())})


def ranking(over: Tree, **ratios: float) -> Ranking:
    """A ranking in which the leaf (by name) or inner node (by path with _ for /) has the given ratio U/E."""
    standings = {}
    for path, at in over.nodes.items():
        owed = 1000.0 * at.effective
        standings[path] = Standing(
            owed, owed * ratios.get(path.replace("/", "_"), ratios.get(at.name, 1.0)), at.effective
        )
    return Ranking(over, standings, ranked(over, standings))
