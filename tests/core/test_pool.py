"""The pool's size, by the clock and by demand, and the partitions that follow from it."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.cluster import Node
from slurm_fairshare.core.pool import Asked, Pool, partitions, remembered, size
from slurm_fairshare.core.resources import Resources

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
NAMES = tuple(f"n{number}" for number in range(1, 7))
POOL = Pool("pool", NAMES[2:], ("main",))
DAY = Pool("pool", NAMES[2:], ("main",), clock=((time(8), 3), (time(20), 1)))


def nodes(pooled: int = 0) -> tuple[Node, ...]:
    """Six nodes; of the four that may be pooled the first so many are."""
    inside = POOL.nodes[:pooled]
    gpus = Resources({"h100": 8}, 64, 1000)
    return tuple(
        Node(name, frozenset({"IDLE"}), gpus, Resources(), ("pool",) if name in inside else ("main", "all"))
        for name in NAMES
    )


@pytest.mark.parametrize(
    ("asked", "count"), [([], 1), ([0], 1), ([8], 1), ([9], 2), ([9, 0], 2), ([17, 4, 25], 4), ([999], 4)]
)
def test_it_holds_what_debug_jobs_asked_for_at_the_most_lately(asked: list[int], count: int) -> None:
    assert size(POOL, [Asked(NOW, gpus) for gpus in asked], nodes(), NOW) == count


@pytest.mark.parametrize(("hour", "count"), [(0, 1), (7, 1), (8, 3), (19, 3), (20, 1), (23, 1)])
def test_by_the_clock_each_count_holds_until_the_next_and_over_midnight(hour: int, count: int) -> None:
    assert size(DAY, [Asked(NOW, 999)], nodes(), NOW.replace(hour=hour)) == count


def test_nodes_without_gpus_ask_for_no_pool_beyond_the_least() -> None:
    bare = [Node(name, frozenset({"IDLE"}), Resources(), Resources()) for name in NAMES]
    assert size(POOL, [Asked(NOW, 64)], bare, NOW) == 1


@given(st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 40)), min_size=1, max_size=30))
def test_what_is_remembered_gives_the_same_size_as_remembering_all(steps: list[tuple[int, int]]) -> None:
    at, everything, kept = NOW, [], ()
    for seconds, gpus in steps:
        at += timedelta(seconds=seconds)
        everything.append(Asked(at, gpus))
        kept = remembered(POOL, kept, everything[-1])
        recent = [one for one in everything if at - one.at <= POOL.hold]
        assert size(POOL, kept, nodes(), at) == size(POOL, recent, nodes(), at)


@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("count", range(1, 5))
def test_only_partitions_that_differ_are_changed_and_other_nodes_stay(before: int, count: int) -> None:
    here = nodes(before)
    changed = partitions(POOL, count, here)
    if before == count:
        assert changed == {}
    else:
        assert changed == {"pool": POOL.nodes[:count], "main": (*NAMES[:2], *POOL.nodes[count:])}


def test_nodes_of_the_pool_that_are_not_on_the_list_are_the_sites_own() -> None:
    first, *rest = nodes(1)
    own = Node(first.name, first.states, first.total, first.allocated, ("pool",))
    assert partitions(POOL, 2, [own, *rest])["pool"] == ("n1", "n3", "n4")
