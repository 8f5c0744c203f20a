"""Three minutes of random work by six users in three teams; `make soak` is the same for an hour."""

from __future__ import annotations

import pytest

from benchmarks.soak import PACE, soak
from tests.cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_random_work_loses_no_job_and_stops_nobody_before_its_minimum(clean_cluster: Cluster, postgres: str) -> None:
    found = soak(clean_cluster, postgres, 180, pace=4 * PACE)
    print("\n".join(found.lines()))
    assert found.protected_runs_stopped == []
    assert found.jobs_lost == []
    assert found.audit_differences == ""
    assert found.submitted > 10
    assert found.worst_team_pct > 50, "three minutes are too short for more: each handover takes some seconds"
