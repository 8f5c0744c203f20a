"""An hour of random work on the real cluster, against every promise: `make soak`, or `python -m benchmarks.soak 600`.

Six users in three teams submit jobs with contracts of seconds: one node and two, small and large, resumable or not,
some with a notice, some unallocated. The product ticks and rebalances beside it, in quick time. Afterwards Slurm's
own accounting is asked:

    protected_runs_stopped   runs under contract that were stopped before their declared minimum runtime
    jobs_lost                jobs that neither finished nor wait nor run
    worst_team_pct           delivered / owed of the worst team that had demand, in the design's words
    audit_differences        what the ledger and slurmdbd do not agree on
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from click.testing import CliRunner

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main as command
from slurm_fairshare.core.decisions import Outcome
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.reports.measured import measured
from slurm_fairshare.store.schema import upgrade
from tests import postgres
from tests.cluster.cluster import Cluster
from tests.cluster.product import Product

TEAMS = {"vision": 50.0, "language": 30.0, "robotics": 20.0}
PEOPLE = {"vision": ("alice", "bob"), "language": ("carol", "erin"), "robotics": ("dan", "frank")}
OUTSTANDING = {"vision": 18, "language": 12, "robotics": 9}
"""GPUs that each user of a team runs and waits for at once, about: two to three times what there is."""

LARGE = 8
"""A whole node, or half of both, is half of this cluster: Slurm keeps nodes idle for such a job while it waits, so one
at a time is submitted."""

STOPPED = ("REQUEUED", "PREEMPTED", "CANCELLED")
FINE = ("COMPLETED", "PENDING", "RUNNING", "REQUEUED", "COMPLETING", "PREEMPTED", "SUSPENDED", "CONFIGURING")

SCRIPT = """
state=$HOME/soak.$SLURM_JOB_ID
n=0
{resume}
trap 'echo $n > $state.new; mv $state.new $state' USR1
while (( n < {work} )); do
    sleep 5 & wait $!
    n=$((n + 5))
    {save}
done
"""


@dataclass
class Sent:
    """A job as it was submitted."""

    user: str
    gpus: int
    minimum: int


@dataclass
class Soak:
    """One run of it."""

    product: Product
    rng: random.Random
    longest: int = 300
    """Seconds that a job's work takes at the most."""
    jobs: dict[int, Sent] = field(default_factory=dict)

    def live(self, seconds: float) -> None:
        """Submit until the time is over, whenever a user has less outstanding than they like."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            waiting, large = self._outstanding()
            for team, users in PEOPLE.items():
                for user in users:
                    if waiting[user] < OUTSTANDING[team] and self.rng.random() < 0.6:
                        large |= self._submit(team, user, may_be_large=not large) >= LARGE
            time.sleep(1)

    def _outstanding(self) -> tuple[Counter[str], bool]:
        """GPUs that each user runs and waits for, and whether a large job is among them."""
        lines = self.product.cluster.slurm_output("squeue", "-h", "-a", "-r", "-o", "%u %A").splitlines()
        found: Counter[str] = Counter()
        largest = 0
        for line in lines:
            user, number = line.split()
            gpus = self.jobs[int(number)].gpus if int(number) in self.jobs else 1
            found[user] += gpus
            largest = max(largest, gpus)
        return found, largest >= LARGE

    def _submit(self, team: str, user: str, *, may_be_large: bool) -> int:
        """Submit a job; its GPUs."""
        rng = self.rng
        nodes, each = (1, rng.choice((1, 1, 1, 2, 2, 2, 4, 4)))
        if may_be_large and rng.random() < 0.05:
            nodes, each = rng.choice(((1, 8), (2, 4)))
        minimum = 0 if rng.random() < 0.1 else rng.choice((5, 10, 20, 40, 80))
        resumable = rng.random() < 0.75
        notice = resumable and rng.random() < 0.5
        words = f"min_runtime={minimum}s resumable={'yes' if resumable else 'no'}"
        words += " notice=USR1" if notice else ""
        words += f" priority={rng.choice(('low', *['normal'] * 8, 'high'))}"
        work = rng.randrange(60, self.longest, 5)
        script = SCRIPT.format(
            work=work,
            resume="[ -s $state ] && n=$(cat $state)" if resumable else "",
            save="(( n % 20 )) || echo $n > $state" if resumable else "",
        )
        # With time limits that are all alike nothing could be backfilled beside a large job that waits.
        job = self.product.cluster.sbatch(
            user, f"-N{nodes}", f"--gpus-per-node={each}", f"-t{work // 60 + 3}", "-o", "/dev/null", "--comment", words,
            script=script, account=team,
        )  # fmt: skip
        self.jobs[int(job)] = Sent(user, nodes * each, minimum)
        return nodes * each

    # --- afterwards ---------------------------------------------------------------------------------

    def records(self) -> list[tuple[int, str, int]]:
        """Each run of our jobs in slurmdbd's words: job, state, seconds it ran. The newest of a job comes last."""
        columns = "Submit,JobIDRaw,State,ElapsedRaw"
        words = ("sacct", "-a", "-X", "-D", "-n", "-P", "-S", "now-1days", "-o", columns)
        rows = sorted(line.split("|") for line in self.product.cluster.slurm_output(*words).splitlines())
        return [(int(job), state.split()[0], int(ran)) for _, job, state, ran in rows if int(job) in self.jobs]

    def protected_runs_stopped(self) -> list[tuple[int, str, int, int]]:
        """Runs stopped by anything before their minimum: job, state, seconds, minimum."""
        found = []
        for job, state, ran in self.records():
            minimum = self.jobs[job].minimum
            if minimum and state in STOPPED and 0 < ran < minimum:
                found.append((job, state, ran, minimum))
        return found

    def jobs_lost(self) -> list[tuple[int, str]]:
        """Jobs whose newest record is neither an end in peace nor a queue."""
        newest = {job: state for job, state, _ in self.records()}
        there = set(map(int, self.product.cluster.slurm_output("squeue", "-h", "-a", "-o", "%A").split()))
        lost = [(job, state) for job, state in newest.items() if state not in FINE]
        lost += [(job, state) for job, state in newest.items() if state in FINE[1:] and job not in there]
        lost += [(job, "never seen") for job in self.jobs if job not in newest and job not in there]
        return sorted(set(lost))


