"""An hour of random work on the real cluster, against every promise: `make soak`, or `python -m benchmarks.soak 900`.

Six users in three teams submit jobs with contracts of seconds: parts of a node, whole nodes and two, resumable or
not, some with a notice, some unallocated. Each team wants two and a half times its due all the time, so what is not
charged is missing from somebody. The product ticks and rebalances beside it, in quick time. Afterwards Slurm's own
accounting is asked:

    protected_runs_stopped   runs under contract that were stopped before their declared minimum runtime
    jobs_lost                jobs that neither finished nor wait nor run
    worst_team_pct           delivered / owed of the worst team that had demand, in the design's words
    audit_differences        what the ledger and slurmdbd do not agree on

What is chosen, and why:

- A second stands for two minutes (`PACE`): the ladder's rungs become 8 s to 4 min, and the whole time is the lookback
  window, as five days of a site's seven. Shorter contracts would measure Slurm's own seconds, which do not shrink with
  them (backfill looks every 10 s).
- Slurm lets pending jobs follow a new order once a minute (PriorityCalcPeriod's least), two hours of theirs, in which
  all that comes free goes to whoever was first before. Here they are made to follow every 5 s (`FOLLOW_EVERY`).
- Eight nodes. On two, one job that waits for a node has a quarter of the cluster kept idle for it; of a site's hundred
  nodes it is a hundredth.
- Three settings that docs/explanation/who-yields.md advises for such a queue: backfill keeps no nodes for blocked jobs,
  `rebalance.guard` keeps them for those that room is being made for, and jobs of half a node and more go first once
  they have waited (`[large]`): without that they are all that waits in the end, and fit nowhere.
- `fairshare.count_committed`: a contract of 4 min is a fifteenth of the window, so what is promised has to count.
- Measuring begins once everybody has as much outstanding as they like, some 15 s after the first job.

In the hour under some load 99.2% of all GPU-seconds were charged and the worst team had 99.0% of what it was owed. What
limited it before, cause by cause, is in docs/explanation/soak.md.
"""

from __future__ import annotations

import os
import random
import subprocess
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
from slurm_fairshare.core.hostlist import expand
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.reports.measured import measured
from slurm_fairshare.store.schema import upgrade
from tests import postgres
from tests.cluster.cluster import REPOSITORY, Cluster
from tests.cluster.product import Product

TEAMS = {"vision": 50.0, "language": 30.0, "robotics": 20.0}
PEOPLE = {"vision": ("alice", "bob"), "language": ("carol", "erin"), "robotics": ("dan", "frank")}
DEMAND = 2.5
"""What each team runs and waits for at once under contract, as a multiple of what it is entitled to."""

SMALL = ((1, 1), (1, 1), (1, 1), (1, 2), (1, 2), (1, 2), (1, 4), (1, 4))
LARGE = ((1, 8), (1, 8), (2, 4), (2, 8))
"""Nodes and GPUs on each: parts of a node, whole ones, two."""

PACE = 120
"""Seconds of a site's that a second here stands for: an hour for five days, the rungs of 15 minutes to 8 hours are
contracts of 8 s to 4 min, and jobs of 2 to 20 hours take 1 to 10 min."""
MINIMA = (900, 3600, 7200, 14_400, 28_800)
WORK = (2 * 3600, 20 * 3600)

WAITS_FOR_ROOM = ("None", "Resources", "Priority")
FOR_A_DEEP_QUEUE = "bf_min_prio_reserve=4000000000"
"""docs/explanation/who-yields.md: backfill keeps no nodes for blocked jobs."""

LARGE_JOBS = {"gpus": 4, "wait": "30s", "max_ratio": 1.1}
"""Half a node is large here, and waits an hour of theirs at the most before it goes first."""

FOLLOW_EVERY = 5.0
"""Seconds after which pending jobs follow a new order. Slurm lets them once a minute and cannot do it more often: seven
days do not feel that, an hour does."""

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
    nodes: int
    each: int
    minimum: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.each


