"""The public Philly trace (msr-fiddle/philly-traces, CC-BY-4.0) as a workload. What it does not hold is drawn.

The trace knows submit, run time, GPUs and virtual cluster (= team). Contracts are drawn by one stated, seeded
rule, job by job in the order of submission (`draw`); budgets are the nodes each virtual cluster owned.
"""

from __future__ import annotations

import csv
import random
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from slurm_fairshare.sim.jobs import JobSpec, Workload

TRACES = Path("/work/shared/traces")
W1 = (datetime(2017, 10, 2, tzinfo=UTC), datetime(2017, 10, 23, tzinfo=UTC))
DAY = 86_400
LIMITS = (3600, 4 * 3600, 12 * 3600, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 60 * DAY)
RUNGS = (3600, 7200, 14_400, 28_800)


def shares(traces: Path = TRACES) -> dict[str, float]:
    with (traces / "philly/philly_vc_nodes.csv").open(newline="") as file:
        return {row["vc"]: float(row["node num"]) for row in csv.DictReader(file)}


def philly(
    window: tuple[datetime, datetime] | None = W1,
    *,
    cut: int = 0,
    seed: int | None = None,
    traces: Path = TRACES,
) -> Workload:
    """The jobs submitted in the window. `cut` bounds run times (seconds); without a seed nothing is drawn.

    Jobs of one second come in the order in which the published figures took them: numpy's heap sort of the
    times, which is not stable but always the same.
    """
    with (traces / "philly/philly_gpu_jobs.csv").open(newline="") as file:
        rows = [(datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC), row) for row in csv.DictReader(file)]
    if window is not None:
        rows = [row for row in rows if window[0] <= row[0] < window[1]]
    origin = window[0] if window is not None else min(at for at, _ in rows).replace(hour=0, minute=0, second=0)
    submits = [int((at - origin).total_seconds()) for at, _ in rows]
    order = np.argsort(np.array(submits).astype("datetime64[ns]"), kind="heapsort")
    jobs = []
    rng = random.Random(seed)
    for number, index in enumerate(order):
        row = rows[index][1]
        work = int(float(row["duration"]))
        plain = JobSpec(
            number=number,
            submit=submits[index],
            work=min(work, cut) if cut else work,
            gpus=int(row["num_gpus"]),
            account=row["cluster"],
        )
        jobs.append(plain if seed is None else draw(plain, rng))
    known = {job.account for job in jobs}
    own = {path: weight for path, weight in shares(traces).items() if path in known}
    for account in sorted(known - own.keys()):
        own[account] = 1.0
    return Workload(tuple(jobs), own, origin, "philly")


def draw(job: JobSpec, rng: random.Random) -> JobSpec:
    """The contract of a job, by a rule that is the same everywhere:

    - of jobs with at most 8 GPUs that run up to 15 minutes half declare 15 minutes (debug), of longer ones 2%;
    - of the others 5% run unallocated;
    - the rest declare a rung from 1 h to 8 h: with 0.6 the smallest that covers the job, else any of the four;
    - limit: the smallest of 1 h, 4 h, 12 h, 1, 2, 7, 14, 60 days over run time x U(1, 2);
    - resumable: 85% from 8 GPUs on, 60% below; half of them save on a notice; checkpoints every 30 minutes;
    - in-team priority: low 20%, normal 60%, high 20%.
    """
    u = [rng.random() for _ in range(6)]
    rung = next((rung for rung in RUNGS if rung >= job.work), RUNGS[-1])
    if job.gpus <= 8 and u[0] < (0.5 if job.work <= 900 else 0.02):
        minimum = 900
    elif u[1] < 0.05:
        minimum = 0
    elif u[2] < 0.6:
        minimum = rung
    else:
        minimum = RUNGS[int((u[2] - 0.6) / 0.4 * 4)]
    planned = max(job.work * (1 + u[3]), minimum)
    resumable = u[4] < (0.85 if job.gpus >= 8 else 0.6)
    return JobSpec(
        number=job.number, submit=job.submit, work=job.work, gpus=job.gpus, account=job.account,
        limit=next((limit for limit in LIMITS if limit >= planned), int(planned)),
        min_runtime=minimum, resumable=resumable, notice=resumable and u[4] < (0.425 if job.gpus >= 8 else 0.3),
        priority=0 if u[5] < 0.2 else 1 if u[5] < 0.8 else 2,
        klass="unallocated" if minimum == 0 else "debug" if minimum <= 900 else "large" if job.gpus >= 8 else "small",
    )  # fmt: skip
