"""The cluster's past, as sacctmgr tells it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.window import Window
from slurm_fairshare.slurm.events import parse_events, read_past
from tests.slurm.fake import NOW, Tools

CLUSTER = (
    "lab||n[1-2],m7|1795983677|Unknown||billing=128,cpu=128,energy=0,fs/disk=0,gres/gpu:a100=0,gres/gpu:h100=16,"
    "gres/gpu=16,gres/gpumem=0,gres/gpuutil=0,mem=250G,node=2,pages=0,vmem=0"
)
DRAIN = "lab|n1||1795983695|1795983698|DRAIN|billing=64,cpu=64,gres/gpu:h100=8,gres/gpu=8,mem=125G"
DOWN = "lab|n2||1795983695|Unknown|DOWN*|billing=64,cpu=64,gres/gpu:h100=8,gres/gpu=8,mem=125G"


def test_a_row_without_a_node_is_the_cluster_itself() -> None:
    (found,) = parse_events(CLUSTER + "\n").registrations
    assert found.start == datetime.fromtimestamp(1795983677, UTC)
    assert found.nodes == {"n1", "n2", "m7"}
    assert found.total == Resources({"h100": 16}, 128, 256_000)


def test_a_row_with_a_node_is_an_outage_that_may_go_on() -> None:
    drained, broken = parse_events(f"{DRAIN}\n{DOWN}\n").outages
    assert (drained.node, drained.down, drained.total.gpus) == ("n1", False, {"h100": 8})
    assert drained.end is not None
    assert drained.end - drained.start == timedelta(seconds=3)
    assert (broken.node, broken.down, broken.end) == ("n2", True, None)


BAD = [
    "lab|n1|x",
    DRAIN.replace("1795983695", "yesterday"),
    DRAIN.replace("DRAIN", "?"),
    CLUSTER.replace("n[1-2]", "n[1-"),
]


@pytest.mark.parametrize("row", BAD)
def test_a_row_that_is_not_understood_is_kept_aside_and_the_others_count(row: str) -> None:
    past = parse_events(f"{CLUSTER}\n{row}\n{DOWN}\n")
    assert (len(past.registrations), len(past.outages)) == (1, 1)
    (rejected,) = past.rejected
    assert (rejected.source, rejected.text) == ("sacctmgr show event", row)
    assert rejected.reason


def test_this_cluster_alone_is_asked_about_and_nobodys_words_are_asked_for() -> None:
    tools = Tools(sacctmgr=CLUSTER)
    read_past(tools.runner(), "lab", Window(NOW - timedelta(days=8), NOW))
    (words,) = tools.commands
    assert {"cluster=lab", "start=2026-09-30T12:00:00", "end=2026-10-08T12:00:00"} <= set(words)
    assert "Reason" not in words[-1]
