"""Nodes kept for a waiting job: guarded while those who yield leave, planned for a large one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.booking import Booking, Kind
from slurm_fairshare.core.cluster import Job, Picture
from slurm_fairshare.core.contract import DebugLane, Priority
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.guarding import opened, planned_nodes, wanted
from slurm_fairshare.core.large import Large
from slurm_fairshare.core.rebalance import Pass, Rules, Why, rebalance
from tests.core.build import LADDER, NOW, contract, job, node, picture, ranking, tree

HOUR = 3600
TREE = tree(poor=1, rich=1)
RANKING = ranking(TREE, poor=0.2, rich=1.8)
GUARDED = Rules(guard=True, in_team=False)
AHEAD = Large(gpus=16, plan_ahead=timedelta(hours=2))
NO_PLANS = Large(gpus=16)


@dataclass
class Look:
    """One look at a picture: what is decided, and what is booked then."""

    picture: Picture
    rules: Rules = GUARDED
    large: Large = NO_PLANS
    there: Sequence[Booking] = ()
    recent: Sequence[Recorded] = ()
    now: datetime = NOW
    ranking: Ranking = RANKING
    lane: DebugLane | None = None

    def decide(self) -> Pass:
        seen = replace(opened(self.picture, self.there, self.now), at=self.now)
        rules, planned = replace(self.rules, large=self.large), planned_nodes(self.there)
        return rebalance(seen, self.ranking, self.now, LADDER, self.lane, rules, self.recent, self.now, planned=planned)

    def booked(self, made: Sequence[Decision] | None = None) -> tuple[Booking, ...]:
        made = self.decide().decisions if made is None else made
        seen = opened(self.picture, self.there, self.now)
        rules = replace(self.rules, large=self.large)
        return wanted(seen, self.ranking, LADDER, self.lane, rules, self.there, made, self.recent, self.now)

    def planned_for(self) -> timedelta | None:
        """How far ahead nodes are planned; None where they are not."""
        return next((one.start - self.now for one in self.booked() if one.kind is Kind.PLAN), None)


def two_nodes(*jobs: Job) -> Picture:
    return picture([node("n1"), node("n2")], *jobs)


def run(job_id: int, where: str, minimum: int = 60, started: float = 600, account: str = "rich", **more: object) -> Job:
    return job(job_id, account, 8, nodes=(where,), started=started, terms=contract(minimum), **more)  # type: ignore[arg-type]


WIDE = job(9, "poor", 16, node_count=2, terms=contract(HOUR))
PAST_BOTH = two_nodes(run(1, "n1"), run(2, "n2"), WIDE)
GUARD = Booking(Kind.GUARD, 9, "user-poor", ("n1", "n2"), NOW)
MINUTE = timedelta(minutes=1)


# --- guards


def test_a_job_that_takes_whole_nodes_is_guarded_from_the_decision_on() -> None:
    assert Look(PAST_BOTH).booked() == (GUARD,)


def test_without_the_setting_nothing_is_booked() -> None:
    look = Look(PAST_BOTH, rules=Rules())
    assert look.decide().decisions
    assert look.booked() == ()


def test_a_job_that_leaves_a_part_of_its_node_is_not_guarded() -> None:
    """What it leaves would stand idle."""
    look = Look(two_nodes(run(1, "n1"), run(2, "n2", HOUR), job(9, "poor", 4)))
    assert [one.victim.job_id for one in look.decide().decisions] == [1]
    assert look.booked() == ()
    whole = Look(two_nodes(run(1, "n1"), run(2, "n2", HOUR), job(9, "poor", 4, constraints=("exclusive=node",))))
    assert [one.nodes for one in whole.booked()] == [("n1",)]


def test_a_task_of_an_array_and_a_component_are_not_guarded() -> None:
    for odd in (replace(WIDE, label="9_1"), replace(WIDE, label="9+0", het_leader=9)):
        look = Look(two_nodes(run(1, "n1"), run(2, "n2"), odd))
        assert look.decide().decisions
        assert look.booked() == ()


def test_a_guard_goes_when_its_job_runs_or_has_left() -> None:
    running = replace(WIDE, state="RUNNING", start=NOW, nodes=("n1", "n2"))
    for now_there in ((running,), ()):
        assert Look(two_nodes(*now_there), there=[GUARD]).booked() == ()


def test_a_guard_lasts_as_long_as_the_room_has_time_to_be_used_and_no_longer() -> None:
    waiting = two_nodes(replace(WIDE, constraints=("reservation=fs-job-9",)))
    settle = GUARDED.settle
    assert Look(waiting, there=[GUARD], now=NOW + settle / 2).booked(()) == (GUARD,)
    assert Look(waiting, there=[GUARD], now=NOW + settle).booked(()) == ()


def test_a_guard_that_its_job_never_entered_goes() -> None:
    """A daemon may die between making it and letting its job in."""
    assert Look(two_nodes(WIDE), there=[GUARD]).booked(()) == ()


def test_a_guard_outlasts_the_notice_of_those_who_yield() -> None:
    late = NOW + 2 * GUARDED.settle
    waiting = two_nodes(run(1, "n1"), run(2, "n2"), replace(WIDE, constraints=("reservation=fs-job-9",)))
    for outcome, changed, stays in (
        (Outcome.NOTICED, NOW, True),
        (Outcome.REQUEUED, late - MINUTE / 2, True),
        (Outcome.REQUEUED, NOW, False),
        (Outcome.REFUSED, late, False),
    ):
        recent = [Recorded(one, outcome, changed) for one in Look(PAST_BOTH).decide().decisions]
        assert Look(waiting, there=[GUARD], recent=recent, now=late).booked(()) == ((GUARD,) if stays else ())


def test_nobody_else_is_stopped_for_a_guarded_job_and_that_is_said() -> None:
    guarded = replace(WIDE, constraints=("reservation=fs-job-9",))
    found = Look(two_nodes(run(1, "n1"), run(2, "n2"), guarded)).decide()
    assert found.decisions == ()
    assert [(one.job_id, one.why) for one in found.declined] == [(9, Why.OUTSTANDING)]


def test_a_reservation_of_others_is_still_not_modelled() -> None:
    other = replace(WIDE, constraints=("reservation=course",))
    found = Look(two_nodes(run(1, "n1"), run(2, "n2"), other)).decide()
    assert [one.why for one in found.declined] == [Why.NOT_MODELLED]


def test_settings_that_are_turned_off_leave_nothing_behind() -> None:
    plan = Booking(Kind.PLAN, 9, "user-poor", ("n1", "n2"), NOW + MINUTE)
    assert Look(two_nodes(WIDE), rules=Rules(), there=[plan]).booked(()) == ()
    inside = replace(WIDE, constraints=("reservation=fs-job-9",))
    late = NOW + GUARDED.settle
    assert Look(two_nodes(inside), rules=Rules(), there=[GUARD], now=late).booked(()) == ()


# --- plans

HALF_WAY = two_nodes(run(1, "n1", HOUR, 600), run(2, "n2", 60), WIDE)
"""n2 may yield now, n1 in 50 minutes."""
PLAN = Booking(Kind.PLAN, 9, "user-poor", ("n1", "n2"), NOW + timedelta(minutes=50))


def test_nodes_are_planned_for_the_moment_at_which_all_of_them_may_yield() -> None:
    look = Look(HALF_WAY, large=AHEAD)
    assert look.decide().decisions == ()
    assert look.booked() == (PLAN,)


def test_by_default_nothing_is_planned() -> None:
    assert not Large().plan_ahead
    assert Look(HALF_WAY, large=Large(gpus=16)).booked() == ()


def test_the_nodes_that_can_be_had_soonest_are_chosen() -> None:
    nodes = [node("n1"), node("n2"), node("n3"), node("n4")]
    ends = {"n1": 3 * HOUR, "n2": HOUR, "n3": 900 + 600, "n4": 2 * HOUR}
    runs = [run(place, name, ends[name]) for place, name in enumerate(ends, 1)]
    (plan,) = Look(picture(nodes, *runs, WIDE), large=AHEAD).booked()
    assert (plan.nodes, plan.start) == (("n2", "n3"), NOW + timedelta(minutes=50))


def test_nothing_is_planned_beyond_the_horizon_or_for_a_small_job() -> None:
    assert Look(HALF_WAY, large=replace(AHEAD, plan_ahead=timedelta(minutes=49))).booked() == ()
    assert Look(HALF_WAY, large=replace(AHEAD, gpus=17)).booked() == ()
    assert Look(HALF_WAY, large=replace(AHEAD, plan_gpus=17)).booked() == ()
    assert Look(HALF_WAY, large=replace(AHEAD, gpus=8, plan_gpus=16)).booked() == (PLAN,)


def test_a_run_that_need_not_yield_is_waited_for_to_its_time_limit() -> None:
    """A run of one's own team, and one whose contract says that it resumes but which cannot be requeued."""
    for stays in (run(1, "n1", HOUR, account="poor"), run(1, "n1", HOUR, requeueable=False)):
        limited = replace(stays, time_limit=timedelta(minutes=70))
        (plan,) = Look(two_nodes(limited, run(2, "n2"), WIDE), large=AHEAD).booked()
        assert plan.start == NOW + timedelta(minutes=60)
        endless = replace(stays, time_limit=None)
        assert Look(two_nodes(endless, run(2, "n2"), WIDE), large=AHEAD).booked() == ()


