"""Who yields to whom: every rule of the design as a sentence, then properties over random pictures."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_fairshare.core.cluster import Job, Node, Picture
from slurm_fairshare.core.contract import DebugLane, Priority
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded, Rule, in_words
from slurm_fairshare.core.fairshare import Ranking, Standing, ranked
from slurm_fairshare.core.large import Large
from slurm_fairshare.core.rebalance import Pass, Rules, Why, rebalance
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.tree import Share, build
from tests.core.build import LADDER, NOW, ago, contract, gpus, job, node, picture, ranking, tree

TWO = [node("n1"), node("n2")]
TREE = tree(poor=1, rich=1)
HOUR_TERMS = contract(3600)


def look(
    pic: Picture,
    order: Ranking | None = None,
    rules: Rules | None = None,
    recent: tuple[Recorded, ...] = (),
    lane: DebugLane | None = None,
) -> Pass:
    order = order or ranking(TREE, poor=0.2, rich=1.8)
    return rebalance(pic, order, NOW, LADDER, lane, rules or Rules(), recent, NOW)


def stopped(result: Pass) -> list[int]:
    return sorted(one.victim.job_id for one in result.decisions)


def why(result: Pass) -> list[Why]:
    return [one.why for one in result.declined]


def full(account: str = "rich", started: float = 120, **more: object) -> tuple[Job, ...]:
    """Both nodes full with one 8-GPU run each."""
    return tuple(job(n, account, 8, nodes=(f"n{n}",), started=started, **more) for n in (1, 2))  # type: ignore[arg-type]


def test_an_over_served_run_past_its_minimum_yields_to_an_under_served_job() -> None:
    result = look(picture(TWO, *full(), job(9, "poor", 8)))
    assert len(result.decisions) == 1
    decision = result.decisions[0]
    assert (decision.rule, decision.min_runtime, decision.over_minimum) == (Rule.UNDER_SERVED, 60, 60)
    assert decision.preemptor is not None
    assert (decision.preemptor.node, decision.victim.node) == ("lab/poor", "lab/rich")
    assert (decision.preemptor.ratio, decision.victim.ratio) == (pytest.approx(0.2), pytest.approx(1.8))
    assert "60s" not in in_words(decision)
    assert "1m past its minimum runtime of 1m" in in_words(decision)


def test_a_run_one_second_short_of_its_minimum_is_safe_and_one_at_it_is_not() -> None:
    assert stopped(look(picture(TWO, *full(started=59), job(9, "poor", 8)))) == []
    assert len(stopped(look(picture(TWO, *full(started=60), job(9, "poor", 8))))) == 1


def test_the_declared_minimum_counts_not_the_rungs() -> None:
    """61 seconds land in the 15-minute rung; past 61 the run may yield although its QOS would protect 15 m."""
    assert len(stopped(look(picture(TWO, *full(started=61, terms=contract(61)), job(9, "poor", 8))))) == 1
    assert stopped(look(picture(TWO, *full(started=3599, terms=contract(3600)), job(9, "poor", 8)))) == []


def test_equal_ratios_stop_nobody() -> None:
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8)), ranking(TREE, poor=1.5, rich=1.5))) == []


def test_a_difference_within_the_hysteresis_stops_nobody() -> None:
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8)), ranking(TREE, poor=1.0, rich=1.09))) == []
    assert len(stopped(look(picture(TWO, *full(), job(9, "poor", 8)), ranking(TREE, poor=1.0, rich=1.11)))) == 1


def test_a_victim_under_target_is_safe_from_any_arrival() -> None:
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8)), ranking(TREE, poor=0.0, rich=0.99))) == []
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8)), ranking(TREE, poor=0.0, rich=1.0))) == []


def test_an_older_job_of_an_equally_served_team_waits() -> None:
    old = job(9, "poor", 8, started=10_000_000)
    assert stopped(look(picture(TWO, *full(), old), ranking(TREE, poor=1.2, rich=1.2))) == []


def test_inside_one_leaf_only_a_higher_in_team_priority_stops_a_run() -> None:
    urgent = contract(priority=Priority.HIGH)
    same = look(picture(TWO, *full(), job(9, "rich", 8)))
    higher = look(picture(TWO, *full(), job(9, "rich", 8, terms=urgent)))
    assert stopped(same) == []
    assert [one.rule for one in higher.decisions] == [Rule.IN_TEAM_PRIORITY]


def test_in_team_priority_never_counts_against_another_team() -> None:
    urgent = contract(priority=Priority.HIGH)
    order = ranking(TREE, poor=1.5, rich=1.5)
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8, terms=urgent)), order)) == []


def test_unallocated_work_never_stops_anybody() -> None:
    free = job(9, "poor", 8, terms=contract(0))
    result = look(picture(TWO, *full(), free))
    assert (stopped(result), why(result)) == ([], [Why.UNALLOCATED])


def test_a_team_without_a_share_never_stops_anybody() -> None:
    order = ranking(tree(poor=0, rich=1), rich=1.8)
    result = look(picture(TWO, *full(), job(9, "poor", 8)), order)
    assert (stopped(result), why(result)) == ([], [Why.NO_BUDGET])


def test_an_account_outside_the_tree_neither_stops_nor_yields() -> None:
    assert why(look(picture(TWO, *full(), job(9, "stranger", 8)))) == [Why.NO_BUDGET]
    assert stopped(look(picture(TWO, *full("stranger"), job(9, "poor", 8)))) == []


def test_what_unallocated_work_holds_is_left_to_slurm() -> None:
    """Slurm preempts unallocated work natively: nobody under contract is stopped for it."""
    pic = picture(TWO, *full()[:1], job(2, "rich", 8, nodes=("n2",), started=5, terms=contract(0)), job(9, "poor", 8))
    assert stopped(look(pic)) == []


def test_a_completing_run_still_holds_and_triggers_no_second_decision() -> None:
    leaving = replace(full()[0], state="COMPLETING")
    assert stopped(look(picture(TWO, leaving, full()[1], job(9, "poor", 8)))) == []


def test_a_job_that_no_nodes_could_hold_stops_nobody() -> None:
    result = look(picture(TWO, *full(), job(9, "poor", 24, node_count=3)))
    assert (stopped(result), why(result)) == ([], [Why.TOO_BIG])


def test_a_gpu_type_nobody_has_stops_nobody() -> None:
    typo = replace(job(9, "poor", 1), wanted=gpus(1, "h1000"))
    result = look(picture(TWO, *full(), typo))
    assert (stopped(result), why(result)) == ([], [Why.TOO_BIG])


def test_a_two_node_job_takes_both_victims_at_once_or_none() -> None:
    wide = job(9, "poor", 16, node_count=2)
    assert stopped(look(picture(TWO, *full(), wide))) == [1, 2]
    one_protected = (full()[0], *full(started=10)[1:])
    result = look(picture(TWO, *one_protected, wide))
    assert stopped(result) == []
    assert why(result) == [Why.NOBODY_YIELDS]
    assert "do not hold it whole" in result.declined[0].words


def test_the_smallest_sufficient_run_is_taken() -> None:
    pic = picture(
        TWO,
        job(1, "rich", 8, nodes=("n1",), started=120),
        job(2, "rich", 4, nodes=("n2",), started=120),
        job(3, "rich", 4, nodes=("n2",), started=120),
        job(9, "poor", 4),
    )
    assert stopped(look(pic))[0] in (2, 3)
    assert len(stopped(look(pic))) == 1


def test_resumable_runs_yield_before_those_that_are_not() -> None:
    pic = picture(
        TWO,
        job(1, "rich", 8, nodes=("n1",), started=120, terms=contract(resumable=False)),
        job(2, "rich", 8, nodes=("n2",), started=5000),
        job(9, "poor", 4),
    )
    assert stopped(look(pic)) == [2]


def test_least_work_lost_is_preferred() -> None:
    pic = picture(
        TWO,
        job(1, "rich", 8, nodes=("n1",), started=1790),
        job(2, "rich", 8, nodes=("n2",), started=1805),
        job(9, "poor", 8),
    )
    assert stopped(look(pic)) == [2]  # five seconds after its assumed checkpoint, not 1,790


def test_most_over_target_is_preferred_when_the_rest_is_equal() -> None:
    over = tree(poor=1, rich=1, richer=1)
    pic = picture(
        TWO,
        job(1, "rich", 8, nodes=("n1",), started=120),
        job(2, "richer", 8, nodes=("n2",), started=120),
        job(9, "poor", 8),
    )
    assert stopped(look(pic, ranking(over, poor=0.1, rich=1.5, richer=2.5))) == [2]


def test_the_comparison_is_made_just_below_the_lowest_common_ancestor() -> None:
    """vision as a whole is under target, so its leaf is safe from nlp, however far over its own share it is."""
    deep = build(
        {
            "": (Share("nlp", 1), Share("vision", 1)),
            "nlp": (Share("poor", 1, "poor"),),
            "vision": (Share("rich", 1, "rich"), Share("idle", 9, "idle")),
        }
    )
    pic = picture(TWO, *full(), job(9, "poor", 8))
    assert stopped(look(pic, ranking(deep, nlp=0.5, vision=0.9, rich=9.0))) == []
    assert len(stopped(look(pic, ranking(deep, nlp=0.5, vision=1.3, rich=9.0)))) == 1


def test_two_preemptors_are_not_given_the_same_gpus() -> None:
    result = look(picture(TWO, *full(), job(8, "poor", 8, priority=300_000), job(9, "poor", 8)))
    assert stopped(result) == [1, 2]
    assert {one.nodes for one in result.decisions} == {("n1",), ("n2",)}


def test_one_job_that_cannot_be_placed_does_not_end_the_pass() -> None:
    stuck = job(8, "poor", 16, node_count=2, priority=300_000)
    pic = picture(TWO, full()[0], full(started=5)[1], stuck, job(9, "poor", 8, reason="Priority"))
    result = look(pic)
    assert stopped(result) == [1]
    assert why(result) == [Why.NOBODY_YIELDS]


def test_only_the_first_blocked_jobs_are_served_in_a_pass() -> None:
    waiting = [job(10 + n, "poor", 8) for n in range(3)]
    pic = picture([*TWO, node("n3")], *full(), job(3, "rich", 8, nodes=("n3",), started=120), *waiting)
    assert len(stopped(look(pic))) == 2
    assert len(stopped(look(pic, rules=Rules(preemptors=1)))) == 1


@pytest.mark.parametrize(
    "reason", ["Dependency", "BeginTime", "JobHeldUser", "MaxGRESPerAccount", "QOSMaxJobsPerUserLimit"]
)
def test_a_job_that_a_limit_would_stop_anyway_stops_nobody(reason: str) -> None:
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8, reason=reason)))) == []


def test_what_is_not_modelled_is_not_acted_on_and_says_so() -> None:
    odd = job(9, "poor", 8, constraints=("licenses=matlab:1",))
    result = look(picture(TWO, *full(), odd))
    assert (stopped(result), why(result)) == ([], [Why.NOT_MODELLED])
    assert "licenses=matlab:1" in result.declined[0].words


def test_features_and_excluded_nodes_are_respected() -> None:
    fast = [replace(TWO[0], features=("ib",)), TWO[1]]
    assert stopped(look(picture(fast, *full(), job(9, "poor", 8, constraints=("features=ib",))))) == [1]
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8, constraints=("excluded_nodes=n1",))))) == [2]
    assert stopped(look(picture(TWO, *full(), job(9, "poor", 8, partitions=("cpu",))))) == []


def test_drained_and_down_nodes_hold_nobody() -> None:
    pic = picture([node("n1", 0, 8, "IDLE", "DRAIN"), node("n2", 0, 8, "DOWN")], *full(), job(9, "poor", 8))
    result = look(pic)
    assert (stopped(result), why(result)) == ([], [Why.TOO_BIG])


def test_cpus_and_memory_count_too() -> None:
    hungry = replace(job(9, "poor", 1), wanted=Resources(gpus={"h100": 1}, cpus=64, memory_mb=64_000))
    pic = picture([TWO[0]], job(1, "rich", 2, nodes=("n1",), started=120), hungry)
    assert stopped(look(pic)) == [1]


def test_a_run_that_cannot_be_requeued_is_ended_only_if_it_is_not_resumable() -> None:
    session = {"batch": False, "started": 120}
    keeps = full(**session, terms=contract(resumable=True))  # type: ignore[arg-type]
    ends = full(**session, terms=contract(resumable=False))  # type: ignore[arg-type]
    assert stopped(look(picture(TWO, *keeps, job(9, "poor", 8)))) == []
    result = look(picture(TWO, *ends, job(9, "poor", 8)))
    assert [one.requeue for one in result.decisions] == [False]


def test_a_run_whose_contract_is_not_known_is_left_alone() -> None:
    unknown = tuple(replace(run, contract=None) for run in full())
    assert stopped(look(picture(TWO, *unknown, job(9, "poor", 8)))) == []


def test_stale_data_stops_nobody_and_says_so() -> None:
    pic = picture(TWO, *full(), job(9, "poor", 8))
    order = ranking(TREE, poor=0.2, rich=1.8)
    result = rebalance(pic, order, ago(301), LADDER, None, Rules(), (), NOW)
    assert (stopped(result), why(result)) == ([], [Why.STALE])
    assert "5m1s old" in result.declined[0].words


def past(result: Pass, seconds: float, outcome: Outcome = Outcome.REQUEUED) -> tuple[Recorded, ...]:
    """The pass's decisions as if taken some seconds ago."""
    return tuple(Recorded(replace(one, at=ago(seconds)), outcome, ago(seconds)) for one in result.decisions)


