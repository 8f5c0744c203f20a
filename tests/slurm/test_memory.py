"""The twin keeps the port's contract, and is what it says beyond it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import pytest

from slurm_fairshare.core.contract import Contract, Ladder, Priority
from slurm_fairshare.core.plan import Qos, SetPriority
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.window import Window, milli_gpu_seconds
from slurm_fairshare.errors import SlurmRefused, SlurmUnreachable
from slurm_fairshare.slurm.memory import MemorySlurm
from tests.slurm.contract_suite import FIRST, SECOND, SlurmContract, World

T = TypeVar("T")


def small_site() -> MemorySlurm:
    slurm = MemorySlurm()
    for name in ("n1", "n2"):
        slurm.add_node(name)
    slurm.add_account(FIRST, "alice", "bob")
    slurm.add_account(SECOND, "bob")
    return slurm


class MemoryWorld(World):
    def __init__(self) -> None:
        self.twin = small_site()
        self.slurm = self.twin
        for rung in Ladder.default().rungs:
            self.twin.add_qos(Qos(rung.name))

    def now(self) -> datetime:
        return self.twin.now

    def submit(self, account: str, user: str, gpus: int, contract: Contract, nodes: int = 1, name: str = "job") -> int:
        job_id = self.twin.submit(account, user, gpus, contract=contract, nodes=nodes, name=name)
        self.twin.schedule()
        self.twin.advance(1)
        return job_id

    def wait(self, probe: Callable[[], T], until: Callable[[T], bool]) -> T:
        seen = probe()
        assert until(seen), seen
        return seen

    def set_user_priority(self, account: str, user: str, priority: int) -> None:
        self.twin.set_user_priority(account, user, priority)


class TestMemorySlurm(SlurmContract):
    @pytest.fixture
    def world(self) -> World:
        return MemoryWorld()


def test_the_best_priority_starts_first_and_what_does_not_fit_waits() -> None:
    slurm = small_site()
    slurm.carry_out((SetPriority((FIRST,), 100_000), SetPriority((SECOND,), 200_000)))
    low = slurm.submit(FIRST, "alice", 8, nodes=2)
    high = slurm.submit(SECOND, "bob", 8)
    urgent = slurm.submit(FIRST, "alice", 8, contract=Contract(900, priority=Priority.HIGH))
    assert slurm.schedule() == (high, urgent)
    picture = slurm.picture(slurm.now)
    assert [job.job_id for job in picture.pending] == [low]
    assert [node.free.gpu_count for node in picture.nodes] == [0, 0]


def test_a_job_is_not_started_where_it_does_not_fit() -> None:
    slurm = small_site()
    slurm.start(slurm.submit(FIRST, "alice", 6), "n1")
    second = slurm.submit(FIRST, "alice", 6)
    with pytest.raises(SlurmRefused, match="does not fit"):
        slurm.start(second, "n1")
    assert slurm.schedule() == (second,)


def test_usage_of_a_job_that_was_requeued_is_the_sum_of_its_attempts() -> None:
    slurm = small_site()
    begin = slurm.now
    job = slurm.submit(FIRST, "alice", 2, contract=Contract(900))
    slurm.start(job)
    slurm.advance(600)
    slurm.requeue(job)
    slurm.advance(300)
    slurm.schedule()
    slurm.advance(60)
    runs = slurm.runs(Window(begin, slurm.now)).runs
    assert len({run.key for run in runs}) == 2
    assert milli_gpu_seconds(runs, Window(begin, slurm.now), slurm.now) == 2000 * 660


def test_a_drained_node_starts_nothing_new() -> None:
    slurm = small_site()
    slurm.set_states("n1", "IDLE", "DRAIN", reason="bad GPU")
    assert slurm.schedule() == ()
    job = slurm.submit(FIRST, "alice", 8, nodes=2)
    assert slurm.schedule() == ()
    assert slurm.submit(FIRST, "alice", 8) == job + 1
    assert slurm.schedule() == (job + 1,)


def test_a_broken_slurm_can_be_played() -> None:
    slurm = small_site()
    slurm.fail("picture", SlurmUnreachable("down"))
    with pytest.raises(SlurmUnreachable):
        slurm.picture(slurm.now)
    slurm.heal()
    assert slurm.picture(slurm.now).nodes
    assert slurm.calls["picture"] == 2


def test_a_job_that_cannot_be_requeued_is_not() -> None:
    slurm = small_site()
    interactive = slurm.submit(FIRST, "alice", 1, batch=False)
    slurm.schedule()
    with pytest.raises(SlurmRefused, match="requeued"):
        slurm.requeue(interactive)


def test_nobody_submits_to_an_account_they_are_not_in() -> None:
    with pytest.raises(SlurmRefused, match="association"):
        small_site().submit(SECOND, "alice")


def test_nodes_hold_what_their_jobs_hold() -> None:
    slurm = small_site()
    job = slurm.submit(FIRST, "alice", 3, nodes=2, time_limit=timedelta(hours=1))
    slurm.start(job, "n1", "n2")
    node = slurm.picture(slurm.now).node("n2")
    assert node is not None
    assert (node.allocated, node.states) == (Resources({"h100": 3}, 1, 1000), frozenset({"MIXED"}))
