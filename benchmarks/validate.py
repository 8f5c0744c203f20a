"""The simulator held to a real Slurm: `make validate`, or `python -m benchmarks.validate --runs 10 --keep DIR`.

One workload of short jobs, made by seed, is submitted to the container cluster while the product ticks and
rebalances beside it, ten times and more, for a real Slurm never does the same twice. The simulator runs the same
jobs under the policy `budget` with the cluster's own constants, those that are not settings measured beside the real
runs (`benchmarks.delays`). What is compared stands in `benchmarks.compared`.

Each real run is kept as a file in DIR as soon as it is over: a study goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.compared import Outcome, Ran, lines, report
from benchmarks.delays import Delays
from benchmarks.soak import PEOPLE, TEAMS
from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.sim.budget import Budget, Knobs
from slurm_fairshare.sim.engine import Ended, Timing, simulate
from slurm_fairshare.sim.jobs import InTeam, JobSpec, Machine, Workload
from slurm_fairshare.store.schema import upgrade
from tests.cluster.cluster import REPOSITORY, Cluster
from tests.cluster.product import Product
from tests.postgres import own_postgres

JOBS = 200
ARRIVALS = {"robotics": (8, 60), "vision": (25, 100), "language": (25, 100), "unallocated": (0, 12)}
"""Seconds in which a team's jobs come, and unallocated ones. The team of the smallest share comes first, so that it
holds more than its due when the others come: somebody has to yield."""

LEAD = 6
"""Seconds from the first tick to the first job."""

SIZES = {1: 54, 2: 30, 4: 12, 8: 3, 16: 1}
WORK = {4: 62, 6: 18, 10: 8, 20: 7, 40: 5}
UNALLOCATED_WORK = {10: 40, 20: 60}
MINIMUM = {2: 45, 4: 35, 8: 20}
UNALLOCATED = 0.13
CHECKPOINT = 5

TICK, PASS = 5, 2
"""Seconds that the daemon pauses between two ticks, and between two rebalance passes."""

SETTINGS: dict[str, object] = {
    "rebalance": {"interval": "2s", "settle": "20s", "cooldown": "1m", "notice": "3s", "max_per_team_hour": 10_000,
                  "max_per_hour": 10_000},
    "fairshare": {"lookback": timedelta(seconds=120)},
    "debug_lane": {"enabled": False},
    "large": {"gpus": 0},
}  # fmt: skip

FINE = 10
"""The simulator counts whole seconds and the delays here are parts of one: it is given ten for each."""

PHASES = range(0, 60, 2)
"""Seconds by which Slurm's clocks are ahead when the first job comes: nobody knows, so all are simulated."""

ERRORS = "/tmp/validate.err"  # noqa: S108  in a container of our own

SCRIPT = r"""#!/bin/bash
# WORK EVERY: computes for WORK seconds in all its runs together and saves every EVERY seconds; 0 = starts anew.
work=$(( $1 * 1000000 )) every=$(( $2 * 1000000 )) state=$HOME/validate.$SLURM_JOB_ID saved=0 nap=
(( every )) && [[ -s $state ]] && saved=$(< "$state")
did=$saved begun=${EPOCHREALTIME/./}
save() { echo "$1" > "$state.new" && mv "$state.new" "$state"; }
look() { did=$(( saved + ${EPOCHREALTIME/./} - begun )); }
trap 'every=1000000; look; save $did; kill $nap' USR1
while look; (( did < work )); do
    pause=$(( work - did ))
    if (( every )); then
        (( did < every )) || save $(( did - did % every ))
        (( pause < every - did % every )) || pause=$(( every - did % every ))
    fi
    sleep $(printf '%d.%06d' $(( pause / 1000000 )) $(( pause % 1000000 ))) & nap=$!
    wait $nap
done
"""

