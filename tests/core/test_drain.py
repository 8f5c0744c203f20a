"""Emptying nodes: unallocated work goes at once, contracts are kept, and the time when a node is free is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from slurm_fairshare.core.cluster import Node, Picture
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded, Rule, in_words
from slurm_fairshare.core.drain import Emptying, being_emptied, drain, emptying, marked
from slurm_fairshare.core.rebalance import Rules
from tests.core.build import LADDER, NOW, ago, contract, job, node, picture, ranking, tree

ORDER = ranking(tree(rich=1), rich=0.5)
HALF = {"terms": contract(3600), "started": 1800}


def drained(name: str, reason: str = marked("bad GPU")) -> Node:
    return replace(node(name, 0, 8, "MIXED", "DRAIN"), reason=reason)


def going(pic: Picture, rules: Rules | None = None, recent: tuple[Recorded, ...] = ()) -> tuple[Decision, ...]:
    return drain(pic, being_emptied(pic.nodes), ORDER, LADDER, rules or Rules(), recent, NOW)


def stays(pic: Picture) -> Emptying:
    return emptying(pic, being_emptied(pic.nodes), LADDER, Rules(), (), NOW)[0]


def test_unallocated_work_goes_at_once_and_a_contract_as_it_passes_its_minimum() -> None:
    pic = picture(
        [drained("n1"), node("n2")],
        job(1, "rich", 1, nodes=("n1",), started=5, terms=contract(0)),
        job(2, "rich", 1, nodes=("n1",), started=60),
        job(3, "rich", 1, nodes=("n1",), started=59),
        job(4, "rich", 1, nodes=("n2",), started=60),
    )
    found = going(pic)
    assert [one.victim.job_id for one in found] == [1, 2]
    assert {one.rule for one in found} == {Rule.DRAIN}
    assert found[0].preemptor is None
    assert "because its node is being drained" in in_words(found[0])


def test_the_standing_of_a_team_plays_no_part() -> None:
    pic = picture([drained("n1")], job(1, "stranger", 1, nodes=("n1",), started=100))
    assert [one.victim.leaf for one in going(pic)] == [""]


def test_a_run_on_several_nodes_goes_once_and_when_one_of_them_is_emptied() -> None:
    pic = picture([drained("n1"), drained("n2"), node("n3")], job(1, "rich", 24, nodes=("n1", "n2", "n3"), started=100))
    found = going(pic)
    assert [(one.victim.job_id, one.nodes) for one in found] == [(1, ("n1", "n2"))]


def test_only_nodes_that_the_command_drained_are_emptied_unless_the_site_says_all() -> None:
    pic = picture([drained("n1", "health check: no route")], job(1, "rich", 1, nodes=("n1",), started=100))
    assert going(pic) == ()
    assert [one.name for one in being_emptied(pic.nodes, every=True)] == ["n1"]


def test_what_cannot_be_stopped_or_is_not_understood_stays() -> None:
    keeps = job(1, "rich", 1, nodes=("n1",), started=100, requeueable=False)
    outside = replace(job(2, "rich", 1, nodes=("n1",), started=100), qos="normal", contract=None)
    pic = picture([drained("n1")], keeps, outside)
    assert going(pic) == ()
    assert ["to its time limit" in stay.words for stay in stays(pic).stays] == [True, True]


def test_a_run_that_was_told_already_is_not_told_again() -> None:
    pic = picture([drained("n1")], job(1, "rich", 1, nodes=("n1",), started=100))
    first = going(pic)
    for outcome in (Outcome.DECIDED, Outcome.NOTICED, Outcome.REFUSED):
        assert going(pic, recent=(Recorded(first[0], outcome, ago(10)),)) == ()


def test_the_time_when_the_node_is_free_is_that_of_the_last_run() -> None:
    pic = picture(
        [drained("n1")], job(1, "rich", 1, nodes=("n1",), **HALF), job(2, "rich", 1, nodes=("n1",), started=5)
    )
    assert stays(pic).free_at == NOW + timedelta(seconds=1800)
    endless = replace(job(3, "rich", 1, nodes=("n1",), started=5, requeueable=False), time_limit=None)
    assert stays(picture([drained("n1")], endless)).free_at is None
    assert stays(picture([drained("n1")])).free_at == NOW


def test_a_run_whose_time_limit_comes_first_is_expected_no_longer() -> None:
    brief = replace(job(1, "rich", 1, nodes=("n1",), **HALF), time_limit=timedelta(minutes=40))
    assert stays(picture([drained("n1")], brief)).free_at == NOW + timedelta(minutes=10)


def test_a_pass_stops_no_more_than_its_limit() -> None:
    runs = [job(n, "rich", 1, nodes=("n1",), started=100) for n in range(1, 6)]
    assert len(going(picture([drained("n1")], *runs), Rules(max_per_pass=3))) == 3
