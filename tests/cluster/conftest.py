"""The cluster that these tests share. It is started if it does not run, and stays up afterwards."""

from __future__ import annotations

import os

import pytest

from tests.cluster.cluster import Cluster, CommandError


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The container cluster of the release in FAIRSHARE_TEST_RELEASE (default: trixie, Slurm 24.11)."""
    try:
        return Cluster.up(os.environ.get("FAIRSHARE_TEST_RELEASE", "trixie"))
    except CommandError as failure:
        pytest.fail(f"the container cluster does not come up: {failure}", pytrace=False)


@pytest.fixture
def clean_cluster(cluster: Cluster) -> Cluster:
    """The cluster as new: nothing in its queue, none of an earlier test's accounts and QOS."""
    cluster.reset()
    return cluster