# Each of these n1s is past its minimum in 50 minutes and at its time limit in 70: the plan tells for which it waits.
YIELDS, STAYS = timedelta(minutes=50), timedelta(minutes=60)
LEVEL = ranking(TREE, poor=0.85, rich=0.9)
HIGH = contract(HOUR, priority=Priority.HIGH)


def half_way(wide: Job = WIDE, **first: object) -> Picture:
    one = replace(run(1, "n1", HOUR, 600), time_limit=timedelta(minutes=70), **first)  # type: ignore[arg-type]
    return two_nodes(one, replace(run(2, "n2"), time_limit=timedelta(minutes=20)), wide)


def test_a_plan_counts_on_a_run_of_its_own_team_only_where_the_rule_inside_a_team_is_on() -> None:
    own = half_way(replace(WIDE, contract=HIGH), account="poor")
    assert Look(own, Rules(in_team=True), AHEAD).planned_for() == YIELDS
    assert Look(own, Rules(in_team=False), AHEAD).planned_for() == STAYS
    equal = half_way(WIDE, account="poor")
    assert Look(equal, Rules(in_team=True), AHEAD).planned_for() == STAYS


def test_a_plan_for_a_large_job_that_has_waited_long_counts_on_any_side_that_has_had_more() -> None:
    due = half_way(replace(WIDE, eligible=NOW - timedelta(hours=13)))
    assert Look(due, large=AHEAD, ranking=LEVEL).planned_for() == YIELDS
    assert Look(half_way(), large=AHEAD, ranking=LEVEL).planned_for() == STAYS, "it has not waited long"
    less = ranking(TREE, poor=0.9, rich=0.85)
    assert Look(due, large=AHEAD, ranking=less).planned_for() == STAYS, "the other side has had less"
    lasting = half_way(due.jobs[2], contract=contract(HOUR, resumable=False))
    assert Look(lasting, large=AHEAD, ranking=LEVEL).planned_for() == STAYS, "its whole work would be lost"
    debug = half_way(due.jobs[2], qos="fs-15m")
    assert Look(debug, large=AHEAD, ranking=LEVEL, lane=DebugLane()).planned_for() == STAYS, "the lane's runs stay"


