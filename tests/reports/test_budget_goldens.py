"""The reports about budgets as they look, in each form, on the invented cluster of tests/reports/sample.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from slurm_fairshare.core.fairshare import Usage, rank
from slurm_fairshare.core.tree import Changeset, Epoch, Share, tree_at
from slurm_fairshare.core.window import Step, Weight
from slurm_fairshare.reports import budget_check, budget_log, budget_preview, budgets, managers
from slurm_fairshare.reports.table import Report, render
from slurm_fairshare.store.facts import ManagerChange, managers_now
from tests.reports.goldens import FORMS, Goldens
from tests.reports.sample import CAPACITY, CHANGESET, NOW, USED, WINDOW, ranking

EDITED = Changeset(
    2,
    "anna_with_a_long_login@lab.example",
    "speech moves to robotics, which grows; \x1b[31mvery long reasons are told whole, however long they get to be",
    NOW - timedelta(days=3),
    NOW - timedelta(days=2),
    {
        "lab": (
            Share("language", 40.0),
            Share("vision", 30.0, "vision"),
            Share("robotics", 25.0),
            Share("archive", 0.0, "old_archive"),
        ),
        "lab/language": (Share("nlp", 1.0, "nlp"),),
        "lab/robotics": (Share("arms", 1.0, "robotics"), Share("speech", 1.0, "Speech@Lab")),
    },
)
PLANNED = Changeset(
    3, "head", "next year", NOW, NOW + timedelta(days=30), {"": (Share("lab", 1.0), Share("guests", 1.0, "guests"))}
)
CANCEL = Changeset(4, "otto", "not next year either", NOW, NOW, {}, 3)
ALL = (CHANGESET, EDITED, PLANNED, CANCEL)
GRANTS = (
    ManagerChange(1, "lab/language", "dan", True, "head", "leads the programme", NOW - timedelta(days=20)),
    ManagerChange(2, "", "otto", True, "head", "deputy", NOW - timedelta(days=10)),
    ManagerChange(3, "lab/gone", "erin", True, "head", "", NOW - timedelta(days=9)),
    ManagerChange(4, "lab/language", "dan", False, "otto", "has left", NOW - timedelta(days=1)),
)
SLURM = budget_check.Slurm(NOW - timedelta(minutes=1), ("old_archive",), ("guests", "vision"))
OLD, NEW = tree_at([CHANGESET], NOW), tree_at(ALL, NOW)
LOG = budget_log.log_rows(ALL, NOW)
FOUND = budget_check.findings([CHANGESET, EDITED, PLANNED], NOW, SLURM, managers_now(GRANTS), {"erin"})


def preview() -> tuple[budget_preview.Preview, ...]:
    then = rank(NEW, [Step(WINDOW.start, CAPACITY)], [Usage(Epoch(WINDOW.start, WINDOW.end, NEW), USED)], Weight(), NOW)
    return budget_preview.preview_rows(ranking(), replace(then), then, CAPACITY)


REPORTS: dict[str, Report[Any]] = {
    "budget set": budgets.difference_report(
        budgets.differences(OLD, NEW, CAPACITY), ("Changeset 2 by anna:",), below=("Changeset 3 replaces it again.",)
    ),
    "budget diff, before the first tick": budgets.difference_report(budgets.differences(NEW, OLD), ("From 2 to 1",)),
    "budget show, a planned change": budgets.report(NEW, CAPACITY, NOW, last=4, notes=("Changes at ...",)),
    "budget log": budget_log.report(LOG, NOW),
    "budget log, a node, none": budget_log.report((), NOW, NOW - timedelta(days=1), "lab/vision"),
    "budget managers": managers.report(managers.manager_rows(GRANTS, "", past=False), "", ("erin is no login.",)),
    "budget managers --all, a node": managers.report(managers.manager_rows(GRANTS, "lab", past=True), "lab"),
    "budget managers, none": managers.report((), ""),
    "budget check": budget_check.report(FOUND, NOW),
    "budget check, nothing": budget_check.report((), NOW),
    "budget preview": budget_preview.report(preview(), WINDOW, CAPACITY),
}
TOLD = {
    "budget log": lambda width: budget_log.told_rows(LOG, REPORTS["budget log"], width),
    "budget check": lambda width: budget_check.told_rows(FOUND, REPORTS["budget check"], width),
    "budget check, nothing": lambda width: budget_check.told_rows((), REPORTS["budget check, nothing"], width),
}


class TestReports(Goldens):
    reports = REPORTS


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", TOLD)
def test_sentences_look_as_they_did_and_fit(name: str, width: int, snapshot: SnapshotAssertion) -> None:
    plain = TOLD[name](width).plain
    assert plain == snapshot
    assert max(cell_len(line) for line in plain.splitlines()) <= width
    assert "\x1b" not in plain


@pytest.mark.parametrize("form", ["80 columns", "200 columns"])
@pytest.mark.parametrize("name", ["budget set", "budget show, a planned change", "budget preview"])
def test_every_unit_is_shown_at_every_width(name: str, form: str) -> None:
    head = render(REPORTS[name], FORMS[form]).plain
    for unit in ("OfParent", "OfCluster", "GPUhPerDay"):
        assert unit in head.split("Left out")[0]
