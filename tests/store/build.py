"""Small builders for what the store keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from slurm_fairshare.core.cluster import Capacity, Job, Node, Picture
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.decisions import Decision, Rule, Side
from slurm_fairshare.core.fairshare import Usage, rank
from slurm_fairshare.core.plan import Change
from slurm_fairshare.core.records import Batch, TickReport
from slurm_fairshare.core.resources import MILLI, Resources
from slurm_fairshare.core.runs import RejectedRow, Run
from slurm_fairshare.core.tree import Epoch, Share, Tree, build
from slurm_fairshare.core.window import Step, Weight, Window

CLUSTER = "test"
START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def span(start: float, end: float) -> Window:
    return Window(at(start), at(end))


def gpus(count: int, kind: str = "h100") -> Resources:
    return Resources(gpus={kind: count} if count else {}, cpus=8 * count, memory_mb=1000)


def run(
    key: str,
    start: float | None,
    end: float | None,
    *,
    job_id: int | None = None,
    account: str = "nlp",
    count: int = 1,
    charged: bool = True,
    state: str = "",
    contract: Contract | None = None,
    cluster: str = CLUSTER,
    kind: str = "h100",
) -> Run:
    """A run from hour to hour; without an end it runs on, without a start it never did."""
    number = job_id if job_id is not None else int("".join(filter(str.isdigit, key)) or 0)
    return Run(
        cluster=cluster,
        key=key,
        job_id=number,
        label=str(number),
        account=account,
        user="alice",
        uid=2001,
        partition="gpu",
        qos="fs-1h" if charged else "fs-unallocated",
        state=state or ("RUNNING" if end is None else "COMPLETED"),
        submit=at((start or 0) - 1),
        eligible=at((start or 0) - 1),
        start=None if start is None else at(start),
        end=None if end is None else at(end),
        held=gpus(count, kind),
        milli_gpus=count * MILLI,
        charged=charged,
        contract=contract,
        nodes="n1",
    )


def batch(*runs: Run, until: float = 24, since: float = 0, rejected: tuple[RejectedRow, ...] = ()) -> Batch:
    return Batch(span(since, until), runs, rejected)


def job(
    job_id: int,
    start: float | None,
    *,
    account: str = "nlp",
    count: int = 1,
    qos: str = "fs-1h",
    state: str = "",
    **more: object,
) -> Job:
    """A job in the queue: it runs since the hour given, or waits."""
    values: dict[str, object] = {
        "label": str(job_id),
        "user": "alice",
        "uid": 2001,
        "partitions": ("gpu", "debug"),
        "reason": "None" if start is not None else "Resources",
        "priority": 120_000,
        "submit": at((start or 0) - 1),
        "eligible": at((start or 0) - 1),
        "time_limit": timedelta(hours=24),
        "node_count": 1,
        "nodes": ("n1",) if start is not None else (),
        "by_node": {"n1": gpus(count)} if start is not None else {},
        "contract": Contract(3600, resumable=True, notice="USR1"),
        **more,
    }
    return Job(
        job_id=job_id,
        account=account,
        qos=qos,
        state=state or ("PENDING" if start is None else "RUNNING"),
        start=None if start is None else at(start),
        wanted=gpus(count),
        **values,  # type: ignore[arg-type]
    )


def node(name: str = "n1", busy: int = 0, *states: str) -> Node:
    return Node(
        name=name,
        states=frozenset(states or ("MIXED",)),
        total=gpus(8),
        allocated=gpus(busy),
        partitions=("gpu",),
        features=("ib",),
        reason="",
    )


def picture(hour: float, *jobs: Job, nodes: tuple[Node, ...] = (), cluster: str = CLUSTER) -> Picture:
    return Picture(cluster, at(hour), jobs, nodes)


def capacity(installed: int, down: int = 0, drained: int = 0, kind: str = "h100", allocated: int = 0) -> Capacity:
    return Capacity(kind, installed, down, drained, allocated)


def shares(**weights: float) -> tuple[Share, ...]:
    """Leaves of these weights, each bound to the account of its name."""
    return tuple(Share(name, weight, name) for name, weight in weights.items())


def tree() -> Tree:
    return build(
        {"": (Share("org", 1),), "org": (Share("a", 3), Share("b", 1, "NLP")), "org/a": shares(vision=1, robots=0.1)},
        at(0),
    )


def report(hour: float, *changes: Change, pushed: bool = True, over: Tree | None = None) -> TickReport:
    """A tick at the hour, over a day in which two accounts used something."""
    over = over or tree()
    window = Window(at(hour - 24), at(hour))
    used = {"vision": 1000 / 3, "nlp": 12_345.678}
    usage = [Usage(Epoch(window.start, window.end, over), used)]
    return TickReport(
        at=at(hour),
        finished=at(hour) + timedelta(seconds=1.5),
        ranking=rank(over, [Step(window.start, 24.0)], usage, Weight(), at(hour)),
        changes=changes,
        pushed=pushed,
        window=window,
        unknown_accounts=("ghost",),
        unbudgeted_accounts=("root", "old"),
    )


def side(job_id: int, ratio: float = 1.5) -> Side:
    return Side(job_id, str(job_id), "alice", "NLP", "org/b", "org/b", ratio, 8)


def decision(name: str, hour: float, victim: int = 1, preemptor: int | None = 2, *, dry_run: bool = False) -> Decision:
    return Decision(
        id=name,
        at=at(hour),
        rule=Rule.UNDER_SERVED if preemptor is not None else Rule.DRAIN,
        victim=side(victim),
        started=at(hour - 3),
        min_runtime=3600,
        over_minimum=7200,
        resumable=True,
        requeue=True,
        preemptor=None if preemptor is None else side(preemptor, float("inf")),
        hysteresis=0.1,
        nodes=("n1", "n2"),
        notice="USR1",
        dry_run=dry_run,
    )
