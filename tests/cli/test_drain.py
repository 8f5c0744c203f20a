"""`drain` and `undrain` at the keyboard."""

from __future__ import annotations

import json

from slurm_fairshare.core.contract import Contract
from tests.cli.conftest import Site


def two_runs(site: Site) -> tuple[int, int]:
    """One under contract for an hour, one unallocated, both on n1."""
    site.load()
    site.says("tick")
    found = []
    for contract in (Contract(3600, resumable=True), Contract()):
        job = site.slurm.submit("robotics", "carol", 2, contract=contract)
        site.slurm.start(job, "n1")
        found.append(job)
    return found[0], found[1]


def test_a_drain_says_who_is_there_until_when_and_stops_nobody_itself(site: Site) -> None:
    kept, free = two_runs(site)
    site.after(minutes=20)
    text = site.says("drain", "n1", "--reason", "GPU 3 throws errors")
    assert "n1: 2 runs left, free by 2026-10-08T07:00:00Z, in 40m (slurm-fairshare drain: GPU 3 throws errors)" in text
    assert site.slurm.log == []
    site.says("tick")
    site.says("rebalance")
    assert site.slurm.log == [f"requeue {free}"]
    site.after(minutes=40)
    site.says("tick")
    site.says("rebalance")
    assert site.slurm.log == [f"requeue {free}", f"requeue {kept}"]
    assert "n1 is empty" in site.says("drain", "--status")
    assert site.says("undrain", "n1") == "n1 takes jobs again.\n"
    assert site.says("drain", "--status") == "No node is being emptied.\n"


def test_a_dry_run_changes_nothing(site: Site) -> None:
    two_runs(site)
    text = site.says("drain", "n[1-2]", "--reason", "x", "--dry-run")
    assert text.startswith("Nothing was changed")
    assert [node.states for node in site.slurm.picture(site.slurm.now).nodes if "DRAIN" in node.states] == []


def test_programs_get_every_run(site: Site) -> None:
    kept, _ = two_runs(site)
    site.says("drain", "n1", "--reason", "x")
    told = json.loads(site.says("drain", "--status", "--json"))
    assert [row["job_id"] for row in told["drain"]] == [str(kept), str(kept + 1)]


def test_a_drain_without_a_reason_or_of_an_unknown_node_is_refused(site: Site) -> None:
    assert "--reason" in site.refuses(2, "drain", "n1")
    assert "knows no node n9" in site.refuses(2, "drain", "n9", "--reason", "x")
    assert "write n1" in site.refuses(2, "drain", "n[", "--reason", "x")
    assert "--status" in site.refuses(2, "drain")


def test_undrain_tells_what_was_not_drained_or_drained_by_others(site: Site) -> None:
    site.slurm.set_states("n2", "IDLE", "DRAIN", reason="health check")
    text = site.says("undrain", "n1", "n2")
    assert "n2 takes jobs again" in text
    assert "n1 was not drained" in text
    assert "somebody else" in text
