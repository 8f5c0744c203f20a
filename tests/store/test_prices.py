"""What a run is charged follows the rule and the cluster of today, for the whole ledger, in both stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from slurm_fairshare.core.cluster import Node
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.window import Step, Weight
from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import CLUSTER, at, batch, capacity, picture, run, span

HOUR = 3600
Opened = Callable[[ChargeRule], MemoryStore | PostgresStore]


@pytest.fixture(params=["memory", "postgres"])
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Opens a store that charges by a rule; it is closed behind the test."""
    with ExitStack() as stack:

        def by(rule: ChargeRule) -> MemoryStore | PostgresStore:
            if request.param == "memory":
                return MemoryStore(CLUSTER, rule)
            return stack.enter_context(PostgresStore(request.getfixturevalue("postgres"), CLUSTER, rule))

        yield by


def machine(name: str, gpus: int = 8, cpus: int = 64, memory_mb: int = 512_000) -> Node:
    return Node(name, frozenset({"IDLE"}), Resources({"h100": gpus}, cpus, memory_mb), Resources())


def hours(store: MemoryStore | PostgresStore, now: float = 24) -> dict[str, float]:
    found = store.usage(span(0, 24), Weight(), at(now))
    return {account: seconds / HOUR for account, seconds in found.items()}


def test_new_weights_price_the_past_anew_with_usage_and_capacity_in_the_same_gpus(opened: Opened) -> None:
    store = opened(ChargeRule())
    store.record_runs(
        batch(run("k1", 1, 3, count=2), run("k2", 2, None, count=1), run("k3", 1, 2, charged=False)), at(4)
    )
    store.record_picture(picture(5, nodes=(machine("n1"),)), (capacity(8),))
    before = store.used((span(0, 24),), ("account",), at(24))
    dearer = ChargeRule(weights={"h100": 2.0})
    store.rule = dearer
    store.record_picture(picture(6, nodes=(machine("n1"),)), (capacity(8),))
    assert hours(store) == {"nlp": 2 * 4}
    assert store.capacity(span(6, 7)) == (Step(at(6), 16.0),)
    assert store.differing_rollups() == 0
    after = store.used((span(0, 24),), ("account",), at(24))
    assert [one.gpu_seconds for one in after] == [one.gpu_seconds for one in before]


def test_a_run_pays_for_the_largest_of_its_fractions_of_the_cluster(opened: Opened) -> None:
    """16 GPUs, 128 CPUs, 1,024,000 MB."""
    store = opened(ChargeRule(dominant=True))
    nodes = (machine("n1"), machine("n2"))
    blocks_memory = replace(run("k1", 1, 2), held=Resources({"h100": 1}, 1, 512_000))
    blocks_cpus = replace(run("k2", 1, 2, account="vision"), held=Resources({}, 96, 1000))
    by_gpus = replace(run("k3", 1, 2, account="robots"), held=Resources({"h100": 4}, 4, 4000))
    store.record_runs(batch(blocks_memory, blocks_cpus, by_gpus), at(4))
    store.record_picture(picture(5, nodes=nodes), (capacity(16),))
    assert hours(store) == {"nlp": 8, "vision": 12, "robots": 4}
    assert store.capacity(span(5, 6)) == (Step(at(5), 16.0),)


def test_a_cluster_that_doubles_evenly_changes_no_price(opened: Opened) -> None:
    store = opened(ChargeRule(dominant=True))
    store.record_runs(batch(replace(run("k1", 1, 2), held=Resources({"h100": 1}, 1, 512_000))), at(4))
    for hour, count in ((5, 1), (6, 2)):
        nodes = tuple(machine(f"n{number}") for number in range(count))
        store.record_picture(picture(hour, nodes=nodes), (capacity(8 * count),))
        assert hours(store) == {"nlp": 8}


def test_prices_are_worked_out_anew_only_where_something_changed(opened: Opened) -> None:
    """A picture with the same cluster leaves what somebody else wrote; a new node does not."""
    store = opened(ChargeRule(dominant=True))
    store.record_picture(picture(5, nodes=(machine("n1"),)), (capacity(8),))
    store.record_runs(batch(replace(run("k1", 1, 2), milli_gpus=123_000)), at(6))
    store.record_picture(picture(6, nodes=(machine("n1"),)), (capacity(8),))
    assert hours(store) == {"nlp": 123}
    store.record_picture(picture(7, nodes=(machine("n1"), machine("n2", cpus=8))), (capacity(16),))
    assert hours(store) != {"nlp": 123}
