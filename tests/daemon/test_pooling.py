"""The tick gives the pool its size."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from slurm_fairshare.config import Config
from tests.daemon.world import World, terms, world

POOL = {"nodes": "n[1-2]", "elsewhere": ("gpu",), "hold": "10m"}


def pooled(**pool: object) -> World:
    return world(debug_lane={"pool": "pool"}, pool={**POOL, **pool})


def resized(w: World) -> list[str]:
    return [line for line in w.slurm.log if line.startswith("repartition")]


def test_it_grows_with_debug_jobs_and_shrinks_only_after_a_while() -> None:
    w = pooled()
    w.tick()
    assert resized(w) == ["repartition pool n1", "repartition gpu n2"]
    first, second = w.wait("vision", 8, terms(900)), w.wait("language", 8, terms(900))
    w.wait("language", 8, terms(3600))
    w.tick()
    assert resized(w)[2:] == ["repartition pool n1,n2", "repartition gpu "]
    w.slurm.end(first)
    w.slurm.end(second)
    w.slurm.advance(300)
    w.tick()
    assert len(resized(w)) == 4
    w.slurm.advance(301)
    w.tick()
    assert resized(w)[4:] == ["repartition pool n1", "repartition gpu n2"]
    w.tick()
    assert len(resized(w)) == 6


def test_nothing_is_changed_without_push_or_where_the_site_sets_it_itself() -> None:
    for w in (
        world(debug_lane={"pool": "pool"}, pool=POOL, daemon={"push": False}),
        world(pool=POOL),
        world(debug_lane={"pool": "pool"}),
    ):
        w.tick()
        assert resized(w) == []
    w = pooled()
    w.tick(dry_run=True)
    assert resized(w) == []


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ({"nodes": "n[2-1]", "elsewhere": ["gpu"]}, "is no list of nodes"),
        ({"nodes": "n[1-2]"}, "needs elsewhere"),
        ({"nodes": "n[1-2]", "elsewhere": ["gpu"], "least": 3}, "is to have 3 nodes, but nodes names 2"),
        ({"nodes": "n[1-2]", "elsewhere": ["gpu"], "clock": {"08:00": 3}}, "is to have 3 nodes, but nodes names 2"),
        ({"nodes": "n[1-2]", "elsewhere": ["gpu"], "clock": {"8 pm": 1}}, "clock"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(pool: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config(pool=pool)  # type: ignore[arg-type]