def test_a_plan_does_not_count_on_runs_that_the_site_keeps_out() -> None:
    kept = half_way(partitions=("gpu", "course"))
    assert Look(kept, Rules(kept_partitions=("course",)), AHEAD).planned_for() == STAYS
    session = half_way(batch=False)
    assert Look(session, Rules(end_sessions=False), AHEAD).planned_for() == STAYS
    assert Look(kept, Rules(), AHEAD).planned_for() == YIELDS


@given(
    in_team=st.booleans(),
    due=st.booleans(),
    account=st.sampled_from(["rich", "poor"]),
    ratio=st.sampled_from([0.7, 0.85, 0.9, 1.05, 1.5]),
    priority=st.sampled_from(list(Priority)),
    lane=st.sampled_from([None, DebugLane()]),
    qos=st.sampled_from(["fs-15m", "fs-1h"]),
)
def test_at_the_moment_of_a_plan_the_pass_makes_the_room_it_counted_on(
    in_team: bool, due: bool, account: str, ratio: float, priority: Priority, lane: DebugLane | None, qos: str
) -> None:
    """One composition of who yields: whatever the rules say, the plan and the pass say the same."""
    asked = timedelta(hours=13) if due else timedelta(0)
    wide = replace(WIDE, contract=contract(HOUR, priority=priority), eligible=NOW - asked)
    seen = half_way(wide, account=account, qos=qos)
    rules = Rules(in_team=in_team)
    look = Look(seen, rules, AHEAD, ranking=ranking(TREE, poor=0.8, rich=ratio), lane=lane)
    (plan,) = look.booked()
    still = (seen.jobs[0],) if plan.start < NOW + STAYS else ()
    then = replace(look, there=[plan], now=plan.start, picture=two_nodes(*still, wide))
    assert len(then.decide().decisions) == len(still)


def test_a_job_that_has_its_room_or_waits_for_something_else_gets_no_plan() -> None:
    assert Look(PAST_BOTH, large=AHEAD, rules=Rules()).booked(()) == ()
    held = replace(WIDE, reason="JobHeldUser")
    assert Look(two_nodes(run(1, "n1", HOUR), run(2, "n2"), held), large=AHEAD).booked() == ()


