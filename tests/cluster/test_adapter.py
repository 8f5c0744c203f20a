"""The command line adapter on a real Slurm: the same contract as the twin's, and what only a real Slurm can show."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from slurm_fairshare.core.cluster import SUSPENDED, Job
from slurm_fairshare.core.contract import Contract, Ladder
from slurm_fairshare.core.plan import BAND, AddQos, SetPriority
from slurm_fairshare.errors import SlurmRefused, SlurmUnreachable
from slurm_fairshare.slurm.cli import CommandLine
from slurm_fairshare.slurm.run import Runner
from tests.cluster.cluster import Cluster
from tests.slurm.contract_suite import FIRST, LADDER, SECOND, SlurmContract, World

pytestmark = pytest.mark.cluster

T = TypeVar("T")

STAYS = "trap true USR1\nwhile true; do sleep 1; done"
"""A job that waits for its notice and goes on after it."""


def adapter(cluster: Cluster, user: str = "fairshare", timeout: float = 30.0) -> CommandLine:
    prefix = cluster.command_prefix("slurmctld", user)
    return CommandLine("lab", LADDER, runner=Runner(prefix, timeout=timeout))


def comment(contract: Contract) -> str:
    notice = f" notice={contract.notice}" if contract.notice else ""
    resumable = "yes" if contract.resumable else "no"
    return f"min_runtime={contract.min_runtime}s resumable={resumable} priority={contract.priority.value}{notice}"


class ClusterWorld(World):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.command_line = adapter(cluster)
        self.slurm = self.command_line
        rungs = ",".join(rung.name for rung in Ladder.default().rungs)
        cluster.add_account(FIRST, "alice", "bob", qos=rungs)
        cluster.add_account(SECOND, "bob", qos=rungs)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def submit(self, account: str, user: str, gpus: int, contract: Contract, nodes: int = 1, name: str = "job") -> int:
        return self.batch(user, f"--gres=gpu:{gpus}", f"-N{nodes}", "-J", name, account=account, contract=contract)

    def batch(self, user: str, *words: str, account: str = FIRST, contract: Contract | None = None) -> int:
        said = f"--comment={comment(contract or Contract())}"
        return self.cluster.sbatch(user, "-o", "/dev/null", "-t", "60", said, *words, account=account, script=STAYS)

    def wait(self, probe: Callable[[], T], until: Callable[[T], bool]) -> T:
        end = time.monotonic() + 45
        while not until(seen := probe()):
            assert time.monotonic() < end, f"it never came to that; last seen: {seen}"
            time.sleep(0.3)
        return seen

    def set_user_priority(self, account: str, user: str, priority: int) -> None:
        where = ("where", f"name={user}", f"account={account}")
        self.cluster.sacctmgr("modify", "user", *where, "set", f"priority={priority}")


@pytest.fixture
def real(clean_cluster: Cluster) -> ClusterWorld:
    return ClusterWorld(clean_cluster)


class TestCommandLine(SlurmContract):
    @pytest.fixture
    def world(self, real: ClusterWorld) -> World:
        return real


def test_requeueing_the_last_task_of_an_array_leaves_the_other_tasks_alone(real: ClusterWorld) -> None:
    array = real.batch("alice", "--gres=gpu:1", "--array=1-3")
    tasks = real.wait(
        lambda: [job for job in real.picture().jobs if job.label.startswith(f"{array}_")],
        lambda jobs: len(jobs) == 3 and all(job.state == "RUNNING" for job in jobs),
    )
    last = next(job for job in tasks if job.job_id == array)
    real.slurm.requeue(last.job_id)
    real.pending(last.job_id)
    others = [real.job(job.job_id) for job in tasks if job.job_id != array]
    assert [(job.state, job.restarts) for job in others] == [("RUNNING", 0)] * 2


def test_waiting_tasks_of_an_array_are_one_job_that_says_how_many(real: ClusterWorld) -> None:
    array = real.batch("alice", "--gres=gpu:8", "--array=1-9%2")
    waiting = real.wait(lambda: real.job(array), lambda job: job.array_size == 7)
    assert (waiting.pending, waiting.array_limit, waiting.wanted.gpu_count) == (True, 2, 8)


def test_gpus_that_lie_unevenly_are_known_node_by_node(real: ClusterWorld) -> None:
    real.running(real.batch("bob", "--gres=gpu:1", "-w", "n1"))
    job_id = real.batch("alice", "--gpus=4", "-N2", "--ntasks-per-node=1")
    real.running(job_id)
    seen: Job = next(job for job in real.picture().jobs if job.job_id == job_id)
    nodes = {node.name: node.allocated.gpu_count for node in real.picture().nodes}
    assert {name: share.gpu_count for name, share in seen.by_node.items()} == {
        "n1": nodes["n1"] - 1,
        "n2": nodes["n2"],
    }


def test_a_suspended_job_still_holds_its_gpus(real: ClusterWorld) -> None:
    job = real.running(real.batch("alice", "--gres=gpu:2"))
    real.cluster.sh("slurmctld", ["scontrol", "suspend", str(job.job_id)])
    held = real.wait(lambda: real.job(job.job_id), lambda seen: seen.state == SUSPENDED)
    assert (held.holding, held.start) == (True, job.start)
    (run,) = real.attempts(job.job_id, lambda runs: runs[0].state == SUSPENDED)
    assert (run.end, run.held.gpu_count) == (None, 2)


def test_what_a_job_asks_for_beyond_gpus_is_named(real: ClusterWorld) -> None:
    job_id = real.batch("alice", "--gpus-per-node=2", "--exclusive", "-x", "n2", "--begin=now+1hour", "--no-requeue")
    job = real.job(job_id)
    assert {"exclusive=node", "excluded_nodes=n2"} <= set(job.constraints)
    assert (job.requeueable, job.pending, job.reason) == (False, True, "BeginTime")


def test_both_components_of_a_heterogeneous_job_name_their_leader(real: ClusterWorld) -> None:
    words = ["sbatch", "--parsable", "-D", "/home/alice", "-A", FIRST, "--gres=gpu:1", ":", "--gres=gpu:2"]
    leader = int(real.cluster.sh("slurmctld", words, user="alice", stdin="#!/bin/bash\nsleep 300\n").stdout)
    jobs = real.wait(
        lambda: [job for job in real.picture().jobs if job.het_leader == leader],
        lambda jobs: len(jobs) == 2 and all(job.state == "RUNNING" for job in jobs),
    )
    assert sorted((job.label, job.wanted.gpu_count) for job in jobs) == [(f"{leader}+0", 1), (f"{leader}+1", 2)]
    real.slurm.end(jobs[1].job_id)
    real.wait(lambda: real.picture().holding, lambda holding: not holding)


def test_a_drained_node_says_so_and_why(real: ClusterWorld) -> None:
    words = ["scontrol", "update", "nodename=n2", "state=drain", "reason=bad | gpu\nState=IDLE CfgTRES=cpu=1"]
    real.cluster.sh("slurmctld", words)
    node = real.picture().node("n2")
    assert node is not None
    assert (node.drained, node.total.gpu_count) == (True, 8)
    assert node.reason.startswith("bad | gpu")


def test_a_node_that_fails_takes_its_run_with_it_and_the_run_stays_charged(real: ClusterWorld) -> None:
    job = real.running(real.batch("alice", "--gres=gpu:2", "-w", "n2", contract=Contract(3600)))
    real.cluster.sh("slurmctld", ["scontrol", "update", "nodename=n2", "state=down", "reason=broken"])
    runs = real.attempts(job.job_id, lambda runs: any(run.state == "NODE_FAIL" for run in runs))
    failed = next(run for run in runs if run.state == "NODE_FAIL")
    assert (failed.start, failed.charged, failed.held.gpu_count) == (job.start, True, 2)


@pytest.mark.parametrize("account", ["adp@biology", "adp.x-y_z", "ADP-Upper"])
def test_an_account_may_have_any_name_slurmdbd_accepts(real: ClusterWorld, account: str) -> None:
    real.cluster.add_account(account, "carol")
    real.slurm.carry_out((SetPriority((account,), 5 * BAND),))
    held = real.wait(real.slurm.held, lambda held: held.account(account) is not None)
    real.wait(real.slurm.held, lambda held: held.account(account).priority == 5 * BAND)  # type: ignore[union-attr]
    assert held.account(account).account == account.lower()  # type: ignore[union-attr]


def test_a_tick_with_nothing_new_starts_no_sacctmgr(real: ClusterWorld) -> None:
    squeue = 1 if real.command_line.release() >= (23, 2) else 2  # 22.05 tells excluded nodes apart
    real.slurm.held()
    real.command_line.calls.clear()
    real.slurm.held()
    real.picture()
    assert real.command_line.calls == {"scontrol": 2, "squeue": squeue}


def test_a_user_without_rights_is_told_which_level_it_takes(real: ClusterWorld) -> None:
    job = real.running(real.batch("bob", "--gres=gpu:1"))
    alice = adapter(real.cluster, "alice")
    with pytest.raises(SlurmRefused, match="AdminLevel Administrator"):
        alice.carry_out((AddQos("fs-adp"),))
    with pytest.raises(SlurmRefused, match="AdminLevel Operator"):
        alice.carry_out((SetPriority((FIRST,), BAND),))
    with pytest.raises(SlurmRefused, match="AdminLevel"):
        alice.note(job.job_id, "mine now")
    with pytest.raises(SlurmRefused, match="AdminLevel"):
        alice.requeue(job.job_id)
    with pytest.raises(SlurmRefused, match="AdminLevel"):
        alice.end(job.job_id)
    assert real.job(job.job_id).state == "RUNNING"


def test_an_operator_may_set_priorities_and_requeue(real: ClusterWorld) -> None:
    real.cluster.add_account("adp-ops", "carol")
    real.cluster.sacctmgr("modify", "user", "where", "name=carol", "set", "adminlevel=Operator")
    carol = adapter(real.cluster, "carol")
    job = real.running(real.batch("bob", "--gres=gpu:1"))
    carol.carry_out((SetPriority((FIRST,), BAND),))
    carol.requeue(job.job_id)
    real.pending(job.job_id)


def test_a_slurm_without_its_database_still_shows_its_queue_and_says_what_is_missing(real: ClusterWorld) -> None:
    job = real.running(real.batch("alice", "--gres=gpu:1"))
    real.cluster.stop("slurmdbd")
    try:
        assert [one.job_id for one in real.picture().holding] == [job.job_id]
        with pytest.raises(SlurmUnreachable, match="start the daemon"):
            real.attempts(job.job_id)
        with pytest.raises(SlurmUnreachable):
            real.slurm.carry_out((SetPriority((FIRST,), BAND),))
    finally:
        real.cluster.start("slurmdbd")


def test_a_slurm_that_does_not_answer_is_unreachable_and_no_empty_queue(real: ClusterWorld) -> None:
    slurm = adapter(real.cluster)
    slurm.release()
    real.cluster.stop("slurmctld")
    try:
        for read in (lambda: slurm.picture(real.now()), slurm.held, lambda: slurm.job(1)):
            with pytest.raises(SlurmUnreachable):
                read()
    finally:
        real.cluster.start("slurmctld")
