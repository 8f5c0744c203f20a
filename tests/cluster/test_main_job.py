"""The main job on a real Slurm: the ladder, the order of the queue, the contract, native and guided yielding."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from slurm_fairshare.core.decisions import Outcome, Rule
from slurm_fairshare.core.plan import BAND
from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.errors import SlurmError
from tests.cluster.cluster import Cluster, JobId
from tests.cluster.product import POOR, RICH, Product

pytestmark = pytest.mark.cluster

WHOLE_NODE = ("-N1", "--gpus-per-node=8")
KILL_WAIT = 10


@pytest.fixture
def product(clean_cluster: Cluster, postgres: str) -> Iterator[Product]:
    made = Product.on(clean_cluster, postgres)
    made.fund()
    made.tick()
    yield made
    made.store.close()


def submit(product: Product, user: str, minimum: str | None, *more: str, script: str = "sleep 900") -> JobId:
    comment = () if minimum is None else ("--comment", f"min_runtime={minimum} resumable=yes")
    return product.cluster.sbatch(user, *WHOLE_NODE, *comment, *more, script=script)


def started(product: Product, job: JobId) -> int:
    """When the job's present run began, in whole seconds of the epoch."""
    found = product.slurm.job(job)
    assert found is not None
    assert found.start is not None
    return int(found.start.timestamp())


def test_each_rungs_qos_protects_for_exactly_its_minimum_runtime(product: Product) -> None:
    lines = product.cluster.slurm_output(
        "sacctmgr", "-nP", "show", "qos", "format=Name,GraceTime,PreemptExemptTime,Preempt"
    ).splitlines()
    rows = {line.split("|")[0]: line.split("|")[1:] for line in lines}
    spelt = {"fs-15m": "00:15:00", "fs-1h": "01:00:00", "fs-2h": "02:00:00", "fs-4h": "04:00:00", "fs-8h": "08:00:00"}
    for name, length in spelt.items():
        assert rows[name] == [length, length, "fs-unallocated"]
    assert rows["fs-unallocated"][0] == "00:00:00"
    assert rows["fs-unallocated"][2] == ""


def test_teams_may_use_the_ladder_and_start_unallocated_by_default(product: Product) -> None:
    line = product.cluster.slurm_output(
        "sacctmgr", "-nP", "show", "assoc", "account=vision", "user=alice", "format=QOS,DefaultQOS"
    )
    allowed, default = line.split("|")
    assert {"fs-unallocated", "fs-15m", "fs-1h", "fs-2h", "fs-4h", "fs-8h"} <= set(allowed.split(","))
    assert default == "fs-unallocated"


def test_a_second_tick_with_nothing_new_makes_no_sacctmgr_call(product: Product) -> None:
    product.tick()
    later = product.reopened()
    assert later.tick().changes == ()
    assert later.slurm.calls["sacctmgr"] == 0
    assert product.tick().changes == ()


def test_unallocated_work_yields_natively_at_once_with_the_daemon_stopped(product: Product) -> None:
    free = [submit(product, "dan", None) for _ in range(2)]
    for job in free:
        product.cluster.wait_state(job, "RUNNING")
    asked = time.time()
    taker = submit(product, "alice", "1h")
    product.cluster.wait_state(taker, "RUNNING", timeout=60)
    assert started(product, taker) - asked <= KILL_WAIT + 10
    states = sorted(product.cluster.state(job) for job in free)
    assert states == ["PENDING", "RUNNING"]


def test_a_contract_holds_for_its_minimum_and_yields_within_five_seconds_of_it(product: Product) -> None:
    """Robotics holds everything, far over target; vision, owed half of the cluster, waits."""
    minimum = 60
    hogs = [submit(product, "dan", f"{minimum}s"), submit(product, "dan", "8h")]
    for job in hogs:
        product.cluster.wait_state(job, "RUNNING")
    first_start = started(product, hogs[0])
    with product.daemon():
        taker = submit(product, "alice", "1m")
        product.cluster.wait_state(taker, "RUNNING", timeout=minimum + 60)
        record = next(one for one in product.store.decisions_about(hogs[0]))
    assert record.outcome is Outcome.REQUEUED
    assert record.decision.rule is Rule.UNDER_SERVED
    assert record.decision.preemptor is not None
    assert (record.decision.victim.account, record.decision.preemptor.account) == (RICH, POOR)
    stopped_after = record.changed.timestamp() - first_start
    assert minimum <= stopped_after <= minimum + 5, f"stopped {stopped_after:.1f}s after its start"
    rows = product.cluster.slurm_output(
        "sacct", "-X", "-D", "-n", "-P", "-j", str(int(hogs[0])), "-o", "State,ElapsedRaw"
    ).splitlines()
    state, elapsed = rows[0].split("|")
    assert state == "REQUEUED"
    assert int(elapsed) >= minimum
    assert product.cluster.state(hogs[1]) == "RUNNING", "the run under an 8-hour contract was not touched"


def assert_follows_its_rank(product: Product, job: JobId) -> None:
    """A requeued job has its team's present label again, within a calculation period (and not the old one)."""
    lane = 2_000_000_000

    def band() -> tuple[int, int]:
        priority = int(product.cluster.job(job)["Priority"]) - lane
        return priority // BAND * BAND, product.store.labels()[RICH]

    product.cluster.wait(band, 70, "its team's present label", until=lambda seen: seen[0] == seen[1])