def test_while_room_made_for_a_job_settles_nobody_else_is_stopped_for_it() -> None:
    pic = picture(TWO, *full(), job(9, "poor", 8))
    first = look(pic)
    assert why(look(pic, recent=past(first, 30))) == [Why.OUTSTANDING]


def test_a_pair_whose_preemptor_did_not_start_is_not_tried_again_for_a_while() -> None:
    pic = picture(TWO, *full(), job(9, "poor", 8))
    first = look(pic)
    again = look(pic, recent=past(first, 120))
    assert len(again.decisions) == 1
    assert stopped(again) != stopped(first)
    assert stopped(look(pic, recent=past(first, 601))) == stopped(first)


def test_after_some_attempts_in_vain_the_job_is_given_up_on() -> None:
    pic = picture(TWO, *full(), job(9, "poor", 8))
    first = look(pic)
    tries = past(first, 120) + past(first, 200) + past(first, 300)
    assert why(look(pic, recent=tries)) == [Why.GAVE_UP]


def test_a_dry_run_counts_for_nothing() -> None:
    pic = picture(TWO, *full(), job(9, "poor", 8))
    first = look(pic)
    shown = tuple(Recorded(replace(one.decision, dry_run=True), one.outcome, one.changed) for one in past(first, 10))
    assert stopped(look(pic, recent=shown)) == stopped(first)


