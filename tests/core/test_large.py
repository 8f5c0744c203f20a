"""Large jobs that have waited long go first, and back again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import DebugLane, Priority
from slurm_fairshare.core.large import FIRST_RANK, Large, Lift, kept, lifts
from slurm_fairshare.core.plan import BAND, TOP_LABEL
from tests.core.build import LADDER, NOW, contract, job, ranking, tree

LARGE = Large(gpus=64, wait=timedelta(hours=12), max_ratio=1.2)
LABELS = {"a": 5 * BAND, "b": TOP_LABEL * BAND}


def big(number: int = 1, account: str = "a", gpus: int = 64, hours: float = 13, **more: object) -> Job:
    one = job(number, account, gpus, node_count=8, terms=contract(3600), **more)  # type: ignore[arg-type]
    return replace(one, eligible=NOW - timedelta(hours=hours))


def lifted(
    *jobs: Job, last: dict[int, int] | None = None, ratio: float = 0.8, large: Large | None = LARGE
) -> list[Lift]:
    order = ranking(tree(a=1, b=1), a=ratio)
    return list(lifts(jobs, order, LABELS, LADDER, large, last or {}, NOW))


def test_a_large_job_that_waited_long_stands_above_every_leaf_and_below_the_lane() -> None:
    found = lifted(big())
    assert [one.due for one in found] == [True]
    priority = LABELS["a"] + found[0].site_factor
    assert priority > TOP_LABEL * BAND + BAND - 1
    assert priority + 19_999 < DebugLane().priority + BAND
    assert priority == FIRST_RANK + Priority.NORMAL.site_factor


def test_small_young_unallocated_or_over_served_jobs_stay_where_they_are() -> None:
    assert lifted(big(gpus=63)) == []
    assert lifted(big(hours=11.9)) == []
    assert lifted(big(), ratio=1.2) == []
    assert lifted(replace(big(), qos="fs-unallocated")) == []
    assert lifted(big(account="stranger")) == []
    assert lifted(big(), large=None) == []


def test_what_was_set_is_not_set_again_and_follows_the_leafs_label() -> None:
    first = lifted(big())
    last = kept({}, first, [big()])
    assert lifted(big(), last=last) == []
    moved = lifts([big()], ranking(tree(a=1, b=1), a=0.8), {"a": 6 * BAND}, LADDER, LARGE, last, NOW)
    assert [one.site_factor for one in moved] == [first[0].site_factor - BAND]


def test_a_job_that_is_no_longer_due_or_has_started_gets_its_place_in_its_team_back() -> None:
    last = {1: lifted(big())[0].site_factor}
    own = Priority.NORMAL.site_factor
    assert lifted(big(), last=last, ratio=1.3) == [Lift(1, own, due=False)]
    running = replace(big(), state="RUNNING")
    assert lifted(running, last=last) == [Lift(1, own, due=False)]
    assert lifted(running, last={1: own}) == []
    assert lifted(big(), last=last, large=None) == [Lift(1, own, due=False)]


def test_a_task_that_started_gives_back_what_its_array_was_given() -> None:
    array = replace(big(7), label="7_[1-3]", array_size=3)
    task = replace(big(8), label="7_0", state="RUNNING")
    found = lifted(array, task)
    assert [(one.job_id, one.due) for one in found] == [(7, True), (8, False)]


def test_jobs_that_left_the_queue_are_forgotten() -> None:
    assert kept({1: 5, 2: 6}, [Lift(2, 7, due=False)], [big(2)]) == {2: 7}
