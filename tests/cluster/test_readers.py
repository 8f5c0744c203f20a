"""Readers cost Slurm nothing: on a living cluster, as slurmctld and slurmdbd count it themselves."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.readers import DAEMON, EVERY, READER_USER, READERS, Calls, shared_run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECONDS = 20


def test_two_hundred_readers_cost_slurmctld_and_slurmdbd_not_one_call(cluster: Cluster) -> None:
    run = shared_run(cluster, SECONDS)
    assert run.crowd.wrong == []
    assert len(run.crowd.seconds) > READERS
    assert run.commands > 0
    assert run.failed == []
    for quiet, busy in ((run.quiet.slurmctld, run.busy.slurmctld), (run.quiet.slurmdbd, run.busy.slurmdbd)):
        assert busy[READER_USER] == 0
        assert quiet[DAEMON] > 0, "the daemon did not tick"
        # One more tick may fall on this side of the line.
        assert busy[DAEMON] <= quiet[DAEMON] * (1 + EVERY / SECONDS) + 1


def test_a_call_by_a_readers_process_would_be_seen(cluster: Cluster) -> None:
    before = Calls.counted(cluster)
    cluster.slurm_output("squeue", user=READER_USER)
    cluster.slurm_output("sacctmgr", "show", "qos", user=READER_USER)
    spent = Calls.counted(cluster).since(before)
    assert spent.slurmctld[READER_USER] > 0
    assert spent.slurmdbd[READER_USER] > 0