@dataclass(frozen=True)
class Seen:
    """One of our jobs as squeue shows it."""

    job: str
    sent: Sent
    state: str
    reason: str
    where: str


@dataclass
class Soak:
    """One run of it."""

    product: Product
    rng: random.Random
    pace: float
    """Seconds of theirs that a second here stands for."""
    nodes: tuple[str, ...]
    jobs: dict[int, Sent] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    """GPU-seconds of the cluster by what became of them, seen about once a second."""

    def fill(self) -> None:
        """Submit until everybody has as much outstanding as they like."""
        while not all(self._submit_more(self._look()).values()):
            pass

    def live(self, seconds: float) -> None:
        """Submit until the time is over, whenever a user has less outstanding than they like."""
        begun = time.monotonic()
        end = begun + seconds
        seen, at = self._look(), time.monotonic()
        followed = told = 0.0
        while time.monotonic() < end:
            self._submit_more(seen)
            if at - followed >= FOLLOW_EVERY:
                self._follow(seen)
                followed = at
            time.sleep(1)
            now = time.monotonic()
            self._add_up(seen, now - at)
            if now - told >= 60:
                told = now
                print(
                    f"{now - begun:.0f} of {seconds:.0f} s: {len(self.jobs)} jobs submitted",
                    file=sys.stderr,
                    flush=True,
                )
            seen, at = self._look(), now

    def _follow(self, seen: list[Seen]) -> None:
        """Have pending jobs take on their account's Priority as it is now: any update makes Slurm reckon a job's anew.
        Of those that started since it is refused, which does no harm."""
        pending = ",".join(one.job for one in seen if one.state == "PENDING")
        if pending:
            self.product.cluster.sh("slurmctld", ["scontrol", "update", f"jobid={pending}", "nice=0"], check=False)

    def _look(self) -> list[Seen]:
        lines = self.product.cluster.slurm_output("squeue", "-h", "-a", "-r", "-o", "%A|%T|%r|%N").splitlines()
        rows = (line.split("|") for line in lines)
        return [Seen(job, self.jobs[int(job)], *more) for job, *more in rows if int(job) in self.jobs]

    def _submit_more(self, seen: list[Seen]) -> dict[str, bool]:
        """Whether each user has enough outstanding. What is unallocated hardly ever runs here: one job of it each."""
        paid, free = Counter[str](), Counter[str]()
        for one in seen:
            (paid if one.sent.minimum else free)[one.sent.user] += one.sent.gpus
        enough = {}
        for team, users in PEOPLE.items():
            wish = DEMAND * TEAMS[team] / sum(TEAMS.values()) * 8 * len(self.nodes) / len(users)
            for user in users:
                enough[user] = paid[user] >= wish
                if not free[user] and self.rng.random() < 0.1:
                    self._submit(team, user, 0)
                if not enough[user] and self.rng.random() < 0.6:
                    self._submit(team, user, max(1, round(self.rng.choice(MINIMA) / self.pace)))
        return enough

    def _submit(self, team: str, user: str, minimum: int) -> None:
        rng = self.rng
        nodes, each = rng.choice(LARGE if rng.random() < 0.05 else SMALL)
        resumable = rng.random() < 0.75
        notice = resumable and rng.random() < 0.5
        words = f"min_runtime={minimum}s resumable={'yes' if resumable else 'no'}"
        words += " notice=USR1" if notice else ""
        words += f" priority={rng.choice(('low', *['normal'] * 8, 'high'))}"
        work = round(rng.uniform(*WORK) / self.pace)
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
        self.jobs[int(job)] = Sent(user, nodes, each, minimum)

    def _add_up(self, seen: list[Seen], seconds: float) -> None:
        """Charge a look's GPUs with the time until the next."""
        free = Counter(dict.fromkeys(self.nodes, 8))
        for one in seen:
            if one.state != "PENDING":
                what = "leaving" if one.state == "COMPLETING" else ("charged" if one.sent.minimum else "unallocated")
                self.spent[what] += one.sent.gpus * seconds
                free.subtract(dict.fromkeys(expand(one.where) or (), one.sent.each))
        waiting = [one.sent for one in seen if one.state == "PENDING" and one.reason in WAITS_FOR_ROOM]
        fits = any(sum(left >= one.each for left in free.values()) >= one.nodes for one in waiting if one.minimum)
        self.spent["idle beside a job that fits" if fits else "idle, nothing fits"] += free.total() * seconds

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
    spent: Counter[str]
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
        yield "of all GPU-seconds: " + ", ".join(
            f"{100 * part / sum(self.spent.values()):.1f}% {what}" for what, part in self.spent.most_common()
        )
        yield f"{self.submitted} jobs submitted, {self.completed} completed; delivered / owed: {teams}"
        yield "decisions: " + ", ".join(f"{count} {what}" for what, count in sorted(self.evictions.items()))
        yield from (f"stopped before its minimum: {one}" for one in self.protected_runs_stopped)
        yield from (f"lost: {one}" for one in self.jobs_lost)
        if self.audit_differences:
            yield f"audit: {self.audit_differences}"
        yield f"FIGURE protected_runs_stopped {len(self.protected_runs_stopped)}"
        yield f"FIGURE jobs_lost {len(self.jobs_lost)}"
        yield f"FIGURE worst_team_pct {self.worst_team_pct:.1f}"


