"""What holds the simulator to a real Slurm, held to numbers that were worked out by hand."""

from __future__ import annotations

import json

import pytest

from benchmarks.compared import Line, Outcome, Ran, figures, lines, rank_correlation, report, start_order, wait_by_job
from benchmarks.delays import Delays
from benchmarks.soak import TEAMS
from benchmarks.validate import JOBS, simulated, workload
from slurm_fairshare.sim.jobs import JobSpec, Workload

MADE = Workload(
    (
        JobSpec(0, 0, 10, 1, "a", klass="small"),
        JobSpec(1, 1, 20, 2, "a", klass="small"),
        JobSpec(2, 2, 30, 8, "b", klass="large", notice=True),
        JobSpec(3, 3, 20, 4, "b", klass="large"),
    ),
    {"a": 1.0, "b": 1.0},
)
SUBMITTED = {0: 0, 1: 1, 2: 2, 3: 3}
ONE = Outcome(
    SUBMITTED,
    [
        Ran(0, 1, 11, "COMPLETED", "n1"),
        Ran(1, 5, 25, "PREEMPTED", "n1"),
        Ran(2, 12, 40, "REQUEUED", "n2"),
        Ran(3, 23, 43, "COMPLETED", "n1"),
        Ran(1, 40, 61, "COMPLETED", "n1"),
        Ran(2, 70, 72, "COMPLETED", "n2"),
    ],
)


def with_starts(*starts: int) -> Outcome:
    return Outcome(SUBMITTED, [Ran(number, at, at + 10, "COMPLETED", "n1") for number, at in enumerate(starts)])


def test_the_figures_of_one_run() -> None:
    assert figures(MADE, ONE) == {
        "wait_mean_all": (1 + 4 + 10 + 20) / 4,
        "wait_p90_all": pytest.approx(17.0),
        "wait_mean_large": 15,
        "wait_p90_large": pytest.approx(19.0),
        "wait_mean_small": 2.5,
        "wait_p90_small": pytest.approx(3.7),
        "makespan": 72,
        "preempted": 1,
        "evicted": 1,
        "stopped": 2,
        "gpu_s_a": 10 + 20 * 2 + 21 * 2,
        "gpu_s_b": 28 * 8 + 20 * 4 + 2 * 8,
    }


def test_rank_correlation_by_the_book() -> None:
    """Without equals it is 1 - 6 sum d^2 / (n^3 - n), here with a sum of 182; equals share a rank."""
    assert rank_correlation([1, 2, 3], [10, 20, 90]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([7, 4, 3, 10, 6, 2, 9, 8, 1, 5], [5, 7, 3, 10, 1, 9, 6, 2, 8, 4]) == pytest.approx(
        1 - 6 * 182 / 990
    )
    assert rank_correlation([1, 1, 2], [1, 2, 2]) == pytest.approx(0.5)


def test_order_and_waits_by_job_look_at_first_starts() -> None:
    other = with_starts(1, 12, 5, 23)
    assert start_order(MADE, ONE, ONE) == pytest.approx(1)
    assert start_order(MADE, ONE, other) == pytest.approx(1 - 6 * 2 / 60)
    assert wait_by_job(MADE, ONE, [other]) == (0 + 7 + 7 + 0) / 4
    assert wait_by_job(MADE, ONE, [other, with_starts(1, 2, 5, 3)]) == (0 + 2 + 7 + 10) / 4


def test_a_line_says_how_far_the_mean_of_ours_is_from_the_real_mean() -> None:
    line = Line("makespan", (90.0, 100.0, 110.0), (101.0, 105.0))
    assert (line.mean, line.spread, line.predicted, line.aim) == (100, 10, 103, 2)
    assert line.error == pytest.approx(3)
    assert line.inside
    assert not Line("makespan", (99.0, 101.0), (102.0,)).inside
    assert Line("gpu_s_a", (1.0,), (1.0,)).aim == 2
    assert Line("wait_p90_small", (1.0,), (1.0,)).aim is None


def test_the_report_has_a_line_for_each_figure_and_names_what_is_missed() -> None:
    real = [with_starts(1, 5, 12, 23), with_starts(1, 12, 5, 24)]
    shown = list(report(lines(MADE, real, [with_starts(1, 5, 12, 43)])))
    makespan = next(line for line in shown if line.startswith("makespan"))
    assert "2%: missed" in makespan
    assert "outside the spread" in makespan
    assert "FIGURE validate_makespan_real_mean 33.500" in shown
    assert "FIGURE validate_makespan_ours 53.000" in shown
    assert "FIGURE validate_makespan_error_pct 58.209" in shown
    assert "FIGURE validate_start_order_real_mean 0.800" in shown


def test_an_outcome_comes_back_from_its_file() -> None:
    assert Outcome.from_json(json.loads(json.dumps(ONE.as_json()))) == ONE


def test_delays_are_read_off_the_clocks() -> None:
    """Job 2 was told 6 s before it ended, with a notice; job 1 was preempted and gone 0.25 s later."""
    notes = {
        "begun": 1000.0,
        "job_ids": {"0": 50, "1": 51, "2": 52, "3": 53},
        "log": [
            "2026-11-30T01:00:00.000000001Z slurmctld: preempted JobId=51 has been requeued to reclaim resources",
            "2026-11-30T01:00:00.250000001Z slurmctld: Requeuing JobId=51",
            "2026-11-30T01:00:09.000000001Z slurmctld: Requeuing JobId=52",
        ],
        "decisions": [
            {"victim": "52", "at": 1034.0, "outcome": "requeued"},
            {"victim": "53", "at": 1030.0, "outcome": "gone"},
        ],
        "pictures": [("main", 0.0), *(("t", 7.0 * i) for i in range(4)), *(("p", 3.0 * i) for i in range(9))],
    }  # fmt: skip
    other = Outcome(
        SUBMITTED,
        [Ran(3, 5, 15, "REQUEUED", "n1"), Ran(3, 40, 61, "COMPLETED", "n1"), Ran(0, 7, 19, "COMPLETED", "n1")],
        {**notes, "log": [], "decisions": [{"victim": "53", "at": 1011.0, "outcome": "requeued"}], "pictures": []},
    )
    measured = Delays.of(MADE, [Outcome(SUBMITTED, ONE.runs, notes), other])
    assert measured.launch == pytest.approx(2 / 3)
    assert (measured.kill, measured.act, measured.notice, measured.tick, measured.passes) == (0.25, 4, 2, 7, 3)


def test_the_workload_is_its_seeds_and_the_simulator_runs_all_of_it() -> None:
    made = workload(6)
    assert made == workload(6)
    assert made != workload(7)
    assert len(made.jobs) == JOBS
    assert {job.account for job in made.jobs} == set(TEAMS)
    delays = Delays(launch=0.4, kill=0.1, act=4, notice=6, tick=7, passes=3)
    ours = simulated(made, delays, phase=20)
    ends = [run.job for run in ours.runs if run.state == "COMPLETED"]
    assert sorted(ends) == list(range(JOBS))
    assert all(run.start >= ours.submitted[run.job] for run in ours.runs)
