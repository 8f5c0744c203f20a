"""The pool and the headroom on a real Slurm: partitions get their nodes, what runs goes on, debug jobs are offered it;
unallocated jobs leave GPUs free."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.product import Product

pytestmark = pytest.mark.cluster


@pytest.fixture
def product(pool: Cluster, postgres: str) -> Iterator[Product]:
    made = Product.on(
        pool, postgres, debug_lane={"pool": "pool"}, pool={"nodes": "n[1-2]", "elsewhere": ["gpu"], "hold": "1s"}
    )
    made.fund()
    yield made
    made.store.close()


@pytest.fixture
def pool(clean_cluster: Cluster) -> Iterator[Cluster]:
    cluster = clean_cluster
    cluster.slurm_output("scontrol", "create", "PartitionName=pool", "Nodes=n2", "MaxTime=1-0")
    yield cluster
    cluster.cancel_all_jobs()
    cluster.slurm_output("scontrol", "delete", "PartitionName=pool")
    cluster.slurm_output("scontrol", "update", "PartitionName=gpu", "Nodes=n1,n2")


def nodes_of(cluster: Cluster, partition: str) -> list[str]:
    return sorted(cluster.slurm_output("sinfo", "-h", "-N", "-p", partition, "-o", "%N").split())


def test_it_follows_what_debug_jobs_ask_for(pool: Cluster, product: Product) -> None:
    product.tick()
    assert (nodes_of(pool, "pool"), nodes_of(pool, "gpu")) == (["n1"], ["n2"])

    job = pool.sbatch("alice", "--gpus-per-node=8", "-w", "n2", "--comment", "min_runtime=1h")
    pool.wait_state(job, "RUNNING")
    for _ in range(2):
        pool.sbatch("carol", "--hold", "--gpus-per-node=8", "-p", "pool,gpu", "--comment", "min_runtime=15m")
    product.tick()
    assert nodes_of(pool, "pool") == ["n1"], "a job that is held asks for nothing"

    waiting = [pool.sbatch("dan", "--gpus-per-node=8", "-p", "pool", "--comment", "min_runtime=15m") for _ in range(2)]
    pool.wait_state(waiting[0], "RUNNING")
    product.tick()
    assert (nodes_of(pool, "pool"), nodes_of(pool, "gpu")) == (["n1", "n2"], [])
    assert pool.state(job) == "RUNNING", "what runs on a node that joins the pool goes on"

    pool.cancel_all_jobs()
    time.sleep(2)  # less has been asked for as long as it is held, which is a second here
    product.tick()
    assert (nodes_of(pool, "pool"), nodes_of(pool, "gpu")) == (["n1"], ["n2"])


def test_unallocated_jobs_leave_headroom_for_the_next_under_contract(clean_cluster: Cluster, postgres: str) -> None:
    made = Product.on(clean_cluster, postgres, contract={"headroom": 0.25})
    made.fund()
    made.tick()
    free = [clean_cluster.sbatch("alice", "--gpus-per-node=4") for _ in range(4)]
    for job in free[:3]:
        clean_cluster.wait_state(job, "RUNNING")
    clean_cluster.wait(
        lambda: clean_cluster.job(free[3])["Reason"], 30, "the limit", lambda reason: reason == "QOSGrpGRES"
    )
    ours = clean_cluster.sbatch("bob", "--gpus-per-node=4", "--comment", "min_runtime=1h")
    clean_cluster.wait_state(ours, "RUNNING")
    assert [clean_cluster.state(job) for job in free] == ["RUNNING"] * 3 + ["PENDING"], "nobody had to go for it"

    without = Product.on(clean_cluster, postgres)
    without.tick()
    limit = clean_cluster.slurm_output("sacctmgr", "-nP", "show", "qos", "fs-unallocated", "format=GrpTRES")
    assert limit.strip() == "", "without the setting our limit is gone"
    made.store.close()
    without.store.close()
