"""The pool on a real Slurm: partitions get their nodes, what runs goes on, debug jobs are offered it."""

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
