"""`uninstall`: Slurm as it was found."""

from __future__ import annotations

from slurm_fairshare.core.contract import Contract
from tests.cli.conftest import Site


def test_slurm_is_left_as_it_was_found(site: Site) -> None:
    before = site.slurm.held()
    site.load()
    site.says("tick")
    site.slurm.set_user_priority("vision", "alice", 7)
    assert site.slurm.held() != before
    words = site.says("uninstall")
    assert "remove QOS fs-4h" in words
    assert words.startswith("Before: stop the daemon")
    assert "drop schema fairshare cascade" in words
    after = site.slurm.held()
    assert after.qos == before.qos
    assert {name: (has.priority, has.qos) for name, has in after.accounts.items()} == {
        name: (has.priority, has.qos) for name, has in before.accounts.items()
    }


def test_a_dry_run_changes_nothing(site: Site) -> None:
    site.load()
    site.says("tick")
    before = site.slurm.held()
    assert "remove QOS fs-4h" in site.says("uninstall", "--dry-run")
    assert site.slurm.held() == before


def test_while_jobs_use_our_qos_it_ends_with_1(site: Site) -> None:
    site.load()
    site.says("tick")
    job = site.slurm.submit("vision", "alice", 8, contract=Contract(4 * 3600))
    site.slurm.start(job)
    assert site.run("uninstall").exit_code == 1
    site.slurm.finish(job)
    site.says("uninstall")
    assert not any(name.startswith("fs-") for name in site.slurm.held().qos)
