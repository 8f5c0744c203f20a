"""The lookback window: half-open, whole hours of UTC, exact sums, one function for every weight."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.window import (
    Piece,
    Step,
    Weight,
    Window,
    calendar,
    milli_gpu_seconds,
    overlap_seconds,
    pieces,
    weighed,
)

T0 = datetime(2026, 11, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def run(start: float | None, end: float | None, milli: int = 1000) -> Run:
    return Run(
        cluster="c",
        key="1",
        job_id=1,
        label="1",
        account="a",
        user="u",
        uid=1,
        partition="p",
        qos="fs-1h",
        state="RUNNING",
        submit=T0,
        eligible=T0,
        start=None if start is None else at(start),
        end=None if end is None else at(end),
        held=Resources(gpus={"h100": 1}),
        milli_gpus=milli,
        charged=True,
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (10, 20, 10),
        (-50, 20, 20),
        (90, 500, 10),
        (-50, 500, 100),
        (100, 200, 0),
        (-50, 0, 0),
        (30, None, 50),
        (None, None, 0),
        (60, 40, 0),
        (95, None, 0),
    ],
)
def test_a_run_counts_for_what_lies_inside_the_window(start: float | None, end: float | None, expected: int) -> None:
    assert overlap_seconds(run(start, end), Window(at(0), at(100)), now=at(80)) == expected


def test_seven_days_are_168_hours_across_a_change_of_clocks() -> None:
    now = datetime(2026, 10, 27, 9, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    window = Window.lookback(now, timedelta(days=7))
    assert window.seconds == 168 * 3600
    assert len(window.hours()) == 169
    assert sum(part.seconds for part in window.hours()) == window.seconds


runs = st.lists(
    st.tuples(st.integers(-1000, 2000), st.one_of(st.none(), st.integers(0, 2000)), st.integers(0, 8000)).map(
        lambda t: run(t[0], None if t[1] is None else t[0] + t[1], t[2])
    ),
    max_size=20,
)


@given(runs, st.lists(st.integers(0, 1000), min_size=2, max_size=6).map(sorted))
def test_adjacent_windows_add_up_to_the_whole(some: list[Run], cuts: list[int]) -> None:
    now = at(1000)
    parts = [milli_gpu_seconds(some, Window(at(a), at(b)), now) for a, b in itertools.pairwise(cuts) if a <= b]
    assert sum(parts) == milli_gpu_seconds(some, Window(at(cuts[0]), at(cuts[-1])), now)


@given(runs, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(some: list[Run], dice: random.Random) -> None:
    window = Window(at(0), at(900))
    mixed = list(some)
    dice.shuffle(mixed)
    assert milli_gpu_seconds(mixed, window, at(950)) == milli_gpu_seconds(some, window, at(950))


@given(st.integers(1, 10**6), st.integers(1, 8000))
def test_usage_grows_with_the_clock_and_does_not_jump_at_the_end(length: int, milli: int) -> None:
    window = Window(at(0), at(2 * 10**6))
    running, ended = run(0, None, milli), run(0, length, milli)
    assert milli_gpu_seconds([running], window, at(length)) == milli_gpu_seconds([ended], window, at(length))
    assert (
        milli_gpu_seconds([running], window, at(length + 1)) - milli_gpu_seconds([running], window, at(length)) == milli
    )


def test_a_million_gpus_for_ten_years_are_counted_exactly() -> None:
    ten_years = 315_360_000
    big = run(0, ten_years, milli=10**9)
    assert milli_gpu_seconds([big], Window(at(0), at(ten_years)), at(ten_years)) == 10**9 * ten_years


@given(
    st.lists(st.integers(0, 100_000), min_size=3, max_size=8, unique=True).map(sorted),
    st.one_of(st.none(), st.integers(60, 10**6)),
)
def test_weighed_pieces_add_up_however_they_are_cut(cuts: list[int], half_life: int | None) -> None:
    weight = Weight(None if half_life is None else timedelta(seconds=half_life))
    now = at(100_000)
    whole = weighed([Piece(Window(at(cuts[0]), at(cuts[-1])), 3.0)], weight, now)
    parts = [Piece(Window(at(a), at(b)), 3.0) for a, b in itertools.pairwise(cuts)]
    assert weighed(parts, weight, now) == pytest.approx(whole, rel=1e-9)


def test_a_half_life_halves() -> None:
    weight = Weight(timedelta(hours=1))
    young = weight.mean(Window(at(7199), at(7200)), at(7200))
    old = weight.mean(Window(at(3599), at(3600)), at(7200))
    assert old / young == pytest.approx(0.5)


@pytest.mark.parametrize("length", [timedelta(0), timedelta(seconds=-1)])
def test_a_half_life_of_nothing_is_refused(length: timedelta) -> None:
    with pytest.raises(ValueError, match="longer than nothing"):
        Weight(length)


def test_a_step_function_is_unknown_before_its_first_step() -> None:
    found = pieces([Step(at(50), 8.0), Step(at(80), 16.0)], Window(at(0), at(100)))
    assert [(piece.part, piece.rate) for piece in found] == [
        (Window(at(50), at(80)), 8.0),
        (Window(at(80), at(100)), 16.0),
    ]


def test_the_step_in_force_when_the_window_opens_counts_from_there() -> None:
    found = pieces([Step(at(-500), 8.0)], Window(at(0), at(100)))
    assert found == (Piece(Window(at(0), at(100)), 8.0),)


BERLIN = ZoneInfo("Europe/Berlin")


def begins(window: Window, period: str, zone: tzinfo = BERLIN) -> list[str]:
    return [part.start.astimezone(zone).isoformat(timespec="minutes") for part in calendar(window, period, zone)]


def test_a_day_has_23_or_25_hours_where_clocks_change() -> None:
    spring = Window(datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 30, 22, tzinfo=UTC))
    assert [part.seconds / 3600 for part in calendar(spring, "day", BERLIN)] == [23, 24]
    autumn = Window(datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 25, 23, tzinfo=UTC))
    assert [part.seconds / 3600 for part in calendar(autumn, "day", BERLIN)] == [25]


def test_the_hour_that_comes_twice_is_two_buckets() -> None:
    night = Window(datetime(2026, 10, 24, 23, 30, tzinfo=UTC), datetime(2026, 10, 25, 2, 10, tzinfo=UTC))
    assert begins(night, "hour") == [
        "2026-10-25T01:30+02:00",
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T03:00+01:00",
    ]


def test_the_window_is_168_hours_whatever_the_clocks_do() -> None:
    for now in (datetime(2026, 3, 30, 12, tzinfo=BERLIN), datetime(2026, 10, 26, 12, tzinfo=BERLIN)):
        assert Window.lookback(now, timedelta(days=7)).seconds == 168 * 3600


def test_a_month_begins_at_the_zones_midnight() -> None:
    window = Window(datetime(2026, 11, 29, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC))
    assert begins(window, "month") == ["2026-11-29T01:00+01:00", "2026-12-01T00:00+01:00", "2027-01-01T00:00+01:00"]


def test_hours_begin_on_the_half_hour_where_the_zone_does() -> None:
    window = Window(datetime(2026, 11, 29, 0, 10, tzinfo=UTC), datetime(2026, 11, 29, 2, 0, tzinfo=UTC))
    kolkata = ZoneInfo("Asia/Kolkata")
    assert begins(window, "hour", kolkata) == [
        "2026-11-29T05:40+05:30",
        "2026-11-29T06:00+05:30",
        "2026-11-29T07:00+05:30",
    ]


@given(st.integers(0, 3 * 365 * 86_400), st.integers(1, 40 * 86_400), st.sampled_from(["hour", "day", "month"]))
def test_the_calendars_parts_touch_and_cover_the_window(start: int, length: int, period: str) -> None:
    window = Window(
        datetime.fromtimestamp(1_750_000_000 + start, UTC), datetime.fromtimestamp(1_750_000_000 + start + length, UTC)
    )
    for zone in (BERLIN, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Asia/Kolkata"), UTC):
        parts = calendar(window, period, zone)
        assert (parts[0].start, parts[-1].end) == (window.start, window.end)
        assert all(a.end == b.start and a.seconds > 0 for a, b in pairwise(parts))
