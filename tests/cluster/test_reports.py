"""Reports and users' ranks on a real Slurm: what they say is what slurmdbd counts and slurmctld holds."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.core.plan import BAND, SetUserPriority
from slurm_fairshare.daemon.loop import utc_now
from tests.cluster.cluster import Cluster
from tests.cluster.product import Product

pytestmark = pytest.mark.cluster

TERMS = ("--gpus-per-node=2", "--comment", "min_runtime=1h resumable=yes")
REPORTS = ("delivery", "pyramid", "waits", "habits")


@pytest.fixture
def product(clean_cluster: Cluster, postgres: str) -> Iterator[Product]:
    made = Product.on(clean_cluster, postgres, fairshare={"rank_users": True})
    made.fund()
    made.tick()
    yield made
    made.store.close()


def says(product: Product, *words: str) -> str:
    app = App(product.config, product.store, product.slurm, clock=utc_now)
    result = CliRunner().invoke(main, list(words), obj=app, env={"COLUMNS": ""})
    assert result.exit_code == 0, result.output
    return result.stdout


def own_priorities(product: Product) -> dict[tuple[str, str], int]:
    return {(one.account, one.user): one.priority or 0 for one in product.slurm.held().associations if one.user}


def test_of_two_users_of_a_team_the_one_who_used_less_goes_first(product: Product) -> None:
    cluster = product.cluster
    running = cluster.sbatch("alice", *TERMS, account="vision")
    cluster.wait_state(running, "RUNNING")
    cluster.wait(lambda: product.tick().ranking.standings["lab/vision"].usage, 30, "usage", until=lambda u: u > 5)
    product.tick()
    held = product.slurm.held()
    label = held.accounts["vision"].priority or 0
    own = own_priorities(product)
    assert label < own["vision", "alice"] < own["vision", "bob"] < label + BAND
    waiting = [cluster.sbatch(user, "--hold", *TERMS, account="vision") for user in ("alice", "bob")]
    for job in waiting:
        cluster.slurm_output("scontrol", "release", str(int(job)))
    seen = [int(cluster.job(job)["Priority"]) for job in waiting]
    assert seen[1] - seen[0] == own["vision", "bob"] - own["vision", "alice"]


def test_a_second_tick_moves_nobody_and_the_setting_taken_back_clears_all(product: Product) -> None:
    product.tick()
    assert not [one for one in product.tick().changes if isinstance(one, SetUserPriority)]
    plain = Product.on(product.cluster, product.config.database_url)
    plain.tick()
    held = plain.slurm.held()
    assert {own for own in own_priorities(plain).values() if own} <= {one.priority for one in held.accounts.values()}
    plain.store.close()


def test_the_reports_add_up_to_what_slurmdbd_counts(product: Product) -> None:
    cluster = product.cluster
    begun = utc_now()
    jobs = [
        cluster.sbatch("alice", *TERMS, account="vision", script="sleep 8"),
        cluster.sbatch("carol", "--gpus-per-node=1", account="language", script="sleep 6"),
    ]
    for job in jobs:
        cluster.wait_state(job, "COMPLETED", 60)
    product.tick()
    rows = cluster.slurm_output(
        "sacct", "-a", "-X", "-D", "-n", "-P", "-S", f"uts{int(begun.timestamp())}", "-o", "Account,ElapsedRaw"
    ).splitlines()
    seconds = {account: int(elapsed) for account, elapsed in (row.split("|") for row in rows)}
    told = {row["account"]: row for row in json.loads(says(product, "delivery", "--json"))["delivery"]}
    assert told["vision"]["used"] * 3600 == pytest.approx(2 * seconds["vision"])
    assert told["language"]["unallocated"] * 3600 == pytest.approx(seconds["language"])
    assert told["vision"]["owed"] <= told["vision"]["entitled"]
    levels = {level["level"]: level for level in json.loads(says(product, "pyramid", "--json"))["levels"]}
    assert levels["occupancy"]["part"] * 3600 == pytest.approx(2 * seconds["vision"] + seconds["language"])
    assert levels["availability"]["value"] == 1.0
    assert levels["utilisation"]["value"] is None


def test_every_report_and_explain_speak_on_a_real_cluster(product: Product) -> None:
    running = product.cluster.sbatch("dan", *TERMS, account="robotics")
    product.cluster.wait_state(running, "RUNNING")
    product.tick()
    for command in REPORTS:
        assert says(product, command)
    assert "protected until" in says(product, "explain", str(int(running)))
    assert "lab/robotics: 20% of its level" in says(product, "explain", "robotics")
    assert "users have no standing of their own" in says(product, "explain", "dan")
    assert "robotics|dan|1|" in says(product, "shares", "--as-slurm", "-a", "-P")
