"""Three days of the sample's lab as the ledger would hold them: what the reports on the past are tried on.

Language used too much, robotics had to wait through one night, unallocated work filled in, one node was drained for
a while, a few runs were stopped, an account without a budget ran something, and for one afternoon nobody looked.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from slurm_fairshare.core.cluster import Capacity, Job, Picture
from slurm_fairshare.core.contract import Contract, Priority
from slurm_fairshare.core.decisions import Outcome
from slurm_fairshare.core.records import Batch, TickReport
from slurm_fairshare.core.resources import MILLI, Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.window import Window
from slurm_fairshare.store.memory import MemoryStore
from tests.reports import sample
from tests.reports.sample import LADDER, NOW, hours

START = NOW - timedelta(days=3)
PERIOD = Window(START - timedelta(days=1), NOW)


def at(hour: float) -> datetime:
    return START + timedelta(hours=hour)


def run(
    number: int,
    account: str,
    user: str,
    gpus: int,
    start: float,
    end: float | None,
    contract: Contract,
    *,
    waited: float = 0.01,
    state: str = "COMPLETED",
    key: str = "",
) -> Run:
    """A run from hour to hour that had waited for so many hours."""
    qos = LADDER.for_min_runtime(contract.min_runtime).name
    return Run(
        cluster="lab",
        key=key or str(number),
        job_id=number,
        label=str(number),
        account=account,
        user=user,
        uid=2000,
        partition="gpu",
        qos=qos,
        state=state if end is not None else "RUNNING",
        submit=at(start - waited),
        eligible=at(start - waited),
        start=at(start),
        end=None if end is None else at(end),
        held=Resources({"h100": gpus}),
        milli_gpus=gpus * MILLI,
        charged=LADDER.is_charged(qos),
        contract=contract,
    )


FOUR, EIGHT, FREE = Contract(hours(4), resumable=True), Contract(hours(8)), Contract()
RUNS = (
    run(1, "nlp", "dan", 8, 0, 30, FOUR, state="REQUEUED", key="1a"),
    run(1, "nlp", "dan", 8, 40, None, FOUR, waited=10, key="1b"),
    run(2, "nlp", "erin", 4, 2, 20, replace(FOUR, priority=Priority.HIGH)),
    run(3, "Speech@Lab", "erin", 4, 0, 70, EIGHT),
    run(4, "vision", "alice", 8, 0, 50, FOUR),
    run(5, "vision", "bob", 1, 10, 10.2, Contract(900), waited=0.005),
    run(6, "vision", "bob", 1, 12, 12.1, Contract(900, priority=Priority.LOW), waited=0.02),
    run(7, "robotics", "carol", 16, 30, 60, FOUR, waited=12),
    run(8, "robotics", "frank", 2, 5, 25, FREE, state="PREEMPTED"),
    run(9, "vision", "alice", 4, 51, 54, FREE),
    run(10, "guests", "gina", 1, 60, 66, FREE, waited=1),
)
BUSY = {"1a": 0.9, "4": 0.5, "7": 0.75}


def _job(of: Run) -> Job:
    contract = of.contract or Contract()
    return sample.job(of.job_id, of.account, of.user, of.held.gpu_count, contract)


def picture(hour: float) -> Picture:
    """The queue as it was: what ran then, and what waited for room."""
    moment, jobs = at(hour), []
    for one in RUNS:
        assert one.start is not None
        assert one.eligible is not None
        if one.start <= moment and (one.end is None or moment < one.end):
            jobs.append(replace(_job(one), state="RUNNING", reason="", start=one.start, submit=one.submit))
        elif one.eligible <= moment < one.start:
            jobs.append(replace(_job(one), submit=one.submit, eligible=one.eligible))
    return Picture("lab", moment, tuple(jobs), sample.NODES)


def store() -> MemoryStore:
    """The ledger and journal of these days, a look each hour but for one afternoon."""
    made = MemoryStore("lab", ladder=LADDER)
    made.add_changeset("head", "the programme", START - timedelta(days=9), sample.SETS, created=START)
    made.record_runs(Batch(Window(START, NOW), RUNS), NOW)
    for hour in (*range(50), *range(55, 72), 72):
        drained = 8 if 20 <= hour < 32 else 0
        made.record_picture(picture(hour), [Capacity("h100", 32, 0, drained, 0)])
        tick = TickReport(at(hour), at(hour), sample.ranking(), (), True, Window(at(hour - 1), at(hour)))
        made.record_tick(tick)
    stopped = sample.decision("x", 0, sample.Rule.UNDER_SERVED, sample.LANGUAGE, sample.ROBOTICS)
    made.decide([replace(stopped, at=at(30), lost=8 * 1200, lost_since="assumed")])
    made.settle("x", Outcome.REQUEUED, at(30))
    made.record_busy(BUSY)
    return made