def test_rate_limits_hold_per_pass_per_hour_and_per_team() -> None:
    pic = picture(TWO, *full(), job(9, "poor", 8))
    other = look(picture(TWO, *full(), job(7, "poor", 8)))
    many = past(other, 700)
    assert why(look(pic, rules=Rules(max_per_hour=1), recent=many)) == [Why.RATE_LIMIT]
    assert why(look(pic, rules=Rules(max_per_team_hour=1), recent=many)) == [Why.RATE_LIMIT]
    wide = job(9, "poor", 16, node_count=2)
    assert why(look(picture(TWO, *full(), wide), rules=Rules(max_per_pass=1))) == [Why.RATE_LIMIT]


def test_a_debug_job_may_take_from_any_other_leaf_over_target() -> None:
    short = job(9, "poor", 4, terms=contract(600))
    long = full(terms=HOUR_TERMS, started=4000)
    order = ranking(TREE, poor=1.75, rich=1.8)
    assert stopped(look(picture(TWO, *long, short), order)) == []
    result = look(picture(TWO, *long, short), order, lane=DebugLane())
    assert [one.rule for one in result.decisions] == [Rule.DEBUG_LANE]
    under = ranking(TREE, poor=1.75, rich=0.9)
    assert stopped(look(picture(TWO, *long, short), under, lane=DebugLane())) == []


