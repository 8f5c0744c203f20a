"""sacct's rows become runs: each attempt once, nothing lost, nothing invented."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.contract import Contract, Ladder, Priority, pinned
from slurm_fairshare.core.resources import UNTYPED, ChargeRule, Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.window import Window, milli_gpu_seconds
from slurm_fairshare.errors import DateRangeRefused
from slurm_fairshare.slurm.accounting import FIELDS, RowReader, Sacct, parse_rows, slices
from slurm_fairshare.slurm.run import Answer
from tests.slurm.fake import EPOCH, NOW, Tools, said

READER = RowReader(Ladder.default(), ChargeRule(), NOW)
HOUR = 3600
START = EPOCH - 2 * HOUR
PLAIN = {
    "JobIDRaw": "7",
    "JobID": "7",
    "DBIndex": "10463701019408106496",
    "Cluster": "lab",
    "Account": "bio",
    "UID": "2001",
    "User": "alice",
    "Partition": "gpu",
    "QOS": "fs-1h",
    "State": "COMPLETED",
    "Submit": str(START - 60),
    "Eligible": str(START - 60),
    "Start": str(START),
    "End": str(START + HOUR),
    "AllocTRES": "billing=1,cpu=1,gres/gpu:h100=2,gres/gpu=2,mem=1000M,node=1",
    "NodeList": "n1",
    "AdminComment": "",
}


def row(**values: str) -> str:
    return "\x1f".join({**PLAIN, **values}[name] for name in FIELDS) + "\x1f\n"


def one(**values: str) -> Run:
    runs, rejected = parse_rows(row(**values), READER)
    assert not rejected
    return runs[0]


def refused(**values: str) -> str:
    runs, rejected = parse_rows(row(**values), READER)
    assert not runs
    return rejected[0].reason


def gpu_hours(run: Run) -> float:
    return milli_gpu_seconds([run], Window(NOW - timedelta(days=1), NOW), NOW) / 1000 / HOUR


def test_a_row_is_a_run() -> None:
    run = one()
    assert (run.key, run.job_id, run.account, run.uid, run.qos) == ("10463701019408106496", 7, "bio", 2001, "fs-1h")
    assert run.start == datetime.fromtimestamp(START, UTC)
    assert run.held == Resources({"h100": 2}, 1, 1000)
    assert (run.milli_gpus, run.charged, run.flag) == (2000, True, "")
    assert gpu_hours(run) == 2


def test_a_running_run_counts_up_to_now() -> None:
    run = one(State="RUNNING", End="Unknown")
    assert run.end is None
    assert gpu_hours(run) == 4


@pytest.mark.parametrize("start", ["Unknown", "None", ""])
def test_a_run_that_never_started_is_kept_and_counts_zero(start: str) -> None:
    run = one(State="CANCELLED by 2001", Start=start, AllocTRES="", NodeList="None assigned")
    assert (run.state, run.start, run.nodes, gpu_hours(run)) == ("CANCELLED", None, "", 0)


def test_a_start_in_the_future_is_no_start() -> None:
    run = one(State="PENDING", Start=str(EPOCH + HOUR), End="Unknown")
    assert (run.start, gpu_hours(run)) == (None, 0)
    assert "future" in run.flag


def test_an_end_in_the_future_is_no_end() -> None:
    """It counts as what it is: a run that slurmctld shows alive, or one that was last seen alive."""
    run = one(End="4294967294")
    assert (run.end, gpu_hours(run)) == (None, 4)
    assert "future" in run.flag


def test_a_start_before_there_was_a_slurm_is_no_start() -> None:
    run = one(Start="86400")
    assert (run.start, gpu_hours(run)) == (None, 0)
    assert "before there was a Slurm" in run.flag


def test_twice_the_gpus_are_charged_twice() -> None:
    single, double = (one(AllocTRES=f"cpu=1,gres/gpu={count}") for count in (1, 2))
    assert (single.milli_gpus, double.milli_gpus) == (1000, 2000)


def test_an_end_before_the_start_counts_zero_and_is_flagged() -> None:
    run = one(End=str(START - 5))
    assert (run.end, gpu_hours(run)) == (run.start, 0)
    assert "before Start" in run.flag


def test_a_requeued_job_waiting_again_holds_nothing() -> None:
    run = one(State="PENDING", Start="Unknown", End="Unknown", AllocTRES="")
    assert (run.held.gpu_count, gpu_hours(run)) == (0, 0)


@pytest.mark.parametrize("state", ["REQUEUED", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "RESIZING", "SUSPENDED"])
def test_every_attempt_is_charged_however_it_ended(state: str) -> None:
    run = one(State=state)
    assert (run.state, gpu_hours(run)) == (state, 2)


def test_two_attempts_of_one_job_are_two_runs() -> None:
    text = row(DBIndex="11", State="REQUEUED") + row(DBIndex="12", Submit=str(START + HOUR))
    assert [run.key for run in parse_rows(text, READER)[0]] == ["11", "12"]


@pytest.mark.parametrize("index", ["0", "", "Unknown"])
def test_without_slurms_number_a_run_is_known_by_job_and_submit(index: str) -> None:
    assert one(DBIndex=index).key == f"7-{START - 60}"


def test_arrays_and_heterogeneous_jobs_keep_their_own_numbers() -> None:
    assert (one(JobIDRaw="22", JobID="16_1").job_id, one(JobIDRaw="22", JobID="16_1").label) == (22, "16_1")
    assert one(JobIDRaw="21", JobID="20+1").label == "20+1"
    assert one(JobIDRaw="16", JobID="16_[5-9%2]", Start="Unknown", AllocTRES="").label == "16_[5-9%2]"


def test_the_pinned_contract_is_read_and_words_behind_it_do_no_harm() -> None:
    contract = Contract(1800, resumable=True, priority=Priority.HIGH, notice="USR1")
    assert one(AdminComment=f"{pinned(contract)}; requeued | for\n17 (under-served)").contract == contract


def test_without_a_pin_the_rung_says_what_was_promised() -> None:
    assert one(QOS="fs-4h").contract == Contract(14_400)
    assert one(QOS="fs-unallocated").contract == Contract(0)
    assert one(QOS="normal").contract is None


def test_a_damaged_pin_protects_as_the_rung_does_and_is_flagged() -> None:
    run = one(QOS="fs-4h", AdminComment="fairshare min_runtime=x")
    assert run.contract == Contract(14_400)
    assert "damaged" in run.flag


def test_only_a_rung_above_unallocated_is_charged() -> None:
    charged = {qos: one(QOS=qos).charged for qos in ("fs-15m", "FS-8H", "fs-unallocated", "normal", "fs-2h,fs-4h")}
    assert charged == {
        "fs-15m": True,
        "FS-8H": True,
        "fs-unallocated": False,
        "normal": False,
        "fs-2h,fs-4h": False,
    }


def test_a_weight_by_type_changes_the_charge_and_not_the_gpus() -> None:
    reader = RowReader(Ladder.default(), ChargeRule({"h100": 0.5}), NOW)
    run = parse_rows(row(), reader)[0][0]
    assert (run.milli_gpus, run.held.gpus) == (1000, {"h100": 2})


def test_the_dominant_rule_charges_what_is_blocked() -> None:
    whole = Resources({UNTYPED: 16}, 128, 256_000)
    reader = RowReader(Ladder.default(), ChargeRule(dominant=True), NOW, whole)
    run = parse_rows(row(AllocTRES="cpu=1,gres/gpu=1,mem=128000M"), reader)[0][0]
    assert run.milli_gpus == 8000


def test_the_account_stays_as_slurm_prints_it() -> None:
    assert one(Account="test@biology").account == "test@biology"


def test_a_deleted_user_keeps_the_run() -> None:
    assert (one(User="").user, one(User="").uid) == ("", 2001)


def test_a_newline_in_the_last_field_does_not_break_the_next_row() -> None:
    text = row(DBIndex="1", AdminComment="two\nlines\n") + row(DBIndex="2")
    runs, rejected = parse_rows(text, READER)
    assert ([run.key for run in runs], rejected) == (["1", "2"], ())


def test_rows_without_the_last_delimiter_are_read_line_by_line() -> None:
    text = "".join(row(DBIndex=str(n)).removesuffix("\x1f\n") + "\n" for n in (1, 2))
    assert [run.key for run in parse_rows(text, READER, closed=False)[0]] == ["1", "2"]


REFUSED = {
    "a job id that is none": ({"JobID": "7.batch"}, "not understood"),
    "a raw id that is none": ({"JobIDRaw": "x"}, "invalid literal"),
    "no submit time": ({"Submit": "Unknown"}, "Submit"),
    "a time without an offset": ({"Start": "2026-10-08T10:00:00"}, "no offset"),
    "GPUs that are no number": ({"AllocTRES": "gres/gpu=x"}, "no count"),
    "Slurm's number for no value": ({"AllocTRES": "gres/gpu=4294967294"}, "no count"),
    "CPUs without end": ({"AllocTRES": "cpu=18446744073709551615,gres/gpu=1"}, "no count"),
    "memory without end": ({"AllocTRES": "gres/gpu=1,mem=18446744073709551614M"}, "no amount"),
    "no account": ({"Account": ""}, "Account is empty"),
    "no state": ({"State": " "}, "State is empty"),
    "a uid that is none": ({"UID": "alice"}, "invalid literal"),
    "a field too many": ({"User": "a\x1fb"}, "18 fields"),
}


@pytest.mark.parametrize(("values", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_row_that_cannot_be_read_is_kept_aside_with_its_reason(values: dict[str, str], reason: str) -> None:
    assert reason in refused(**values)


def test_a_bad_row_does_not_stop_the_others() -> None:
    runs, rejected = parse_rows(row(DBIndex="1") + row(UID="?") + row(DBIndex="3"), READER)
    assert ([run.key for run in runs], len(rejected)) == (["1", "3"], 1)


@given(st.text())
def test_any_text_gives_runs_or_rejected_rows_and_no_crash(text: str) -> None:
    runs, rejected = parse_rows(text, READER)
    assert bool(runs or rejected) == bool(text.strip("\n").strip("\x1f").strip())


# --- the questions asked


def sacct(tools: Tools) -> Sacct:
    return Sacct(tools.runner(), lambda: READER)


def asked(tools: Tools) -> list[tuple[int, int]]:
    def stretch(words: list[str]) -> tuple[int, int]:
        start, end = words[words.index("-S") + 1], words[words.index("-E") + 1]
        return int(start.removeprefix("uts")), int(end.removeprefix("uts"))

    return [stretch(words) for words in tools.commands]


def test_every_attempt_of_everybody_is_asked_for_and_none_cut_to_the_window() -> None:
    tools = Tools(sacct="")
    sacct(tools).runs(Window(NOW - timedelta(hours=1), NOW))
    words = tools.commands[0]
    assert {"-a", "-X", "-D", "--noconvert"} <= set(words)
    assert not {"-T", "-s", "-N", "-j"} & set(words)
    assert words[words.index("-o") + 1].endswith(",AdminComment")


def test_a_long_window_is_asked_for_a_day_at_a_time_and_each_run_appears_once() -> None:
    tools = Tools(sacct=row() + row(JobIDRaw="?"))
    runs, rejected = sacct(tools).runs(Window(NOW - timedelta(days=2, hours=6), NOW))
    assert asked(tools) == [
        (EPOCH - 54 * HOUR, EPOCH - 30 * HOUR),
        (EPOCH - 30 * HOUR, EPOCH - 6 * HOUR),
        (EPOCH - 6 * HOUR, EPOCH),
    ]
    assert (len(runs), len(rejected)) == (1, 1)


def test_the_latest_answer_about_a_run_holds() -> None:
    tools = Tools(sacct=[row(State="RUNNING", End="Unknown"), row(State="COMPLETED")])
    runs, _ = sacct(tools).runs(Window(NOW - timedelta(days=2), NOW))
    assert [run.state for run in runs] == ["COMPLETED"]


def test_a_refused_stretch_is_asked_for_in_halves() -> None:
    def at_most_eight_hours(words: list[str]) -> Answer | str:
        start, end = (int(words[words.index(flag) + 1].removeprefix("uts")) for flag in ("-S", "-E"))
        wide = said("sacct: error: slurmdbd: Too wide of a date range in query")
        return wide if end - start > 8 * HOUR else row(DBIndex=str(start))

    tools = Tools(sacct=at_most_eight_hours)
    runs, _ = sacct(tools).runs(Window(NOW - timedelta(days=1), NOW))
    assert sorted(int(run.key) for run in runs) == [EPOCH - n * HOUR for n in (24, 18, 12, 6)]


def test_a_second_that_is_too_wide_is_an_error_and_no_endless_halving() -> None:
    tools = Tools(sacct=said("Too wide of a date range in query"))
    with pytest.raises(DateRangeRefused):
        sacct(tools).runs(Window(NOW - timedelta(seconds=1), NOW))


@given(st.integers(0, 40 * 86_400))
def test_slices_touch_and_cover_the_window(length: int) -> None:
    window = Window(NOW - timedelta(seconds=length), NOW)
    parts = slices(window)
    assert (parts[0].start, parts[-1].end) == (window.start, window.end)
    assert all(a.end == b.start for a, b in pairwise(parts))
    assert all(part.seconds <= 86_400 for part in parts)