def test_a_requeued_job_starts_again_by_itself_and_is_told_why_it_was_stopped(product: Product) -> None:
    hogs = [submit(product, "dan", "20s"), submit(product, "dan", "8h")]
    for job in hogs:
        product.cluster.wait_state(job, "RUNNING")
    with product.daemon():
        taker = submit(product, "alice", "20s", script="sleep 15")
        product.cluster.wait_state(taker, "RUNNING", timeout=90)
        comment = product.cluster.slurm_output("squeue", "-h", "-j", str(int(hogs[0])), "-O", "admin_comment:900")
        assert f"for job {taker} of alice (vision" in comment
        assert "lab/robotics has used" in comment
        assert_follows_its_rank(product, hogs[0])
        product.cluster.wait(
            lambda: product.cluster.state(hogs[0]), 200, "a second run", until=lambda s: s == "RUNNING"
        )
    assert product.cluster.job(hogs[0])["Restarts"] == "1"
    product.tick()
    runs = product.store.runs_of(hogs[0])
    assert sorted(run.state for run in runs) == ["REQUEUED", "RUNNING"]
    assert all(run.charged for run in runs)


def test_the_queue_follows_the_ranking_within_one_calculation_period(product: Product) -> None:
    """Both teams wait; then the budget turns their order around."""
    blockers = [submit(product, "carol", "8h") for _ in range(2)]
    for job in blockers:
        product.cluster.wait_state(job, "RUNNING")
    waiting = {POOR: submit(product, "alice", "2h"), RICH: submit(product, "dan", "2h")}
    product.tick()

    def order() -> list[str]:
        return sorted(waiting, key=lambda team: -int(product.cluster.job(waiting[team])["Priority"]))

    ranking = [leaf.account for leaf in product.tick().ranking.leaves]
    expected = [team for team in ranking if team in waiting]
    product.cluster.wait(order, 70, f"the order {expected}", until=lambda seen: seen == expected)

    loser = expected[0]
    leaves = tuple(Share(name, 0.0 if name == loser else 1.0, name) for name in ("vision", "language", "robotics"))
    product.store.add_changeset("ada", "turn it around", utc_now(), {"lab": leaves})
    product.tick()
    product.cluster.wait(order, 70, "the order turned around", until=lambda seen: seen == expected[::-1])
    priorities = [int(product.cluster.job(job)["Priority"]) for job in waiting.values()]
    assert abs(priorities[0] - priorities[1]) >= BAND / 2


def test_a_job_without_a_comment_runs_unallocated_and_is_told_so(product: Product) -> None:
    job = submit(product, "alice", None)
    assert "unallocated" in job.messages
    assert product.cluster.wait_state(job, "RUNNING")["QOS"] == "fs-unallocated"


def test_more_than_the_cap_is_refused_with_the_cap_named(product: Product) -> None:
    words = product.cluster.refused("alice", *WHOLE_NODE, "--comment", "min_runtime=9h")
    assert "8h" in words


def test_equal_ratios_stop_nobody(product: Product) -> None:
    """Two teams each hold the half they own; the one that asks for more has to wait."""
    product.store.add_changeset("ada", "halves", utc_now(), _halves())
    runs = [submit(product, "alice", "5s"), submit(product, "dan", "5s")]
    for job in runs:
        product.cluster.wait_state(job, "RUNNING")
    waiting = submit(product, "alice", "5s")
    time.sleep(8)
    product.tick()
    report = product.rebalance()
    assert report.recorded == ()
    assert [one.job_id for one in report.declined] == [int(waiting)]
    assert product.cluster.state(runs[1]) == "RUNNING"


def _halves() -> dict[str, tuple[Share, ...]]:

    return {"lab": (Share("vision", 1, "vision"), Share("robotics", 1, "robotics"), Share("language", 0, "language"))}


def test_an_account_that_only_the_budget_knows_is_named_and_the_rest_is_served(product: Product) -> None:

    leaves = (Share("vision", 1, "vision"), Share("ghost", 1, "Ghost@Lab.x_y+z"))
    product.store.add_changeset("ada", "a ghost", utc_now(), {"lab": leaves})
    report = product.tick()
    assert report.unknown_accounts == ("Ghost@Lab.x_y+z",)
    assert set(report.unbudgeted_accounts) >= {"language", "robotics"}


def test_account_names_with_odd_characters_and_upper_case_work(product: Product) -> None:

    name = "Bio@Lab.x_y+z-1"
    product.cluster.add_account(name, "erin")
    product.store.add_changeset("ada", "odd", utc_now(), {"lab": (Share("bio", 1, name),)})
    assert product.tick().unknown_accounts == ()
    job = product.cluster.sbatch("erin", *WHOLE_NODE, "--comment", "min_runtime=1h")
    product.cluster.wait_state(job, "RUNNING")
    time.sleep(2)
    assert product.tick().ranking.standings["lab/bio"].usage > 0


@pytest.mark.parametrize("service", ["slurmdbd", "slurmctld"])
def test_a_dead_slurm_daemon_ends_the_tick_with_words_and_the_next_goes_on(product: Product, service: str) -> None:

    product.cluster.stop(service)
    try:
        with pytest.raises(SlurmError) as caught:
            product.tick()
        assert str(caught.value)
    finally:
        product.cluster.start(service)
    assert product.tick().pushed


def test_protection_holds_with_the_daemon_stopped(product: Product) -> None:
    """Nothing in Slurm itself stops a run under contract, however over-served its team."""
    hogs = [submit(product, "dan", "5s"), submit(product, "dan", "8h")]
    for job in hogs:
        product.cluster.wait_state(job, "RUNNING")
    submit(product, "alice", "1h", "--nice=0")
    time.sleep(25)
    assert [product.cluster.state(job) for job in hogs] == ["RUNNING", "RUNNING"]
