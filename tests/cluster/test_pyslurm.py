"""pyslurm on a Slurm that it fits: the contract that the twin and the command line keep, and the latter's picture.

Collected only where pyslurm can be imported (conftest.py). It asks the Slurm of this machine, not the containers':
FAIRSHARE_TEST_LOCAL_SLURM=lab says that there is one to be tested on, whose jobs, accounts and QOS are taken away. It
must be the container cluster's like: a cluster `lab`, nodes n1 and n2 with 8 h100 each, the same users; root tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from slurm_fairshare.core.cluster import SUSPENDED, Job
from slurm_fairshare.slurm.pyslurm_backend import PyslurmBackend, load_pyslurm
from tests.cluster.cluster import Cluster, LocalCluster
from tests.cluster.test_adapter import ClusterWorld
from tests.slurm.contract_suite import FIRST, LADDER, SlurmContract, World

pytestmark = pytest.mark.cluster

LOCAL = "FAIRSHARE_TEST_LOCAL_SLURM"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    if os.environ.get(LOCAL) != "lab":
        pytest.fail(f"{LOCAL}=lab is not set: these tests empty the Slurm of this machine", pytrace=False)
    return LocalCluster(project="", release="", slurm="", database_url="")


class PyslurmWorld(ClusterWorld):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.slurm = PyslurmBackend(load_pyslurm(), "lab", LADDER, runner=self.command_line.runner)


@pytest.fixture
def real(clean_cluster: Cluster) -> PyslurmWorld:
    return PyslurmWorld(clean_cluster)


class TestPyslurm(SlurmContract):
    @pytest.fixture
    def world(self, real: PyslurmWorld) -> World:
        return real


def both(world: PyslurmWorld) -> tuple[dict[str, Any], dict[str, Any]]:
    """What pyslurm and the command line tell, by job and node."""
    ours, theirs = world.picture(), world.command_line.picture(world.now())
    assert not world.slurm.rejected  # type: ignore[attr-defined]
    return told(ours.jobs) | {node.name: node for node in ours.nodes}, told(theirs.jobs) | {
        node.name: node for node in theirs.nodes
    }


def told(jobs: Iterable[Job]) -> dict[str, Job]:
    """Every field but the priority, which age moves; of what a job depends on, and of GPUs by socket, that it does."""
    return {job.label: replace(job, priority=0, constraints=tuple(map(without_words, job.constraints))) for job in jobs}


def without_words(constraint: str) -> str:
    key = constraint.partition("=")[0]
    return key if key in {"dependency", "tres_per_socket"} else constraint


def test_every_kind_of_job_and_node_is_told_as_the_command_line_tells_it(real: PyslurmWorld) -> None:
    real.cluster.sh("slurmctld", ["scontrol", "update", "nodename=n2", "state=drain", "reason=bad |  gpu"])
    running = real.running(real.batch("alice", "--gres=gpu:h100:1", "--mem=1537", "-J", "naïve ☃ | x")).job_id
    real.batch("alice", "--gres=gpu:1", "--array=0-5%1")
    real.wait(lambda: real.picture().holding, lambda jobs: len(jobs) == 2)
    paused = real.running(real.batch("alice", "--gpus=1", "--mem=100001")).job_id
    real.cluster.sh("slurmctld", ["scontrol", "suspend", str(paused)])
    real.wait(lambda: real.job(paused), lambda job: job.state == SUSPENDED)
    for words in (
        ("--gres=gpu:8", "-N2"),
        ("--gpus=h100:3", "--hold"),
        ("--gres=gpu:2", "--array=" + ",".join(str(number**2) for number in range(30)), "--hold"),
        ("--gres=gpu:2", "--begin=now+1hour", "-x", "n2", "--exclusive", "--no-requeue"),
        ("--gpus-per-task=1", "-n3", "-w", "n2", "-t", "3-0"),
        ("--gpus-per-socket=1", "--sockets-per-node=2", "--hold"),
        ("--contiguous", "--switches=1", "--hold"),
        ("-d", f"afterok:{running},afternotok:{running}"),
        ("-d", "singleton"),
    ):
        real.batch("bob", *words)
    het = ["sbatch", "--hold", "-D", "/home/alice", "-A", FIRST, "--gres=gpu:1", ":", "--gres=gpu:2"]
    real.cluster.sh("slurmctld", het, user="alice", stdin="#!/bin/bash\nsleep 300\n")
    ours, _ = real.wait(lambda: both(real), lambda seen: seen[0] == seen[1])
    assert len(ours) == 2 + 15
    assert ours["n2"].reason.startswith("bad | gpu [root@")


def test_jobs_over_both_nodes_are_told_as_the_command_line_tells_them(real: PyslurmWorld) -> None:
    real.running(real.batch("bob", "--gres=gpu:1", "-w", "n1"))
    real.running(real.batch("alice", "--gpus=4", "-N2", "--ntasks-per-node=1"))
    real.running(real.batch("alice", "--gres=gpu:2", "-N2", "--mem=9999"))
    ours, _ = real.wait(lambda: both(real), lambda seen: seen[0] == seen[1])
    assert [len(one.by_node) for one in ours.values() if isinstance(one, Job)] == [1, 2, 2]


def test_a_requeued_task_that_squeue_folds_into_its_arrays_line_is_no_disagreement(real: PyslurmWorld) -> None:
    array = real.batch("alice", "--gres=gpu:8", "--array=0-3%2")
    tasks = real.wait(lambda: real.picture().holding, lambda jobs: len(jobs) == 2)
    real.slurm.requeue(next(job.job_id for job in tasks if job.label == f"{array}_0"))
    (folded,) = real.wait(lambda: real.command_line.picture(real.now()).pending, lambda seen: seen[0].array_limit == 0)
    fresh = PyslurmBackend(load_pyslurm(), "lab", LADDER, runner=real.command_line.runner)
    ours = [job.label for job in fresh.picture(real.now()).pending]
    assert folded.label.startswith(f"{array}_[0,")
    assert (len(ours), f"{array}_0" in ours) == (2, True)