def soak(cluster: Cluster, dsn: str, seconds: float, seed: int = 1, pace: float = PACE) -> Figures:
    """Run it. The lookback window is the whole time: what a team lacks is owed to it until the end."""
    cluster.reset()
    product = Product.on(
        cluster,
        dsn,
        rebalance={"interval": "2s", "settle": "20s", "cooldown": "1m", "notice": "3s", "max_per_team_hour": 10_000,
                   "max_per_hour": 10_000, "guard": True},
        fairshare={"lookback": timedelta(seconds=round(seconds) + 60), "count_committed": True},
        debug_lane={"enabled": False},
        large=LARGE_JOBS,
    )  # fmt: skip
    product.fund(TEAMS)
    for team, users in PEOPLE.items():
        cluster.sh("slurmctld", ["sacctmgr", "-i", "add", "user", ",".join(users), f"account={team}"], check=False)
    made = Soak(product, random.Random(seed), pace, tuple(cluster.node_states()))
    with cluster.configured(f"SchedulerParameters={scheduling(cluster)},{FOR_A_DEEP_QUEUE}"):
        with product.daemon(tick_every=5, pass_every=2):
            made.fill()
            begun = utc_now()
            made.live(seconds)
            ended = utc_now()
        with product.store.lead():
            time.sleep(3)  # slurmdbd hears of the last ends
        product.tick()
        found = _figures(product, made, begun, ended)
        product.store.close()
        cluster.cancel_all_jobs()
    return found


def scheduling(cluster: Cluster) -> str:
    """SchedulerParameters as `slurm.conf.d` has them."""
    lines = cluster.slurm_output("scontrol", "show", "config").splitlines()
    return next(line.partition("=")[2].strip() for line in lines if line.startswith("SchedulerParameters "))


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
        spent=made.spent,
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


@contextmanager
def own_cluster(release: str = "trixie") -> Iterator[Cluster]:
    """Eight nodes, beside the cluster of demo and tests, and gone afterwards; one that was named by hand stays."""
    named = "COMPOSE_PROJECT_NAME" in os.environ
    os.environ.setdefault("COMPOSE_PROJECT_NAME", "slurm-fairshare-soak")
    try:
        yield Cluster.up(release, "--wide")
    finally:
        if not named:
            subprocess.run([str(REPOSITORY / "docker" / "cluster"), "down", "--release", release], check=True)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    with own_postgres() as dsn, own_cluster() as cluster:
        found = soak(cluster, dsn, seconds)
    print("\n".join(found.lines()))
    return 1 if found.protected_runs_stopped or found.jobs_lost or found.audit_differences else 0


if __name__ == "__main__":
    sys.exit(main())
