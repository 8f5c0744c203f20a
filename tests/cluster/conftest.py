"""The cluster that these tests share. It is started if it does not run, and stays up afterwards.

When pytest runs several workers, each has a cluster of its own, which goes when the worker is done.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from tests.cluster.cluster import REPOSITORY, Cluster, CommandError
from tests.cluster.site import Site

collect_ignore = [] if importlib.util.find_spec("pyslurm") else ["test_pyslurm.py"]
"""What says nothing about pyslurm must not look as if it did: docs/reference/cost.md tells where it was run."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The container cluster of the release in FAIRSHARE_TEST_RELEASE (default: trixie, Slurm 24.11)."""
    release = os.environ.get("FAIRSHARE_TEST_RELEASE", "trixie")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        os.environ["COMPOSE_PROJECT_NAME"] = f"slurm-fairshare-{release}-{worker}"
    try:
        up = Cluster.up(release)
    except CommandError as failure:
        pytest.fail(f"the container cluster does not come up: {failure}", pytrace=False)
    yield up
    if worker:
        subprocess.run([str(REPOSITORY / "docker" / "cluster"), "down", "--release", release], check=True)


@pytest.fixture
def clean_cluster(cluster: Cluster) -> Cluster:
    """The cluster as new: nothing in its queue, none of an earlier test's accounts and QOS."""
    cluster.reset()
    return cluster


@pytest.fixture(scope="module")
def open_site(cluster: Cluster, postgres_server: str, postgres_database: str) -> Iterator[Site]:
    """A site for tests of the rebalancer, which a module's tests share."""
    with Site.on(cluster, make_conninfo(postgres_server, dbname=postgres_database)) as site:
        yield site


@pytest.fixture
def site(open_site: Site) -> Site:
    """The same, as new."""
    open_site.empty()
    return open_site
