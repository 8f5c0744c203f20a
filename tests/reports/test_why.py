"""`why`: the recorded decision in sentences, and how things stand now."""

from __future__ import annotations

import json

import pytest
from syrupy.assertion import SnapshotAssertion

from slurm_fairshare.core.decisions import Outcome, Recorded
from slurm_fairshare.reports.queue import queue_rows
from slurm_fairshare.reports.table import dump_json
from slurm_fairshare.reports.why import Why, facts, names, paragraphs, why
from tests.reports.sample import BASIS, DECISIONS, JOBS, LADDER, NOW, STALE, ranking

ROWS = queue_rows(JOBS, ranking(), LADDER, NOW)


def about(job: str) -> Why:
    return why(job, [one for one in DECISIONS if names(one, job)], ROWS, 5, BASIS)


def told(known: Why) -> str:
    return "\n\n".join("\n".join(paragraph) for paragraph in paragraphs(known))


@pytest.mark.parametrize(
    "job", ["1001", "1030", "1042", "1007", "1009", "1010_3", "1011", "1002", "1004", "1006", "77"]
)
def test_the_answer_reads_as_it_did(job: str, snapshot: SnapshotAssertion) -> None:
    assert told(about(job)) == snapshot


def test_a_victim_learns_who_why_by_how_much_and_what_became_of_it() -> None:
    words = told(about("1001"))
    for part in (
        "to job 1030 of carol (account robotics, 16 GPUs)",
        "lab/robotics had used 0.42 of its entitlement",
        "lab/language had used 1.17",
        "12m past its minimum runtime of 4h",
        "It was requeued at 2026-10-08T07:00:02Z",
    ):
        assert part in words


def test_where_nothing_is_recorded_it_says_so_and_where_to_look() -> None:
    assert told(about("77")).startswith("No decision about job 77 is recorded")
    assert "sacct -D -j 77" in told(about("77"))


def test_a_waiting_job_learns_its_place_and_who_is_ahead() -> None:
    words = told(about("1042"))
    assert "It is number 2 among the pending jobs." in words
    assert "Ahead of it: 1043 (bob, vision)." in words


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_its_sentence(outcome: Outcome) -> None:
    one = Recorded(DECISIONS[0].decision, outcome, NOW)
    assert told(why("1001", [one], (), 5, None))


def test_the_number_of_an_array_tells_of_its_tasks() -> None:
    assert about("1010").served == about("1010_3").served != ()
    assert about("1010_4").served == ()


def test_old_data_about_the_present_is_called_stale() -> None:
    assert "STALE" in told(why("1002", (), ROWS, 5, STALE))


def test_the_same_is_there_for_programs() -> None:
    known = json.loads(dump_json(facts(about("1001"))))
    assert known["stopped"][0]["preemptor"]["job"] == "1030"
    assert known["now"]["may_yield"] is True
    assert known["sentences"]
