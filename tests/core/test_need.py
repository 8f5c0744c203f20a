"""What a job needs of the nodes: types, whole nodes, uneven requests, partitions, names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_fairshare.core.hostlist import expand
from slurm_fairshare.core.need import fits, holds_unevenly, lacking, need_of
from slurm_fairshare.core.resources import Resources
from tests.core.build import gpus, job, node

TWO = [node("n1"), node("n2")]


def test_a_gpu_of_no_type_takes_what_the_typed_ones_leave() -> None:
    free = Resources({"h100": 2, "a100": 6}, 8, 0)
    assert fits(Resources({"h100": 2, "": 6}, 1, 0), free)
    assert not fits(Resources({"h100": 2, "": 7}, 1, 0), free)
    assert not fits(Resources({"h100": 3}, 1, 0), free)
    assert lacking(Resources({"h100": 3}), free) == 1


def test_a_node_that_is_over_committed_in_one_type_has_none_of_it() -> None:
    assert not fits(gpus(1), Resources({"h100": -1, "a100": 1}, 8, 0))


def test_more_gpus_than_the_nodes_named_have_are_spread_over_as_many_as_it_takes() -> None:
    need = need_of(job(1, "a", 16), TWO)
    assert need.shape is not None
    assert (need.shape.nodes, need.shape.each.gpu_count) == (2, 8)
    assert need_of(job(1, "a", 24), TWO).shape is None


def test_an_uneven_request_may_lie_unevenly_where_that_needs_nobody_to_yield() -> None:
    need = need_of(job(1, "a", 12, node_count=2), TWO)
    uneven = need_of(replace(job(1, "a", 12, node_count=2), wanted=gpus(11)), TWO)
    assert need.shape is not None
    assert uneven.shape is not None
    assert (need.shape.loose, uneven.shape.loose) == (0, 11)
    assert holds_unevenly(uneven.shape, ("n1", "n2"), {"n1": gpus(8), "n2": gpus(3)})
    assert not holds_unevenly(uneven.shape, ("n1", "n2"), {"n1": gpus(8), "n2": gpus(2)})


def test_a_job_stays_within_one_of_the_partitions_it_names() -> None:
    nodes = [node("n1"), replace(node("n2"), partitions=("debug",)), replace(node("n3"), partitions=("debug", "gpu"))]
    wide = job(1, "a", 24, node_count=3, partitions=("gpu", "debug"))
    assert need_of(wide, nodes).shape is None
    narrow = need_of(job(1, "a", 16, node_count=2, partitions=("gpu", "debug")), nodes)
    assert narrow.sets == (("n1", "n3"), ("n2", "n3"))


@pytest.mark.parametrize("state", ["RESERVED", "MAINTENANCE", "POWERING_DOWN", "REBOOT_ISSUED"])
def test_nodes_that_are_closed_to_ordinary_jobs_hold_nobody(state: str) -> None:
    assert need_of(job(1, "a", 8), [node("n1", 0, 8, "MIXED", state)]).shape is None


@pytest.mark.parametrize(
    "constraint",
    ["licenses=matlab:1", "features=ib|eth", "features=[a*2]", "reservation=r", "contiguous", "switches=1",
     "required_nodes=n1", "excluded_nodes=n[1-", "exclusive=user", "gpu_type=h200", "tres_per_socket=gres/gpu:1"],
)  # fmt: skip
def test_what_is_not_modelled_is_named(constraint: str) -> None:
    wide = job(1, "a", 16, node_count=2, constraints=(constraint,))
    assert need_of(wide, TWO).unknown == constraint


def test_names_of_nodes_are_expanded() -> None:
    without = need_of(job(1, "a", 8, constraints=("excluded_nodes=n[1,3-9]",)), TWO)
    only = need_of(job(1, "a", 8, constraints=("required_nodes=n2",)), TWO)
    assert (without.sets, only.sets) == ((("n2",),), (("n2",),))


def test_a_fulfilled_dependency_is_no_obstacle() -> None:
    assert need_of(job(1, "a", 8, constraints=("dependency=afterok:7",)), TWO).shape is not None


@pytest.mark.parametrize("text", ["", "n[1-2", "n]1", "n[2-1]", "n[a-b]", "n1,,n2", "n1,", "n[1-200000]"])
def test_lists_that_are_not_understood_are_no_lists(text: str) -> None:
    assert expand(text) is None


def test_lists_as_slurm_writes_them() -> None:
    assert expand("gpu-a[08-10],n1") == ("gpu-a08", "gpu-a09", "gpu-a10", "n1")