def test_a_debug_job_takes_from_no_other_debug_job_and_from_none_who_would_take_it_back() -> None:
    short = job(9, "poor", 4, terms=contract(600))
    even = ranking(TREE, poor=1.75, rich=1.8)
    assert stopped(look(picture(TWO, *full(started=700), short), even, lane=DebugLane())) == []
    long = full(terms=HOUR_TERMS, started=4000)
    behind = ranking(TREE, poor=1.75, rich=1.4)
    assert stopped(look(picture(TWO, *long, short), behind, lane=DebugLane())) == []


def test_the_lane_does_not_use_up_the_general_preemptors() -> None:
    lane = [job(20 + n, "poor", 1, terms=contract(600), priority=3_000_000_000) for n in range(3)]
    big = [job(30 + n, "poor", 8, terms=HOUR_TERMS) for n in range(2)]
    many = [node(f"n{n}") for n in range(1, 6)]
    runs = [job(n, "rich", 8, nodes=(f"n{n}",), started=120) for n in range(1, 6)]
    result = look(picture(many, *runs, *lane, *big), lane=DebugLane())
    takers = {one.preemptor.job_id for one in result.decisions if one.preemptor}
    assert {30, 31} <= takers


@st.composite
def pictures(draw: st.DrawFn) -> tuple[Picture, Ranking]:
    names = ["a", "b", "c"]
    nodes = [node(f"n{n}") for n in range(draw(st.integers(1, 4)))]
    jobs: list[Job] = []
    number = 0
    for one in nodes:
        left = 8
        while left > 0 and draw(st.booleans()):
            size = draw(st.integers(1, left))
            left -= size
            number += 1
            terms = contract(draw(st.sampled_from([0, 60, 900])), resumable=draw(st.booleans()))
            jobs.append(
                job(
                    number,
                    draw(st.sampled_from(names)),
                    size,
                    nodes=(one.name,),
                    started=draw(st.integers(0, 2000)),
                    terms=terms,
                    batch=draw(st.booleans()),
                )
            )
    for _ in range(draw(st.integers(1, 5))):
        number += 1
        count = draw(st.integers(1, 3))
        jobs.append(
            job(
                number,
                draw(st.sampled_from(names)),
                count * draw(st.integers(1, 8)),
                node_count=count,
                terms=contract(draw(st.sampled_from([0, 60, 3600]))),
                priority=draw(st.integers(1, 5)) * 100_000,
            )
        )
    over = tree(a=draw(st.integers(0, 3)), b=draw(st.integers(1, 3)), c=1)
    ratios = {name: draw(st.floats(0, 3)) for name in names}
    return picture(nodes, *jobs), ranking(over, **ratios)


