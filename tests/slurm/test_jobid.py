"""Job ids as the tools print them, and nothing that only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.slurm.jobid import JobLabel, read_label

CASES = {
    "a job": ("123", JobLabel(123)),
    "an array task": ("123_4", JobLabel(123, task=4)),
    "waiting tasks": ("123_[5-9]", JobLabel(123, waiting=5)),
    "waiting tasks, two at once": ("123_[5-9%2]", JobLabel(123, waiting=5, at_once=2)),
    "a mixed list": ("123_[1,3,5-7]", JobLabel(123, waiting=5)),
    "every second task": ("123_[0-8:2%1]", JobLabel(123, waiting=5, at_once=1)),
    "one task in brackets": ("123_[7]", JobLabel(123, waiting=1)),
    "a component": ("123+1", JobLabel(123, component=1)),
}


@pytest.mark.parametrize(("text", "label"), CASES.values(), ids=CASES.keys())
def test_an_id_is_read(text: str, label: JobLabel) -> None:
    assert read_label(text) == label


UNKNOWN = [
    "",
    "123.batch",
    "123.0",
    "715219_23.extern",
    "123_",
    "123_[]",
    "123_[9-5]",
    "abc",
    "12 3",
    "-1",
    "1_[1-2:0]",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_form_is_refused_and_never_job_0(text: str) -> None:
    with pytest.raises(ValueError, match="not understood"):
        read_label(text)


@given(st.integers(1, 10**9), st.sets(st.integers(0, 4_000_000), min_size=1, max_size=200), st.integers(0, 50))
def test_waiting_tasks_are_counted_however_they_are_listed(job: int, tasks: set[int], at_once: int) -> None:
    listed = ",".join(str(task) for task in sorted(tasks))
    label = read_label(f"{job}_[{listed}{f'%{at_once}' if at_once else ''}]")
    assert label == JobLabel(job, waiting=len(tasks), at_once=at_once)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        label = read_label(text)
    except ValueError:
        return
    assert label.waiting >= 1
