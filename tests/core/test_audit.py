"""The ledger against slurmdbd: every difference, with its cause, and none that is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from slurm_fairshare.core import audit
from slurm_fairshare.core.audit import Basis, Counted, Total, compare, expected_report, joined, report_differences
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Window

START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


WINDOW = Window(at(0), at(24))
NOW = at(30)


def one(key: str, start: float, until: float | None, **values: object) -> Counted:
    plain = Counted(
        key=key,
        job_id=7,
        label="7",
        account="bio",
        user="alice",
        qos="fs-1h",
        state="COMPLETED",
        gpus={"h100": 2},
        milli_gpus=2000,
        charged=True,
        start=at(start),
        until=None if until is None else at(until),
        basis=Basis.RUNNING if until is None else Basis.ENDED,
    )
    return replace(plain, **values)  # type: ignore[arg-type]


def told(mine: list[Counted], theirs: list[Counted]) -> list[tuple[str, float, str]]:
    """What differs, how many GPU-hours more the ledger counts, and why."""
    found = compare(mine, theirs, WINDOW, NOW).differences
    return [(difference.what, difference.gpu_seconds / 3600, difference.cause) for difference in found]


def test_the_same_rows_differ_in_nothing() -> None:
    rows = [one("a", 1, 3), one("b", -5, 2), one("c", 20, None)]
    found = compare(rows, rows[::-1], WINDOW, NOW)
    assert (found.differences, found.runs) == ((), 3)
    assert found.totals == {"bio": Total(2 * 3600 * 8, 0, 2 * 3600 * 8, 0)}


def test_what_ended_behind_the_period_is_no_difference() -> None:
    assert told([one("a", 20, None)], [one("a", 20, 25)]) == []


def test_a_run_the_ledger_missed_counts_less() -> None:
    assert told([], [one("a", 1, 3)]) == [("run", -4, audit.MISSED)]


def test_a_run_slurmdbd_has_no_more_is_kept_and_told() -> None:
    assert told([one("a", 1, 3)], []) == [("run", 4, audit.GONE)]


def test_a_late_correction_is_a_change() -> None:
    assert told([one("a", 1, 3)], [one("a", 1, 4)]) == [("seconds", -2, audit.CHANGED)]


def test_an_end_that_is_younger_than_the_last_poll_is_told_so() -> None:
    assert told([one("a", 1, None)], [one("a", 1, 4)]) == [("seconds", 2 * 20, audit.SINCE)]


def test_a_runaway_is_a_difference_with_the_remedy() -> None:
    mine = one("a", 1, 3, basis=Basis.RUNAWAY)
    assert told([mine], [one("a", 1, None)]) == [("seconds", -2 * 21, audit.RUNAWAY)]


def test_a_job_counted_from_the_queue_agrees_with_its_row_when_that_is_there() -> None:
    live = one("", 20, None, basis=Basis.QUEUE, state="")
    assert told([live], [one("a", 20, None)]) == []
    assert told([live], []) == [("run", 8, audit.NOT_YET)]


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("account", "chem", "account"),
        ("user", "bob", "user"),
        ("qos", "fs-4h", "qos"),
        ("gpus", {"a100": 2}, "gpus"),
        ("charged", False, "charged"),
        ("state", "FAILED", "state"),
    ],
)
def test_every_field_that_matters_is_compared(field: str, value: object, what: str) -> None:
    assert [row[0] for row in told([one("a", 1, 3)], [replace(one("a", 1, 3), **{field: value})])] == [what]


def test_more_gpus_are_told_with_their_gpu_hours_once_however_much_differs() -> None:
    found = told([one("a", 1, 3)], [one("a", 1, 4, gpus={"h100": 4}, user="bob")])
    assert [(what, hours) for what, hours, _ in found] == [("gpus", 0), ("seconds", 0), ("user", 4 - 12)]


def test_another_price_is_no_other_gpus() -> None:
    assert told([one("a", 1, 3)], [one("a", 1, 3, milli_gpus=1000)]) == [("price", 0, audit.PRICED)]


def test_an_account_is_the_same_in_any_case() -> None:
    assert told([one("a", 1, 3, account="BIO")], [one("a", 1, 3)]) == []


def test_a_row_that_cannot_be_read_is_a_difference() -> None:
    (found,) = compare([], [], WINDOW, NOW, [RejectedRow("sacct", "7|x", "no job id")]).differences
    assert found.what == "row"
    assert "no job id" in found.cause


def test_charged_and_unallocated_are_summed_apart() -> None:
    found = compare([one("a", 1, 3), one("b", 1, 2, charged=False)], [one("a", 1, 3)], WINDOW, NOW)
    assert found.totals["bio"] == Total(4 * 3600, 2 * 3600, 4 * 3600, 0)


def test_a_run_that_differs_on_two_days_is_told_once_with_its_sum() -> None:
    days = [Window(at(0), at(24)), Window(at(24), at(48))]
    parts = [compare([], [one("a", 23, 26)], day, at(60)) for day in days]
    whole = joined(parts)
    assert [(row.what, row.gpu_seconds) for row in whole.differences] == [("run", -6 * 3600)]
    assert whole.totals["bio"].slurm_charged == 6 * 3600


def test_sreport_is_compared_by_account_and_user_to_the_second() -> None:
    rows = [one("a", 1, 3), one("b", 1, 2, user="bob", charged=False), one("c", 1, 2, gpus={})]
    expected = expected_report(rows, WINDOW, NOW)
    assert expected == {("bio", "alice"): 2 * 7200, ("bio", "bob"): 2 * 3600}
    assert report_differences(expected, {("bio", "alice"): 14_400, ("bio", "bob"): 7200}) == ()
    (found,) = report_differences(expected, {("bio", "alice"): 14_400, ("bio", "bob"): 7199})
    assert (found.account, found.label, found.gpu_seconds) == ("bio", "bob", 1)


def test_only_whole_hours_are_compared_with_sreport() -> None:
    assert audit.whole_hours(Window(at(0.5), at(3.2))) == Window(at(1), at(3))
    assert audit.whole_hours(Window(at(0.5), at(1.2))) is None
