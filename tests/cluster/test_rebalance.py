"""Each rule of yielding on a real Slurm. The teams' standing is said by the test; the runs, their ages and the acts
are real. Independent cases share a test where one leaves the cluster as the next needs it: two nodes of 8 GPUs."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from slurm_fairshare.core.decisions import Outcome, Rule
from tests.cluster.cluster import CommandError, JobId
from tests.cluster.site import TWO_NODES, Site

pytestmark = pytest.mark.cluster

POOR_AND_RICH = {"vision": 0.2, "robotics": 1.8}


def test_a_two_node_job_takes_both_of_its_victims_at_once_and_starts(site: Site) -> None:
    runs = [site.submit("robotics", "1s"), site.submit("robotics", "1s")]
    site.running(*runs, seconds=1)
    wide = site.submit("vision", "1m", *TWO_NODES)
    site.waits(wide)
    site.standing(**POOR_AND_RICH)
    report = site.look()
    assert site.stopped(report) == {int(job) for job in runs}
    assert len({one.decision.at for one in report.recorded}) == 1
    site.cluster.wait_state(wide, "RUNNING", timeout=45)
    assert site.cluster.job(wide)["NodeList"] == "n[1-2]"


def test_a_two_node_job_stops_nobody_where_one_node_is_protected_and_takes_one_wide_run_where_none_is(
    site: Site,
) -> None:
    short, long = site.submit("robotics", "1s"), site.submit("robotics", "8h")
    site.running(short, long, seconds=1)
    wide = site.submit("vision", "1m", *TWO_NODES)
    site.waits(wide)
    site.standing(**POOR_AND_RICH)
    report = site.look()
    assert site.stopped(report) == set()
    assert "do not hold it whole" in site.why(report, wide)
    site.cluster.slurm_output("scancel", str(int(wide)), str(int(short)), str(int(long)))
    both = site.submit("robotics", "1s", *TWO_NODES)
    site.running(both, seconds=1)
    again = site.submit("vision", "1m", *TWO_NODES)
    site.waits(again)
    assert site.stopped(site.look()) == {int(both)}


def test_equally_served_teams_do_not_stop_each_other_however_old_the_waiting_job_is(site: Site) -> None:
    """Nor is anybody stopped who is under target, or behind by less than the hysteresis."""
    runs = [site.submit("robotics", "1s"), site.submit("robotics", "1s")]
    site.running(*runs, seconds=1)
    old = site.submit("vision", "1m")
    site.waits(old)
    young = site.submit("robotics", "1m")
    site.waits(young)
    for standing in (
        {"vision": 1.5, "robotics": 1.5},
        {"vision": 1.3, "robotics": 1.38},
        {"vision": 0.0, "robotics": 0.99},
    ):
        site.standing(**standing)
        report = site.look()
        assert site.stopped(report) == set(), standing
        assert "behind by more than 0.10" in site.why(report, old)
    site.standing(vision=1.2, robotics=1.4)
    assert len(site.stopped(site.look())) == 1


def test_inside_one_leaf_only_a_higher_in_team_priority_stops_a_run(site: Site) -> None:
    runs = [site.submit("vision", "1s"), site.submit("vision", "1s")]
    site.running(*runs, seconds=1)
    equal = site.submit("vision", "1m", user="bob")
    site.waits(equal)
    site.standing(vision=1.8)
    assert site.stopped(site.look()) == set()
    urgent = site.submit("vision", "1m priority=high", user="bob")
    site.waits(urgent)
    report = site.look()
    assert [one.decision.rule for one in report.recorded] == [Rule.IN_TEAM_PRIORITY]
    assert report.recorded[0].decision.preemptor is not None
    assert report.recorded[0].decision.preemptor.job_id == int(urgent)
    site.cluster.wait_state(urgent, "RUNNING", timeout=45)


def test_a_run_is_safe_to_the_second_of_its_declared_minimum_and_no_longer(site: Site) -> None:
    """25 seconds lie in the 15-minute rung: past 25 it may yield, though its QOS would protect it for 15 minutes."""
    runs = [site.submit("robotics", "25s"), site.submit("robotics", "8h")]
    site.running(*runs)
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    ends = site.started(runs[0]) + timedelta(seconds=25)
    site.until(ends.timestamp() - 1.5)
    report = site.look()
    assert max(report.at, ends) == ends, "the look came too late to show anything"
    assert site.stopped(report) == set()
    site.until(ends.timestamp() + 0.2)
    report = site.look()
    assert site.stopped(report) == {int(runs[0])}
    assert site.cluster.job(runs[0])["QOS"] == "fs-15m"
    assert 0 <= report.recorded[0].decision.over_minimum <= 3


def test_a_run_that_was_restarted_between_decision_and_act_is_left_alone(site: Site) -> None:
    noticed = "1s notice=USR1"
    runs = [
        site.submit("robotics", noticed, script="trap '' USR1; sleep 900 & wait; wait"),
        site.submit("vision", "8h"),
    ]
    site.running(*runs, seconds=2)
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    assert [one.outcome for one in site.look().recorded] == [Outcome.NOTICED]
    decided = site.started(runs[0])
    site.cluster.slurm_output("scontrol", "update", f"JobId={int(waiting)}", "StartTime=now+2hours")
    site.cluster.slurm_output("scontrol", "requeue", str(int(runs[0])))
    site.cluster.wait_state(runs[0], "PENDING", timeout=30)
    site.cluster.wait_state(runs[0], "RUNNING", timeout=60)
    site.standing(**POOR_AND_RICH)
    again = site.started(runs[0])
    assert again > decided
    report = site.look()
    assert [one.outcome for one in report.recorded] == [Outcome.GONE]
    assert site.started(runs[0]) == again
    assert site.cluster.state(runs[0]) == "RUNNING"


def test_a_run_that_saves_on_its_notice_and_ends_is_recorded_as_gone(site: Site) -> None:
    script = "trap 'echo saved > saved.txt; exit 0' USR1; sleep 900 & wait"
    runs = [site.submit("robotics", "1s notice=USR1", script=script), site.submit("robotics", "8h")]
    site.running(*runs, seconds=2)
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    assert [one.outcome for one in site.look().recorded] == [Outcome.NOTICED]
    site.cluster.wait_state(runs[0], "COMPLETED")
    time.sleep(3)
    assert [one.outcome for one in site.look().recorded] == [Outcome.GONE]


def test_a_job_that_asked_for_no_notice_is_sent_none(site: Site) -> None:
    """An untrapped USR1 would have killed it: it is told to go by its requeue alone."""
    runs = [site.submit("robotics", "1s"), site.submit("robotics", "8h")]
    site.running(*runs, seconds=1)
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    report = site.look()
    assert [(one.decision.notice, one.outcome) for one in report.recorded] == [(None, Outcome.REQUEUED)]
    words = site.cluster.slurm_output("scontrol", "-o", "show", "job", str(int(runs[0])))
    assert f"for job {int(waiting)} of alice (vision, 8 GPUs)" in words


def test_a_run_whose_owner_forbids_the_requeue_goes_as_its_contract_says(site: Site) -> None:
    """Not resumable: it is ended. Resumable: its owner may not forbid it, and where an admin did, it stays."""
    ends = site.submit("robotics", "1s resumable=no")
    keeps = site.submit("language", "1s")
    site.running(ends, keeps, seconds=1)
    site.cluster.sh("slurmctld", ["scontrol", "update", f"JobId={int(ends)}", "Requeue=0"], user="dan")
    with pytest.raises(CommandError):  # 22.05 does not show why
        site.cluster.sh("slurmctld", ["scontrol", "update", f"JobId={int(keeps)}", "Requeue=0"], user="carol")
    site.cluster.slurm_output("scontrol", "update", f"JobId={int(keeps)}", "Requeue=0")
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(vision=0.2, language=1.9, robotics=0.9)
    assert site.stopped(site.look()) == set(), "language cannot be stopped, robotics is under target"
    site.standing(vision=0.2, language=1.9, robotics=1.5)
    report = site.look()
    assert [(one.decision.victim.job_id, one.outcome) for one in report.recorded] == [(int(ends), Outcome.ENDED)]
    site.cluster.wait_state(ends, "CANCELLED")
    assert site.cluster.state(keeps) == "RUNNING"


def test_a_heterogeneous_job_yields_as_a_whole_and_takes_its_place_as_a_whole(site: Site) -> None:
    victim = het(site, "dan", "robotics", "min_runtime=1s resumable=yes", 8, 8)
    site.running(victim, seconds=1)
    taker = het(site, "alice", "vision", "min_runtime=1m resumable=yes", 8, 4)
    site.cluster.wait(lambda: reasons(site, taker), 60, "both parts to wait", lambda seen: seen == ["Resources"] * 2)
    site.standing(**POOR_AND_RICH)
    report = site.look()
    assert [(one.decision.victim.job_id, one.decision.victim.gpus) for one in report.recorded] == [(int(victim), 16)]
    assert site.stopped(report) == {int(victim)}
    site.cluster.wait(lambda: states(site, taker), 60, "both parts to run", lambda seen: seen == ["RUNNING"] * 2)
    assert states(site, victim) == ["PENDING"] * 2


def test_tasks_of_an_array_yield_and_are_served_one_by_one(site: Site) -> None:
    runs = site.submit("robotics", "1s", "--array=0-3", "-N1", "--gpus-per-node=4")
    site.running(runs, seconds=2)
    taker = site.submit("vision", "1m", "--array=0-1", "-N1", "--gpus-per-node=4")
    site.cluster.wait(lambda: site.cluster.state(taker), 10, "the array to wait", lambda seen: seen == "PENDING")
    site.standing(**POOR_AND_RICH)

    def served() -> int:
        site.look()
        lines = site.cluster.slurm_output("squeue", "-h", "-t", "R", "-u", "alice", "-o", "%A").splitlines()
        return len(lines)

    site.cluster.wait(served, 90, "both tasks to run", until=lambda count: count == 2)
    left = site.cluster.slurm_output("squeue", "-h", "-t", "R", "-u", "dan", "-o", "%A").splitlines()
    assert len(left) == 2


def test_nobody_is_stopped_on_a_node_that_a_reservation_holds_or_for_what_is_not_modelled(site: Site) -> None:
    runs = [site.submit("robotics", "1s"), site.submit("robotics", "8h")]
    site.running(*runs, seconds=1)
    node = site.cluster.job(runs[0])["NodeList"]
    site.cluster.slurm_output(
        "scontrol", "create", "reservation", "reservationname=held", "starttime=now", "duration=60", f"nodes={node}",
        "users=root", "flags=IGNORE_JOBS",
    )  # fmt: skip
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    try:
        shown = ("scontrol", "-o", "show", "node", node)
        site.cluster.wait(lambda: site.cluster.slurm_output(*shown), 40, "RESERVED", lambda text: "RESERVED" in text)
        assert site.stopped(site.look()) == set()
    finally:
        site.cluster.slurm_output("scontrol", "delete", "reservation=held")
    site.cluster.slurm_output("scancel", str(int(waiting)))
    odd = site.submit("vision", "1m", "-N1", "--gpus-per-node=8", "--switches=1")
    site.waits(odd)
    report = site.look()
    assert site.stopped(report) == set()
    assert "does not model" in site.why(report, odd)
    whole = site.submit("vision", "1m", "-N1", "--gpus-per-node=1", "--exclusive")
    site.waits(whole)
    assert site.stopped(site.look()) == {int(runs[0])}


def test_a_limit_of_the_waiting_jobs_account_stops_nobody(site: Site) -> None:
    runs = [site.submit("robotics", "1s"), site.submit("robotics", "1s")]
    site.running(*runs, seconds=1)
    site.cluster.sacctmgr("modify", "account", "vision", "set", "GrpTRES=gres/gpu=4")
    try:
        over = site.submit("vision", "1m")
        limit = "AssocGrpGRES"
        site.cluster.wait(lambda: site.cluster.job(over)["Reason"], 40, limit, until=lambda reason: reason == limit)
        site.standing(**POOR_AND_RICH)
        assert site.stopped(site.look()) == set()
    finally:
        site.cluster.sacctmgr("modify", "account", "vision", "set", "GrpTRES=gres/gpu=-1")


def het(site: Site, user: str, account: str, comment: str, *sizes: int) -> JobId:
    """A heterogeneous job with a component of each size on one node."""
    parts: list[str] = []
    for size in sizes:
        parts += [":"] if parts else []
        parts += ["-N1", f"--gpus-per-node={size}", "-A", account, "--comment", comment]
    argv = ["sbatch", "--parsable", "-D", f"/home/{user}", *parts]
    done = site.cluster.sh("slurmctld", argv, user=user, stdin="#!/bin/bash\nsleep 900\n")
    return JobId(int(done.stdout.strip().partition(";")[0]), done.stderr)


def _column(site: Site, job: JobId, column: str) -> list[str]:
    return site.cluster.slurm_output("squeue", "-h", "-a", "-j", str(int(job)), "-o", column).splitlines()


def reasons(site: Site, job: JobId) -> list[str]:
    return _column(site, job, "%r")


def states(site: Site, job: JobId) -> list[str]:
    return _column(site, job, "%T")