SUBMIT = r"""
# Lines of "second user number work every" and the options of sbatch; submits each when its second has come.
at=$1
echo $$ > /tmp/validate.pid
cat > /tmp/validate.tsv
while IFS=$'\t' read -r second user number work every options; do
    pause=$(( (at + second) * 1000000 - ${EPOCHREALTIME/./} ))
    (( pause <= 0 )) || sleep $(printf '%d.%06d' $(( pause / 1000000 )) $(( pause % 1000000 )))
    IFS=$'\t' read -ra words <<< "$options"
    HOME=/home/$user setpriv --reuid "$user" --regid "$user" --init-groups \
        sbatch -Q -J "v$number" -D "/home/$user" -o /dev/null "${words[@]}" /tmp/validate.sh "$work" "$every" \
        2>> /tmp/validate.err > /dev/null &
done < /tmp/validate.tsv
wait
rm /tmp/validate.pid
"""

PREPARE = """
# A run that was broken off goes on submitting: the end of a `docker exec` is not the end of what it runs.
[[ ! -s /tmp/validate.pid ]] || kill $(< /tmp/validate.pid)
rm -f /home/*/validate.* /tmp/validate.*
cat > /tmp/validate.sh
"""


def workload(seed: int) -> Workload:
    """The jobs: sizes, work and contracts drawn independently; every team asks for as much, whatever its share."""
    rng = random.Random(seed)
    drawn = sorted((_job(rng) for _ in range(JOBS)), key=lambda job: job.submit)
    jobs = tuple(replace(job, number=number) for number, job in enumerate(drawn))
    shares = {f"lab/{team}": weight for team, weight in TEAMS.items()}
    return Workload(jobs, {"lab": 1.0, **shares}, name=f"validate {seed}")