def test_one_plan_at_a_time_for_the_first_in_slurms_order() -> None:
    first = job(8, "poor", 16, node_count=2, terms=contract(HOUR), priority=200_000)
    jobs = (*HALF_WAY.jobs, first)
    assert [one.job_id for one in Look(two_nodes(*jobs), large=AHEAD).booked()] == [8]
    assert [one.job_id for one in Look(two_nodes(*jobs), large=AHEAD, there=[PLAN]).booked()] == [9]


def test_a_plan_that_can_be_kept_stays_as_it_is_and_one_that_cannot_is_made_anew() -> None:
    later = NOW + timedelta(minutes=10)
    assert Look(HALF_WAY, large=AHEAD, there=[PLAN], now=later).booked() == (PLAN,)
    longer = two_nodes(run(1, "n1", HOUR, 0), run(2, "n2"), WIDE)
    (moved,) = Look(longer, large=AHEAD, there=[PLAN]).booked()
    assert moved.start == NOW + timedelta(hours=1)
    left = two_nodes(*HALF_WAY.jobs[:2])
    assert Look(left, large=AHEAD, there=[PLAN]).booked() == ()


def test_planned_nodes_are_room_for_nobody_else() -> None:
    other = job(7, "poor", 8, terms=contract(HOUR), priority=900_000)
    seen = two_nodes(*HALF_WAY.jobs, other)
    assert [one.victim.job_id for one in Look(seen).decide().decisions] == [2]
    assert Look(seen, there=[PLAN]).decide().decisions == ()


def test_at_its_moment_all_yield_at_once_and_the_plan_becomes_a_guard() -> None:
    """Also where Slurm marks its nodes as reserved already."""
    marked = [replace(one, states=one.states | {"RESERVED"}) for one in (node("n1"), node("n2"))]
    for reason in ("Resources", "ReqNodeNotAvail, May be reserved for other job"):
        jobs = (*HALF_WAY.jobs[:2], replace(WIDE, reason=reason))
        look = Look(picture(marked, *jobs), large=AHEAD, rules=Rules(), there=[PLAN], now=PLAN.start)
        made = look.decide().decisions
        assert {one.victim.job_id for one in made} == {1, 2}
        assert look.booked(made) == (replace(GUARD, start=PLAN.start),)


def test_before_its_moment_reserved_nodes_are_those_of_others() -> None:
    marked = [replace(one, states=one.states | {"RESERVED"}) for one in (node("n1"), node("n2"))]
    seen = picture(marked, *PAST_BOTH.jobs)
    assert Look(seen, there=[PLAN], large=AHEAD).decide().decisions == ()


def test_where_all_left_early_the_job_is_let_in_at_once() -> None:
    unallocated = run(3, "n2", 0, qos="fs-unallocated")
    as_slurm_tells_it = replace(PLAN, user="root")
    look = Look(two_nodes(unallocated, WIDE), large=AHEAD, rules=Rules(), there=[as_slurm_tells_it])
    assert look.decide().decisions == ()
    assert look.booked() == (GUARD,)


def test_a_plan_whose_moment_has_passed_without_use_is_given_up() -> None:
    seen = two_nodes(run(1, "n1", account="poor", minimum=HOUR), run(2, "n2"), WIDE)
    late = PLAN.start + GUARDED.settle
    assert Look(seen, large=AHEAD, there=[PLAN], now=late).booked(()) == ()


@given(
    minima=st.lists(st.sampled_from([0, 60, 900, HOUR, 2 * HOUR]), min_size=4, max_size=4),
    started=st.lists(st.integers(0, 3 * HOUR), min_size=4, max_size=4),
    accounts=st.lists(st.sampled_from(["rich", "poor"]), min_size=4, max_size=4),
    limits=st.lists(st.integers(1, 5).map(lambda hours: timedelta(hours=hours)), min_size=4, max_size=4),
)
def test_no_plan_waits_for_a_moment_at_which_a_run_on_its_nodes_is_still_protected(
    minima: list[int], started: list[int], accounts: list[str], limits: list[timedelta]
) -> None:
    names = ("n1", "n2", "n3", "n4")
    runs = [
        replace(run(place, name, minima[place], started[place], accounts[place]), time_limit=limits[place])
        for place, name in enumerate(names)
    ]
    for one in Look(picture([node(name) for name in names], *runs, WIDE), large=AHEAD).booked():
        if one.kind is not Kind.PLAN:
            continue
        assert NOW < one.start <= NOW + AHEAD.plan_ahead
        for there in runs:
            assert there.start is not None
            assert there.time_limit is not None
            ends = there.start + there.time_limit
            protected = there.protected_until()
            gone = max(NOW, ends) <= one.start
            yields = there.account == "rich" and (protected is None or protected <= one.start)
            assert there.nodes[0] not in one.nodes or gone or yields or there.qos == "fs-unallocated"
