"""One invented cluster for all report tests: a lab of three teams, its queue, and what was decided in it.

Robotics has used the least of what it is owed, language the most. 32 GPUs, seven days, noon of 8 October 2026.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from slurm_fairshare.core.cluster import COMPLETING, PENDING, RUNNING, Job, Node, Picture
from slurm_fairshare.core.contract import Contract, Ladder, Priority
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded, Rule, Side
from slurm_fairshare.core.fairshare import Ranking, Usage, rank
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.tree import Changeset, Epoch, Share, tree_at
from slurm_fairshare.core.window import Step, Weight, Window
from slurm_fairshare.reports.words import Basis

NOW = datetime(2026, 10, 8, 12, 0, tzinfo=UTC)
WINDOW = Window(NOW - timedelta(days=7), NOW)
BASIS = Basis(NOW - timedelta(seconds=23), NOW, timedelta(seconds=60), WINDOW)
STALE = replace(BASIS, at=NOW - timedelta(minutes=12))
LADDER = Ladder.default()
CAPACITY = 32.0
HOUR = 3600.0

SETS = {
    "": (Share("lab", 100.0),),
    "lab": (
        Share("language", 50.0),
        Share("vision", 30.0, "vision"),
        Share("robotics", 20.0, "robotics"),
        Share("archive", 0.0, "old_archive"),
    ),
    "lab/language": (Share("nlp", 60.0, "nlp"), Share("speech", 40.0, "Speech@Lab")),
}
CHANGESET = Changeset(1, "head", "the programme of 2026", NOW - timedelta(days=30), NOW - timedelta(days=30), SETS)
TREE = tree_at([CHANGESET], NOW)

USED = {"nlp": 2100 * HOUR, "speech@lab": 950 * HOUR, "vision": 1420 * HOUR, "robotics": 480 * HOUR}
BY_USER = {
    ("nlp", "dan"): 1500 * HOUR,
    ("nlp", "erin"): 600 * HOUR,
    ("speech@lab", "erin"): 950 * HOUR,
    ("vision", "alice"): 1400 * HOUR,
    ("vision", "bob"): 20 * HOUR,
    ("robotics", "carol"): 480 * HOUR,
}
LABELS = {"nlp": 400_000_000, "speech@lab": 800_000_000, "vision": 1_200_000_000, "robotics": 1_600_000_000}


def ranking() -> Ranking:
    epoch = Epoch(WINDOW.start, WINDOW.end, TREE)
    return rank(TREE, [Step(WINDOW.start, CAPACITY)], [Usage(epoch, USED)], Weight(), NOW)


def job(number: int, account: str, user: str, gpus: int, contract: Contract, **more: object) -> Job:
    """A pending job that asked for its GPUs an hour ago; with `ran` it has been running for so long."""
    ran = more.pop("ran", None)
    start = NOW - ran if isinstance(ran, timedelta) else None
    base = Job(
        job_id=number,
        label=str(number),
        account=account,
        user=user,
        uid=2000 + number,
        partitions=("gpu",),
        qos=LADDER.for_min_runtime(contract.min_runtime).name,
        state=RUNNING if start else PENDING,
        reason="" if start else "Resources",
        priority=1,
        submit=NOW - timedelta(hours=1),
        eligible=NOW - timedelta(hours=1),
        start=start,
        time_limit=timedelta(days=1),
        wanted=Resources({"h100": gpus}, cpus=gpus * 8, memory_mb=gpus * 64_000),
        node_count=max(1, gpus // 8),
        contract=contract,
        name="train",
    )
    return replace(base, **more)  # type: ignore[arg-type]


def hours(amount: float) -> int:
    return round(amount * HOUR)


JOBS = (
    job(1042, "robotics", "carol", 16, Contract(hours(4), resumable=True), priority=1_600_020_000),
    job(1043, "vision", "bob", 1, Contract(900), priority=3_200_020_000, eligible=NOW - timedelta(seconds=20)),
    job(
        1044,
        "vision",
        "alice",
        8,
        Contract(hours(2), priority=Priority.HIGH),
        priority=1_200_040_000,
        reason="Priority",
    ),
    job(
        1050,
        "nlp",
        "erin",
        4,
        Contract(hours(1), resumable=True),
        label="1050_[0-9%2]",
        priority=400_020_000,
        reason="QOSMaxGRESPerUser",
        array_size=10,
        array_limit=2,
    ),
    job(1051, "robotics", "frank", 2, Contract(), priority=1_600_020_000, reason="Priority"),
    job(1001, "nlp", "dan", 8, Contract(hours(4), resumable=True), ran=timedelta(hours=4, minutes=12)),
    job(1002, "Speech@Lab", "erin", 4, Contract(hours(8)), ran=timedelta(hours=2)),
    job(1003, "vision", "alice", 8, Contract(hours(4), resumable=True), ran=timedelta(minutes=40)),
    job(1004, "robotics", "frank", 2, Contract(), ran=timedelta(hours=20), restarts=2),
    job(1005, "nlp", "dan", 8, Contract(hours(1)), ran=timedelta(hours=3), state=COMPLETING),
    job(1006, "guests", "gina", 1, Contract(hours(1)), ran=timedelta(minutes=5)),
)
NODES = tuple(
    Node(f"n{number}", frozenset({"MIXED"}), Resources({"h100": 8}, 64, 512_000), Resources(), ("gpu",))
    for number in range(1, 5)
)
PICTURE = Picture("lab", BASIS.at, JOBS, NODES)

ROBOTICS = Side(1030, "1030", "carol", "robotics", "lab/robotics", "lab/robotics", 0.42, 16)
LANGUAGE = Side(1001, "1001", "dan", "nlp", "lab/language/nlp", "lab/language", 1.17, 8)


def decision(name: str, minutes_ago: int, rule: Rule, victim: Side, preemptor: Side | None) -> Decision:
    at = NOW - timedelta(minutes=minutes_ago)
    return Decision(
        id=name,
        at=at,
        rule=rule,
        victim=victim,
        started=at - timedelta(hours=4, minutes=12),
        min_runtime=hours(4),
        over_minimum=720,
        resumable=True,
        requeue=True,
        preemptor=preemptor,
        hysteresis=0.10,
        nodes=("n1", "n2"),
    )


def recorded(one: Decision, outcome: Outcome, detail: str = "") -> Recorded:
    return Recorded(one, outcome, one.at + timedelta(seconds=2), detail)


DECISIONS = (
    recorded(decision("a", 300, Rule.UNDER_SERVED, LANGUAGE, ROBOTICS), Outcome.REQUEUED),
    recorded(
        decision(
            "b",
            240,
            Rule.IN_TEAM_PRIORITY,
            replace(LANGUAGE, job_id=1007, label="1007", node="lab/language/nlp", ratio=1.3),
            replace(LANGUAGE, job_id=1008, label="1008", user="erin", node="lab/language/nlp", ratio=1.3),
        ),
        Outcome.NOTICED,
    ),
    recorded(
        decision(
            "c",
            120,
            Rule.DEBUG_LANE,
            replace(LANGUAGE, job_id=1009, label="1009", node="lab/language/nlp", ratio=1.3),
            Side(1010, "1010_3", "bob", "vision", "lab/vision", "lab/vision", 0.88, 1),
        ),
        Outcome.REFUSED,
        "scontrol: Requested operation is presently disabled",
    ),
    recorded(
        replace(
            decision("d", 60, Rule.DRAIN, replace(LANGUAGE, job_id=1011, label="1011"), None),
            requeue=False,
            resumable=False,
        ),
        Outcome.ENDED,
    ),
    recorded(
        replace(
            decision("e", 1, Rule.UNDER_SERVED, LANGUAGE, replace(ROBOTICS, job_id=1042, label="1042")), dry_run=True
        ),
        Outcome.DECIDED,
    ),
)
