"""The ledger on a real Slurm: every kind of run, once, proven against slurmdbd and against sreport."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.daemon.tick import poll
from slurm_fairshare.errors import SlurmError
from tests.cluster.cluster import Cluster, JobId
from tests.cluster.product import Product

pytestmark = pytest.mark.cluster

HOUR = timedelta(hours=1)


@pytest.fixture
def product(clean_cluster: Cluster, postgres: str) -> Iterator[Product]:
    made = Product.on(clean_cluster, postgres, daemon={"first_poll": "2h"})
    yield made
    made.store.close()
    resume(clean_cluster, "n1", "n2")


def resume(cluster: Cluster, *nodes: str) -> None:
    """A node that was set down comes back by itself when its slurmd registers: then there is nothing to resume."""
    for node in nodes:
        cluster.sh("slurmctld", ["scontrol", "update", f"nodename={node}", "state=resume"], check=False)


def typed(product: Product, *words: str, at: datetime | None = None) -> tuple[int, str]:
    """A command of the product's, and how it ended; `at`: what its clock says."""
    clock = utc_now if at is None else lambda: at
    app = App(product.config, product.store, product.slurm, clock=clock)  # type: ignore[arg-type]
    result = CliRunner().invoke(main, list(words), obj=app, env={"COLUMNS": ""})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


class Kinds:
    """One of each kind of run, in an account that no other test has used: sreport's hours remember those."""

    def __init__(self, product: Product) -> None:
        self.product, self.cluster = product, product.cluster
        self.team = f"proof{int(time.time())}"
        self.other = f"other{int(time.time())}"
        product.fund({self.team: 1, self.other: 1})
        self.cluster.sacctmgr("add", "user", "alice,bob", f"account={self.team}")
        self.cluster.sacctmgr("add", "user", "carol", f"account={self.other}")
        product.tick()

    def submit(self, user: str, *words: str, sleep: int = 600, minimum: str | None = "10m") -> JobId:
        said = ("--comment", f"min_runtime={minimum} resumable=yes") if minimum else ()
        team = self.other if user == "carol" else self.team
        return self.cluster.sbatch(user, "-t", "60", *said, *words, script=f"sleep {sleep}", account=team)

    def running(self, *jobs: JobId) -> None:
        for job in jobs:
            self.cluster.wait_state(job, "RUNNING", 40)

    def control(self, *words: str) -> None:
        self.cluster.slurm_output("scontrol", *words)

    def happen(self) -> dict[str, JobId]:
        """Several at once, with ticks in between. All end on their own or are ended."""
        one, two = ("-w", "n1"), ("-w", "n2")
        jobs = {
            "requeued": self.submit("alice", *one, "--gres=gpu:2", sleep=20),
            "resized": self.submit("alice", "-N2", "--gres=gpu:1"),
            "array": self.submit("bob", *one, "--gres=gpu:1", "--array=1-3%2", sleep=4),
            "het": self.submit("carol", *one, "--gres=gpu:1", ":", *two, "--gres=gpu:2", sleep=6),
            "suspended": self.submit("bob", *two, "--gres=gpu:h100:2", sleep=15),
            "cancelled": self.submit("bob", *two, "--gpus=1"),
            "never started": self.submit("bob", "--hold", "--gres=gpu:4"),
            "unallocated": self.submit("carol", *two, "--gpus-per-node=1", sleep=9, minimum=None),
            "node failed": self.submit("alice", *two, "--gres=gpu:1"),
        }
        self.running(jobs["requeued"], jobs["resized"], jobs["suspended"], jobs["cancelled"], jobs["node failed"])
        self.control("suspend", str(int(jobs["suspended"])))
        self.product.tick()
        self.control("update", f"jobid={int(jobs['resized'])}", "NumNodes=1")
        self.control("requeue", str(int(jobs["requeued"])))
        for name in ("cancelled", "never started"):
            self.cluster.slurm_output("scancel", str(int(jobs[name])))
        time.sleep(3)
        self.product.tick()
        self.control("resume", str(int(jobs["suspended"])))
        self.cluster.wait_state(jobs["suspended"], "COMPLETED", 60)
        self.product.tick()
        self.control("update", "nodename=n2", "state=down", "reason=broken")
        self.cluster.wait_state(jobs["node failed"], "PENDING", 40)
        resume(self.cluster, "n2")
        return jobs | self.preempted()

    def preempted(self) -> dict[str, JobId]:
        """Unallocated work that yields to a run under contract, and gets its node back."""
        victim = self.submit("carol", "-w", "n2", "--gres=gpu:8", minimum=None)
        self.running(victim)
        taker = self.submit("alice", "-w", "n2", "--gres=gpu:8", sleep=4)
        self.cluster.wait_state(taker, "COMPLETED", 60)
        self.product.tick()
        return {"preempted": victim, "taker": taker}

    def settle(self, jobs: dict[str, JobId]) -> None:
        """The requeued run has run again; everything is over, and slurmdbd knows."""
        self.cluster.wait_state(jobs["requeued"], "COMPLETED", 90)
        self.cluster.cancel_all_jobs()

        def open_rows() -> str:
            return self.cluster.slurm_output(
                "sacct",
                "-a",
                "-X",
                "-D",
                "-n",
                "-P",
                "-S",
                "now-2hours",
                "-s",
                "R,S",
                "-A",
                f"{self.team},{self.other}",
            )

        self.cluster.wait(open_rows, 30, "the end of every run in slurmdbd", until=lambda text: not text)
        self.cluster.wait(self.product.slurm.backlog, 30, "slurmctld to have told all", until=lambda count: count == 0)


