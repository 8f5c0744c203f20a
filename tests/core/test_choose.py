"""Which runs yield: on one node the cheapest set there is, over several a good one that holds the whole job."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_fairshare.core.choose import Candidate, Found, Search
from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.decisions import Rule
from slurm_fairshare.core.need import Shape, fits
from slurm_fairshare.core.precedence import Permission
from slurm_fairshare.core.resources import Resources
from tests.core.build import contract, gpus, job, ranking, tree

LEAF = ranking(tree(rich=1)).leaves[0]
PERMISSION = Permission(Rule.UNDER_SERVED, "lab/poor", "lab/rich")


def candidate(run: Job, lost: float = 0.0, over: float = 1.5) -> Candidate:
    return Candidate.of(run, LEAF, PERMISSION, over, lost)


def search(shape: Shape, free: dict[str, int], *runs: Candidate, whole: bool = False) -> Found | None:
    room = {name: gpus(count) for name, count in free.items()}
    total = {name: Resources({"h100": 8}, 8, 0) for name in free} if whole else {}
    return Search(shape, tuple(free), room, free, total, runs).cheapest()


def names(found: Found | None) -> list[int]:
    assert found is not None
    return sorted(one.job.job_id for one in found.yielding)


def test_what_is_free_counts_so_the_smaller_run_is_enough() -> None:
    runs = [job(1, "rich", 3, nodes=("n1",)), job(2, "rich", 4, nodes=("n1",))]
    assert names(search(Shape(1, gpus(4)), {"n1": 1}, *map(candidate, runs))) == [1]


def test_two_small_runs_go_before_one_that_gives_up_more_than_is_needed() -> None:
    runs = [job(1, "rich", 8, nodes=("n1",)), job(2, "rich", 2, nodes=("n2",)), job(3, "rich", 2, nodes=("n2",))]
    assert names(search(Shape(1, gpus(4)), {"n1": 0, "n2": 0}, *map(candidate, runs))) == [2, 3]


def test_one_run_goes_rather_than_two_that_cost_the_same() -> None:
    runs = [job(1, "rich", 4, nodes=("n1",)), job(2, "rich", 2, nodes=("n2",)), job(3, "rich", 2, nodes=("n2",))]
    assert names(search(Shape(1, gpus(4)), {"n1": 0, "n2": 0}, *map(candidate, runs))) == [1]


def test_a_run_over_two_nodes_serves_a_job_over_two_nodes_where_it_costs_less() -> None:
    wide = candidate(job(1, "rich", 16, nodes=("n1", "n2")), lost=10)
    narrow = [candidate(job(n, "rich", 8, nodes=(f"n{n}",)), lost=20) for n in (3, 4)]
    free = dict.fromkeys(("n1", "n2", "n3", "n4"), 0)
    assert names(search(Shape(2, gpus(8)), free, wide, *narrow)) == [1]
    cheap = [candidate(job(n, "rich", 8, nodes=(f"n{n}",)), lost=1) for n in (3, 4)]
    assert names(search(Shape(2, gpus(8)), free, wide, *cheap)) == [3, 4]


def test_a_run_over_two_nodes_is_not_taken_for_one_of_them_where_another_will_do() -> None:
    wide = candidate(job(1, "rich", 16, nodes=("n1", "n2")))
    narrow = candidate(job(3, "rich", 8, nodes=("n3",)), lost=5000)
    assert names(search(Shape(1, gpus(8)), dict.fromkeys(("n1", "n2", "n3"), 0), wide, narrow)) == [3]


def test_a_job_that_wants_a_node_to_itself_needs_all_of_it() -> None:
    runs = [job(1, "rich", 1, nodes=("n1",)), job(2, "rich", 1, nodes=("n1",))]
    shape = Shape(1, gpus(1), whole=True)
    assert names(search(shape, {"n1": 6}, *map(candidate, runs), whole=True)) == [1, 2]
    assert search(shape, {"n1": 5}, *map(candidate, runs), whole=True) is None


def test_where_cpus_are_missing_runs_without_gpus_yield_too() -> None:
    run = job(1, "rich", 0, nodes=("n1",))
    from dataclasses import replace

    greedy = replace(run, by_node={"n1": Resources({}, 60, 0)})
    room = {"n1": Resources({"h100": 8}, 4, 0)}
    found = Search(
        Shape(1, Resources({"h100": 1}, 32, 0)), ("n1",), room, {"n1": 8}, {}, [candidate(greedy)]
    ).cheapest()
    assert names(found) == [1]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from([0.0, 5.0, 60.0])), min_size=1, max_size=7),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_on_one_node_no_other_set_is_cheaper(sizes: list[tuple[int, bool, float]], need: int, free: int) -> None:
    runs = [
        candidate(job(n, "rich", size, nodes=("n1",), terms=contract(resumable=resumable)), lost=lost)
        for n, (size, resumable, lost) in enumerate(sizes, 1)
    ]
    found = search(Shape(1, gpus(need)), {"n1": free}, *runs)
    sets = [group for size in range(len(runs) + 1) for group in combinations(runs, size)]
    enough = [group for group in sets if free + sum(one.job.wanted.gpu_count for one in group) >= need]
    if not enough:
        assert found is None
        return
    assert found is not None

    def cost(group: tuple[Candidate, ...]) -> tuple[int, int, float]:
        given = sum(one.weight[1] for one in group)
        beyond = max(0, given - max(0, need - free))
        return sum(one.weight[0] for one in group), beyond, sum(one.weight[2] for one in group)

    assert cost(found.yielding) == min(map(cost, enough))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_over_several_nodes_a_set_is_found_if_there_is_one_and_nobody_in_it_is_needless(data: st.DataObject) -> None:
    free = {f"n{n}": data.draw(st.integers(0, 3)) for n in range(data.draw(st.integers(1, 4)))}
    left = {name: 8 - count for name, count in free.items()}
    runs: list[Candidate] = []
    for number in range(1, data.draw(st.integers(1, 8)) + 1):
        places = data.draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=3, unique=True))
        size = data.draw(st.integers(1, 8))
        if all(left[name] >= size for name in places):
            for name in places:
                left[name] -= size
            runs.append(candidate(job(number, "rich", size * len(places), nodes=tuple(places))))
    shape = Shape(data.draw(st.integers(1, 3)), gpus(data.draw(st.integers(1, 8))))
    found = search(shape, free, *runs)

    def holds(group: tuple[Candidate, ...]) -> list[str]:
        freed = {
            name: count + sum(one.job.by_node[name].gpu_count for one in group if name in one.job.by_node)
            for name, count in free.items()
        }
        return [name for name, count in freed.items() if fits(shape.each, gpus(count))]

    possible = len(holds(tuple(runs))) >= shape.nodes
    assert (found is not None) == possible
    if found is not None:
        assert set(found.placed) <= set(holds(found.yielding))
        for one in found.yielding:
            rest = tuple(other for other in found.yielding if other is not one)
            assert not set(found.placed) <= set(holds(rest))
