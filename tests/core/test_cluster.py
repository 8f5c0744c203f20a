"""The picture of a cluster: what of it is in service, and what is held."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.cluster import COMPLETING, RUNNING, Capacity, capacity_of
from tests.core.build import contract, job, node, picture


def test_a_gpu_is_counted_once_however_many_partitions_its_node_is_in() -> None:
    nodes = [
        replace(node("n1"), partitions=("gpu", "pool", "all")),
        node("n2", 0, 8, "IDLE", "DRAIN"),
        node("n3", 0, 8, "DOWN"),
    ]
    seen = picture(nodes, job(1, "a", 3, nodes=("n1",)))
    assert capacity_of(seen.nodes) == (Capacity("h100", installed=24, down=8, drained=8, allocated=3),)


@given(sizes=st.lists(st.tuples(st.integers(1, 2), st.sampled_from(["n1", "n2"]), st.booleans()), max_size=4))
def test_what_is_allocated_is_the_sum_over_jobs_that_run_or_are_completing(sizes: list[tuple[int, str, bool]]) -> None:
    """Those that wait hold nothing; one that is completing holds its GPUs until it has left."""
    holding = [
        job(place, "a", size, nodes=(where,), state=RUNNING if runs else COMPLETING, partitions=("gpu", "pool"))
        for place, (size, where, runs) in enumerate(sizes, 1)
    ]
    seen = picture([node("n1"), node("n2")], *holding, job(99, "a", 8, terms=contract()))
    (found,) = capacity_of(seen.nodes)
    assert found.allocated == sum(one.wanted.gpu_count for one in seen.holding) == sum(size for size, _, _ in sizes)
