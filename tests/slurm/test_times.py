"""Moments and lengths: read exactly, or refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.slurm.times import clock, limit, moment, needed, seconds


def test_seconds_since_1970_are_utc() -> None:
    assert moment("1795982282") == datetime.fromtimestamp(1795982282, UTC)


def test_a_time_with_its_offset_is_accepted() -> None:
    assert moment("2026-11-29T20:46:18+01:00") == datetime(2026, 11, 29, 19, 46, 18, tzinfo=UTC)


def test_a_time_without_an_offset_is_an_error_and_never_1970() -> None:
    with pytest.raises(ValueError, match="no offset"):
        moment("2026-11-29T20:46:18")


@pytest.mark.parametrize("text", ["Unknown", "None", "N/A", "", "0", "(null)"])
def test_not_yet_is_none(text: str) -> None:
    assert moment(text) is None
    with pytest.raises(ValueError, match="Submit"):
        needed(text, "Submit")


@pytest.mark.parametrize("text", ["INVALID", "yesterday", "-5", "12:00"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        moment(text)


LIMITS = {
    "10:00": timedelta(minutes=10),
    "1:00:00": timedelta(hours=1),
    "1-00:00:00": timedelta(days=1),
    "2-01:24:56": timedelta(days=2, hours=1, minutes=24, seconds=56),
    "UNLIMITED": None,
    "NOT_SET": None,
    "Partition_Limit": None,
}


@pytest.mark.parametrize(("text", "length"), LIMITS.items())
def test_a_time_limit(text: str, length: timedelta | None) -> None:
    assert limit(text) == length


def test_an_invalid_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="length of time"):
        limit("INVALID")


@given(st.integers(0, 10**7))
def test_a_length_written_for_slurm_reads_back(length: int) -> None:
    assert seconds(clock(length)) == length
