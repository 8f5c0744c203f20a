"""One rebalance pass: recorded before it is done, on the right run, and told in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.decisions import Outcome
from slurm_fairshare.core.rebalance import Why
from slurm_fairshare.daemon.booking import recalled
from slurm_fairshare.errors import SlurmRefused, SlurmUnreachable, StaleData
from tests.daemon.world import T0, World, terms, world


def contested(
    contract_seconds: int = 60, *, resumable: bool = True, notice: str | None = None, **settings: object
) -> tuple[World, int, int]:
    """Robotics holds both nodes past its minimum; vision waits for one of them."""
    it = world(**settings)
    it.tick()
    victim = it.run("robotics", 8, terms(contract_seconds, resumable=resumable, notice=notice))
    it.run("robotics", 8, terms(8 * 3600))
    taker = it.wait("vision", 8, terms(60))
    it.slurm.advance(contract_seconds)
    it.tick()
    return it, victim, taker


def test_a_run_past_its_minimum_is_requeued_and_told_why() -> None:
    it, victim, taker = contested()
    report = it.rebalance()
    assert [one.outcome for one in report.recorded] == [Outcome.REQUEUED]
    assert it.slurm.log == [f"requeue {victim}"]
    comment = it.slurm.comment(victim)
    assert comment.startswith("fairshare min_runtime=60")
    assert f"for job {taker} of user-vision" in comment
    assert "lab/robotics has used" in comment
    job = it.slurm.job(victim)
    assert job is not None
    assert (job.state, job.restarts) == ("PENDING", 1)


def test_nobody_is_stopped_before_its_minimum() -> None:
    it, _, _ = contested()
    it.slurm.now = T0
    assert it.rebalance().recorded == ()


def test_a_dry_run_shows_the_decision_and_does_nothing() -> None:
    it, _, _ = contested()
    report = it.rebalance(dry_run=True)
    assert [one.decision.dry_run for one in report.recorded] == [True]
    assert it.slurm.log == []
    assert it.store.decisions(T0) == ()


def test_the_decision_is_recorded_before_it_is_carried_out() -> None:
    it, _, _ = contested()
    it.slurm.fail("requeue", SlurmUnreachable("slurmctld is gone"))
    with pytest.raises(SlurmUnreachable):
        it.rebalance()
    assert [one.outcome for one in it.store.decisions(T0)] == [Outcome.DECIDED]
    it.slurm.heal()
    it.slurm.advance(5)
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.REQUEUED]


@pytest.mark.parametrize("what", ["ended", "restarted"])
def test_a_run_that_ended_or_was_restarted_in_between_is_left_alone(what: str) -> None:
    it, victim, _ = contested()
    it.slurm.fail("requeue", SlurmUnreachable("not now"))
    with pytest.raises(SlurmUnreachable):
        it.rebalance()
    it.slurm.heal()
    if what == "ended":
        it.slurm.finish(victim)
    else:
        it.slurm.requeue(victim)
        it.slurm.advance(1)
        it.slurm.start(victim)
        it.slurm.log.clear()
    report = it.rebalance()
    assert Outcome.GONE in [one.outcome for one in report.recorded]
    assert f"requeue {victim}" not in it.slurm.log


def test_a_run_that_cannot_be_requeued_and_does_not_resume_is_ended() -> None:
    it, victim, _ = contested(resumable=False)
    it.slurm.alter(victim, lambda job: replace(job, requeueable=False))
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.ENDED]
    assert it.slurm.log == [f"end {victim}"]


def test_a_session_is_told_given_time_and_then_ended() -> None:
    it, victim, taker = contested(resumable=False)
    it.slurm.alter(victim, lambda job: replace(job, batch=False))
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.NOTICED]
    told = it.slurm.log[0]
    assert told.startswith(f"tell {victim} fairshare: this session is past its minimum runtime")
    assert f"for job {taker} of user-vision" in told
    it.slurm.advance(31)
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.ENDED]
    assert it.slurm.log[1:] == [f"end {victim}"]


def test_a_site_may_leave_sessions_alone() -> None:
    it, victim, _ = contested(resumable=False, rebalance={"end_sessions": False})
    it.slurm.alter(victim, lambda job: replace(job, batch=False))
    assert it.rebalance().recorded == ()


def test_a_session_is_warned_once_before_its_minimum_ends() -> None:
    it = world()
    it.tick()
    session = it.run("robotics", 8, terms(900, resumable=False))
    it.slurm.alter(session, lambda job: replace(job, batch=False))
    it.slurm.advance(500)
    assert it.rebalance().warned == ()
    it.slurm.advance(150)
    it.tick()
    assert it.rebalance().warned == (session,)
    assert "ends in 4m10s" in it.slurm.log[-1]
    it.slurm.advance(5)
    assert it.rebalance().warned == ()


def test_where_words_may_not_be_said_the_pass_goes_on() -> None:
    it, victim, _ = contested(resumable=False)
    it.slurm.alter(victim, lambda job: replace(job, batch=False))
    it.slurm.fail("tell", SlurmRefused("Invalid user id"))
    report = it.rebalance()
    assert ([one.outcome for one in report.recorded], report.unheard) == ([Outcome.NOTICED], "Invalid user id")


def test_a_run_whose_owner_forbids_the_requeue_in_between_goes_as_its_contract_says() -> None:
    for resumable, expected in ((True, Outcome.REFUSED), (False, Outcome.ENDED)):
        it, victim, _ = contested(resumable=resumable, notice="USR1")
        it.rebalance()
        it.slurm.alter(victim, lambda job: replace(job, requeueable=False))
        it.slurm.advance(31)
        assert [one.outcome for one in it.rebalance().recorded] == [expected]


def test_a_contract_that_was_made_longer_in_between_is_kept() -> None:
    it, victim, _ = contested(notice="USR1")
    it.rebalance()
    it.slurm.alter(victim, lambda job: replace(job, contract=terms(7200)))
    it.slurm.advance(31)
    report = it.rebalance()
    assert [(one.outcome, one.detail[:24]) for one in report.recorded] == [(Outcome.LAPSED, "its contract was changed")]


def test_nobody_is_stopped_for_a_job_that_does_not_wait_any_more() -> None:
    it, _, taker = contested(notice="USR1")
    it.rebalance()
    it.slurm.finish(taker, "CANCELLED")
    it.slurm.advance(31)
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.LAPSED]
    assert [line for line in it.slurm.log if line.startswith("requeue")] == []


def test_what_slurm_refused_is_not_asked_again_and_is_no_room() -> None:
    it, victim, _ = contested()
    it.slurm.fail("requeue", SlurmRefused("Requested operation is presently disabled"))
    it.rebalance()
    it.slurm.heal()
    it.slurm.advance(70)
    it.tick()
    report = it.rebalance()
    assert report.recorded == ()
    assert victim not in [one.decision.victim.job_id for one in report.recorded]


def test_the_job_is_asked_when_it_saved_last_only_where_somebody_is_to_be_stopped() -> None:
    it = world()
    it.tick()
    it.rebalance()
    assert it.slurm.calls["checkpoints"] == 0
    it, victim, _ = contested(contract_seconds=900)
    it.slurm.saved[victim] = it.now - timedelta(seconds=100)
    made = it.rebalance().recorded[0].decision
    assert (made.lost, made.lost_since) == (800, "checkpoint")


def test_why_nobody_was_stopped_is_remembered_by_job() -> None:
    it, _, _ = contested()
    waiting = it.slurm.submit("vision", "user-vision", 8, nodes=3, contract=terms(60))
    it.rebalance()
    found = it.store.recall("declined")
    assert found is not None
    assert found[1][str(waiting)][0] == "too-big"


def test_the_reason_is_forgotten_when_somebody_is_stopped_for_the_job_after_all() -> None:
    it, _, taker = contested()
    it.slurm.now -= timedelta(seconds=30)
    it.tick()
    it.rebalance()
    first = it.store.recall("declined")
    assert first is not None
    assert first[1][str(taker)][0] == "nobody-yields"
    it.slurm.advance(30)
    it.tick()
    assert it.rebalance().recorded != ()
    after = it.store.recall("declined")
    assert after is not None
    assert str(taker) not in after[1]


def test_what_slurm_refuses_is_recorded_with_its_words() -> None:
    it, _, _ = contested()
    it.slurm.fail("requeue", SlurmRefused("Requested operation is presently disabled"))
    report = it.rebalance()
    assert [(one.outcome, one.detail) for one in report.recorded] == [
        (Outcome.REFUSED, "Requested operation is presently disabled")
    ]


def test_a_job_that_asked_for_a_notice_gets_it_and_is_requeued_afterwards() -> None:
    it, victim, _ = contested(notice="USR1")
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.NOTICED]
    assert it.slurm.log == [f"notice {victim} USR1"]
    it.slurm.advance(10)
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.NOTICED]
    it.slurm.advance(25)
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.REQUEUED]


def test_a_job_that_ends_by_itself_after_its_notice_is_not_requeued() -> None:
    it, victim, _ = contested(notice="USR1")
    it.rebalance()
    it.slurm.finish(victim)
    it.slurm.advance(31)
    assert [one.outcome for one in it.rebalance().recorded] == [Outcome.GONE]


def test_a_decision_nobody_carried_out_in_time_lapses() -> None:
    it, _, _ = contested()
    it.slurm.fail("requeue", SlurmUnreachable("down"))
    with pytest.raises(SlurmUnreachable):
        it.rebalance()
    it.slurm.heal()
    it.slurm.advance(600)
    it.tick()
    outcomes = [one.outcome for one in it.rebalance().recorded]
    assert Outcome.LAPSED in outcomes


def test_without_a_tick_nobody_is_stopped() -> None:
    it = world()
    with pytest.raises(StaleData, match="no tick has been recorded"):
        it.rebalance()


def test_stale_standing_stops_nobody_and_says_so() -> None:
    it, _, _ = contested()
    it.slurm.advance(301)
    report = it.rebalance()
    assert (report.recorded, [one.why for one in report.declined]) == ((), [Why.STALE])


def test_protection_starts_anew_with_each_run() -> None:
    it, victim, taker = contested()
    it.rebalance()
    it.slurm.finish(taker)
    it.slurm.advance(130)
    it.slurm.start(victim)
    it.slurm.advance(30)
    it.tick()
    it.wait("vision", 8, terms(60))
    assert [one for one in it.rebalance().recorded if one.decision.victim.job_id == victim] == []


# --- bookings

GUARD = {"rebalance": {"guard": True}}


def wide_and_waiting(**settings: object) -> tuple[World, list[int], int]:
    """Robotics holds both nodes past its minimum; vision waits for both at once."""
    it = world(**settings)
    it.tick()
    victims = [it.run("robotics", 8, terms(60, notice="USR1")) for _ in range(2)]
    wide = it.slurm.submit("vision", "user-vision", 8, nodes=2, contract=terms(3600))
    it.slurm.advance(60)
    it.tick()
    return it, victims, wide


def test_nodes_are_guarded_before_anybody_is_told_to_go_and_given_back_when_the_job_runs() -> None:
    it, victims, wide = wide_and_waiting(**GUARD)
    it.rebalance()
    assert it.slurm.log == [f"guard fs-job-{wide} n1,n2", *(f"notice {victim} USR1" for victim in victims)]
    it.slurm.advance(30)
    it.rebalance()
    thief = it.slurm.submit("language", "user-language", 1, contract=terms(3600))
    assert it.slurm.schedule() == (wide,)
    it.slurm.advance(5)
    it.rebalance()
    assert it.slurm.log[-1] == f"unbook fs-job-{wide}"
    assert it.slurm.bookings() == ()
    job = it.slurm.job(wide)
    assert job is not None
    assert (job.state, job.constraints) == ("RUNNING", ())
    waiting = it.slurm.job(thief)
    assert waiting is not None
    assert waiting.pending


def test_without_a_guard_whoever_sorts_first_takes_the_room() -> None:
    """Here those who yielded: they are of the debug lane."""
    it, victims, _ = wide_and_waiting()
    it.rebalance()
    it.slurm.advance(30)
    it.rebalance()
    assert it.slurm.bookings() == ()
    assert it.slurm.schedule() == tuple(victims)


def test_where_the_settings_are_off_slurm_is_not_asked_for_bookings() -> None:
    it, _, _ = wide_and_waiting()
    it.rebalance()
    assert it.slurm.calls["bookings"] == 0


def test_a_setting_that_was_turned_off_leaves_no_booking_behind() -> None:
    it, _, wide = wide_and_waiting(**GUARD)
    it.rebalance()
    it.config = world().config
    it.slurm.finish(wide, "CANCELLED")
    it.slurm.advance(1)
    it.rebalance()
    assert it.slurm.bookings() == ()
    it.rebalance()
    assert it.slurm.calls["unbook"] == 1


def test_where_a_guard_is_refused_those_who_yield_go_all_the_same_and_it_is_said() -> None:
    it, victims, _ = wide_and_waiting(**GUARD)
    it.slurm.fail("book", SlurmRefused("Requested nodes are busy"))
    report = it.rebalance()
    assert report.unbooked == "Requested nodes are busy"
    assert {one.decision.victim.job_id for one in report.recorded} == set(victims)


def test_what_is_booked_is_remembered_for_reports() -> None:
    it, _, wide = wide_and_waiting(**GUARD)
    it.rebalance()
    assert recalled(it.store) == {wide: it.slurm.bookings()[0]}


def test_nodes_are_planned_for_a_large_job_kept_from_others_and_all_yield_at_the_moment() -> None:
    it = world(large={"gpus": 16, "plan_ahead": "2h"})
    it.tick()
    early, late = it.run("robotics", 8, terms(60)), it.run("robotics", 8, terms(3600))
    wide = it.slurm.submit("vision", "user-vision", 8, nodes=2, contract=terms(3600))
    it.slurm.advance(600)
    it.tick()
    assert it.rebalance().recorded == ()
    (plan,) = it.slurm.bookings()
    assert (plan.nodes, plan.start) == (("n1", "n2"), T0 + timedelta(hours=1))
    it.slurm.finish(early)
    short, long = (
        it.slurm.submit("language", "user-language", 8, contract=terms(60), time_limit=timedelta(minutes=minutes))
        for minutes in (20, 60)
    )
    assert it.slurm.schedule() == (short,)
    it.slurm.advance(1200)
    it.slurm.finish(short)
    assert it.slurm.schedule() == ()
    it.slurm.now = plan.start
    it.tick()
    assert [one.decision.victim.job_id for one in it.rebalance().recorded] == [late]
    assert not any(line.startswith("unbook") for line in it.slurm.log), "between the two others could start there"
    assert it.slurm.schedule() == (wide,)
    assert long
    it.slurm.advance(1)
    it.rebalance()
    assert it.slurm.bookings() == ()
