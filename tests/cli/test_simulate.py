"""`simulate` on what the site's own ledger has recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from slurm_fairshare.store.postgres import PostgresStore
from tests.cli.conftest import Site


@pytest.fixture(params=["memory", "postgres"], name="site")
def on_either_store(request: pytest.FixtureRequest, site: Site) -> Iterator[Site]:
    if request.param == "memory":
        yield site
        return
    with PostgresStore(request.getfixturevalue("postgres"), "lab") as store:
        yield replace(site, store=store)  # type: ignore[arg-type]


def test_the_recorded_jobs_run_again_under_the_budgets_in_force(contest: Site) -> None:
    for job in contest.slurm.queue():
        if job.start is not None:
            contest.slurm.finish(job.job_id)
    contest.says("tick")
    words = ("simulate", "run", "--from-ledger", "--since", "2d", "--nodes", "2x8:h100", "--ideal")
    jobs = contest.folder / "jobs.csv"
    told = json.loads(contest.says(*words, "--jobs-to", str(jobs), "--json"))["budget"]["scores"][0]
    assert [row.split(",")[2:4] for row in jobs.read_text().splitlines()[1:]] == [["8", "nlp"]] * 2
    assert {team["path"] for team in told["teams"]} == {"lab/vision", "lab/NLP", "lab/robotics"}
    assert told["occupancy"] > 0
