"""Saving on the notice, with the very script that researchers are shown; sessions; nodes that are emptied."""

from __future__ import annotations

import re
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

from slurm_fairshare.core.decisions import Outcome, Rule
from slurm_fairshare.slurm.run import Runner
from tests.cluster.site import Site

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "save-on-notice.md"
POOR_AND_RICH = {"vision": 0.2, "robotics": 1.8}


def test_the_script_of_the_page_saves_on_its_notice_and_goes_on_where_it_was(site: Site) -> None:
    shown = re.search(r"```bash\n#!/bin/bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    script = shown.group(1).replace("min_runtime=4h", "min_runtime=5s")
    site.cluster.sh("n1", ["rm", "-f", "/home/dan/counter.state"])
    saves = site.cluster.sbatch("dan", "-A", "robotics", script=script)
    other = site.submit("robotics", "8h")
    site.running(saves, other, seconds=6)
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    assert [one.outcome for one in site.look().recorded] == [Outcome.NOTICED]
    told = time.time()
    saved = site.cluster.wait(
        site.product.slurm.checkpoints, 10, "the checkpoint", until=lambda found: int(saves) in found
    )
    assert abs(saved[int(saves)].timestamp() - told) < 5
    kept = int(site.cluster.sh("n1", ["cat", "/home/dan/counter.state"]).stdout)
    record = site.look_until(Outcome.REQUEUED, saves)
    assert (record.decision.lost_since, record.decision.lost) == ("notice", 0)
    site.cluster.wait_state(waiting, "RUNNING", timeout=45)
    site.cluster.slurm_output("scancel", str(int(waiting)))
    site.cluster.wait_state(saves, "RUNNING", timeout=60)
    output = site.cluster.wait(
        lambda: _output(site, int(saves)),
        20,
        "its second run's first line",
        until=lambda text: text.count("starts") > 1,
    )
    starts = [int(step) for step in re.findall(r"starts at step (\d+)", output)]
    assert starts == [0, kept]
    assert kept > 0


def _output(site: Site, job: int) -> str:
    return site.cluster.sh("slurmctld", ["cat", f"/home/dan/slurm-{job}.out"], check=False).stdout


def test_a_notice_to_the_steps_reaches_what_srun_started_and_not_the_script(site: Site) -> None:
    script = "srun bash -c 'trap \"echo step saved\" USR1; while :; do sleep 1 & wait; done'"
    steps = site.submit("robotics", "3s notice=steps:USR1", script=script)
    other = site.submit("robotics", "8h")
    site.running(steps, other, seconds=4)
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    assert [one.outcome for one in site.look().recorded] == [Outcome.NOTICED]
    site.cluster.wait(
        lambda: _output(site, int(steps)), 10, "the step to save", until=lambda text: "step saved" in text
    )
    assert site.cluster.state(steps) == "RUNNING"
    site.look_until(Outcome.REQUEUED, steps)


def test_a_session_is_told_what_will_happen_warned_and_ended_only_after_its_minimum(site: Site) -> None:
    site.product.slurm.teller = Runner(tuple(site.cluster.command_prefix(user="slurm")))
    other = site.submit("robotics", "8h")
    site.running(other)
    session = subprocess.Popen(
        [*site.cluster.command_prefix(user="dan"), "srun", "-A", "robotics", "-N1", "--gpus-per-node=8",
         "--comment", "min_runtime=12s", "sleep", "600"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    find = ("squeue", "-h", "-t", "R", "-u", "dan", "-o", "%A %B")
    lines = site.cluster.wait(
        lambda: site.cluster.slurm_output(*find), 30, "the session", lambda text: text.count("\n")
    )
    number = max(int(line.split()[0]) for line in lines.splitlines())
    waiting = site.submit("vision", "1m")
    site.waits(waiting)
    site.standing(**POOR_AND_RICH)
    report = site.look()
    assert report.warned == (number,), report
    assert report.recorded == ()
    begun = site.product.slurm.job(number)
    assert begun is not None
    assert begun.start is not None
    site.until((begun.start + timedelta(seconds=12.3)).timestamp())
    assert [one.outcome for one in site.look().recorded] == [Outcome.NOTICED]
    time.sleep(3)
    assert [one.outcome for one in site.look().recorded] == [Outcome.ENDED]
    said, _ = session.communicate(timeout=30)
    assert "an interactive job cannot be requeued: after its minimum it may be ended" in said
    assert "the minimum runtime of this session ends in" in said
    assert f"for job {int(waiting)} of alice (vision). Save your work now" in said


def test_a_drained_node_is_emptied_as_its_runs_pass_their_minimum(site: Site) -> None:
    short, long, free = site.submit("robotics", "15s", "-N1", "--gpus-per-node=1", "-wn1"), None, None
    long = site.submit("robotics", "1h", "-N1", "--gpus-per-node=1", "-wn1")
    free = site.submit("language", None, "-N1", "--gpus-per-node=1", "-wn1")
    away = site.submit("robotics", "1s", "-N1", "--gpus-per-node=1", "-wn2")
    site.running(short, long, free, away)
    site.product.slurm.drain(["n1"], "slurm-fairshare drain: GPU 3 throws errors")
    ends = site.started(short) + timedelta(seconds=15)
    report = site.look()
    assert [(one.decision.rule, one.decision.victim.job_id) for one in report.recorded] == [(Rule.DRAIN, int(free))]
    site.until(ends.timestamp() + 0.3)
    assert site.stopped(site.look()) == {int(short)}
    assert site.cluster.state(long) == "RUNNING"
    assert site.cluster.state(away) == "RUNNING"
    assert "because its node is being drained" in site.cluster.slurm_output("scontrol", "show", "job", str(int(short)))
    new = site.submit("vision", "1m", "-N1", "--gpus-per-node=1", "-wn1")
    time.sleep(4)
    assert site.cluster.state(new) == "PENDING"
    site.product.slurm.undrain(["n1"])
    site.cluster.wait_state(new, "RUNNING", timeout=45)


def test_a_large_job_that_waited_stands_before_every_leaf_and_gets_its_place_back(site: Site) -> None:
    site.product.config = site.product.config.model_copy(
        update={"large": site.product.config.large.model_copy(update={"gpus": 16, "wait": timedelta(seconds=1)})}
    )
    runs = [site.submit("robotics", "8h"), site.submit("robotics", "8h")]
    site.running(*runs)
    wide = site.submit("vision", "1h", "-N2", "--gpus-per-node=8")
    small = site.submit("language", "1h priority=high")
    site.waits(wide, small)
    time.sleep(1)
    site.product.tick()
    priority = lambda job: int(site.cluster.job(job)["Priority"])  # noqa: E731
    assert priority(wide) > 2_000_000_000 > priority(small)
    site.product.config = site.product.config.model_copy(
        update={"large": site.product.config.large.model_copy(update={"gpus": 0})}
    )
    site.product.tick()
    assert priority(wide) < 2_000_000_000
