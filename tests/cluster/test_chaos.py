"""The short form of the chaos suite: what happens most often to a site. `make chaos` has all of it."""

from __future__ import annotations

import pytest

from tests.chaos import faults
from tests.chaos.storm import storm
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster


def test_a_storm_stops_no_protected_run_and_loses_no_job(clean_cluster: Cluster) -> None:
    with storm(clean_cluster, standby=False) as it:
        it.fault("the leading daemon is killed", faults.kill_leader)
        it.fault("Postgres is killed", faults.kill_postgres)
        it.fault("slurmctld restarts in the middle of a push", faults.restart_slurmctld)
        it.fault("MariaDB restarts", faults.restart_mariadb)
        it.verify()
        print(it.table())
