"""Nodes kept for a waiting job by a reservation of a real Slurm, from which no job comes to harm."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from slurm_fairshare.core.booking import Kind
from slurm_fairshare.daemon.booking import NAME
from tests.cluster.cluster import Cluster
from tests.cluster.site import TWO_NODES, Site

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

POOR_AND_RICH = {"vision": 0.2, "robotics": 1.8}


@pytest.fixture
def site(cluster: Cluster, postgres: str) -> Iterator[Site]:
    large = {"gpus": 16, "plan_ahead": "10m"}
    with Site.on(cluster, postgres, rebalance={"guard": True, "settle": "90s"}, large=large) as site:
        yield site


def test_a_guarded_job_starts_before_one_that_sorts_first_and_outlives_its_guard(site: Site) -> None:
    runs = [site.submit("robotics", "1s"), site.submit("robotics", "1s")]
    site.running(*runs, seconds=1)
    wide = site.submit("vision", "1m", *TWO_NODES)
    site.waits(wide)
    site.standing(**POOR_AND_RICH, language=1.8)
    thief = site.submit("language", "1m")
    site.cluster.slurm_output("scontrol", "update", f"JobId={thief:d}", "Priority=4000000000")
    assert site.stopped(site.look()) == {int(job) for job in runs}
    slurm = site.product.slurm
    assert [(one.kind, one.job_id, one.nodes) for one in slurm.bookings()] == [(Kind.GUARD, int(wide), ("n1", "n2"))]
    site.cluster.wait_state(wide, "RUNNING", timeout=90)
    assert site.cluster.job(thief)["JobState"] == "PENDING"
    end = site.cluster.job(wide)["EndTime"]
    report = site.look()
    assert report.unbooked == ""
    assert slurm.bookings() == ()
    seen = site.cluster.job(wide)
    assert (seen["JobState"], seen["EndTime"], seen.get("Reservation", "(null)")) == ("RUNNING", end, "(null)")
    assert site.product.store.recall(NAME)[1] == {}  # type: ignore[index]


def test_a_guard_whose_job_is_cancelled_or_lost_leaves_nobody_held(site: Site) -> None:
    """The victims and whoever waits get the nodes back."""
    runs = [site.submit("robotics", "1s"), site.submit("robotics", "1s")]
    site.running(*runs, seconds=1)
    wide = site.submit("vision", "1m", *TWO_NODES)
    site.waits(wide)
    site.standing(**POOR_AND_RICH)
    site.look()
    site.cluster.slurm_output("scancel", str(int(wide)))
    site.cluster.wait(site.product.slurm.queue, 60, "the job to go", lambda jobs: all(j.job_id != wide for j in jobs))
    site.look()
    assert site.product.slurm.bookings() == ()
    for job in runs:
        site.cluster.wait_state(job, "RUNNING", timeout=90)


def test_unallocated_work_yields_to_a_guarded_job_as_to_any_other(site: Site) -> None:
    free, rich = site.submit("language", "0"), site.submit("robotics", "1s")
    site.running(free, rich, seconds=1)
    wide = site.submit("vision", "1m", *TWO_NODES)
    site.waits(wide)
    site.standing(**POOR_AND_RICH)
    assert site.stopped(site.look()) == {int(rich)}
    assert site.product.slurm.bookings()
    site.cluster.wait_state(wide, "RUNNING", timeout=90)
    assert site.cluster.state(free) == "PENDING"
    site.look()
    assert site.product.slurm.bookings() == ()
    assert site.cluster.state(wide) == "RUNNING"


def test_for_a_large_job_nodes_are_planned_and_all_yield_at_the_moment(site: Site) -> None:
    late = site.submit("robotics", "170s")
    site.running(late)
    wide = site.submit("vision", "1m", *TWO_NODES)
    site.waits(wide)
    site.standing(**POOR_AND_RICH)
    assert site.look().recorded == ()
    (plan,) = site.product.slurm.bookings()
    assert (plan.kind, plan.nodes) == (Kind.PLAN, ("n1", "n2"))
    assert timedelta(0) <= plan.start - (site.started(late) + timedelta(seconds=170)) <= timedelta(seconds=1)
    long, short = site.submit("language", "1m", "-t60"), site.submit("language", "30s", "-t1", script="sleep 5")
    site.cluster.wait_state(short, "COMPLETED", timeout=100)
    assert site.cluster.job(long)["JobState"] == "PENDING"
    site.until(plan.start.timestamp() + 0.2)
    site.standing(**POOR_AND_RICH)
    assert site.stopped(site.look()) == {int(late)}
    assert [one.kind for one in site.product.slurm.bookings()] == [Kind.GUARD]
    site.cluster.wait_state(wide, "RUNNING", timeout=90)
    site.look()
    assert site.product.slurm.bookings() == ()
    assert site.cluster.job(wide)["JobState"] == "RUNNING"
