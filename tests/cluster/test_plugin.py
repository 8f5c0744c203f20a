"""job_submit.lua in a real slurmctld: what users are told, what is pinned, and what they cannot change."""

from __future__ import annotations

import pytest

from slurm_fairshare.core.contract import Contract, Ladder, Priority, read_pinned
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

LADDER = Ladder.default()
ALL_GPUS = ("-N", "2", "--gpus-per-node=8")


@pytest.fixture(scope="module")
def prepared(cluster: Cluster) -> Cluster:
    """alice and bob work in account bio, which may use the whole ladder; carol in one that knows nothing of it."""
    cluster.reset()
    names = [rung.name for rung in LADDER.rungs]
    cluster.sacctmgr("add", "qos", ",".join([*names, "vip"]))
    cluster.add_account("bio", "alice", "bob")
    qos = ",".join(["normal", "vip", *names])
    cluster.sacctmgr("modify", "account", "bio", "set", f"qos={qos}", "DefaultQOS=fs-unallocated")
    cluster.add_account("guests", "carol")
    return cluster


@pytest.fixture
def ladder(prepared: Cluster) -> Cluster:
    """That cluster, with an empty queue."""
    prepared.cancel_all_jobs()
    return prepared


def line(cluster: Cluster, job: int, field: str) -> str:
    """A field of a job that may hold blanks."""
    lines = cluster.slurm_output("scontrol", "show", "job", str(job)).splitlines()
    found = [text.strip() for text in lines if text.strip().startswith(f"{field}=")]
    return found[0].removeprefix(f"{field}=") if found else ""


def pin(cluster: Cluster, job: int) -> Contract | None:
    return read_pinned(line(cluster, job, "AdminComment"))


def update(cluster: Cluster, job: int, *fields: str, user: str = "alice") -> str:
    """`scontrol update` by the owner; the error text, empty if it was accepted."""
    done = cluster.sh("slurmctld", ["scontrol", "update", f"job={job}", *fields], user=user, check=False)
    return "" if done.returncode == 0 else done.stderr


def told_why(cluster: Cluster, text: str, words: str) -> bool:
    """22.05 has no way to tell words to whoever changes a job: there an error it must be, and no more."""
    return bool(text) if cluster.slurm == "22.05" else words in text


def test_no_comment_runs_unallocated_and_the_user_is_told(ladder: Cluster) -> None:
    job = ladder.sbatch("alice", "--gres=gpu:1")
    assert "unallocated, free" in job.messages
    assert 'write --comment="min_runtime=4h"' in job.messages
    assert ladder.job(job)["QOS"] == "fs-unallocated"
    assert ladder.job(job)["Requeue"] == "1"
    assert pin(ladder, job) == Contract()


def test_a_contract_is_told_pinned_and_put_on_its_rung(ladder: Cluster) -> None:
    job = ladder.sbatch("alice", "--gres=gpu:1", "--comment=exp 7; min_runtime=3h resumable=yes priority=high")
    assert "contract min_runtime=3h resumable=yes priority=high: protected for 3h" in job.messages
    assert ladder.job(job)["QOS"] == "fs-4h"
    assert pin(ladder, job) == Contract(10_800, True, Priority.HIGH)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--comment=min_runtime=9h",), "cap of 8h"),
        (("--comment=min_runtime=1h2",), "write min_runtime=4h"),
        (("--comment=min_runtime=-5",), "write min_runtime=4h"),
        (("--comment=minruntime=4h",), "write min_runtime=4h"),
        (("--comment=resumable=maybe",), "neither yes nor no"),
        (("--comment=min_runtime=4h", "-t", "60"), "time limit of 1h"),
        (("--comment=min_runtime=1h", "--qos=fs-8h"), "leave --qos out"),
        (("--qos=vip",), "not for users to choose"),
        (("--comment=resumable=yes", "--no-requeue"), "--no-requeue"),
    ],
)
def test_what_cannot_be_is_refused_at_submit_with_words(ladder: Cluster, options: tuple[str, ...], words: str) -> None:
    assert words in ladder.refused("alice", *options)


@pytest.mark.parametrize(
    ("gpus", "qos"),
    [
        (("--gres=gpu:h100:8",), "fs-15m"),
        (("--gpus=h100:8",), "fs-15m"),
        (("-N", "2", "--gpus-per-node=4"), "fs-15m"),
        (("-n", "8", "--gpus-per-task=1"), "fs-15m"),
        (("-n", "4", "--ntasks-per-gpu=2"), "fs-15m"),
        (("--gpus-per-socket=1", "--sockets-per-node=2"), "fs-15m"),
        (ALL_GPUS, "fs-1h"),
        (("--gpus=9",), "fs-1h"),
        (("-n", "9", "--gpus-per-task=1"), "fs-1h"),
        (("--exclusive", "--gpus=1"), "fs-1h"),
    ],
)
def test_gpus_are_counted_as_the_user_asked_for_them(ladder: Cluster, gpus: tuple[str, ...], qos: str) -> None:
    job = ladder.sbatch("alice", "--hold", "--comment=min_runtime=10m", *gpus)
    assert ladder.job(job)["QOS"] == qos


