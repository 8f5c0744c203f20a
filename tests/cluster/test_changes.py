"""What becomes of a contract when somebody changes its job: the table in docs/reference/changes.md, line by line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from tests.cluster.cluster import Cluster, CommandError, JobId
from tests.cluster.site import Site

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def site(cluster: Cluster, postgres_server: str, postgres_database: str) -> Iterator[Site]:
    """Alice owns, erin coordinates vision, frank is an operator; a job that runs, and one that waits behind it."""
    with Site.on(cluster, make_conninfo(postgres_server, dbname=postgres_database)) as made:
        made.cluster.sacctmgr("add", "user", "alice", "account=language")
        made.cluster.sacctmgr("add", "user", "erin,frank", "account=vision")
        made.cluster.sacctmgr("add", "coordinator", "names=erin", "account=vision")
        made.cluster.sacctmgr("modify", "user", "where", "name=frank", "set", "adminlevel=Operator")
        made.product.tick()
        yield made


@pytest.fixture(scope="module")
def running(site: Site) -> JobId:
    job = site.submit("vision", "1h", "-t", "4:00:00")
    other = site.submit("vision", "1h", "-t", "4:00:00")
    site.running(job, other)
    return job


@pytest.fixture
def waiting(site: Site, running: JobId) -> Iterator[JobId]:
    job = site.submit("vision", "1h", "-t", "4:00:00")
    yield job
    site.cluster.slurm_output("scancel", str(int(job)))


def change(site: Site, user: str, job: JobId, *words: str) -> str:
    """What Slurm says to a change: "" where it is carried out."""
    done = site.cluster.sh("slurmctld", ["scontrol", "update", f"JobId={int(job)}", *words], user=user, check=False)
    return "" if done.returncode == 0 else (done.stderr + done.stdout).strip() or f"exit {done.returncode}"


def refused(site: Site, said: str, words: str) -> None:
    """22.05 shows nobody what a plugin says about a change; the refusal itself is the same."""
    assert said
    assert site.cluster.release == "bookworm" or words in said


OWNERS = ("alice", "erin", "frank")
"""Owner, coordinator and operator: the plugin treats all three alike."""


@pytest.mark.parametrize("user", OWNERS)
def test_the_contract_of_a_waiting_job_is_fixed(site: Site, waiting: JobId, user: str) -> None:
    for words in ("Comment=min_runtime=2h", "Comment=resumable=no", "Comment=priority=high", "Comment=notice=USR1"):
        refused(site, change(site, user, waiting, words), "fixed when the job is submitted")
    refused(site, change(site, user, waiting, "QOS=fs-8h"), "QOS follows from the contract")
    refused(site, change(site, user, waiting, "TimeLimit=30"), "shorter than the job's min_runtime")
    refused(site, change(site, user, waiting, "Requeue=0"), "must stay requeueable")
    assert site.product.slurm.job(waiting).contract.min_runtime == 3600  # type: ignore[union-attr]


@pytest.mark.parametrize("user", OWNERS)
def test_the_contract_of_a_running_job_is_fixed(site: Site, running: JobId, user: str) -> None:
    refused(site, change(site, user, running, "Comment=min_runtime=2h"), "fixed when the job is submitted")
    refused(site, change(site, user, running, "TimeLimit=30"), "shorter than the job's min_runtime")
    refused(site, change(site, user, running, "Requeue=0"), "must stay requeueable")
    for words in ("QOS=fs-8h", "Account=language", "Partition=gpu2"):
        assert change(site, user, running, words), words
    seen = site.cluster.job(running)
    assert (seen["QOS"], seen["Account"]) == ("fs-1h", "vision")


def test_its_own_words_may_be_repeated_and_other_words_written(site: Site, running: JobId, waiting: JobId) -> None:
    for job in (running, waiting):
        assert change(site, "alice", job, "Comment=min_runtime=1h resumable=yes run 7 checkpoint=1790000000") == ""
    assert site.product.slurm.checkpoints().keys() == {int(running)}


def test_the_owner_may_shorten_the_time_limit_down_to_the_minimum_and_no_one_but_operators_lengthen_it(
    site: Site, running: JobId, waiting: JobId
) -> None:
    assert change(site, "alice", waiting, "TimeLimit=60") == ""
    assert change(site, "alice", running, "TimeLimit=3:00:00") == ""
    assert change(site, "alice", running, "TimeLimit=5:00:00")
    assert change(site, "frank", running, "TimeLimit=5:00:00") == ""


def test_a_waiting_job_may_move_to_another_account_of_its_owner_with_its_contract(site: Site, waiting: JobId) -> None:
    assert change(site, "alice", waiting, "Account=language") == ""
    seen = site.product.slurm.job(waiting)
    assert seen is not None
    assert seen.contract is not None
    assert (seen.account, seen.qos, seen.contract.min_runtime) == ("language", "fs-1h", 3600)
    assert change(site, "alice", waiting, "Account=robotics"), "alice has no association there"


def test_nobody_but_an_administrator_touches_the_pin_or_the_place_in_the_team(site: Site, waiting: JobId) -> None:
    pin = "AdminComment=fairshare min_runtime=28800 resumable=yes priority=high"
    for user in ("alice", "erin", "frank"):
        change(site, user, waiting, pin)
        assert site.product.slurm.job(waiting).contract.min_runtime == 3600, user  # type: ignore[union-attr]
    before = site.cluster.job(waiting)["Priority"]
    for user in ("alice", "erin"):
        change(site, user, waiting, "SiteFactor=1000000")
        assert site.cluster.job(waiting)["Priority"] == before
    assert change(site, "alice", waiting, "Priority=4000000000")


def test_an_administrator_writes_a_waiting_job_a_new_contract_by_its_comment(site: Site, waiting: JobId) -> None:
    assert change(site, "root", waiting, "Comment=min_runtime=2h resumable=no") == ""
    seen = site.product.slurm.job(waiting)
    assert seen is not None
    assert seen.contract is not None
    assert (seen.qos, seen.contract.min_runtime, seen.contract.resumable) == ("fs-2h", 7200, False)


def test_an_administrator_may_lengthen_the_protection_of_a_running_job_by_its_pin(site: Site, running: JobId) -> None:
    assert change(site, "root", running, "AdminComment=fairshare min_runtime=7200 resumable=yes priority=normal") == ""
    assert site.product.slurm.job(running).contract.min_runtime == 7200  # type: ignore[union-attr]


def test_a_contract_outlives_a_requeue_by_its_owner_and_protection_begins_anew(site: Site) -> None:
    site.empty()
    job = site.submit("vision", "1h")
    site.running(job)
    first = site.started(job)
    site.cluster.sh("slurmctld", ["scontrol", "requeue", str(int(job))], user="alice")
    site.cluster.wait_state(job, "PENDING")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    seen = site.product.slurm.job(job)
    assert seen is not None
    assert seen.contract is not None
    assert (seen.contract.min_runtime, seen.qos) == (3600, "fs-1h")
    assert site.started(job) > first


def test_a_change_of_accounts_while_it_waits_is_charged_to_whoever_has_it_when_it_runs(site: Site) -> None:
    site.empty()
    block = [site.submit("vision", "1h"), site.submit("vision", "1h")]
    site.running(*block)
    job = site.submit("vision", "1h")
    assert change(site, "alice", job, "Account=language") == ""
    site.cluster.slurm_output("scancel", str(int(block[0])))
    site.running(job)
    with pytest.raises(CommandError):
        site.cluster.sh("slurmctld", ["scontrol", "update", f"JobId={int(job)}", "Account=vision"], user="alice")
    assert site.cluster.job(job)["Account"] == "language"