def _room(pic: Picture, decisions: tuple[Decision, ...], name: str) -> int:
    """GPUs on a node that are free, held by unallocated work or by the decisions' victims."""
    gone = {one.victim.job_id for one in decisions}
    at = pic.node(name)
    assert isinstance(at, Node)
    back = sum(
        run.by_node[name].gpu_count
        for run in pic.holding
        if name in run.by_node and (run.job_id in gone or run.qos == LADDER.unallocated.name)
    )
    return at.free.gpu_count + back


@settings(max_examples=300, deadline=None)
@given(pictures())
def test_over_random_pictures_every_eviction_is_allowed_needed_and_sufficient(made: tuple[Picture, Ranking]) -> None:
    pic, order = made
    result = look(pic, order, rules=Rules(preemptors=5), lane=None)
    by_id = {one.job_id: one for one in pic.jobs}
    assert len(stopped(result)) == len(set(stopped(result)))
    for one in result.decisions:
        assert one.preemptor is not None
        run = by_id[one.victim.job_id]
        assert LADDER.is_charged(run.qos)
        assert run.contract is not None
        assert run.start is not None
        assert (NOW - run.start).total_seconds() >= run.contract.min_runtime
        assert order.standings[f"lab/{one.preemptor.account}"].share > 0
        assert one.victim.ratio > 1
        assert one.victim.ratio - one.preemptor.ratio > 0.10
        assert (run.batch and run.requeueable) == one.requeue
        assert one.requeue or not run.contract.resumable
    for taker in {one.preemptor.job_id for one in result.decisions if one.preemptor}:
        mine = [one for one in result.decisions if one.preemptor and one.preemptor.job_id == taker]
        wants = by_id[taker]
        each = -(-wants.wanted.gpu_count // wants.node_count)
        assert len(mine[0].nodes) >= wants.node_count
        assert all(_room(pic, result.decisions, name) >= each for name in mine[0].nodes)
    assert look(pic, order, rules=Rules(preemptors=5), lane=None) == result


@settings(max_examples=200, deadline=None)
@given(pictures())
def test_no_two_runs_ever_stop_each_other_in_turn(made: tuple[Picture, Ranking]) -> None:
    """Whoever was stopped for somebody could not, at the same standing, stop that somebody."""
    pic, order = made
    for one in look(pic, order, rules=Rules(preemptors=5), lane=None).decisions:
        assert one.preemptor is not None
        assert not one.preemptor.ratio - one.victim.ratio > 0.10
        assert one.preemptor.ratio < one.victim.ratio


def test_nothing_changes_with_the_order_in_which_slurm_lists_jobs() -> None:
    jobs = [*full(), job(8, "poor", 8), job(9, "poor", 4)]
    assert look(picture(TWO, *jobs)) == look(picture(TWO, *reversed(jobs)))


def test_a_pass_later_protection_ends_and_the_run_yields() -> None:
    soon = full(started=50)
    pic = picture(TWO, *soon, job(9, "poor", 8))
    later = replace(pic, at=NOW + timedelta(seconds=10))
    order = ranking(TREE, poor=0.2, rich=1.8)
    assert rebalance(later, order, NOW, LADDER, None, Rules(), (), NOW + timedelta(seconds=10)).decisions


def test_a_leaf_is_compared_with_its_sibling_whatever_place_their_programme_has() -> None:
    """Two blocked jobs of a programme that comes first do not hide the starved leaf of one that comes later."""
    tree = build(
        {
            "": (Share("one", 1), Share("two", 1)),
            "one": (Share("lead", 1, "lead"),),
            "two": (Share("rich", 1, "rich"), Share("poor", 1, "poor")),
        }
    )
    standings = {
        "one": Standing(100, 95, 0.5), "one/lead": Standing(100, 95, 0.5), "two": Standing(100, 100, 0.5),
        "two/rich": Standing(50, 90, 0.25), "two/poor": Standing(50, 10, 0.25),
    }  # fmt: skip
    ranking = Ranking(tree, standings, ranked(tree, standings))
    ahead = [job(20 + n, "lead", 8, priority=900_000) for n in range(2)]
    pic = picture(TWO, *full(), *ahead, job(30, "poor", 8))
    result = rebalance(pic, ranking, NOW, LADDER, None, Rules(), (), NOW)
    assert [one.preemptor.job_id for one in result.decisions if one.preemptor] == [30]


def test_a_site_may_keep_a_team_from_stopping_its_own_runs() -> None:
    urgent = job(9, "rich", 8, terms=contract(3600, priority=Priority.HIGH))
    assert len(stopped(look(picture(TWO, *full(), urgent)))) == 1
    assert stopped(look(picture(TWO, *full(), urgent), rules=Rules(in_team=False))) == []


def test_a_run_that_does_not_resume_yields_only_across_a_larger_gap() -> None:
    """All its work would be lost: not for a tenth of a ratio, nor for its own team's urgent job or a debug job."""
    held = full(terms=contract(resumable=False))
    near, far = ranking(TREE, poor=0.8, rich=1.29), ranking(TREE, poor=0.8, rich=1.31)
    asks = picture(TWO, *held, job(9, "poor", 8, terms=HOUR_TERMS))
    assert stopped(look(asks, near)) == []
    assert len(stopped(look(asks, far))) == 1
    assert len(stopped(look(asks, near, rules=Rules(hysteresis_restart=0.4)))) == 1
    short, minute, two = (
        picture(TWO, *held, job(9, "poor", 8, terms=contract(promised))) for promised in (39, 119, 120)
    )
    assert stopped(look(minute, far)) == [], "two minutes are lost, and less is promised"
    assert len(stopped(look(two, far))) == 1
    assert len(stopped(look(minute))) == 1, "a gap of more than one outweighs up to twice as much"
    assert stopped(look(short)) == [], "but not what is lost three times over"
    once, thrice = (
        picture(TWO, *(replace(run, restarts=n) for run in held), job(9, "poor", 8, terms=HOUR_TERMS)) for n in (1, 3)
    )
    assert stopped(look(once, far)) == [], "it has begun anew before"
    assert len(stopped(look(once))) == 1
    assert stopped(look(thrice)) == []
    urgent = job(9, "rich", 8, terms=contract(priority=Priority.HIGH))
    assert stopped(look(picture(TWO, *held, urgent))) == []
    level = ranking(TREE, poor=1.05, rich=1.1)
    debug = job(9, "poor", 1, terms=contract(900))
    lasting = full(started=4000, terms=contract(3600, resumable=False))
    assert stopped(look(picture(TWO, *lasting, debug), level, lane=DebugLane())) == []
    hours = full(started=4000, terms=HOUR_TERMS)
    assert len(stopped(look(picture(TWO, *hours, debug), level, lane=DebugLane()))) == 1


def test_a_large_job_that_has_waited_long_may_take_from_any_team_that_has_had_more() -> None:
    """Sixteen nodes whose runs all belong to a team far enough behind are never found at one moment."""
    rules, level = Rules(large=Large(gpus=16)), ranking(TREE, poor=0.85, rich=0.9)
    runs = full(started=4000, terms=HOUR_TERMS)
    day = 86_400

    def asks(waited: float, count: int = 16) -> Picture:
        return picture(TWO, *runs, job(9, "poor", count, node_count=count // 8, started=waited, terms=HOUR_TERMS))

    result = look(asks(day), level, rules)
    assert stopped(result) == [1, 2]
    assert {one.rule for one in result.decisions} == {Rule.LARGE_JOB}
    assert "large job" in in_words(result.decisions[0])
    assert stopped(look(asks(3600), level, rules)) == [], "it has not waited long"
    assert stopped(look(asks(day, 8), level, rules)) == [], "it is not large"
    assert stopped(look(asks(day), level)) == [], "the site has no such rule"
    assert stopped(look(asks(day), ranking(TREE, poor=0.9, rich=0.9), rules)) == [], "the other has not had more"


def test_a_debug_job_may_take_from_any_team_that_has_had_more_or_is_over_target() -> None:
    """Where everybody gets what is owed, hardly anybody is over target, and debug jobs would wait for that."""
    asks = picture(TWO, *full(started=4000, terms=HOUR_TERMS), job(9, "poor", 1, terms=contract(900)))

    def takes(poor: float, rich: float) -> bool:
        result = look(asks, ranking(TREE, poor=poor, rich=rich), lane=DebugLane())
        assert {one.rule for one in result.decisions} <= {Rule.DEBUG_LANE}
        return bool(result.decisions)

    assert takes(poor=0.85, rich=0.9), "it has had more, though less than its due"
    assert takes(poor=1.04, rich=1.01), "it is over target, and the two are near each other"
    assert not takes(poor=1.07, rich=1.01), "it could take it back at once"
    assert not takes(poor=0.9, rich=0.9), "it has neither had more nor its due"


def test_a_patient_job_takes_only_runs_that_have_just_saved_until_it_has_waited_long_enough() -> None:
    patient = Rules(patience=timedelta(minutes=30))
    late, just = 8 * 3600.0 + 1200, 8 * 3600.0 + 120
    asks = job(9, "poor", 8, started=60)

    def runs(first: float, second: float, **more: object) -> Picture:
        return picture(
            TWO, *(job(n, "rich", 8, nodes=(f"n{n}",), started=at, **more) for n, at in ((1, first), (2, second))), asks
        )  # type: ignore[arg-type]

    assert stopped(look(runs(late, just), rules=patient)) == [2]
    nobody = look(runs(late, late), rules=patient)
    assert (stopped(nobody), why(nobody)) == ([], [Why.PATIENCE])
    assert "2 runs past their minimum would yield to it" in nobody.declined[0].words
    assert stopped(look(runs(late, late, checkpoint=ago(100)), rules=patient)) == [1], "it said when it saved"
    assert stopped(look(runs(late, late, terms=replace(contract(60), notice="USR1")), rules=patient)) == [1], (
        "it saves when told"
    )
    assert stopped(look(runs(late, late))) == [1], "nobody is patient where nothing is said"
    asks = job(9, "poor", 8, started=1800)
    assert stopped(look(runs(late, late), rules=patient)) == [1], "it has waited long enough"
    asks = job(9, "poor", 8, started=60, terms=contract(900))
    assert stopped(look(runs(late, late), rules=patient, lane=DebugLane())) == [1], "no debug job waits for that"
