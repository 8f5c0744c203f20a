"""An invented research lab for the dashboard: weeks of runs, ticks, edits of the budgets, a queue, decisions.

128 GPUs, seven teams in three programmes. The same arguments give the same lab, on any store.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from slurm_fairshare.config import Config
from slurm_fairshare.core.booking import Booking, Kind, noted
from slurm_fairshare.core.cluster import PENDING, RUNNING, Job, Node, Picture, capacity_of
from slurm_fairshare.core.contract import Contract, Ladder, Priority
from slurm_fairshare.core.decisions import Decision, Outcome, Rule, Side
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.rebalance import queue_order
from slurm_fairshare.core.records import Batch, TickReport
from slurm_fairshare.core.resources import MILLI, Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import Share
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.booking import NAME as BOOKINGS
from slurm_fairshare.daemon.tick import recompute

CLUSTER = "lab"
NOW = datetime(2026, 11, 29, 14, 20, tzinfo=UTC)
LADDER = Ladder.default()
NODES, GPUS = 16, 8

TEAMS = {  # path: account, users, how eager it is
    "lab/language/chat": ("chat", ("alice", "bob"), 1.5),
    "lab/language/search": ("search", ("carol",), 0.9),
    "lab/vision/images": ("images", ("dan", "erin"), 1.2),
    "lab/vision/video": ("video", ("frank",), 1.6),
    "lab/biology/proteins": ("proteins", ("gina", "hugo"), 0.8),
    "lab/biology/cells": ("cells", ("ida",), 0.55),
    "lab/robotics": ("robotics", ("jan", "kim"), 0.7),
}
FIRST = {
    "": (Share("lab", 1),),
    "lab": (Share("language", 40), Share("vision", 30), Share("biology", 15), Share("robotics", 15, "robotics")),
    "lab/language": (Share("chat", 65, "chat"), Share("search", 35, "search")),
    "lab/vision": (Share("images", 50, "images"), Share("video", 50, "video")),
    "lab/biology": (Share("proteins", 70, "proteins"), Share("cells", 30, "cells")),
}
SHARE = {"chat": 0.24, "search": 0.14, "images": 0.15, "video": 0.15, "proteins": 0.12, "cells": 0.05, "robotics": 0.15}


@dataclass(frozen=True)
class Lab:
    """What was put into the store."""

    now: datetime
    config: Config
    jobs: tuple[Job, ...]
    stopped: int
    """A job that was told to yield and runs again."""
    waiting: int
    """The first job of the queue."""
    kept: tuple[Booking, ...]
    """The nodes that are kept for a job."""


def fill(
    store: Any, *, now: datetime = NOW, days: int = 10, waiting: int = 60, every: int = 2, config: Config | None = None
) -> Lab:
    """Fill a store. `waiting` jobs are in the queue; the queue was looked at every so many hours."""
    config = config or Config(cluster=CLUSTER)
    draw = random.Random(7)
    start = now - timedelta(days=days)
    _budgets(store, start, now)
    runs = sorted(_runs(draw, start, now), key=lambda run: (run.start or now, run.job_id))
    stopped = _decisions(store, runs, now)
    store.record_runs(Batch(Window(start, now), tuple(runs)), now)
    pending = tuple(_pending(draw, waiting, now))
    hours = range(int((now - start) / timedelta(hours=1)) - 1, 0, -every)
    jobs: tuple[Job, ...] = ()
    made: tuple[Window, Ranking] | None = None
    for ago in (*hours, 0):
        at = now - timedelta(hours=ago, seconds=17)
        holding = tuple(_job(run) for run in runs if run.start and run.start <= at and (not run.end or run.end > at))
        queue = pending if ago == 0 else tuple(_moved(job, at - now) for job in pending[: draw.randint(20, 50)])
        if made is None or ago == 0:
            made = recompute(store, config, at)
            queue = tuple(_placed(job, made[1]) for job in queue)
        jobs = (*queue, *holding)
        nodes = _nodes(holding, at, now)
        store.record_picture(Picture(CLUSTER, at, jobs, nodes), capacity_of(nodes))
        window = Window(at - timedelta(days=7), at)
        store.record_tick(TickReport(at, at + timedelta(seconds=2), made[1], (), True, window if ago else made[0]))
    order = queue_order(jobs, LADDER)
    kept = _kept([job for job in order if job.wanted.gpu_count == 16], now)
    store.remember(BOOKINGS, {str(one.job_id): noted(one) for one in kept}, now)
    return Lab(now, config, jobs, stopped, order[0].job_id if order else 0, kept)


def _kept(wide: list[Job], now: datetime) -> tuple[Booking, ...]:
    """What is kept for the first two jobs over two nodes: a guard, and a plan."""
    whats = (
        (Kind.GUARD, ("n02", "n03"), now - timedelta(seconds=40)),
        (Kind.PLAN, ("n07", "n12"), now + timedelta(minutes=50)),
    )
    return tuple(
        Booking(kind, job.job_id, job.user, nodes, start)
        for job, (kind, nodes, start) in zip(wide, whats, strict=False)
    )


def _placed(job: Job, ranking: Ranking) -> Job:
    """With the priority that its team's rank gives it."""
    leaf = ranking.leaf(job.account)
    factor = job.contract.priority.site_factor if job.contract is not None else 0
    return replace(job, priority=(10 - leaf.rank if leaf is not None else 0) * 100_000 + factor + job.priority // 1000)


def _moved(job: Job, by: timedelta) -> Job:
    return replace(job, submit=job.submit + by, eligible=(job.eligible or job.submit) + by)


def _budgets(store: Any, start: datetime, now: datetime) -> None:
    before = start - timedelta(days=2)
    store.add_changeset("head of research", "The programme of 2026", before, FIRST, created=before)
    store.add_changeset(
        "head of research",
        "Robotics hands five points to vision until its new arms arrive",
        now - timedelta(days=4),
        {"lab": (Share("language", 40), Share("vision", 35), Share("biology", 15), Share("robotics", 10, "robotics"))},
        created=now - timedelta(days=5),
    )
    store.add_changeset(
        "vision's lead",
        "Video trains its large model from Monday on",
        now + timedelta(days=2),
        {"lab/vision": (Share("images", 35, "images"), Share("video", 65, "video"))},
        created=now - timedelta(hours=20),
    )


# --- runs -----------------------------------------------------------------------------------------


def _runs(draw: random.Random, start: datetime, now: datetime) -> Iterator[Run]:
    """Each node is cut into lanes; each lane runs one job after another, of the team that is furthest behind."""
    given = dict.fromkeys(SHARE, 1.0)
    before = start
    lanes = [(node, width) for node in range(NODES) for width in draw.choice(([8], [8], [4, 4], [4, 2, 2]))]
    ends = [(start + timedelta(minutes=draw.randint(0, 200)), lane) for lane in range(len(lanes))]
    number = 40_000
    while ends:
        ends.sort()
        at, lane = ends.pop(0)
        if at >= now:
            continue
        node, width = lanes[lane]
        given = {account: amount * 0.5 ** ((at - before) / timedelta(days=2)) for account, amount in given.items()}
        before = at
        number += draw.randint(1, 4)
        account, users, _ = _next_team(draw, given, at, start)
        charged = draw.random() > 0.14
        contract = _contract(draw) if charged else Contract()
        length = max(contract.min_runtime, 900) * draw.uniform(0.6, 3.2)
        end = at + timedelta(seconds=round(length))
        if charged:
            given[account] += width * length / 3600
        yield _run(number, account, draw.choice(users), width, at, end if end < now else None, contract, node + 1)
        ends.append((end + timedelta(seconds=draw.randint(10, 900)), lane))


def _next_team(
    draw: random.Random, given: dict[str, float], at: datetime, start: datetime
) -> tuple[str, tuple[str, ...], float]:
    day = (at - start) / timedelta(days=1)
    best, found = math.inf, next(iter(TEAMS.values()))
    for place, team in enumerate(TEAMS.values()):
        wish = team[2] * (1 + 0.35 * math.sin(day * (0.7 + 0.13 * place) + place)) * draw.uniform(0.3, 1.7)
        behind = given[team[0]] / SHARE[team[0]] / max(wish, 0.05)
        if behind < best:
            best, found = behind, team
    return found


def _contract(draw: random.Random) -> Contract:
    seconds = draw.choices((900, 3600, 7200, 14_400, 28_800), (2, 3, 3, 5, 3))[0]
    priority = draw.choices((Priority.NORMAL, Priority.HIGH, Priority.LOW), (8, 1, 1))[0]
    return Contract(seconds, resumable=draw.random() < 0.7, priority=priority)


def _run(
    number: int,
    account: str,
    user: str,
    gpus: int,
    start: datetime,
    end: datetime | None,
    contract: Contract,
    node: int,
) -> Run:
    return Run(
        cluster=CLUSTER,
        key=f"{number}-{int(start.timestamp())}",
        job_id=number,
        label=str(number),
        account=account,
        user=user,
        uid=3000,
        partition="gpu",
        qos=LADDER.for_min_runtime(contract.min_runtime).name,
        state="COMPLETED" if end else "RUNNING",
        submit=start - timedelta(seconds=30 + number % 5400),
        eligible=start - timedelta(seconds=30 + number % 5400),
        start=start,
        end=end,
        held=Resources({"h100": gpus}, cpus=8 * gpus, memory_mb=64_000 * gpus),
        milli_gpus=gpus * MILLI,
        charged=contract.min_runtime > 0,
        contract=contract,
        nodes=f"n{node:02}",
    )


def _decisions(store: Any, runs: list[Run], now: datetime) -> int:
    """A few runs of the last days were told to yield; the last of them runs again."""
    past = [
        run for run in runs if run.charged and run.end and run.end > now - timedelta(days=3) and run.held.gpu_count > 2
    ]
    chosen = past[:: max(1, len(past) // 9)]
    for place, run in enumerate(chosen):
        assert run.start is not None
        assert run.end is not None
        leaf = next(path for path, team in TEAMS.items() if team[0] == run.account)
        side = Side(
            run.job_id, run.label, run.user, run.account, leaf, "/".join(leaf.split("/")[:2]), 1.24, run.held.gpu_count
        )
        taker = Side(run.job_id + 1, str(run.job_id + 1), "kim", "robotics", "lab/robotics", "lab/robotics", 0.71, 8)
        minimum = run.contract.min_runtime if run.contract else 0
        ran = int((run.end - run.start).total_seconds())
        made = Decision(
            id=f"sample-{place}",
            at=run.end - timedelta(seconds=3),
            rule=Rule.UNDER_SERVED,
            victim=side,
            started=run.start,
            min_runtime=min(minimum, ran),
            over_minimum=max(0, ran - minimum),
            resumable=True,
            requeue=True,
            preemptor=taker,
            hysteresis=0.1,
            nodes=(run.nodes,),
            lost=600 * run.held.gpu_count,
            lost_since="checkpoint",
        )
        store.decide([made])
        store.settle(made.id, Outcome.REQUEUED, run.end)
        runs[runs.index(run)] = replace(run, state="REQUEUED")
    last = chosen[-1]
    assert last.end is not None
    # It goes on where another run has just ended.
    gpus = last.held.gpu_count
    running = [run for run in runs if run.end is None and run.held.gpu_count == gpus]
    room = min(running, key=lambda run: run.start or now)
    begin = max(last.end + timedelta(minutes=40), (room.start or now) + timedelta(minutes=1))
    runs[runs.index(room)] = replace(room, end=begin, state="COMPLETED")
    contract = last.contract or Contract()
    again = _run(last.job_id, last.account, last.user, gpus, begin, None, contract, int(room.nodes.removeprefix("n")))
    runs.append(replace(again, submit=last.submit))
    return last.job_id


# --- the queue ------------------------------------------------------------------------------------


def _job(run: Run) -> Job:
    nodes = (run.nodes,)
    return Job(
        job_id=run.job_id,
        label=run.label,
        account=run.account,
        user=run.user,
        uid=run.uid,
        partitions=("gpu",),
        qos=run.qos,
        state=RUNNING,
        reason="None",
        priority=100_000,
        submit=run.submit,
        eligible=run.eligible,
        start=run.start,
        time_limit=timedelta(days=2),
        wanted=run.held,
        node_count=1,
        nodes=nodes,
        by_node={run.nodes: run.held},
        contract=run.contract,
    )


def _pending(draw: random.Random, count: int, now: datetime) -> Iterator[Job]:
    for place in range(count):
        account, users, _ = draw.choices(list(TEAMS.values()), [team[2] for team in TEAMS.values()])[0]
        contract = _contract(draw)
        gpus = draw.choice((1, 2, 4, 8, 8, 16, 32))
        waited = timedelta(seconds=draw.randint(20, 20_000))
        yield Job(
            job_id=90_000 + place,
            label=str(90_000 + place),
            account=account,
            user=draw.choice(users),
            uid=3000,
            partitions=("gpu",),
            qos=LADDER.for_min_runtime(contract.min_runtime).name,
            state=PENDING,
            reason="Resources" if place % 7 == 0 else "Priority",
            priority=1_000_000 - place,
            submit=now - waited,
            eligible=now - waited,
            start=None,
            time_limit=timedelta(days=1),
            wanted=Resources({"h100": gpus}, cpus=8 * gpus, memory_mb=64_000 * gpus),
            node_count=max(1, gpus // 8),
            contract=contract,
        )


def _nodes(holding: tuple[Job, ...], at: datetime, now: datetime) -> tuple[Node, ...]:
    held: dict[str, Resources] = {}
    for job in holding:
        for name, resources in job.by_node.items():
            held[name] = held.get(name, Resources()).plus(resources)
    return tuple(_node(number, held, now - at) for number in range(1, NODES + 1))


def _node(number: int, held: dict[str, Resources], ago: timedelta) -> Node:
    name = f"n{number:02}"
    states, reason = {"MIXED"}, ""
    if number == 5 and ago < timedelta(hours=9):
        states, reason = {"MIXED", "DRAIN"}, "slurm-fairshare drain: row remapping pending on GPU 3"
    if number == 11 and timedelta(days=2) < ago < timedelta(days=2, hours=14):
        states, reason = {"DOWN"}, "Not responding"
    total = Resources({"h100": GPUS}, cpus=64, memory_mb=512_000)
    return Node(name, frozenset(states), total, held.get(name, Resources()), ("gpu",), reason=reason)
