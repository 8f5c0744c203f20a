"""`make bench-sim`: how fast the simulator is, and whether it gets the known answers. Prints FIGURE lines.

On window W1 of the Philly trace: 38,322 jobs. Times are CPU seconds of this process, the best of two runs, since
the machine may be shared. AccaSim runs the same jobs in a virtual environment of its own that is thrown away.
`--quick` leaves out AccaSim and the million jobs.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.philly import DAY, W1, philly
from slurm_fairshare.sim.budget import Budget
from slurm_fairshare.sim.engine import Policy, Result, Timing, simulate, waits
from slurm_fairshare.sim.jobs import Machine, Workload
from slurm_fairshare.sim.policies import Easy, Fifo, FirstFit, SlurmFairTree, StrictPriority
from slurm_fairshare.sim.score import score
from slurm_fairshare.sim.study import Case, turn

NODES = Machine.uniform(64, 8)
POOL = Machine.uniform(1, 512)
TURNED = {
    "notice": "15s", "lane": "64", "headroom": "0.02", "patience": "30m", "large_gpus": "8", "large_after": "1h",
    "near": "16",
}  # fmt: skip
"""What docs/howto/large-site.md turns, but for backfill, which keeps nodes here; and a lane of 64 GPUs a team, since
debug jobs come in bursts."""
ORACLES = {"fifo": 26_792.1, "first-fit": 17_472.7, "easy": 25_738.8}


def figure(name: str, value: float) -> None:
    print(f"FIGURE {name} {value:.6g}", flush=True)


def timed(
    workload: Workload, machine: Machine, make: Callable[[], Policy], timing: Timing, runs: int = 2
) -> tuple[Result, float]:
    best, result = float("inf"), None
    for _ in range(runs):
        begin = time.process_time()
        result = simulate(workload, machine, make(), timing)
        best = min(best, time.process_time() - begin)
    assert result is not None
    return result, best


def oracles() -> float:
    """Pooled mean waits against the published ones; returns the jobs per second of pooled FIFO."""
    workload = philly()
    speed = 0.0
    for make in (Fifo, FirstFit, Easy):
        result, took = timed(workload, POOL, make, Timing.ideal(), 1)
        values = waits(result, workload.jobs)
        mean = sum(values) / len(values)
        figure(f"sim_oracle_{make.name}_mean_wait_s", round(mean, 1))
        figure(f"sim_oracle_{make.name}_off_s", round(abs(mean - ORACLES[make.name]), 2))
        speed = len(values) / took if make is Fifo else speed
    return speed


def speeds() -> None:
    """Jobs per second on W1; then on all of Philly on the same nodes, whose queue grows for two months."""
    kinds: dict[str, tuple[Callable[[], Policy], Timing, Callable[..., Workload]]] = {
        "fifo": (Easy, Timing.ideal(), philly),
        "budget": (Budget, Timing.slurm(), partial(philly, cut=7 * DAY, seed=1)),
    }
    per_job = {}
    for name, (make, timing, workload) in kinds.items():
        jobs = workload()
        _, took = timed(jobs, NODES, make, timing)
        per_job[name] = took / len(jobs.jobs)
        figure(f"sim_jobs_per_s_{name}", 1 / per_job[name])
    figure("sim_peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    for name, (make, timing, workload) in kinds.items():
        jobs = workload(None)
        _, took = timed(jobs, NODES, make, timing, 1)
        figure(f"sim_jobs_per_s_{name}_all_of_philly", len(jobs.jobs) / took)
        figure(f"sim_overload_growth_{name}", took / len(jobs.jobs) / per_job[name])


def table() -> None:
    """The policy table of the traces' README, with budgets: with the defaults, and with what a site like this turns."""
    drawn = philly(cut=7 * DAY, seed=1)
    end = int((W1[1] - W1[0]).total_seconds())
    tuned = turn(Case("budget", workload=drawn, machine=NODES), TURNED)
    policies: list[tuple[Policy, Timing]] = [
        (Fifo(), Timing.ideal()), (StrictPriority(limits=False), Timing.slurm()), (FirstFit(), Timing.ideal()),
        (SlurmFairTree(), Timing.slurm()), (SlurmFairTree(preempts=True), Timing.slurm()), (Budget(), Timing.slurm()),
        (Budget(tuned.knobs, "budget-tuned"), tuned.timing),
    ]  # fmt: skip
    print(f"{'policy':24s} debug p50/p90 s   >=8 p90 s  occupancy  delivered  worst  >=.95  lost")
    for policy, timing in policies:
        one = score(simulate(drawn, NODES, policy, timing), 0, end)
        debug, big = one.waits["debug"], one.waits["8 GPUs and more"]
        print(
            f"{policy.name:24s} {debug.p50:7.0f}/{debug.p90:<7.0f} {big.p90:11.0f} {one.occupancy:10.3f} "
            f"{one.delivered:10.3f} {one.worst:6.3f} {one.teams_at_95:3d}/{len(one.teams)} {one.lost:6.3f}",
            flush=True,
        )
        name = policy.name.replace("-", "_")
        figure(f"sim_w1_{name}_delivered", one.delivered)
        figure(f"sim_w1_{name}_worst_team", one.worst)
        figure(f"sim_w1_{name}_occupancy", one.occupancy)
        figure(f"sim_w1_{name}_debug_p90_s", debug.p90)
        figure(f"sim_w1_{name}_8gpus_p90_s", big.p90)
        figure(f"sim_w1_{name}_lost", one.lost)


