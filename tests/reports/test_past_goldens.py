"""The reports on the past and `explain`, as they look, over three invented days (tests/reports/past.py)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text
from syrupy.assertion import SnapshotAssertion

from slurm_fairshare.core.classes import Classes
from slurm_fairshare.core.fairtree import Association, fair_tree
from slurm_fairshare.core.projection import Turn, Turns
from slurm_fairshare.core.rebalance import Declined, Pass, Why
from slurm_fairshare.core.waits import waits_of_queue, waits_of_runs
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports import delivery, explain, fairtree, habits, pyramid, queue, waits, why
from slurm_fairshare.reports.measured import Measured, measured
from slurm_fairshare.reports.table import Report, dump_json, wrap
from tests.reports import past, sample
from tests.reports.goldens import Goldens
from tests.reports.sample import BASIS, BY_USER, JOBS, LADDER, NOW

STORE = past.store()
HALF_AN_HOUR = timedelta(minutes=30)
MEASURED: Measured = measured(STORE, past.PERIOD, NOW, HALF_AN_HOUR)
ROWS = delivery.delivery_rows(MEASURED)
CLASSES = Classes()
WAITS = (*waits_of_runs(STORE.runs(past.PERIOD), CLASSES), *waits_of_queue(past.picture(25), CLASSES, LADDER))
WHOLE = waits.parts_of(past.PERIOD, None, None)
SPLIT = waits.parts_of(past.PERIOD, past.at(24), past.at(30))
CAPACITY = STORE.capacity_history(MEASURED.period.known)
HABITS = habits.habits(STORE.runs(past.PERIOD), past.PERIOD, NOW, LADDER, past.BUSY)
FAIR_TREE = fair_tree(
    (
        Association("root", usage=400.5),
        Association("root", "root"),
        Association("lab", parent="root", shares=10, usage=400.5),
        Association("lab", "ann", shares=None, usage=100.25),
        Association("nlp", parent="lab", shares=3, usage=300.25),
        Association("nlp", "dan", usage=300.25),
        Association("nlp", "erin"),
        Association("old", parent="lab", shares=0),
    )
)


def levels(busy: dict[str, float]) -> tuple[pyramid.Level, ...]:
    return pyramid.levels(MEASURED, CAPACITY, STORE.runs(past.PERIOD), busy, NOW)


REPORTS: dict[str, Report[Any]] = {
    "delivery": delivery.report(MEASURED, delivery.select(ROWS)),
    "delivery --all": delivery.report(MEASURED, delivery.select(ROWS, users=True), users=True),
    "delivery -A language": delivery.report(MEASURED, delivery.select(ROWS, ("Language",))),
    "pyramid": pyramid.report(MEASURED, levels(past.BUSY)),
    "pyramid, no gpuutil": pyramid.report(MEASURED, levels({})),
    "waits": waits.report(waits.wait_rows(WAITS, WHOLE), WHOLE, CLASSES),
    "waits --teams": waits.report(waits.wait_rows(WAITS, WHOLE, teams=True), WHOLE, CLASSES, teams=True),
    "waits --before --after": waits.report(waits.wait_rows(WAITS, SPLIT), SPLIT, CLASSES),
    "habits": habits.report(habits.select(HABITS), past.PERIOD, known=True),
    "habits --all": habits.report(habits.select(HABITS, users=True), past.PERIOD, users=True),
    "shares --as-slurm": fairtree.report(FAIR_TREE, NOW),
    "shares --as-slurm -l": fairtree.report(FAIR_TREE, NOW, long=True),
}


class TestReports(Goldens):
    reports = REPORTS


# --- explain ----------------------------------------------------------------------------------------

RANKING = sample.ranking()
QUEUE = queue.queue_rows(JOBS, RANKING, LADDER, NOW)
SOON = BASIS.at + timedelta(hours=15)
KNOWN = explain.Known(
    ranking=RANKING,
    basis=BASIS,
    rows=QUEUE,
    capacity=sample.CAPACITY,
    turns={
        "lab/language/nlp": Turns(Turn(SOON, 0.99, 3), Turn(SOON, 0.99, 3)),
        "lab/vision": Turns(Turn(SOON, 1.02, 2), None),
    },
    passed=Pass(
        (replace(sample.decision("p", 0, sample.Rule.UNDER_SERVED, sample.LANGUAGE, sample.ROBOTICS)),),
        (Declined(1043, Why.FITS, "it fits into what is free"),),
    ),
    used=BY_USER,
)
TOLD = {
    "an account": explain.explain_node(KNOWN, "lab/language/nlp"),
    "a node": explain.explain_node(KNOWN, "lab/language"),
    "a team without a share": explain.explain_node(KNOWN, "lab/archive"),
    "a user": explain.explain_user(KNOWN, "erin", explain.paths_of_user(RANKING, "erin", BY_USER, QUEUE)),
    "a job that waits": explain.explain_job(KNOWN, why.why("1043", (), QUEUE, 4, BASIS)),
    "a job that runs": explain.explain_job(KNOWN, why.why("1003", (), QUEUE, 4, BASIS)),
    "what cannot be said": explain.explain_node(replace(KNOWN, passed=None, capacity=None, turns={}), "lab/vision"),
}


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("what", TOLD)
def test_explain_says_what_it_said(what: str, width: int, snapshot: SnapshotAssertion) -> None:
    lines = [part.plain for told in TOLD[what] for line in told for part in wrap(Text(line), width)]
    assert max(map(cell_len, lines)) <= width
    assert "\n".join(lines) == snapshot


def test_explain_for_programs(snapshot: SnapshotAssertion) -> None:
    path = "lab/language/nlp"
    assert dump_json(explain.facts(KNOWN, "nlp", "node", (path,), TOLD["an account"])) == snapshot


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("NLP", ("lab/language/nlp",)),
        ("speech@lab", ("lab/language/speech",)),
        ("lab/language", ("lab/language",)),
        ("Language", ("lab/language",)),
        ("nobody", ()),
    ],
)
def test_explain_knows_what_is_meant(name: str, paths: tuple[str, ...]) -> None:
    assert explain.nodes_named(RANKING, name) == paths


# --- what the figures are ---------------------------------------------------------------------------


def test_the_period_is_told_exactly_with_what_nobody_saw() -> None:
    first, second = MEASURED.period.lines()
    assert first.startswith("From 2026-10-05T12:00:00Z to 2026-10-08T12:00:00Z (3d, UTC).")
    assert "Before 2026-10-05T12:00:00Z nothing was recorded." in first
    assert "from 2026-10-07T13:00:00Z for 6h" in second


def test_every_gpu_hour_is_in_one_line_and_the_lines_add_up() -> None:
    whole, leaves = ROWS[0], [row for row in ROWS if row.leaf]
    assert sum(row.used for row in leaves) == pytest.approx(whole.used)
    assert sum(row.unallocated for row in leaves) == pytest.approx(whole.unallocated)
    users = [row for row in ROWS if row.user]
    assert sum(row.used + row.unallocated for row in users) == pytest.approx(whole.used + whole.unallocated)
    assert whole.used + whole.unallocated == sum(one.gpu_seconds for one in MEASURED.holdings)


def test_a_period_of_which_nothing_is_known_is_an_error_that_says_so() -> None:
    with pytest.raises(Exception, match="nothing was recorded from 2020"):
        measured(STORE, Window(NOW.replace(year=2020), NOW.replace(year=2021)), NOW, HALF_AN_HOUR)
