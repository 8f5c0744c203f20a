"""Every report as it looks, in each form, on one invented cluster (tests/reports/sample.py)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from slurm_fairshare.core.plan import AddQos, SetPriority
from slurm_fairshare.core.tree import Share, build
from slurm_fairshare.reports import budgets, changes, decisions, queue, settings, shares
from slurm_fairshare.reports.table import Form, Report, Style, render
from tests.reports import sample
from tests.reports.sample import BASIS, BY_USER, DECISIONS, JOBS, LABELS, LADDER, NOW, STALE

RANKING = sample.ranking()
SHARES = shares.share_rows(RANKING, BY_USER, shares.committed_by_user(JOBS, LADDER, BASIS), LABELS)
QUEUE = queue.queue_rows(JOBS, RANKING, LADDER, NOW)
EDITED = build({**sample.SETS, "lab": (Share("vision", 60.0, "vision"), Share("robotics", 40.0, "robotics"))})

REPORTS: dict[str, Report[Any]] = {
    "shares": shares.report(SHARES, BASIS, notes=("In Slurm but in nobody's budget: guests.",)),
    "shares --long": shares.report(SHARES, BASIS, long=True),
    "shares, stale": shares.report(SHARES[:3], STALE),
    "queue": queue.report(QUEUE, BASIS),
    "decisions": decisions.report(DECISIONS, NOW - timedelta(days=1), NOW),
    "decisions, none": decisions.report((), NOW - timedelta(days=1), NOW),
    "budget show": budgets.report(sample.TREE, sample.CAPACITY, NOW),
    "budget show, before the first tick": budgets.report(sample.TREE, None, NOW),
    "budget load": budgets.difference_report(budgets.differences(sample.TREE, EDITED), ("Would change:",)),
    "plan": changes.report((AddQos("fs-1h"), SetPriority(("nlp", "vision"), 400_000_000)), notes=("A note.",)),
    "settings show": settings.report(
        (settings.Setting("daemon.interval", '"30s"', '"1m"', "Time between two ticks."),)
    ),
}
FORMS = {
    "80 columns": Form(width=80),
    "200 columns": Form(width=200),
    "parsable": Form(style=Style.PARSABLE2),
    "json": Form(style=Style.JSON),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_looks_as_it_did(name: str, form: str, snapshot: SnapshotAssertion) -> None:
    assert render(REPORTS[name], FORMS[form]).plain == snapshot


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_a_table_fits_its_width(name: str, width: int) -> None:
    lines = render(REPORTS[name], Form(width=width)).plain.splitlines()
    assert max(cell_len(line) for line in lines) <= width


@pytest.mark.parametrize("name", REPORTS)
def test_json_is_json_everywhere(name: str) -> None:
    text = render(REPORTS[name], Form(style=Style.JSON)).plain
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.parametrize("name", REPORTS)
def test_every_line_of_parsable_has_the_same_number_of_fields(name: str) -> None:
    lines = render(REPORTS[name], Form(style=Style.PARSABLE2)).plain.splitlines()
    assert len({line.count("|") for line in lines}) == 1