def test_an_interactive_job_is_warned_and_works(ladder: Cluster) -> None:
    argv = ["salloc", "-A", "bio", "--gres=gpu:1", "--comment=min_runtime=10m", "true"]
    done = ladder.sh("slurmctld", argv, user="alice")
    assert "protected for 10m" in done.stderr
    assert "cannot be requeued" in done.stderr


def test_an_array_and_a_heterogeneous_job_have_one_contract(ladder: Cluster) -> None:
    array = ladder.sbatch("alice", "--hold", "--array=1-3", "--comment=min_runtime=1h")
    assert pin(ladder, array) == Contract(3600)
    options = ["--hold", "--comment=min_runtime=1h resumable=yes", "-n1", ":", "-n2"]
    components = ladder.sbatch("alice", *options)
    assert "interactive" not in components.messages
    assert pin(ladder, components + 1) == Contract(3600, True)


def test_an_account_without_a_budget_works_as_before(ladder: Cluster) -> None:
    job = ladder.sbatch("carol", "--gres=gpu:1")
    assert "no budget" in job.messages
    assert ladder.job(job)["QOS"] == "normal"


def test_in_team_priority_is_the_job_s_site_factor(ladder: Cluster) -> None:
    ladder.sbatch("bob", *ALL_GPUS, "--comment=min_runtime=1h")
    jobs = {
        name: ladder.sbatch("alice", *ALL_GPUS, f"--comment=min_runtime=1h priority={name}")
        for name in ("low", "normal", "high")
    }

    def factors() -> dict[str, int]:
        rows = ladder.slurm_output("sprio", "-h", "-o", "%i %S").splitlines()
        seen = {int(row.split()[0]): int(row.split()[1]) for row in rows if len(row.split()) == 2}
        return {name: seen.get(job, -1) for name, job in jobs.items()}

    ladder.wait(
        factors,
        30,
        "three site factors",
        until=lambda seen: seen == {"low": 0, "normal": 20_000, "high": 40_000},
    )
    priorities = {name: int(ladder.job(job)["Priority"]) for name, job in jobs.items()}
    assert priorities["low"] < priorities["normal"] < priorities["high"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("comment=min_runtime=8h", "fixed when the job is submitted"),
        ("comment=minruntime=8h", "write min_runtime=8h"),
        ("qos=fs-8h", "follows from the contract"),
        ("qos=vip", "follows from the contract"),
        ("timelimit=30", "shorter than the job's min_runtime=1h"),
        ("requeue=0", "must stay requeueable"),
        ("admincomment=fairshare min_runtime=28800 resumable=yes priority=high", "denied"),
    ],
)
def test_an_owner_cannot_change_the_contract_of_a_job_pending_or_running(
    ladder: Cluster, change: str, words: str
) -> None:
    comment = "--comment=min_runtime=1h resumable=yes"
    pending = ladder.sbatch("alice", "--hold", comment)
    running = ladder.sbatch("alice", "--gres=gpu:1", comment)
    ladder.wait_state(running, "RUNNING")
    for job in (pending, running):
        assert told_why(ladder, update(ladder, job, change), words)
        assert ladder.job(job)["QOS"] == "fs-1h"
        assert pin(ladder, job) == Contract(3600, True)


def test_other_words_in_a_comment_are_the_owner_s_own(ladder: Cluster) -> None:
    job = ladder.sbatch("alice", "--gres=gpu:1", "--comment=min_runtime=1h")
    ladder.wait_state(job, "RUNNING")
    assert update(ladder, job, "comment=see ticket 12") == ""
    assert line(ladder, job, "Comment") == "see ticket 12"
    assert pin(ladder, job) == Contract(3600)


def test_an_unallocated_job_cannot_be_lifted_to_a_rung(ladder: Cluster) -> None:
    job = ladder.sbatch("alice", "--hold")
    assert update(ladder, job, "qos=fs-8h") != ""
    assert update(ladder, job, "comment=min_runtime=8h") != ""
    assert ladder.job(job)["QOS"] == "fs-unallocated"


def test_root_changes_a_pending_job_s_contract_by_its_comment(ladder: Cluster) -> None:
    job = ladder.sbatch("alice", "--hold", "--comment=min_runtime=1h")
    assert update(ladder, job, "comment=min_runtime=2h priority=high", user="root") == ""
    assert ladder.job(job)["QOS"] == "fs-2h"
    assert pin(ladder, job) == Contract(7200, False, Priority.HIGH)


def test_the_pin_outlives_a_requeue(ladder: Cluster) -> None:
    job = ladder.sbatch("alice", "--gres=gpu:1", "--comment=min_runtime=1h resumable=yes")
    ladder.wait_state(job, "RUNNING")
    ladder.slurm_output("scontrol", "requeue", str(job))
    ladder.wait(lambda: ladder.job(job), 40, "a requeued job", until=lambda seen: seen["Restarts"] == "1")
    assert pin(ladder, job) == Contract(3600, True)
