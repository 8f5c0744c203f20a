"""Nodes: all of them, or an error."""

from __future__ import annotations

import pytest

from slurm_fairshare.core.resources import UNTYPED, Resources
from slurm_fairshare.errors import GpusNotTracked, SlurmUnreadable
from slurm_fairshare.slurm.nodes import parse_nodes

LINE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=32  CPUAlloc=1 CPUEfctv=64 CPUTot=64 CPULoad=0.30 "
    "AvailableFeatures=ib,nvlink ActiveFeatures=ib Gres=gpu:h100:8 NodeAddr=n1 NodeHostName=n1 Version=24.11.5 "
    "OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=128000 AllocMem=1000 FreeMem=22819 Sockets=2 Boards=1 "
    "State=MIXED+PLANNED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,debug  "
    "BootTime=1795980644 CfgTRES=cpu=64,mem=125G,billing=64,gres/gpu=8,gres/gpu:h100=8 "
    "AllocTRES=cpu=1,mem=1000M,gres/gpu=2,gres/gpu:h100=2 CurrentWatts=0 AveWatts=0 "
)


def changed(old: str, new: str) -> str:
    assert old in LINE
    return LINE.replace(old, new)


def test_a_line_is_a_node() -> None:
    (node,) = parse_nodes(LINE + "\n")
    assert (node.name, node.partitions, node.features, node.reason) == ("n1", ("gpu", "debug"), ("ib",), "")
    assert node.total == Resources({"h100": 8}, 64, 128_000)
    assert node.allocated == Resources({"h100": 2}, 1, 1000)
    assert node.states == {"MIXED", "PLANNED"}


STATES = {
    "IDLE": (False, False),
    "MIXED+DRAIN": (False, True),
    "IDLE+DRAIN": (False, True),
    "DOWN*": (True, False),
    "DOWN+DRAIN": (True, False),
    "IDLE*": (True, False),
    "IDLE+NOT_RESPONDING": (True, False),
    "UNKNOWN": (True, False),
    "ALLOCATED+COMPLETING": (False, False),
    "IDLE+CLOUD+POWERED_DOWN": (False, False),
    "IDLE~": (False, False),
    "MIXED-": (False, False),
}


@pytest.mark.parametrize(("state", "flags"), STATES.items())
def test_a_state_says_whether_the_node_serves(state: str, flags: tuple[bool, bool]) -> None:
    (node,) = parse_nodes(changed("State=MIXED+PLANNED", f"State={state}"))
    assert (node.down, node.drained) == flags


def test_a_reason_may_hold_anything_and_changes_nothing() -> None:
    reason = " Reason=bad | gpu [root@1795981620]        State=IDLE CfgTRES=cpu=1"
    (node,) = parse_nodes(LINE + reason)
    assert node.states == {"MIXED", "PLANNED"}
    assert node.total.gpu_count == 8
    assert node.reason == "bad | gpu [root@1795981620] State=IDLE CfgTRES=cpu=1"


def test_an_idle_node_has_nothing_allocated() -> None:
    (node,) = parse_nodes(changed("AllocTRES=cpu=1,mem=1000M,gres/gpu=2,gres/gpu:h100=2", "AllocTRES="))
    assert node.allocated == Resources()


def test_a_count_by_type_that_22_05_has_left_over_is_no_allocation() -> None:
    (node,) = parse_nodes(changed("AllocTRES=cpu=1,mem=1000M,gres/gpu=2,", "AllocTRES=cpu=1,mem=1000M,"))
    assert (node.allocated.gpus, node.free.gpu_count) == ({}, 8)


def test_where_accounting_knows_types_alone_the_allocation_is_their_sum() -> None:
    (node,) = parse_nodes(changed(",gres/gpu=8", "").replace(",gres/gpu=2", ""))
    assert (node.total.gpus, node.free.gpus) == ({"h100": 8}, {"h100": 6})


def test_untyped_gpus_stay_untyped() -> None:
    (node,) = parse_nodes(changed(",gres/gpu:h100=8", "").replace(",gres/gpu:h100=2", ""))
    assert (node.total.gpus, node.free.gpus) == ({UNTYPED: 8}, {UNTYPED: 6})


def test_gpus_that_slurm_does_not_count_stop_everything_with_the_setting_to_make() -> None:
    line = changed(",gres/gpu=8,gres/gpu:h100=8", "").replace(",gres/gpu=2,gres/gpu:h100=2", "")
    with pytest.raises(GpusNotTracked, match="AccountingStorageTRES=gres/gpu"):
        parse_nodes(line)


@pytest.mark.parametrize("gres", ["(null)", "shard:8", "gpumem:4", ""])
def test_a_node_without_gpus_is_a_node(gres: str) -> None:
    line = changed(",gres/gpu=8,gres/gpu:h100=8", "").replace(",gres/gpu=2,gres/gpu:h100=2", "")
    (node,) = parse_nodes(line.replace("Gres=gpu:h100:8", f"Gres={gres}"))
    assert node.total.gpu_count == 0


UNREADABLE = {
    "no name": changed("NodeName=n1 ", ""),
    "no state": changed("State=MIXED+PLANNED ", ""),
    "no state's name": changed("State=MIXED+PLANNED", "State=?"),
    "no total": changed("CfgTRES=", "Cfg="),
    "a total that is none": changed("gres/gpu=8", "gres/gpu=x"),
    "an error message": "slurm_load_node error: Unable to contact slurm controller",
}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_node_that_cannot_be_read_is_an_error_since_capacity_must_not_shrink_unseen(line: str) -> None:
    with pytest.raises(SlurmUnreadable, match="not understood"):
        parse_nodes(f"{LINE}\n{line}\n")
