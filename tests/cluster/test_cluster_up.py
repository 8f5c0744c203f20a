"""The cluster is what the other tests take it for: a real Slurm of the release asked for, with GPUs that it counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.cluster.cluster import REPOSITORY, Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def with_alice(clean_cluster: Cluster) -> Cluster:
    """A clean cluster where alice may submit."""
    clean_cluster.add_account("bio", "alice", qos="fs-unallocated")
    return clean_cluster


def site_settings(path: Path) -> dict[str, str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def settings_in_force(cluster: Cluster) -> dict[str, str]:
    lines = cluster.slurm_output("scontrol", "show", "config").splitlines()
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def gpus(cluster: Cluster, node: str) -> str:
    fields = cluster.slurm_output("scontrol", "-o", "show", "node", node).split()
    tres = next(field.removeprefix("CfgTRES=") for field in fields if field.startswith("CfgTRES="))
    return dict(item.split("=") for item in tres.split(","))["gres/gpu"]


def test_the_release_is_the_one_asked_for(cluster: Cluster) -> None:
    assert f" {cluster.slurm}." in cluster.slurm_output("sinfo", "--version")


def test_every_node_is_idle_and_has_eight_gpus(clean_cluster: Cluster) -> None:
    states = clean_cluster.node_states()
    assert {"n1", "n2"} <= set(states)
    assert set(states.values()) == {"idle"}
    assert {gpus(clean_cluster, node) for node in states} == {"8"}


def test_a_job_sees_its_gpus_and_its_output_is_read_from_another_node(with_alice: Cluster) -> None:
    job = with_alice.sbatch("alice", "--gres=gpu:2", "-w", "n2", "-o", "out", script="echo $CUDA_VISIBLE_DEVICES")
    with_alice.wait_state(job, "COMPLETED")
    assert with_alice.sh("n1", ["cat", "/home/alice/out"]).stdout == "0,1\n"


def test_slurmdbd_counts_the_gpus_of_a_finished_job(with_alice: Cluster) -> None:
    job = with_alice.sbatch("alice", "--gres=gpu:3", script="sleep 1")

    def row() -> str:
        return with_alice.slurm_output("sacct", "-anXP", "-j", str(job), "-o", "State,Account,AllocTRES")

    seen = with_alice.wait(row, 30, "a completed row in sacct", until=lambda text: text.startswith("COMPLETED"))
    state, account, tres = seen.split("|")
    assert (state, account) == ("COMPLETED", "bio")
    assert {"gres/gpu=3", "gres/gpu:h100=3"} <= set(tres.split(","))


def test_what_a_site_includes_is_in_force(cluster: Cluster) -> None:
    in_force = settings_in_force(cluster)
    wanted = site_settings(REPOSITORY / "slurm.conf.d" / "fairshare.conf")
    if cluster.slurm != "22.05":
        wanted |= site_settings(REPOSITORY / "slurm.conf.d" / "fairshare-23.02.conf")
    shown = {"PriorityCalcPeriod": "00:01:00", "PriorityMaxAge": "7-00:00:00", "KillWait": "10 sec"}
    expected = {name.lower(): shown.get(name, value) for name, value in wanted.items()}
    # Until 26.05 scontrol prints NO_NORMAL_ALL where any flag of that family is set, and its own order of flags.
    flags = expected.pop("priorityflags").split(",")
    printed = in_force["priorityflags"].replace("NO_NORMAL_ALL", "NO_NORMAL_ASSOC,NO_NORMAL_QOS").split(",")
    assert set(printed) == set(flags)
    assert {name: in_force.get(name) for name in expected} == expected


def test_gpus_of_all_types_and_of_each_are_counted(cluster: Cluster) -> None:
    counted = set(settings_in_force(cluster)["accountingstoragetres"].split(","))
    assert {"gres/gpu", "gres/gpu:h100", "gres/gpu:a100"} <= counted


def test_commands_of_the_daemons_user_run_from_the_host_with_epoch_times(cluster: Cluster) -> None:
    argv = [
        *cluster.command_prefix(),
        "sacctmgr",
        "-nP",
        "show",
        "user",
        "fairshare",
        "format=user,adminlevel",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout == "fairshare|Administrator\n"


def test_postgres_answers_on_the_hosts_loopback_and_the_role_is_no_superuser(cluster: Cluster) -> None:
    with psycopg.connect(cluster.database_url) as connection:
        row = connection.execute("SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    assert row == ("fairshare", False)


def test_a_controller_that_restarts_knows_its_jobs(with_alice: Cluster) -> None:
    job = with_alice.sbatch("alice", "--gres=gpu:1")
    with_alice.wait_state(job, "RUNNING")
    with_alice.restart("slurmctld")
    assert with_alice.state(job) == "RUNNING"


def test_reset_forgets_accounts_qos_and_priorities(clean_cluster: Cluster) -> None:
    clean_cluster.add_account("physics")
    clean_cluster.add_account("bio", "alice", "bob", parent="physics", qos="fs-unallocated,fs-1h")
    clean_cluster.sacctmgr("modify", "account", "bio", "set", "priority=300000")
    clean_cluster.sbatch("alice", "--gres=gpu:8", "-N2")
    clean_cluster.reset()
    assert clean_cluster.slurm_output("sacctmgr", "-nP", "show", "qos", "format=name") == "normal"
    clean_cluster.add_account("bio", "alice")
    again = clean_cluster.slurm_output("sacctmgr", "-nP", "show", "assoc", "account=bio", "format=priority,qos")
    assert set(again.splitlines()) == {"|normal"}
