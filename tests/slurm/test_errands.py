"""Checkpoints, words to a session, a lift, a drain: which words Slurm's tools are given for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_fairshare.errors import SlurmRefused
from slurm_fairshare.slurm.errands import read_checkpoint
from slurm_fairshare.slurm.hands import notice, waiting_address
from tests.core.build import job
from tests.slurm.fake import Tools
from tests.slurm.test_cli import Site
from tests.slurm.test_queue import PENDING


@pytest.mark.parametrize(
    ("comment", "epoch"),
    [
        ("checkpoint=1790000000", 1_790_000_000),
        ("min_runtime=4h;checkpoint=1790000000,run 7", 1_790_000_000),
        ("checkpoint=1790000000 checkpoint=1790000600", 1_790_000_600),
        ("checkpoint=soon", None),
        ("checkpoint=17900000001234", None),
        ("mycheckpoint=1790000000", None),
        ("checkpoint=-5", None),
        ("", None),
    ],
)
def test_a_checkpoint_is_read_from_a_comment_and_nothing_else_is(comment: str, epoch: int | None) -> None:
    found = read_checkpoint(comment)
    assert (None if found is None else int(found.timestamp())) == epoch


def test_the_checkpoints_of_all_jobs_cost_one_squeue() -> None:
    site = Site({})
    site.comment = "two\nlines checkpoint=1790000000"
    assert {number: int(at.timestamp()) for number, at in site.slurm.checkpoints().items()} == {7: 1_790_000_000}
    assert len(site.tools.commands) == 1


def commands(site: Site, tool: str) -> list[list[str]]:
    return [words[1:] for words in site.tools.commands if words[0] == tool]


def test_what_is_told_is_one_printable_line() -> None:
    site = Site({})
    site.slurm.tell(7, "save\nyour\x1b[31m work,  алиса")
    assert commands(site, "scontrol") == [["notify", "7", "save your?[31m work, ?????"]]


def test_only_the_waiting_tasks_of_an_array_are_lifted() -> None:
    site = Site({**PENDING, "JobArrayID": "7_[3-9%2]"})
    site.slurm.lift(7, 1_900_000_000)
    assert commands(site, "scontrol") == [["update", "JobId=7_[3-9]", "SiteFactor=1900000000"]]
    running = replace(job(8, "a", 1, nodes=("n1",)), label="7_2")
    assert waiting_address(running) == "7_2"


def test_a_drain_names_its_nodes_and_its_reason() -> None:
    site = Site({})
    site.slurm.drain(["n1", "gpu-a03"], "slurm-fairshare drain:  bad\nGPU")
    site.slurm.undrain(["n1"])
    assert commands(site, "scontrol") == [
        ["update", "NodeName=n1,gpu-a03", "State=DRAIN", "Reason=slurm-fairshare drain: bad GPU"],
        ["update", "NodeName=n1", "State=RESUME"],
    ]


@pytest.mark.parametrize("name", ["", "n1,n2", "n[1-2]", "ALL", "all", "-n1", "n1;reboot"])
def test_what_is_no_name_of_a_node_is_refused(name: str) -> None:
    with pytest.raises(SlurmRefused):
        Site({}).slurm.drain([name], "x")


@pytest.mark.parametrize(
    ("signal", "batch", "words"),
    [
        ("USR1", True, ["--batch", "--signal=USR1", "7"]),
        ("steps:USR1", True, ["--signal=USR1", "7"]),
        ("USR1", False, ["--signal=USR1", "7"]),
    ],
)
def test_a_notice_goes_to_the_script_or_to_the_steps(signal: str, batch: bool, words: list[str]) -> None:
    tools = Tools(scancel="")
    notice(tools.runner(), replace(job(7, "a", 1, nodes=("n1",)), batch=batch), signal)
    assert tools.commands == [["scancel", *words]]


@pytest.mark.parametrize("signal", ["tasks:USR1", "steps:", "usr1", "USR1 8", "steps:steps:USR1"])
def test_what_is_no_notice_is_sent_to_nobody(signal: str) -> None:
    tools = Tools(scancel="")
    with pytest.raises(SlurmRefused):
        notice(tools.runner(), job(7, "a", 1, nodes=("n1",)), signal)
    assert tools.commands == []


def test_a_partition_gets_its_nodes_and_no_others() -> None:
    site = Site({})
    site.slurm.repartition("pool", ["n1", "n2"])
    assert commands(site, "scontrol") == [["update", "PartitionName=pool", "Nodes=n1,n2"]]
    with pytest.raises(SlurmRefused, match="no name of a node"):
        site.slurm.repartition("pool", ["ALL"])


def test_all_jobs_of_a_qos_together_get_a_limit_or_none() -> None:
    site = Site({})
    site.slurm.limit("fs-unallocated", 12)
    site.slurm.limit("fs-unallocated", None)
    one = ["-i", "modify", "qos", "where", "name=fs-unallocated", "set"]
    assert commands(site, "sacctmgr") == [[*one, "GrpTRES=gres/gpu=12"], [*one, "GrpTRES=gres/gpu=-1"]]
    with pytest.raises(SlurmRefused, match="cannot be given to sacctmgr"):
        site.slurm.limit("fs-a,fs-b", 12)
