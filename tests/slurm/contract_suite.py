"""What everybody who uses Slurm through the port may count on: one suite for the twin and for the real thing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import pytest

from slurm_fairshare.core.booking import Booking, Kind, is_guarded
from slurm_fairshare.core.cluster import Job, Picture
from slurm_fairshare.core.contract import Contract, DebugLane, Ladder
from slurm_fairshare.core.fairshare import Ranked, Ranking, Standing
from slurm_fairshare.core.plan import BAND, AddQos, Held, Qos, SetPriority, SetQos, Unbook, plan, removal
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import Share, build
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.ports import Slurm
from slurm_fairshare.errors import SlurmRefused

LADDER = Ladder.default()
LANE = DebugLane()
FIRST, SECOND = "adp-bio", "adp-chem"
PREFIX = "fs-"

T = TypeVar("T")


class World(ABC):
    """A cluster with two nodes of 8 h100 each, and two accounts that may use the whole ladder."""

    slurm: Slurm

    @abstractmethod
    def now(self) -> datetime: ...

    @abstractmethod
    def submit(self, account: str, user: str, gpus: int, contract: Contract, nodes: int = 1, name: str = "job") -> int:
        """A job that starts if there is room; its number."""

    @abstractmethod
    def wait(self, probe: Callable[[], T], until: Callable[[T], bool]) -> T:
        """Look again until it is so. The twin has nothing to wait for and looks once."""

    @abstractmethod
    def set_user_priority(self, account: str, user: str, priority: int) -> None: ...

    def job(self, job_id: int) -> Job:
        job = self.slurm.job(job_id)
        assert job is not None
        return job

    def running(self, job_id: int) -> Job:
        return self.wait(lambda: self.job(job_id), lambda job: job.state == "RUNNING")

    def pending(self, job_id: int) -> Job:
        return self.wait(lambda: self.job(job_id), lambda job: job.pending)

    def picture(self) -> Picture:
        return self.slurm.picture(self.now())

    def attempts(self, job_id: int, until: Callable[[list[Run]], bool] = bool) -> list[Run]:
        def look() -> list[Run]:
            now = self.now()
            batch = self.slurm.runs(Window(now - timedelta(minutes=30), now))
            return [run for run in batch.runs if run.job_id == job_id]

        return self.wait(look, lambda runs: bool(runs) and until(runs))


def ranking(*order: str) -> Ranking:
    tree = build({"": [Share(name, 1.0, account=name) for name in order]})
    leaves = tuple(Ranked(name, name, place, Standing(1.0, 0.0, 1.0)) for place, name in enumerate(order, 1))
    return Ranking(tree, {name: Standing(1.0, 0.0, 1.0) for name in order}, leaves)


def apply(world: World, *order: str) -> Held:
    """Plan and carry out, and wait until Slurm holds it."""
    wanted = ranking(*order)
    world.slurm.carry_out(plan(wanted, LADDER, LANE, world.slurm.held()))
    return world.wait(world.slurm.held, lambda held: not plan(wanted, LADDER, LANE, held))


class SlurmContract(ABC):
    """Subclasses bring the `world` fixture."""

    @pytest.fixture
    @abstractmethod
    def world(self) -> World: ...

    # --- accounting

    def test_messages_to_slurmdbd_are_counted_until_it_has_taken_them(self, world: World) -> None:
        assert world.wait(world.slurm.backlog, lambda count: count == 0) == 0

    # --- the queue and the nodes

    def test_slurmctld_tells_its_clock(self, world: World) -> None:
        before = world.now()
        theirs = world.slurm.clock()
        assert before - timedelta(seconds=2) <= theirs <= world.now() + timedelta(seconds=1)

    def test_a_picture_has_every_node_with_its_gpus(self, world: World) -> None:
        nodes = {node.name: node for node in world.picture().nodes}
        assert {nodes[name].total.gpus["h100"] for name in ("n1", "n2")} == {8}
        assert all(nodes[name].in_service and nodes[name].partitions for name in ("n1", "n2"))

    def test_a_running_job_holds_its_gpus_on_its_node(self, world: World) -> None:
        job = world.running(world.submit(FIRST, "alice", 3, Contract(3600, resumable=True)))
        assert (job.account, job.user, job.qos, job.wanted.gpu_count) == (FIRST, "alice", "fs-1h", 3)
        assert job.contract == Contract(3600, resumable=True)
        assert job.start is not None
        assert abs(job.start - world.now()) < timedelta(minutes=1)
        assert job.protected_until() == job.start + timedelta(hours=1)
        assert {name: share.gpu_count for name, share in job.by_node.items()} == {job.nodes[0]: 3}
        node = world.picture().node(job.nodes[0])
        assert node is not None
        assert (node.allocated.gpu_count, node.free.gpus) == (3, {"h100": 5})

    def test_a_job_over_both_nodes_holds_half_on_each(self, world: World) -> None:
        job = world.running(world.submit(FIRST, "alice", 8, Contract(), nodes=2))
        seen = next(one for one in world.picture().jobs if one.job_id == job.job_id)
        assert {name: share.gpu_count for name, share in seen.by_node.items()} == {"n1": 8, "n2": 8}

    def test_a_job_that_waits_has_no_start_and_holds_nothing(self, world: World) -> None:
        world.running(world.submit(FIRST, "alice", 8, Contract(), nodes=2))
        job = world.pending(world.submit(SECOND, "bob", 2, Contract()))
        assert (job.start, job.nodes, dict(job.by_node)) == (None, (), {})
        assert (job.wanted.gpu_count, job.node_count, job.qos) == (2, 1, "fs-unallocated")
        assert job.priority >= 1

    def test_a_single_job_is_as_in_the_picture(self, world: World) -> None:
        job_id = world.submit(FIRST, "alice", 2, Contract(900))
        world.running(job_id)
        seen = next(one for one in world.picture().jobs if one.job_id == job_id)
        assert replace(seen, priority=0) == replace(world.job(job_id), priority=0)  # it may just be recomputed

    def test_a_name_may_hold_anything(self, world: World) -> None:
        name = "a|b State=X\nJobId=1 'q' \"z\""
        job = world.running(world.submit(FIRST, "alice", 1, Contract(), name=name))
        assert job.name == name

    def test_a_job_nobody_knows_is_none(self, world: World) -> None:
        assert world.slurm.job(999_999) is None

    # --- history

    def test_a_run_that_goes_on_has_no_end(self, world: World) -> None:
        job = world.running(world.submit(FIRST, "alice", 2, Contract(3600)))
        (run,) = world.attempts(job.job_id, lambda runs: [one.state for one in runs] == ["RUNNING"])
        assert (run.start, run.end, run.held.gpu_count, run.charged) == (job.start, None, 2, True)
        assert (run.account, run.user, run.qos, run.milli_gpus) == (FIRST, "alice", "fs-1h", 2000)
        assert run.contract is not None
        assert run.contract.min_runtime == 3600

    def test_a_job_that_waits_uses_nothing(self, world: World) -> None:
        world.running(world.submit(FIRST, "alice", 8, Contract(), nodes=2))
        job = world.pending(world.submit(SECOND, "bob", 2, Contract(3600)))
        (run,) = world.attempts(job.job_id)
        assert (run.start, run.milli_gpus, run.flag) == (None, 0, "")

    def test_unallocated_work_is_not_charged(self, world: World) -> None:
        job = world.running(world.submit(FIRST, "alice", 1, Contract()))
        (run,) = world.attempts(job.job_id)
        assert (run.charged, run.contract) == (False, Contract())

    def test_a_requeued_job_has_two_attempts_and_each_counts_once(self, world: World) -> None:
        first = world.running(world.submit(FIRST, "alice", 2, Contract(3600, resumable=True)))
        world.slurm.requeue(first.job_id)
        waiting = world.pending(first.job_id)
        assert (waiting.restarts, waiting.start) == (1, None)
        runs = world.attempts(first.job_id, lambda runs: any(run.end is not None for run in runs))
        ended = [run for run in runs if run.end is not None]
        assert [(run.state, run.start, run.held.gpu_count) for run in ended] == [("REQUEUED", first.start, 2)]
        assert all(run.key != ended[0].key and run.start is None for run in runs if run.end is None)

    def test_an_ended_job_leaves_the_queue_and_stays_in_the_history(self, world: World) -> None:
        job = world.running(world.submit(FIRST, "alice", 2, Contract()))
        world.slurm.end(job.job_id)
        world.wait(world.picture, lambda seen: all(one.job_id != job.job_id for one in seen.holding))
        (run,) = world.attempts(job.job_id, lambda runs: runs[0].end is not None)
        assert (run.state, run.start) == ("CANCELLED", job.start)
        assert run.contract == Contract()

    def test_an_attempt_outside_the_window_is_not_in_it(self, world: World) -> None:
        job_id = world.submit(FIRST, "alice", 2, Contract())
        world.running(job_id)
        past = world.now() - timedelta(days=3)
        runs = world.slurm.runs(Window(past - timedelta(days=2), past)).runs
        assert all(run.job_id != job_id for run in runs)

    # --- the hands

    def test_a_note_leaves_the_contract_as_it_is(self, world: World) -> None:
        contract = Contract(3600, resumable=True, notice="USR1")
        job = world.running(world.submit(FIRST, "alice", 2, contract))
        for words in ("requeued for 17 (under-served): 0.4 < 1.2", "second | note"):
            world.slurm.note(job.job_id, words)
        assert world.job(job.job_id).contract == contract

    def test_a_notice_does_not_end_a_job_that_waits_for_it(self, world: World) -> None:
        job = world.running(world.submit(FIRST, "alice", 1, Contract(900, notice="USR1")))
        world.slurm.notice(job.job_id, "USR1")
        assert world.job(job.job_id).state == "RUNNING"

    @pytest.mark.parametrize("act", ["requeue", "end"])
    def test_a_job_that_is_not_there_is_a_refusal(self, world: World, act: str) -> None:
        with pytest.raises(SlurmRefused, match="not in the queue"):
            getattr(world.slurm, act)(999_999)

    # --- bookings

    def test_a_guarded_job_starts_on_its_nodes_before_all_others_and_outlives_its_guard(self, world: World) -> None:
        holder = world.running(world.submit(FIRST, "alice", 8, Contract(3600, resumable=True), nodes=2))
        job = world.pending(world.submit(SECOND, "bob", 8, Contract(3600), nodes=2))
        guard = Booking(Kind.GUARD, job.job_id, "bob", ("n1", "n2"), world.now().replace(microsecond=0))
        world.slurm.book(guard)
        (there,) = world.slurm.bookings()
        assert replace(there, start=guard.start) == guard
        assert abs(there.start - guard.start) < timedelta(seconds=30)
        assert is_guarded(world.job(job.job_id), LADDER)
        world.slurm.requeue(holder.job_id)
        other = world.submit(FIRST, "alice", 1, Contract(3600))
        started = world.running(job.job_id)
        assert (started.nodes, world.pending(other).nodes) == (("n1", "n2"), ())
        world.slurm.unbook(there)
        assert world.slurm.bookings() == ()
        after = world.job(job.job_id)
        assert (after.state, after.start, is_guarded(after, LADDER)) == ("RUNNING", started.start, False)

    def test_a_job_that_still_waits_is_not_held_when_its_guard_goes(self, world: World) -> None:
        world.running(world.submit(FIRST, "alice", 8, Contract(), nodes=2))
        job = world.pending(world.submit(SECOND, "bob", 8, Contract(3600), nodes=2))
        world.slurm.book(Booking(Kind.GUARD, job.job_id, "bob", ("n1", "n2"), world.now()))
        (there,) = world.slurm.bookings()
        world.slurm.unbook(there)
        after = world.job(job.job_id)
        assert (after.state, is_guarded(after, LADDER), after.priority > 0) == ("PENDING", False, True)
        assert "held" not in after.reason.lower()
        world.slurm.unbook(there)

    def test_a_plan_begins_at_its_moment_and_lets_run_what_runs(self, world: World) -> None:
        job = world.running(world.submit(FIRST, "alice", 2, Contract(3600)))
        start = world.now().replace(microsecond=0) + timedelta(minutes=5)
        plan_ahead = Booking(Kind.PLAN, job.job_id + 1, "root", ("n1", "n2"), start)
        world.slurm.book(plan_ahead)
        assert world.slurm.bookings() == (plan_ahead,)
        assert world.job(job.job_id).state == "RUNNING"
        with pytest.raises(SlurmRefused, match="overlaps"):
            world.slurm.book(replace(plan_ahead, job_id=job.job_id + 2))
        world.slurm.carry_out((Unbook(plan_ahead),))
        assert world.slurm.bookings() == ()

    def test_a_plan_becomes_a_guard_in_its_place_before_and_after_its_moment(self, world: World) -> None:
        world.running(world.submit(FIRST, "alice", 8, Contract(), nodes=2))
        for ahead in (timedelta(minutes=5), timedelta(0)):
            job = world.pending(world.submit(SECOND, "bob", 8, Contract(3600), nodes=2))
            start = world.now().replace(microsecond=0) + ahead
            plan_ahead = Booking(Kind.PLAN, job.job_id, "root", ("n1", "n2"), start)
            world.slurm.book(plan_ahead)
            (there,) = world.slurm.bookings()
            guard = Booking(Kind.GUARD, job.job_id, "bob", ("n1", "n2"), world.now())
            world.slurm.book(guard, there)
            (after,) = world.slurm.bookings()
            assert (after.kind, after.user, is_guarded(world.job(job.job_id), LADDER)) == (Kind.GUARD, "bob", True)
            assert after.start <= world.now() + timedelta(seconds=2)
            world.slurm.unbook(after)
            assert world.slurm.bookings() == ()

    def test_no_nodes_are_kept_for_a_job_that_is_not_there(self, world: World) -> None:
        with pytest.raises(SlurmRefused, match="not in the queue"):
            world.slurm.book(Booking(Kind.GUARD, 999_999, "bob", ("n1",), world.now()))
        assert world.slurm.bookings() == ()

    # --- settings

    def test_a_plan_carried_out_leaves_nothing_to_plan(self, world: World) -> None:
        held = apply(world, FIRST, SECOND)
        assert {rung.name for rung in LADDER.rungs} <= set(held.qos)
        lane, hour = held.qos["fs-15m"], held.qos["fs-1h"]
        assert (hour.grace, hour.exempt, hour.preempts) == (3600, 3600, frozenset({"fs-unallocated"}))
        assert (lane.priority, lane.max_tres_per_job) == (LANE.priority, f"gres/gpu={LANE.max_gpus}")
        labels = [held.account(name).priority for name in (FIRST, SECOND)]  # type: ignore[union-attr]
        assert labels[0] is not None
        assert labels[1] is not None
        assert labels[0] > labels[1] > 0
        assert not any(label % BAND for label in labels if label)

    def test_a_new_order_moves_the_priorities_of_all_users(self, world: World) -> None:
        apply(world, FIRST, SECOND)
        held = apply(world, SECOND, FIRST)
        first, second = (held.account(name) for name in (FIRST, SECOND))
        assert first is not None
        assert second is not None
        assert (second.priority or 0) > (first.priority or 0)
        users = {(a.account, a.user): a.priority for a in held.associations if a.user}
        assert (users[FIRST, "alice"], users[SECOND, "bob"]) == (first.priority, second.priority)

    def test_a_users_own_priority_is_taken_off(self, world: World) -> None:
        apply(world, FIRST, SECOND)
        world.set_user_priority(FIRST, "alice", 5)
        wanted = ranking(FIRST, SECOND)
        world.wait(world.slurm.held, lambda held: bool(plan(wanted, LADDER, LANE, held)))
        held = apply(world, FIRST, SECOND)
        (alice,) = [a for a in held.associations if (a.account, a.user) == (FIRST, "alice")]
        assert alice.priority == held.account(FIRST).priority  # type: ignore[union-attr]

    def test_what_is_taken_out_again_is_gone(self, world: World) -> None:
        apply(world, FIRST, SECOND)
        world.slurm.carry_out(removal((FIRST, SECOND), world.slurm.held(), PREFIX))
        held = world.wait(
            world.slurm.held,
            lambda held: not removal((FIRST, SECOND), held, PREFIX) and not _ours(held),
        )
        account = held.account(FIRST)
        assert account is not None
        assert (account.priority, account.default_qos) == (None, "")
        assert not any(name.startswith(PREFIX) for name in account.qos)

    def test_carrying_out_twice_is_no_error(self, world: World) -> None:
        changes = (AddQos("fs-adp"), SetQos(Qos("fs-adp", grace=60, exempt=60), None), SetPriority((FIRST,), BAND))
        world.slurm.carry_out(changes)
        world.slurm.carry_out(changes)
        held = world.wait(world.slurm.held, lambda held: "fs-adp" in held.qos)
        assert held.qos["fs-adp"] == Qos("fs-adp", grace=60, exempt=60)

    def test_a_circle_of_preemption_is_refused_and_what_stood_behind_it_is_not_done(self, world: World) -> None:
        world.slurm.carry_out((AddQos("fs-adp1"), AddQos("fs-adp2")))
        with pytest.raises(SlurmRefused, match="loop"):
            world.slurm.carry_out(
                (
                    SetQos(Qos("fs-adp1", preempts=frozenset({"fs-adp2"})), None),
                    SetQos(Qos("fs-adp2", preempts=frozenset({"fs-adp1"})), None),
                    SetPriority((FIRST,), 777 * BAND),
                )
            )
        held = world.slurm.held()
        assert held.qos["fs-adp1"].preempts == {"fs-adp2"}
        assert held.account(FIRST).priority != 777 * BAND  # type: ignore[union-attr]

    def test_an_account_slurm_does_not_know_changes_nothing(self, world: World) -> None:
        world.slurm.carry_out((SetPriority(("adp-nobody",), BAND),))
        assert world.slurm.held().account("adp-nobody") is None


def _ours(held: Held) -> bool:
    account = held.account(FIRST)
    return account is None or account.priority is not None