def states(product: Product, job: JobId) -> list[str]:
    return [run.state for run in product.store.runs_of(job)]


def test_every_kind_of_run_is_in_the_ledger_once_and_equals_slurmdbd_and_sreport(product: Product) -> None:
    begun = utc_now()
    kinds = Kinds(product)
    jobs = kinds.happen()
    # In the middle of things: what runs, waits to run again and has just ended agrees as well.
    product.tick()
    code, said = typed(product, "audit", "--since", begun.isoformat())
    assert code == 0, said
    kinds.settle(jobs)
    # The clock of the product is put to the end of the hour, and slurmdbd is told to roll that hour up, as it does by
    # itself when the hour is over. Nothing runs any more, so the rest of the hour adds nothing on either side.
    start, end = begun.replace(minute=0, second=0, microsecond=0), next_hour(utc_now())
    kinds.cluster.sacctmgr("roll", local(start), local(end))
    product.tick()
    poll(product.slurm, product.store, product.config, end)

    assert states(product, jobs["requeued"]) == ["REQUEUED", "COMPLETED"]
    assert states(product, jobs["resized"])[0] == "RESIZING"
    assert states(product, jobs["node failed"])[0] == "NODE_FAIL"
    assert states(product, jobs["preempted"])[0] == "PREEMPTED"
    assert states(product, jobs["cancelled"]) == ["CANCELLED"]
    assert not any(run.start for run in product.store.runs_of(jobs["never started"]))

    both = f"{kinds.team},{kinds.other}"
    since = ("--since", start.isoformat())
    code, said = typed(product, "audit", *since, "-A", both, "--sreport", "--json", at=end)
    told = json.loads(said)
    assert told["differences"] == []
    assert code == 0
    assert (told["sreport_start"], told["sreport_end"]) == (stamp(start), stamp(end))

    code, said = typed(product, "usage", *since, "-A", both, "--by", "account,user", "--json", at=end)
    assert code == 0
    mine = {
        (row["account"], row["user"]): round((row["charged"] + row["unallocated"]) * 3600)
        for row in json.loads(said)["usage"]
    }
    theirs = {pair: amount for pair, amount in product.slurm.reported(Window(start, end)).items() if pair[0] in both}
    assert mine == theirs
    assert len(mine) == 3


def next_hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR


def local(at: datetime) -> str:
    """As Slurm's tools take a moment; the containers keep UTC."""
    return f"{at:%Y-%m-%dT%H:%M:%S}"


def stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def test_a_first_tick_knows_the_capacity_of_the_past_from_slurmdbd(product: Product) -> None:
    control = product.cluster.slurm_output
    control("scontrol", "update", "nodename=n1", "state=drain", "reason=a | b")
    time.sleep(2)
    resume(product.cluster, "n1")
    control("scontrol", "update", "nodename=n2", "state=down", "reason=broken")
    time.sleep(2)
    resume(product.cluster, "n2")
    product.cluster.wait(product.cluster.node_states, 30, "idle nodes", until=lambda s: set(s.values()) == {"idle"})
    report = product.tick()
    history = [
        (one.installed, one.down, one.drained, one.allocated)
        for at, one in product.store.capacity_history(report.window)
        if one.kind == "h100" and at < report.at
    ]
    # The two outages follow each other, with or without a second in between.
    assert [one for one in history if one != (16, 0, 0, None)][-2:] == [(16, 0, 8, None), (16, 8, 0, None)], history
    assert history[-1] == (16, 0, 0, None)
    assert report.window.start < report.at - timedelta(seconds=4)


def test_runs_that_slurmdbd_learns_of_long_after_a_tick_are_not_missed(clean_cluster: Cluster, postgres: str) -> None:
    """slurmdbd is down while they run, and no picture sees them; the first ticks read it before slurmctld has told."""
    begun = utc_now()
    product = Product.on(clean_cluster, postgres, daemon={"first_poll": "1h", "poll_overlap": "5s"})
    kinds = Kinds(product)
    clean_cluster.stop("slurmdbd")
    tasks = int(kinds.submit("alice", "--gres=gpu:1", "--array=1-40", sleep=1))
    clean_cluster.wait(lambda: clean_cluster.slurm_output("squeue", "-h", "-a"), 90, "their end", until=lambda q: not q)
    time.sleep(6)
    start = threading.Thread(target=clean_cluster.start, args=("slurmdbd",))
    start.start()
    held = []

    def complete() -> bool:
        try:
            report = product.tick()
        except SlurmError:
            return False
        mark = product.store.watermark()
        held.append(mark != report.at)
        return not held[-1]

    clean_cluster.wait(complete, 60, "slurmctld to have told slurmdbd everything")
    start.join()
    product.tick()
    assert held[0], "slurmctld told slurmdbd everything before the first tick: this shows nothing"
    runs = [run for run in product.store.runs(Window(begun, utc_now())) if run.label.startswith(f"{tasks}_")]
    assert len(runs) == 40
    code, said = typed(product, "audit", "--since", begun.isoformat(), "-A", kinds.team)
    product.store.close()
    assert code == 0, said


def test_a_runaway_row_is_told_by_the_audit_and_never_grows(product: Product) -> None:
    """slurmdbd shows a run that slurmctld does not know: its end is taken away in the database."""
    kinds = Kinds(product)
    job = kinds.submit("alice", "--gres=gpu:2")
    kinds.running(job)
    product.tick()
    time.sleep(2)
    product.tick()
    product.cluster.slurm_output("scancel", str(int(job)))
    product.cluster.wait_state(job, "CANCELLED", 40)
    product.cluster.wait(lambda: database(product, "select max(time_end) from", job), 20, "its end")
    database(product, "update", job, "set state=1, time_end=0")
    try:
        seconds = []
        for _ in range(3):
            product.tick()
            window = Window(utc_now() - HOUR, utc_now() + timedelta(days=1))
            seconds.append(product.store.charges(window, window.end)[kinds.team])
            time.sleep(1)
        assert len(set(seconds)) == 1
        code, said = typed(product, "audit", "--since", "30m", "-A", kinds.team, "-P", "-o", "What,Job,Cause")
        assert code == 1
        assert "runawayjobs" in said
    finally:
        database(product, "update", job, "set state=4, time_end=time_start+5")
    product.tick()
    assert typed(product, "audit", "--since", "30m", "-A", kinds.team, "--repair")[0] == 0


def database(product: Product, verb: str, job: JobId, change: str = "") -> str:
    """MariaDB behind slurmdbd: for what Slurm's own tools would never do. Empty for nothing and for 0."""
    statement = f"{verb} lab_job_table {change} where id_job={int(job)}"
    words = ["mariadb", "-h127.0.0.1", "-uslurm", "-pslurm", "-N", "-e", statement, "slurm_acct_db"]
    return product.cluster.sh("mariadb", words).stdout.strip().removeprefix("0")