def _job(rng: random.Random) -> JobSpec:
    team = rng.choice(sorted(TEAMS))
    gpus, work, minimum = _drawn(rng, SIZES), _drawn(rng, WORK), _drawn(rng, MINIMUM)
    if rng.random() < UNALLOCATED:
        gpus, work, minimum = min(gpus, 4), _drawn(rng, UNALLOCATED_WORK), 0
    first, last = ARRIVALS[team if minimum else "unallocated"]
    resumable = rng.random() < 0.8
    return JobSpec(
        number=0,
        submit=LEAD + rng.randint(first, last),
        work=work,
        gpus=gpus,
        account=team,
        user=rng.choice(PEOPLE[team]),
        # In whole minutes, as Slurm counts them; those of long jobs differ, so that backfill has a choice.
        limit=60 * (work // 20 + rng.choice((1, 2, 3))),
        nodes=2 if gpus == 16 else 1,
        min_runtime=minimum,
        resumable=resumable,
        priority=rng.choice((InTeam.LOW, *[InTeam.NORMAL] * 8, InTeam.HIGH)),
        checkpoint=CHECKPOINT,
        notice=resumable and rng.random() < 0.5,
        klass="unallocated" if minimum == 0 else "small" if gpus <= 2 else "large",
    )


def _drawn(rng: random.Random, weights: dict[int, int]) -> int:
    return rng.choices(list(weights), list(weights.values()))[0]


# --- the real thing -----------------------------------------------------------------------------------------


def real_run(cluster: Cluster, made: Workload) -> Outcome:
    """Submit the workload to the cluster, with the product beside it, and read what Slurm's accounting says."""
    with own_postgres("validate-") as dsn:
        upgrade(dsn)
        cluster.sh("slurmctld", ["bash", "-c", PREPARE], stdin=SCRIPT)
        cluster.reset()
        product = Product.on(cluster, dsn, **SETTINGS)
        product.fund(TEAMS)
        for team, users in PEOPLE.items():
            cluster.sh("slurmctld", ["sacctmgr", "-i", "add", "user", ",".join(users), f"account={team}"], check=False)
        looked = _watched(product)
        with product.daemon(tick_every=TICK, pass_every=PASS):
            begun, before = utc_now(), os.getloadavg()
            cluster.sh("slurmctld", ["bash", "-c", SUBMIT, "submit", str(int(begun.timestamp()))], stdin=_lines(made))
            _until_done(cluster, len(made.jobs))
        time.sleep(3)  # slurmdbd hears of the last ends
        decisions = [
            {"at": one.decision.at.timestamp(), "victim": one.decision.victim.label, "rule": one.decision.rule.value,
             "taker": one.decision.preemptor and one.decision.preemptor.label, "outcome": one.outcome.value,
             "detail": one.detail, "changed": one.changed.timestamp()}
            for one in product.store.decisions(begun)
        ]  # fmt: skip
        product.store.close()
    found = _read(cluster, made, int(begun.timestamp()))
    found.notes.update(
        decisions=decisions,
        pictures=looked,
        begun=begun.timestamp(),
        load=[before, os.getloadavg()],
        log=_log(cluster, begun),
        version=version(),
        errors=cluster.sh("slurmctld", ["cat", ERRORS], check=False).stdout[-2000:],
    )
    return found


def version() -> str:
    """Of the product: one that decides otherwise makes other runs."""
    words = ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _log(cluster: Cluster, begun: datetime) -> list[str]:
    """What slurmctld says of starts and ends, with its clock: where its schedulers' delays can be read off."""
    words = ["docker", "logs", "-t", "--since", begun.isoformat(), cluster.container("slurmctld")]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    told = ("Allocate JobId", "Started JobId", " done", "equeu", "reempt", "Complete", "complete JobId")
    return [line for line in (said.stdout + said.stderr).splitlines() if any(word in line for word in told)]


def _lines(made: Workload) -> str:
    lines = []
    for job in made.jobs:
        words = f"min_runtime={job.min_runtime}s resumable={'yes' if job.resumable else 'no'}"
        words += f" priority={InTeam(job.priority).name.lower()}" + (" notice=USR1" if job.notice else "")
        options = (f"-A{job.account}", f"-N{job.nodes}", f"--gpus-per-node={job.gpus // job.nodes}",
                   f"-t{job.limit // 60}", "--comment", words)  # fmt: skip
        every = job.checkpoint if job.resumable else 0
        lines.append("\t".join(map(str, (job.submit, job.user, job.number, job.work, every, *options))))
    return "\n".join(lines) + "\n"


def _watched(product: Product) -> list[tuple[str, float]]:
    """When a thread of the product looked at the queue: how often it really ticks and rebalances on a busy machine."""
    seen: list[tuple[str, float]] = []
    look = product.slurm.picture

    def picture(now: datetime) -> Picture:
        seen.append((threading.current_thread().name, now.timestamp()))
        return look(now)

    product.slurm.picture = picture  # type: ignore[method-assign]
    return seen


def _until_done(cluster: Cluster, jobs: int) -> None:
    end = time.monotonic() + 900
    while left := len(cluster.slurm_output("squeue", "-h", "-a", "-r", "-o", "%A").split()):
        print(f"\r  {left} of {jobs} jobs in the queue   ", end="", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            raise SystemExit(f"{left} jobs have not ended after a quarter of an hour: look at squeue")
        time.sleep(3)
    print(file=sys.stderr)


def _read(cluster: Cluster, made: Workload, begun: int) -> Outcome:
    columns = "JobName,Submit,Start,End,State,NodeList,JobIDRaw"
    words = ["env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "sacct", "-a", "-X", "-D", "-n", "-P", "-S", f"uts{begun - 5}"]
    outcome = Outcome()
    rows = [line.split("|") for line in cluster.slurm_output(*words, "-o", columns).splitlines()]
    for name, submit, start, end, state, nodes, job_id in sorted(rows, key=lambda row: int(row[1])):
        if not name.startswith("v"):
            continue
        number = int(name[1:])
        outcome.submitted.setdefault(number, int(submit) - begun)
        outcome.notes.setdefault("job_ids", {})[number] = int(job_id)
        if state.split()[0] not in WORDS.values():
            raise SystemExit(f"job {name} ended {state}: that is no run to compare")
        if start.isdigit():
            outcome.runs.append(Ran(number, int(start) - begun, int(end) - begun, state.split()[0], nodes))
    missing = {job.number for job in made.jobs} - outcome.submitted.keys()
    if missing:
        raise SystemExit(f"Slurm knows nothing of jobs {sorted(missing)}: see /tmp/validate.err in the controller")
    return outcome


# --- the simulator ------------------------------------------------------------------------------------------


def timing_of(delays: Delays) -> Timing:
    """The cluster's own constants (slurm.conf, and Slurm's source for the first two), and what was measured."""
    return Timing(
        main_delay=FINE,
        main_gap=3 * FINE,
        backfill=10 * FINE,
        resolution=60 * FINE,
        priority_period=60 * FINE,
        requeue_delay=11 * FINE,
        kill_wait=_fine(delays.kill),
        notice=_fine(delays.notice),
        act=_fine(delays.act),
        rebalance=_fine(delays.passes),
        settle=20 * FINE,
    )


def _fine(seconds: float) -> int:
    return round(FINE * seconds)


def simulated(made: Workload, delays: Delays, phase: int = 0) -> Outcome:
    """The same jobs in the simulator, with the product's settings and the cluster's constants."""
    config = Config(cluster="lab", database_url="postgresql://nowhere", **SETTINGS)  # type: ignore[arg-type]
    knobs = Knobs(
        lookback=FINE * config.fairshare.lookback,
        ladder=config.ladder,
        lane=config.lane,
        rules=replace(config.rules, settle=FINE * config.rules.settle, cooldown=FINE * config.rules.cooldown),
        large=None,
        reservations=JOBS,  # backfill plans for every job that it looks at
        holds=False,  # nothing guards room: `rebalance.guard` is off, and Slurm itself has no such thing
        tick=_fine(delays.tick),
    )
    jobs = tuple(_finer(job, delays.launch, phase) for job in made.jobs)
    result = simulate(replace(made, jobs=jobs), Machine.uniform(2, 8), Budget(knobs), timing_of(delays))
    runs = result.runs
    return Outcome(
        {job.number: job.submit for job in made.jobs},
        [
            Ran(number, start / FINE - phase, end / FINE - phase, WORDS[Ended(how)], "")
            for number, start, end, how in zip(runs.job, runs.start, runs.end, runs.ended, strict=True)
        ],
    )


def _finer(job: JobSpec, launch: float, phase: int) -> JobSpec:
    return replace(
        job,
        submit=FINE * (job.submit + phase),
        work=FINE * job.work + _fine(launch),
        limit=FINE * job.limit,
        min_runtime=FINE * job.min_runtime,
        checkpoint=FINE * job.checkpoint,
    )


WORDS = {Ended.COMPLETED: "COMPLETED", Ended.PREEMPTED: "PREEMPTED", Ended.EVICTED: "REQUEUED"}


# --- the study ----------------------------------------------------------------------------------------------


def study(runs: int, keep: Path, seed: int) -> list[Outcome]:
    """The real runs, those of an earlier day first; what lacks is run now."""
    keep.mkdir(parents=True, exist_ok=True)
    made = workload(seed)
    found = []
    for number in range(1, runs + 1):
        path = keep / f"seed{seed}-run{number:02d}.json"
        if not path.exists():
            print(f"real run {number} of {runs}, {len(made.jobs)} jobs", file=sys.stderr, flush=True)
            path.write_text(json.dumps(real_run(Cluster.up("trixie"), made).as_json()))
        found.append(Outcome.from_json(json.loads(path.read_text())))
    return found


def main() -> int:
    words = argparse.ArgumentParser(description="Hold the simulator to a real Slurm.")
    words.add_argument("--runs", type=int, default=10, help="real runs in all (10)")
    words.add_argument("--keep", type=Path, default=Path("build/validate"), help="where real runs are kept")
    words.add_argument("--seed", type=int, default=6, help="of the workload (6)")
    given = words.parse_args()
    made, real = workload(given.seed), study(given.runs, given.keep, given.seed)
    delays = Delays.of(made, real)
    others = sorted({one.notes["version"] for one in real} - {version()})
    if others:
        print(f"The product in the real runs was {', '.join(others)}, the simulator's is {version()}.")
    print(f"{len(real)} real runs of {len(made.jobs)} jobs. Measured beside them, in seconds:")
    print(", ".join(f"{name} {seconds:.2f}" for name, seconds in asdict(delays).items()))
    print("\n".join(report(lines(made, real, [simulated(made, delays, phase) for phase in PHASES]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
