"""The tick leaves some GPUs free of unallocated work."""

from __future__ import annotations

from tests.daemon.world import World, terms, world

CONTRACT = {"headroom": 0.25}


def limits(w: World) -> list[str]:
    return [line for line in w.slurm.log if line.startswith("limit")]


def test_unallocated_jobs_may_take_what_is_free_but_for_the_headroom() -> None:
    w = world(contract=CONTRACT)
    w.tick()
    assert limits(w) == ["limit fs-unallocated 12"]
    w.tick()
    assert len(limits(w)) == 1
    w.run("vision", 8, terms(3600))
    w.tick()
    assert limits(w)[1:] == ["limit fs-unallocated 4"]
    w.run("language", 4, terms(0))
    w.tick()
    assert len(limits(w)) == 2, "what unallocated work takes itself leaves its limit where it was"


def test_without_the_setting_a_limit_of_ours_is_taken_away_once_and_nobody_elses_is_touched() -> None:
    w = world()
    w.tick()
    assert limits(w) == []
    w = world(contract=CONTRACT)
    w.tick()
    w.config = world().config
    w.tick()
    w.tick()
    assert limits(w)[1:] == ["limit fs-unallocated None"]


def test_nothing_is_limited_without_push() -> None:
    w = world(contract=CONTRACT, daemon={"push": False})
    w.tick()
    assert limits(w) == []
    w = world(contract=CONTRACT)
    w.tick(dry_run=True)
    assert limits(w) == []
