"""Waits: from when a job could have started to its start, by kind, first starts and others apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.classes import Classes, Kind
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.waits import percentile, waits_of_queue, waits_of_runs
from tests.core.build import LADDER, NOW, contract, gpus, job, node, picture

CLASSES = Classes(small=8, medium=64)


def run(
    key: str,
    *,
    waited: float,
    count: int = 1,
    minimum: int = 3600,
    state: str = "COMPLETED",
    number: int = 1,
    ago: float = 0,
) -> Run:
    start = NOW - timedelta(seconds=ago)
    ready = start - timedelta(seconds=waited)
    return Run(
        cluster="test", key=key, job_id=number, label=str(number), account="A", user="u", uid=1, partition="gpu",
        qos="", state=state, submit=ready, eligible=ready, start=start, end=None, held=gpus(count),
        milli_gpus=count * 1000, charged=minimum > 0, contract=Contract(minimum),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("count", "minimum", "kind"),
    [
        (1, 900, Kind.DEBUG),
        (8, 900, Kind.DEBUG),
        (16, 900, Kind.MEDIUM),
        (8, 3600, Kind.SMALL),
        (9, 3600, Kind.MEDIUM),
        (64, 3600, Kind.MEDIUM),
        (65, 3600, Kind.LARGE),
        (65, 0, Kind.UNALLOCATED),
    ],
)
def test_a_job_is_of_the_kind_its_size_and_minimum_say(count: int, minimum: int, kind: Kind) -> None:
    assert waits_of_runs([run("1", waited=5, count=count, minimum=minimum)], CLASSES)[0].kind is kind


def test_a_wait_begins_when_the_job_could_have_started() -> None:
    late = run("1", waited=60)
    held = replace(late, submit=late.submit - timedelta(hours=9))
    assert waits_of_runs([held], CLASSES)[0].seconds == 60


@pytest.mark.parametrize("state", ["REQUEUED", "PREEMPTED", "NODE_FAIL"])
def test_a_wait_after_a_requeue_stands_apart(state: str) -> None:
    first, again = run("1", waited=5, state=state, ago=7200), run("2", waited=70)
    other = run("3", waited=9, number=2)
    assert [(one.seconds, one.again) for one in waits_of_runs([again, first, other], CLASSES)] == [
        (5, False),
        (70, True),
        (9, False),
    ]


def test_a_number_that_comes_round_again_is_another_job() -> None:
    assert [one.again for one in waits_of_runs([run("1", waited=1, ago=9e6), run("2", waited=1)], CLASSES)] == [
        False
    ] * 2


def test_what_holds_no_gpu_and_what_never_started_waits_for_none() -> None:
    never = replace(run("1", waited=1), start=None)
    assert waits_of_runs([never, run("2", waited=1, count=0, number=2)], CLASSES) == ()


def test_a_job_that_waits_still_counts_as_long_as_so_far() -> None:
    waiting = replace(
        job(1, "a", 4, terms=contract(3600)), eligible=NOW - timedelta(minutes=5), submit=NOW - timedelta(hours=1)
    )
    held = job(2, "a", 4, reason="JobHeldUser")
    found = waits_of_queue(picture([node("n1")], waiting, held, job(3, "a", 1, terms=contract(0))), CLASSES, LADDER)
    assert [(one.kind, one.seconds, one.waiting) for one in found] == [
        (Kind.SMALL, 300, True),
        (Kind.UNALLOCATED, 10, True),
    ]


def test_percentiles_are_waits_that_somebody_had() -> None:
    assert [percentile([10, 20, 30, 40], part) for part in (0.5, 0.9, 0.99, 1.0)] == [20, 40, 40, 40]
