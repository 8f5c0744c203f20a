"""gres/gpuutil from sacct's steps; forms as they were reported in public, since no test GPU has a counter."""

from __future__ import annotations

import pytest

from slurm_fairshare.slurm.utilisation import parse_utilisation

BAR = "|"


def row(number: str, key: str, tasks: str, seconds: str, held: str, used: str) -> str:
    return BAR.join((number, key, tasks, seconds, held, used)) + f"{BAR}\n"


def job(number: str, key: str, seconds: int, gpus: int, kind: str = "h100") -> str:
    return row(number, key, "", str(seconds), f"billing=8,gres/gpu:{kind}={gpus},gres/gpu={gpus}", "")


def step(name: str, key: str, seconds: int, percent: object, tasks: int = 1) -> str:
    return row(
        name, key, str(tasks), str(seconds), "gres/gpu=1", f"cpu=00:56:24,gres/gpumem=40777,gres/gpuutil={percent}"
    )


def busy(*rows: str) -> dict[str, float]:
    return parse_utilisation("".join(rows), BAR)


def test_a_step_that_kept_its_gpu_busy_for_the_whole_run() -> None:
    assert busy(job("1", "71", 100, 1), step("1.batch", "71", 100, 100), step("1.extern", "71", 100, 0)) == {"71": 1.0}


def test_four_gpus_at_99_per_cent_show_396() -> None:
    assert busy(job("1", "71", 100, 4), step("1.batch", "71", 100, 396)) == {"71": pytest.approx(0.99)}


def test_the_mean_over_tasks_counts_for_each_task() -> None:
    assert busy(job("1", "71", 100, 8), step("1.0", "71", 100, 50, tasks=8)) == {"71": pytest.approx(0.5)}


def test_time_without_a_step_is_time_in_which_nothing_was_done() -> None:
    assert busy(job("1", "71", 100, 1), step("1.0", "71", 25, 100)) == {"71": pytest.approx(0.25)}


def test_more_than_all_is_all() -> None:
    assert busy(job("1", "71", 100, 1), step("1.0", "71", 100, 250)) == {"71": 1.0}


def test_zero_is_believed_only_where_the_type_of_gpu_is_known_to_answer() -> None:
    idle = (job("1", "71", 100, 1), step("1.0", "71", 100, 0))
    assert busy(*idle) == {}
    assert busy(*idle, job("2", "72", 100, 1), step("2.0", "72", 100, 80)) == {"71": 0.0, "72": pytest.approx(0.8)}
    assert busy(*idle, job("2", "72", 100, 1, "mi300"), step("2.0", "72", 100, 80)) == {"72": pytest.approx(0.8)}


@pytest.mark.parametrize("said", ["18446744073709551614", "4294967294", "", "nan"])
def test_slurms_marks_of_no_value_are_no_utilisation(said: str) -> None:
    assert busy(job("1", "71", 100, 1), step("1.0", "71", 100, said)) == {}


def test_a_run_without_steps_without_gpus_or_that_cannot_be_read_is_not_known() -> None:
    assert busy(job("1", "71", 100, 1)) == {}
    assert busy(row("1", "71", "", "100", "cpu=8", ""), step("1.0", "71", 100, 90)) == {}
    assert busy("no row at all\n", job("1", "71", 100, 1).replace("100", "x"), step("1.0", "71", 100, 90)) == {}


def test_steps_of_another_job_are_not_counted() -> None:
    assert busy(job("1", "71", 100, 1), step("2.0", "72", 100, 90)) == {}
