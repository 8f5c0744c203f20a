"""How busy GPUs were is read once an hour, where a site asks for it, and holds nothing up."""

from __future__ import annotations

import pytest

from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import SlurmUnreachable
from tests.daemon.world import T0, World, terms, world


def known(site: World) -> dict[str, float]:
    return dict(site.store.busy(Window(T0, site.now)))


def test_nothing_is_asked_where_no_site_asks_for_it() -> None:
    site = world()
    site.tick()
    assert site.slurm.calls["busy"] == 0


def test_it_is_read_once_an_hour() -> None:
    site = world(slurm={"gpu_utilisation": True})
    for _ in range(90):
        site.tick()
        site.slurm.advance(60)
    assert site.slurm.calls["busy"] == 2


def test_what_slurm_tells_is_kept_for_the_reports() -> None:
    site = world(slurm={"gpu_utilisation": True})
    site.tick()
    job = site.run("vision", 8, terms(3600))
    site.slurm.advance(1800)
    site.slurm.end(job)
    site.slurm.advance(1800)
    site.tick()
    key = site.store.runs(Window(T0, site.now))[0].key
    site.slurm.utilisation = {key: 0.25}
    site.slurm.advance(3600)
    site.tick()
    assert known(site) == {key: 0.25}


def test_a_failure_is_told_and_tried_again_an_hour_later() -> None:
    site = world(slurm={"gpu_utilisation": True})
    site.slurm.fail("busy", SlurmUnreachable("sacct took too long"))
    with pytest.raises(SlurmUnreachable):
        site.tick()
    assert site.store.failures(T0)[0].phase == "read GPU utilisation"
    assert site.store.last_ranking() is not None
    site.slurm.advance(60)
    site.tick()
    site.slurm.heal()
    site.slurm.advance(3600)
    site.tick()
    assert site.slurm.calls["busy"] == 2