@dataclass(frozen=True)
class Figures:
    """What came of it."""

    submitted: int
    completed: int
    evictions: Counter[str]
    protected_runs_stopped: list[tuple[int, str, int, int]]
    jobs_lost: list[tuple[int, str]]
    delivered: dict[str, float]
    audit_differences: str

    @property
    def worst_team_pct(self) -> float:
        return 100 * min(self.delivered.values(), default=1.0)

    def lines(self) -> Iterator[str]:
        teams = ", ".join(f"{team} {100 * part:.1f}%" for team, part in sorted(self.delivered.items()))
        yield f"{self.submitted} jobs submitted, {self.completed} completed; delivered / owed: {teams}"
        yield "decisions: " + ", ".join(f"{count} {what}" for what, count in sorted(self.evictions.items()))
        yield from (f"stopped before its minimum: {one}" for one in self.protected_runs_stopped)
        yield from (f"lost: {one}" for one in self.jobs_lost)
        if self.audit_differences:
            yield f"audit: {self.audit_differences}"
        yield f"FIGURE protected_runs_stopped {len(self.protected_runs_stopped)}"
        yield f"FIGURE jobs_lost {len(self.jobs_lost)}"
        yield f"FIGURE worst_team_pct {self.worst_team_pct:.1f}"


def soak(cluster: Cluster, dsn: str, seconds: float, seed: int = 1) -> Figures:
    """Run it. The lookback window is half of the time, so that what is over-used is repaid within it."""
    cluster.reset()
    lookback = timedelta(seconds=round(max(60.0, seconds / 2)))
    product = Product.on(
        cluster,
        dsn,
        rebalance={"interval": "2s", "settle": "20s", "cooldown": "1m", "notice": "3s", "max_per_team_hour": 10_000,
                   "max_per_hour": 10_000},
        fairshare={"lookback": lookback},
        debug_lane={"enabled": False},
        large={"gpus": 0},
    )  # fmt: skip
    product.fund(TEAMS)
    for team, users in PEOPLE.items():
        cluster.sh("slurmctld", ["sacctmgr", "-i", "add", "user", ",".join(users), f"account={team}"], check=False)
    made = Soak(product, random.Random(seed), longest=round(min(600, max(120, seconds / 3))))
    begun = utc_now()
    with product.daemon(tick_every=5, pass_every=2):
        made.live(seconds)
        ended = utc_now()
    with product.store.lead():
        time.sleep(3)  # slurmdbd hears of the last ends
    product.tick()
    found = _figures(product, made, begun, ended)
    product.store.close()
    cluster.cancel_all_jobs()
    return found


def _figures(product: Product, made: Soak, begun: datetime, ended: datetime) -> Figures:
    looked = measured(product.store, Window(begun, ended), utc_now(), timedelta(minutes=30))
    delivered = {key[1:]: one.delivered for key, one in looked.deliveries.items() if key.startswith("@") and one.owed}
    outcomes = Counter(
        one.outcome.value for one in product.store.decisions(begun) if one.outcome is not Outcome.DECIDED
    )
    app = App(product.config, slurm=product.slurm)
    since = f"{int((utc_now() - begun).total_seconds())}s"
    audit = CliRunner().invoke(command, ["audit", "--since", since], obj=app)
    return Figures(
        submitted=len(made.jobs),
        completed=sum(1 for _, state, _ in made.records() if state == "COMPLETED"),
        evictions=outcomes,
        protected_runs_stopped=made.protected_runs_stopped(),
        jobs_lost=made.jobs_lost(),
        delivered=delivered,
        audit_differences="" if audit.exit_code == 0 else audit.output,
    )


@contextmanager
def own_postgres() -> Iterator[str]:
    """A database with our schema, gone afterwards."""
    with postgres.own_postgres("soak-") as address:
        upgrade(address)
        yield address


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    with own_postgres() as dsn:
        found = soak(Cluster.up("trixie"), dsn, seconds)
    print("\n".join(found.lines()))
    return 1 if found.protected_runs_stopped or found.jobs_lost or found.audit_differences else 0


if __name__ == "__main__":
    sys.exit(main())
