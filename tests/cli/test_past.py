"""`delivery`, `pyramid`, `waits`, `habits`, `explain` and `shares --as-slurm`, as they are typed."""

from __future__ import annotations

import json

import pytest

from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.fairtree import Association
from tests.cli.conftest import Site

REPORTS = ("delivery", "pyramid", "waits", "habits")


@pytest.fixture
def later(contest: Site) -> Site:
    """The contest two hours on, with looks at it in between."""
    for _ in range(2):
        contest.after(hours=1)
        contest.says("tick")
    return contest


def rows(text: str) -> dict[str, dict[str, str]]:
    header, *lines = text.splitlines()
    names = header.split("|")
    return {line.split("|")[0]: dict(zip(names, line.split("|"), strict=True)) for line in lines}


@pytest.mark.parametrize("command", REPORTS)
def test_each_report_has_every_form(later: Site, command: str) -> None:
    for columns in ("80", "200"):
        later.columns = columns
        assert max(map(len, later.says(command).splitlines())) <= int(columns)
    later.columns = None
    assert "\x1b" not in later.says(command)
    json.loads(later.says(command, "--json"))
    assert "|" in later.says(command, "-P")
    assert later.says(command, "--csv").count("\n") > 1


def test_delivery_tells_who_did_not_get_what_it_was_owed(later: Site) -> None:
    found = rows(later.says("delivery", "--since", "2h", "-P"))
    assert (found["vision"]["Owed"], found["vision"]["Delivered"]) == ("16.00", "0.00")
    assert found["NLP"]["Percent"] == "1.000000"
    assert found["robotics"]["Percent"] == ""
    assert "1 of 2 teams got 95% or more, the worst 0%" in later.says("delivery", "--since", "2h")


def test_a_stranger_in_delivery_is_told_so(later: Site) -> None:
    assert "not in the budget tree then: ghost" in later.refuses(1, "delivery", "-A", "ghost")


def test_before_the_first_tick_there_is_nothing_to_report(site: Site) -> None:
    for command in ("delivery", "pyramid"):
        assert "nothing was recorded" in site.refuses(1, command)


def test_a_period_that_ends_before_it_starts_is_refused(later: Site) -> None:
    assert "must lie before --until" in later.refuses(2, "delivery", "--since", "1h", "--until", "2h")


def test_the_pyramid_says_unknown_where_nobody_gathers_it(later: Site) -> None:
    assert rows(later.says("pyramid", "-P"))["utilisation"]["Value"] == ""
    assert "utilisation unknown" in " ".join(later.says("pyramid").split())


def test_waits_tells_before_and_after_a_date(later: Site) -> None:
    told = later.says("waits", "--after", "2026-10-08T09:00Z", "-P")
    assert {line.split("|")[2] for line in told.splitlines()[1:]} == {"before", "after"}


def test_explain_takes_an_account_a_job_and_a_user(later: Site) -> None:
    assert "It ranks 2 of 3" in later.says("explain", "vision")
    assert "yields to job 3 (vision)" in later.says("explain", "3")
    assert "dan used" in later.says("explain", "dan")
    assert "lab/language: 30% of its level" in later.says("explain", "lab/language")
    assert "no account or node of the budget tree" in later.refuses(1, "explain", "nobody")


def test_explain_speaks_of_a_job_that_is_gone(later: Site) -> None:
    assert "It is not in the queue either" in later.says("explain", "999")


def test_explain_says_when_its_data_is_old_and_decides_nothing_on_it(later: Site) -> None:
    later.after(hours=1)
    told = later.says("explain", "vision")
    assert told.startswith("STALE")
    assert "Who would yield to whom is not known" in told


def test_as_slurm_asks_slurmctld_and_no_budget(site: Site) -> None:
    site.slurm.fair_tree = (
        Association("root", usage=30.7),
        Association("a", parent="root", usage=30.7),
        Association("a", "ann", usage=30.7),
        Association("a", "bob"),
    )
    assert site.says("shares", "--as-slurm", "-a", "-P", "-n").splitlines() == [
        "root|||0.000000|30|1.000000|",
        "a||1|1.000000|30|1.000000|",
        "a|ann|1|0.500000|30|1.000000|0.500000",
        "a|bob|1|0.500000|0|0.000000|1.000000",
    ]
    assert "a|bob" not in site.says("shares", "--as-slurm", "-u", "ann", "-P")
    assert "Slurm has no account ghost" in site.refuses(1, "shares", "--as-slurm", "-A", "ghost")


def test_a_user_who_left_keeps_the_past_in_the_teams_lines(later: Site) -> None:
    """Nothing of a report hangs on who is known to Slurm now."""
    before = later.says("delivery", "-a", "-A", "nlp", "-P")
    later.slurm.submit("nlp", "erin", 1, contract=Contract())
    assert "dan" in before
    assert later.says("delivery", "-a", "-A", "nlp", "-P") == before