def growth() -> None:
    """Time per job at a million jobs over that at ten thousand, and the memory of the million."""
    base = philly(cut=2 * DAY)
    small = replace(base, jobs=base.jobs[:10_000])
    _, few = timed(small, NODES, Easy, Timing.ideal())
    span = base.jobs[-1].submit + 1
    jobs = tuple(
        replace(job, number=lap * len(base.jobs) + job.number, submit=job.submit + lap * span)
        for lap in range(27)
        for job in base.jobs
    )[:1_000_000]
    _, many = timed(replace(base, jobs=jobs), NODES, Easy, Timing.ideal(), 1)
    figure("sim_growth_1e4_1e6", (many / len(jobs)) / (few / 10_000))
    figure("sim_peak_mb_1e6", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


ACCASIM = """
import collections, collections.abc, sys, time
for name in collections.abc.__all__:  # AccaSim 1.1.3 is older than Python 3.10, which took these names away
    setattr(collections, name, getattr(collections.abc, name))
from accasim.base.simulator_class import Simulator
from accasim.base.scheduler_class import FirstInFirstOut
from accasim.base.allocator_class import FirstFit
begin = time.process_time()
Simulator(sys.argv[1], sys.argv[2], FirstInFirstOut(FirstFit()), scheduling_output=False, pprint_output=False,
          benchmark_output=False, statistics_output=False, show_statistics=False).start_simulation()
print("TOOK", time.process_time() - begin)
"""


def accasim(ours: float) -> None:
    """The same jobs as an SWF file, one pool, FIFO."""
    workload = philly()
    with tempfile.TemporaryDirectory(prefix="accasim-") as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        python = str(place / "venv/bin/python")
        install = [python, "-m", "pip", "install", "-qq", "accasim==1.1.3", "setuptools<80"]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        lines = (
            f"{j.number + 1} {j.submit} -1 {max(1, j.work)} {j.gpus} -1 -1 {j.gpus} {max(1, j.work)}"
            " -1 1 1 1 1 1 1 -1 -1"
            for j in workload.jobs
        )
        (place / "w1.swf").write_text("; MaxProcs: 512\n; UnixStartTime: 0\n" + "\n".join(lines) + "\n")
        system = {"groups": {"g": {"core": 512, "mem": 1_000_000_000}}, "resources": {"g": 1}, "start_time": 0}
        (place / "system.json").write_text(json.dumps(system))
        (place / "run.py").write_text(ACCASIM)
        done = subprocess.run(
            [python, "run.py", "w1.swf", "system.json"], cwd=place, capture_output=True, text=True, check=False
        )
    took = next((float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("TOOK")), None)
    if took is None:
        print("AccaSim did not run here:", done.stderr.strip().splitlines()[-1:] or done.stdout[-300:])
        return
    theirs = len(workload.jobs) / took
    figure("sim_accasim_jobs_per_s", theirs)
    figure("sim_vs_accasim", ours / theirs)


def main() -> None:
    quick = "--quick" in sys.argv
    ours = oracles()
    figure("sim_jobs_per_s_fifo_pooled", ours)
    speeds()
    table()
    if not quick:
        growth()
        accasim(ours)


if __name__ == "__main__":
    main()
