"""The chaos suite: `make chaos`. Every fault in turn on one cluster under load; see docs/explanation/chaos.md."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.chaos import faults
from tests.chaos.storm import storm
from tests.cluster.cluster import Cluster, CommandError

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(2400)]

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "chaos.md"

FAULTS = {
    "the leading daemon is killed": faults.kill_leader,
    "the leading daemon hangs": faults.freeze_leader,
    "Postgres is stopped and started": faults.restart_postgres,
    "Postgres is killed": faults.kill_postgres,
    "Postgres hangs": faults.freeze_postgres,
    "slurmctld restarts in the middle of a push": faults.restart_slurmctld,
    "slurmctld is killed": faults.kill_slurmctld,
    "slurmdbd is killed": faults.kill_slurmdbd,
    "MariaDB restarts": faults.restart_mariadb,
    "a node is killed": faults.kill_slurmd,
    "munge is killed": faults.kill_munge,
    "the plugin's script is broken": faults.break_plugin,
    "slurmdbd is cut off": faults.cut_slurmdbd,
    "MariaDB is cut off": faults.cut_mariadb,
    "a node is cut off": faults.cut_node,
    "Postgres fails over to its standby": faults.fail_over,
    "the disk of Postgres is full": faults.fill_disk,
    "the daemons' clock is an hour ahead": faults.clock_ahead,
    "the daemons' clock is an hour behind": faults.clock_behind,
}


@pytest.fixture
def cluster() -> Cluster:
    try:
        found = Cluster.up(os.environ.get("FAIRSHARE_TEST_RELEASE", "trixie"))
    except CommandError as failure:
        pytest.fail(f"the container cluster does not come up: {failure}", pytrace=False)
    found.reset()
    return found


def test_every_fault_is_recovered_from(cluster: Cluster) -> None:
    only = os.environ.get("FAIRSHARE_CHAOS_ONLY", "")
    with storm(cluster) as it:
        for name, fault in FAULTS.items():
            if re.search(only, name):
                it.fault(name, fault, patience=120)
        it.verify()
        print(it.table())
        if not only:
            _write(it.table())


def _write(table: str) -> None:
    """The page shows what was measured last."""
    before, start, rest = PAGE.read_text().partition("<!-- measured -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    assert start, f"{PAGE} has lost its marks"
    assert end, f"{PAGE} has lost its marks"
    PAGE.write_text(before + start + "\n" + table + "\n" + end + after)
