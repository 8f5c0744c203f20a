"""The pool: nodes for debug and unallocated jobs, offered to those beside their own partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_fairshare.core.contract import DebugLane
from slurm_fairshare.slurm.plugin import PluginSettings
from tests.plugin.slurmctld import SUCCESS, Slurmctld

LUAS = ("lua51", "lua53", "lua54")
PARTS = {"gpu": {"flag_default": 1}, "pool": {}, "cpu": {}}


@pytest.fixture(params=LUAS)
def ctld(request: pytest.FixtureRequest) -> Slurmctld:
    settings = PluginSettings(debug=replace(DebugLane(), pool="pool"))
    return Slurmctld(request.param, settings, partitions=PARTS)


@pytest.mark.parametrize("comment", ["min_runtime=10m", "min_runtime=0", None])
def test_debug_and_unallocated_jobs_are_offered_the_pool_too(ctld: Slurmctld, comment: str | None) -> None:
    outcome = ctld.submit(comment, tres_per_job="gres/gpu:1")
    assert (outcome.code, outcome.written.get("partition")) == (SUCCESS, "gpu,pool")


def test_other_contracts_stay_out_of_it(ctld: Slurmctld) -> None:
    assert "partition" not in ctld.submit("min_runtime=1h", tres_per_job="gres/gpu:1").written
    assert "partition" not in ctld.submit("min_runtime=10m", tres_per_job="gres/gpu:16").written, (
        "too large for the lane"
    )


def test_whoever_names_a_partition_has_chosen(ctld: Slurmctld) -> None:
    assert "partition" not in ctld.submit("min_runtime=10m", tres_per_job="gres/gpu:1", partition="cpu").written


@pytest.mark.parametrize("lua", LUAS)
def test_a_pool_that_does_not_exist_is_offered_to_nobody(lua: str) -> None:
    settings = PluginSettings(debug=replace(DebugLane(), pool="gone"))
    outcome = Slurmctld(lua, settings, partitions=PARTS).submit("min_runtime=10m", tres_per_job="gres/gpu:1")
    assert "partition" not in outcome.written


@pytest.mark.parametrize("lua", LUAS)
def test_without_a_pool_no_partition_is_written(lua: str) -> None:
    assert "partition" not in Slurmctld(lua, partitions=PARTS).submit("min_runtime=10m").written
