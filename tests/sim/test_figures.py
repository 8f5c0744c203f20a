"""Meters, scores, traces, scenarios, studies, the report."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_fairshare.cli.simulate import simulate as command
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.delivery import delivery, together
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.window import Piece, Weight, Window, weighed
from slurm_fairshare.errors import ConfigError
from slurm_fairshare.sim import html, study, trace
from slurm_fairshare.sim.budget import Budget
from slurm_fairshare.sim.jobs import JobSpec, Machine, Workload
from slurm_fairshare.sim.ledger import Meter
from slurm_fairshare.sim.scenario import Scenario, flat_shares, load
from slurm_fairshare.sim.score import score
from tests.sim.build import SHARES, TINY, bytes_of, random_jobs, run, tiny

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-3, 3)), min_size=1, max_size=20),
    st.integers(0, 500),
    st.integers(0, 500),
)
@settings(max_examples=80)
def test_a_meter_reads_what_a_sum_over_seconds_gives(steps: list[tuple[int, int]], one: int, other: int) -> None:
    meter, at, changes = Meter(), 0, []
    for pause, by in steps:
        at += pause
        meter.change(at, by)
        changes.append((at, by))
    start, end = min(one, other), max(one, other)
    expected = sum(sum(by for when, by in changes if when <= second) for second in range(start, end))
    assert meter.between(start, end) == expected
    if end >= at:
        assert meter.recent(start, end) == expected
    assert sum(meter.bins(start, end, 7)) == expected


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 4)), min_size=1, max_size=12))
@settings(max_examples=50)
def test_a_weighed_meter_agrees_with_core(steps: list[tuple[int, int]]) -> None:
    half = timedelta(hours=2)
    meter, at, level, parts = Meter(), 0, 0, []
    for length, new in steps:
        meter.change(at, new - level)
        level = new
        parts.append(Piece(Window(EPOCH + timedelta(seconds=at), EPOCH + timedelta(seconds=at + length)), new))
        at += length
    expected = weighed(parts, Weight(half), EPOCH + timedelta(seconds=at))
    assert meter.weighed(0, at, half) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_owed_counts_waiting_demand_each_hour_and_surplus_makes_up_for_nobody() -> None:
    lazy = delivery([10.0, 10.0], [4.0, 0.0], [4.0, 0.0])
    starved = delivery([10.0, 10.0], [50.0, 50.0], [0.0, 5.0])
    greedy = delivery([10.0, 10.0], [50.0, 50.0], [30.0, 30.0])
    assert (lazy.delivered, starved.delivered, greedy.delivered) == (1.0, 0.25, 1.0)
    assert starved.hourly == 0.25
    assert together([lazy, starved, greedy]) == (4 + 5 + 20) / 44
    assert together([]) == 1.0
    assert delivery([], [], []).hourly == 1.0


def test_a_score_counts_by_hand() -> None:
    jobs = (
        JobSpec(0, 0, 7200, 8, "a", min_runtime=3600, klass="x"),
        JobSpec(1, 0, 3600, 8, "b", min_runtime=3600, klass="x"),
    )
    from slurm_fairshare.sim.engine import Timing

    result = run(Workload(jobs, {"a": 1, "b": 1}), study.Easy(), nodes=1, timing=Timing.ideal())
    one = score(result, 0, 10_800)
    assert one.occupancy == 1.0
    assert one.waits["x"].p50 == 3600
    by_path = {team.path: team for team in one.teams}
    assert by_path["b"].owed == pytest.approx(4 * 3)
    assert by_path["a"].owed == pytest.approx(4 * 2)
    assert by_path["b"].delivered == pytest.approx(8 / 12)
    assert one.delivered == pytest.approx((8 + 8) / 20)


def test_a_trace_written_and_read_is_the_same(tmp_path: Path) -> None:
    workload = random_jobs(3)
    (tmp_path / "jobs.csv").write_text(trace.write_csv(workload))
    again = trace.read(tmp_path / "jobs.csv", SHARES)
    assert again.jobs == workload.jobs
    assert bytes_of(run(again, Budget())) == bytes_of(run(workload, Budget()))


def test_parquet_reads_as_csv_does(tmp_path: Path) -> None:
    workload = random_jobs(4)
    (tmp_path / "j.csv").write_text(trace.write_csv(workload))
    polars.read_csv(tmp_path / "j.csv").write_parquet(tmp_path / "j.parquet")
    assert trace.read(tmp_path / "j.parquet", SHARES).jobs == workload.jobs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("submit,work,gpus\n1,2,3\n", "lacks account"),
        ("submit,work,gpus,account,colour\n1,2,3,a,red\n", "colour, which mean nothing here"),
        ("submit,work,gpus,account\n1,two,3,a\n", "line 2: work is 'two'"),
        ("submit,work,gpus,account\nsoon,2,3,a\n", "write seconds from the start"),
        ("submit,work,gpus,account\n1,2,-3,a\n", "none below zero"),
        ("submit,work,gpus,account\n", "holds no jobs"),
    ],
)
def test_a_trace_that_cannot_be_read_says_what_to_write(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(trace.TraceError, match=says):
        trace.read(tmp_path / "t.csv")


def test_swf_is_read_and_jobs_that_never_ran_are_left_out() -> None:
    line = "{} {} 5 {} 128 -1 -1 128 10800 -1 1 7 3 -1 -1 -1 -1 0"
    text = "; UnixStartTime: 0\n" + "\n".join(
        [line.format(1, 1000, 600), line.format(2, 900, -1), line.format(3, 990, 60)]
    )
    workload = trace.from_swf(text, "theta")
    assert [(job.submit, job.work, job.gpus, job.account, job.limit) for job in workload.jobs] == [
        (0, 60, 128, "g3", 10_800), (10, 600, 128, "g3", 10_800),
    ]  # fmt: skip


def test_the_attempts_of_a_job_are_one_job_again() -> None:
    def attempt(key: str, submit: int, start: int, end: int) -> Run:
        at = [EPOCH + timedelta(seconds=s) for s in (submit, start, end)]
        return Run(
            "c", key, 7, "7", "lab", "ann", 1, "gpu", "fs-1h", "REQUEUED", at[0], at[0], at[1], at[2],
            Resources({"h100": 4}), 4000, True, Contract(3600, resumable=True),
        )  # fmt: skip

    workload = trace.from_runs([attempt("2", 500, 700, 1700), attempt("1", 100, 200, 500)])
    (job,) = workload.jobs
    assert (job.work, job.gpus, job.kind, job.min_runtime, job.resumable, job.account) == (
        1300,
        4,
        "h100",
        3600,
        True,
        "lab",
    )


def test_sacct_output_is_a_workload() -> None:
    from slurm_fairshare.slurm.accounting import FIELDS

    row = ["7", "7", "11", "c", "lab", "1", "ann", "gpu", "fs-1h", "COMPLETED",
           "1700000100", "1700000100", "1700000200", "1700000500",
           "gres/gpu=4,node=1", "n1", "fairshare min_runtime=3600 resumable=yes priority=high"]  # fmt: skip
    workload = trace.from_sacct("|".join(FIELDS) + "\n" + "|".join(row) + "\n")
    (job,) = workload.jobs
    assert (job.work, job.gpus, job.min_runtime, job.priority) == (300, 4, 3600, 2)
    with pytest.raises(trace.TraceError, match="ask for --format"):
        trace.from_sacct("nothing\n")


def test_a_scenario_file_that_cannot_be_used_names_every_fault(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("nodes: [{count: 0, gpus: 8}]\nshares: {a: 1}\nclasses: {}\ndays: -1\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "s.yaml")
    assert "nodes.0.count" in str(caught.value)
    assert "days" in str(caught.value)
    assert flat_shares({"x": {"weight": 2, "y": 3}, "z": 1}) == {"x": 2.0, "x/y": 3.0, "z": 1.0}


def test_users_hold_back_when_their_queue_is_deep() -> None:
    result = tiny(Budget())
    train = result.ledger.wanted
    entitled = {"a": 32 * 2 / 9, "b": 32 * 4 / 9, "c": 32 / 3}
    for account, meter in train.items():
        assert max(meter.rate) <= entitled[account] * (3 + 1) + 16


def test_a_sweep_is_taken_up_where_it_was_left(tmp_path: Path) -> None:
    base = study.Case("budget", scenario=Scenario(**{**TINY, "days": 0.5, "warmup": 0.1}))
    cases = study.grid(base, {"hysteresis": ["0.05", "0.2"]}, [1])
    assert list(study.sweep(cases[:1], tmp_path))[-1] == (1, 1)
    kept = next(tmp_path.glob("*.json")).stat().st_mtime_ns
    assert list(study.sweep(cases, tmp_path)) == [(1, 2), (2, 2)]
    assert min(path.stat().st_mtime_ns for path in tmp_path.glob("*.json")) == kept
    best = study.by_setting(study.rows_of(cases, tmp_path), ["hysteresis"])
    assert {row["hysteresis"] for row in best} == {"0.05", "0.2"}


def test_knobs_are_turned_by_name_and_unknown_ones_are_refused() -> None:
    case = study.turn(study.Case("budget"), {"lookback": "3d", "cap": "4h", "lane": "off", "hysteresis": "0.2"})
    assert case.knobs.lookback == timedelta(days=3)
    assert case.knobs.ladder.cap == 14_400
    assert case.knobs.lane is None
    assert case.knobs.rules.hysteresis == 0.2
    with pytest.raises(ConfigError, match="there is no knob 'colour'"):
        study.turn(study.Case("budget"), {"colour": "red"})
    with pytest.raises(ConfigError, match="a trace has the demand it has"):
        study.turn(study.Case("budget", workload=random_jobs(1), machine=Machine.uniform(1, 8)), {"demand": "2"})


def test_the_report_is_one_file_that_loads_nothing() -> None:
    result = tiny(Budget())
    page = html.page([(result, score(result, 0))], hours=12, nodes=2)
    assert page.count("<svg") > 5
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page


def test_run_and_compare_from_the_command_line(tmp_path: Path) -> None:
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(json.dumps({**TINY, "days": 0.5, "warmup": 0.1}))
    runner = CliRunner()
    first = runner.invoke(command, ["run", str(scenario), "--json", "--jobs-to", str(tmp_path / "j.csv")])
    again = runner.invoke(command, ["run", str(scenario), "--json"])
    assert first.exit_code == 0, first.output
    assert first.output == again.output
    both = ["compare", "--trace", str(tmp_path / "j.csv"), "--nodes", "4x8", "--policies", "fifo,budget"]
    done = runner.invoke(command, [*both, "--html", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    assert "delivered of owed" in done.output
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert runner.invoke(command, ["run"]).exit_code == 2
    assert runner.invoke(command, ["run", "--trace", str(tmp_path / "j.csv")]).exit_code == 2


def test_replace_of_a_policy_name_keeps_cases_apart() -> None:
    case = study.Case("budget", seed=3)
    assert study.name_of(case) != study.name_of(replace(case, seed=4))
