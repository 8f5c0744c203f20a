"""Small jobs prefer some nodes, so that the others stay whole."""

from __future__ import annotations

import pytest

from slurm_fairshare.slurm.plugin import PluginSettings
from tests.plugin.slurmctld import SUCCESS, Slurmctld

LUAS = ("lua51", "lua53", "lua54")


@pytest.fixture(params=LUAS)
def ctld(request: pytest.FixtureRequest) -> Slurmctld:
    return Slurmctld(request.param, PluginSettings(near=("near", 4)), partitions={"gpu": {"flag_default": 1}})


@pytest.mark.parametrize("comment", ["min_runtime=10m", "min_runtime=4h"])
def test_a_small_job_under_contract_prefers_the_near_nodes(ctld: Slurmctld, comment: str) -> None:
    outcome = ctld.submit(comment, tres_per_job="gres/gpu:4")
    assert (outcome.code, outcome.written.get("prefer")) == (SUCCESS, "near")


def test_larger_and_unallocated_jobs_do_not(ctld: Slurmctld) -> None:
    assert "prefer" not in ctld.submit("min_runtime=4h", tres_per_job="gres/gpu:5").written
    assert "prefer" not in ctld.submit("min_runtime=0", tres_per_job="gres/gpu:1").written


@pytest.mark.parametrize("asked", ["features", "prefer"])
def test_whoever_asks_for_features_has_chosen(ctld: Slurmctld, asked: str) -> None:
    assert "prefer" not in ctld.submit("min_runtime=4h", tres_per_job="gres/gpu:1", **{asked: "ib"}).written


@pytest.mark.parametrize("lua", LUAS)
def test_a_site_without_such_nodes_has_no_preference_written(lua: str) -> None:
    assert "prefer" not in Slurmctld(lua).submit("min_runtime=4h", tres_per_job="gres/gpu:1").written
