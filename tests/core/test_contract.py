"""What users write, what is pinned, and the ladder."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core import contract as module
from slurm_fairshare.core.contract import (
    Contract,
    DebugLane,
    Ladder,
    Priority,
    Rung,
    admit,
    parse_comment,
    pinned,
    read_duration,
    read_pinned,
    spell,
)
from slurm_fairshare.errors import ContractError
from tests.contract_cases import CASES, Case

LADDER = Ladder.default()

contracts = st.builds(
    Contract,
    min_runtime=st.integers(0, 10**9),
    resumable=st.booleans(),
    priority=st.sampled_from(Priority),
    notice=st.sampled_from([None, "HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "steps:USR1"]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_comment_becomes_its_contract_or_is_refused_with_words(case: Case) -> None:
    if case.accepted is not None:
        assert admit(case.comment, LADDER, Contract(), case.time_limit) == case.accepted
        return
    with pytest.raises(ContractError) as refusal:
        admit(case.comment, LADDER, Contract(), case.time_limit)
    for word in case.refused:
        assert word in str(refusal.value)


def test_what_a_comment_does_not_say_comes_from_the_default() -> None:
    default = Contract(3600, True, Priority.HIGH, "USR1")
    assert parse_comment("exp=1", default) == default
    assert parse_comment("resumable=no notice=none", default) == Contract(3600, False, Priority.HIGH)


def test_a_minimum_the_user_did_not_write_yields_to_the_time_limit() -> None:
    assert admit("", LADDER, Contract(3600), 600) == Contract(600)


@given(st.integers(0, 10**8))
def test_every_spelling_is_read_back(seconds: int) -> None:
    assert read_duration(spell(seconds)) == seconds


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_every_form_slurm_knows_is_read(days: int, hours: int, minutes: int, seconds: int) -> None:
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert read_duration(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == whole
    assert read_duration(f"{days}-{hours}:{minutes}") == whole - seconds
    assert read_duration(f"{days}-{hours}") == whole - seconds - minutes * 60
    assert read_duration(f"{hours}:{minutes:02}:{seconds:02}") == whole - days * 86_400
    assert read_duration(f"{minutes}:{seconds:02}") == minutes * 60 + seconds
    assert read_duration(str(minutes)) == minutes * 60


@given(contracts)
def test_a_pin_is_read_back(contract: Contract) -> None:
    assert read_pinned(pinned(contract)) == contract


@given(contracts, st.text())
def test_words_after_a_pin_change_nothing(contract: Contract, words: str) -> None:
    assert read_pinned(f"{pinned(contract)}; {words}") == contract


@given(contracts.filter(lambda contract: contract.min_runtime < 10**8))
def test_a_pin_is_also_a_comment(contract: Contract) -> None:
    written = pinned(contract).replace("min_runtime=", "min_runtime=0:0:")
    assert parse_comment(written, Contract()) == contract


@pytest.mark.parametrize("text", ["", "bought by HR", "fairshare-tool was here", "min_runtime=4h"])
def test_no_pin_is_none(text: str) -> None:
    assert read_pinned(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "fairshare",
        "fairshare min_runtime=4h resumable=yes priority=normal",
        "fairshare min_runtime=14400 resumable=yes",
        "fairshare min_runtime=14400 resumable=maybe priority=normal",
        "fairshare min_runtime=14400 resumable=yes priority=urgent",
        "fairshare min_runtime=14400 resumable=yes priority=normal extra",
        "fairshare min_runtime=-1 resumable=yes priority=normal",
        " fairshare min_runtime=1 resumable=yes priority=normal",
    ],
)
def test_a_damaged_pin_is_never_guessed(text: str) -> None:
    with pytest.raises(ContractError, match=r"damaged.*AdminComment="):
        read_pinned(text)


@pytest.mark.parametrize(
    ("seconds", "rung"),
    [
        (0, "fs-unallocated"),
        (1, "fs-15m"),
        (900, "fs-15m"),
        (901, "fs-1h"),
        (14_400, "fs-4h"),
        (28_800, "fs-8h"),
    ],
)
def test_the_smallest_rung_that_covers(seconds: int, rung: str) -> None:
    assert LADDER.for_min_runtime(seconds).name == rung


def test_above_the_ladder_there_is_no_rung() -> None:
    with pytest.raises(ContractError, match="over the cap of 8h"):
        LADDER.for_min_runtime(28_801)


def test_charged_is_a_rung_above_unallocated_and_nothing_else() -> None:
    assert LADDER.is_charged("fs-15m")
    assert LADDER.is_charged("FS-8H")
    assert not LADDER.is_charged("fs-unallocated")
    assert not LADDER.is_charged("normal")
    assert LADDER.rung("normal") is None


@pytest.mark.parametrize(
    ("rungs", "words"),
    [
        ((), "unallocated"),
        ((Rung("a", 60),), "unallocated"),
        ((Rung("a", 0), Rung("b", 60), Rung("c", 60)), "ascend"),
        ((Rung("a", 0), Rung("A", 60)), "same name"),
    ],
)
def test_a_ladder_that_makes_no_sense_is_refused(rungs: tuple[Rung, ...], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        Ladder(rungs)


def test_the_debug_lane_covers_short_charged_rungs_only() -> None:
    assert [rung.name for rung in LADDER.rungs if DebugLane().covers(rung)] == ["fs-15m"]


def test_in_team_priorities_stay_apart_and_inside_a_band() -> None:
    factors = [priority.site_factor for priority in Priority]
    assert factors == [0, 20_000, 40_000]


def test_examples_in_the_module() -> None:
    assert doctest.testmod(module).failed == 0
