"""Every report as it looks, in each form, on one invented cluster (tests/reports/sample.py)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from slurm_fairshare.core.committed import committed_by_user
from slurm_fairshare.core.plan import AddQos, SetPriority
from slurm_fairshare.core.tree import Share, build
from slurm_fairshare.reports import budgets, changes, decisions, queue, settings, shares
from slurm_fairshare.reports.table import Report
from tests.reports import sample
from tests.reports.goldens import Goldens
from tests.reports.sample import BASIS, BY_USER, DECISIONS, JOBS, LABELS, LADDER, NOW, STALE

RANKING = sample.ranking()
SHARES = shares.share_rows(RANKING, BY_USER, committed_by_user(JOBS, LADDER, NOW), LABELS)
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


class TestReports(Goldens):
    reports = REPORTS
