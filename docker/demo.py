"""`make demo`: budgets, fair-share and the contract at work on a real Slurm cluster, in about three minutes.

Three teams own 50, 30 and 20 per cent of 16 GPUs. Robotics, which owns 20, has taken all of them; vision, which
owns 50, comes back to work. Every line that is printed is what Slurm or slurm-fairshare said.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cluster.cluster import Cluster, CommandError, JobId  # noqa: E402  the cluster's own remote control

TEAMS = {"vision": ("alice", "bob"), "language": ("carol",), "robotics": ("dan",)}
MINIMUM = 90

console = Console(highlight=False, soft_wrap=True)
begun = time.monotonic()


class DemoError(Exception):
    """Something that the demo tells did not happen."""


def say(words: str) -> None:
    console.print(f"[dim]{time.monotonic() - begun:5.0f}s[/dim]  {words}")


def show(title: str, text: str) -> None:
    """What a command printed, as it printed it."""
    console.print(f"\n  [bold]$ {escape(title)}[/bold]")
    for line in text.rstrip().splitlines():
        console.print(Text(f"  {line}"))
    console.print()


def main() -> int:
    console.rule("[bold]slurm-fairshare: the demo[/bold]")
    say("starting a fresh cluster: Slurm with 2 nodes of 8 fake GPUs, Postgres, the daemon")
    tool = str(ROOT / "docker" / "cluster")
    subprocess.run([tool, "down"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([tool, "up", "--daemon"], check=True)
    cluster = Cluster.up("trixie", "--daemon")
    try:
        story(cluster)
    except (DemoError, CommandError) as problem:
        console.print(f"[red]the demo did not go as it should: {problem}[/red]")
        console.print(cluster.sh("daemon", ["sfair", "queue"], check=False).stdout)
        return 1
    goodbye(cluster)
    return 0


def sfair(cluster: Cluster, *words: str) -> str:
    return cluster.sh("daemon", ["sfair", *words], user="fairshare").stdout


def story(cluster: Cluster) -> None:
    say("making three Slurm accounts and their users, and loading the budget: vision 50, language 30, robotics 20")
    for team, people in TEAMS.items():
        cluster.add_account(team, *people)
    sfair(cluster, "budget", "load", "/usr/local/lib/cluster/demo.yaml", "--reason", "the demo's programme")
    show("sfair budget show", sfair(cluster, "budget", "show"))
    say("waiting for the daemon's next tick to give Slurm the ladder of QOS and the teams their priorities")
    until(lambda: "fs-8h" in access(cluster), 60, "the accounts' access to the ladder")

    say("dan (robotics, owns 20%) takes the whole cluster: 8 GPUs under contract, 8 GPUs unallocated")
    protected = submit(cluster, "dan", f"min_runtime={MINIMUM}s resumable=yes", "robotics-train")
    running(cluster, protected)
    free = submit(cluster, "dan", "", "robotics-sweep")
    running(cluster, free)
    say("the next tick counts it")
    until(lambda: over_target(cluster), 60, "robotics to be over target")
    before = sfair(cluster, "shares")
    show("sfair shares, before", before)

    say("alice (vision, owns 50%) asks for more protection than the cap allows:")
    show("sbatch --comment min_runtime=9h", cluster.refused("alice", "--gpus=8", "--comment", "min_runtime=9h"))

    say("alice asks for 8 GPUs with a minimum of 1 minute: the unallocated job has to yield at once")
    first = submit(cluster, "alice", "min_runtime=1m resumable=yes", "vision-train")
    asked = time.monotonic()
    running(cluster, first)
    say(f"  it runs after {time.monotonic() - asked:.0f}s; job {free} is {cluster.state(free)} again")

    say("bob (vision) asks for 8 GPUs more: robotics' job is protected for its minimum, so he has to wait for it")
    second = submit(cluster, "bob", "min_runtime=1m resumable=yes", "vision-eval")
    show("sfair queue", sfair(cluster, "queue"))
    running(cluster, second, timeout=MINIMUM + 60)
    record = sfair(cluster, "why", str(protected))
    say(f"  job {protected} kept its minimum of {MINIMUM}s, then yielded; it waits to run again by itself")
    show(f"sfair why {protected}", record)
    comment = cluster.slurm_output("squeue", "-h", "-j", str(protected), "-O", "admin_comment:400").strip()
    show(f"what dan sees in Slurm: AdminComment of job {protected}", comment)
    until(lambda: "not been read since" not in sfair(cluster, "why", str(protected)), 30, "a tick after the change")
    show("sfair shares, after", sfair(cluster, "shares"))
    show("sfair queue, after", sfair(cluster, "queue"))
    say("and the reports that managers read, on what has just run")
    for words in (("delivery", "--since", "1h"), ("pyramid", "--since", "1h"), ("explain", "vision")):
        show(f"sfair {' '.join(words)}", sfair(cluster, *words))


def submit(cluster: Cluster, user: str, comment: str, name: str) -> JobId:
    words = ["--comment", comment] if comment else []
    job = cluster.sbatch(user, "--gpus-per-node=8", "-N1", "-J", name, *words)
    console.print(f"        [cyan]{user}$ sbatch --gpus-per-node=8 {' '.join(words)}[/cyan]  -> job {job}")
    for line in job.messages.strip().splitlines():
        console.print(f"        [cyan]{line}[/cyan]")
    return job


def running(cluster: Cluster, job: JobId, timeout: float = 60) -> None:
    until(lambda: cluster.state(job) == "RUNNING", timeout, f"job {job} to run")


def access(cluster: Cluster) -> str:
    return cluster.slurm_output("sacctmgr", "-nP", "show", "assoc", "account=robotics", "format=qos")


def over_target(cluster: Cluster) -> bool:
    return "over target" in sfair(cluster, "shares", "-l")


def until(true: Callable[[], bool], timeout: float, what: str) -> None:
    """Wait for it, showing that one waits; the reason is printed if it does not come."""
    end = time.monotonic() + timeout
    with console.status(f"waiting for {what}"):
        while not true():
            if time.monotonic() > end:
                raise DemoError(f"waited {timeout:.0f}s in vain for {what}")
            time.sleep(1)


def goodbye(cluster: Cluster) -> None:
    console.rule()
    say("done. The cluster is still up; look around:")
    inside = f"docker exec {cluster.container('daemon')} sfair"
    for command, what in (
        (f"{inside} shares -l", "how every team stands"),
        (f"{inside} queue", "who waits, who may yield, who is protected"),
        (f"{inside} decisions", "what was decided, and why"),
        ("docker/cluster sh slurmctld -- squeue", "Slurm itself"),
        ("make down", "stop it and remove its data"),
    ):
        console.print(f"        {command:<55} {what}")


if __name__ == "__main__":
    sys.exit(main())
