"""When a standing turns by itself: old usage leaves the window, what runs keeps counting."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.projection import Course, ranking_in, turns
from slurm_fairshare.core.tree import Changeset, Share
from slurm_fairshare.core.window import Step, Weight, Window
from tests.core.build import NOW, ago

H = 3600.0
DAY = timedelta(days=1)
SETS = {"": (Share("a", 1, "a"), Share("b", 1, "b"))}
EDITS = (Changeset(1, "ada", "", ago(9 * 24 * H), ago(9 * 24 * H), SETS),)


def course(used: dict[str, float], rates: dict[str, float], **more: object) -> Course:
    """Two teams of equal share on ten GPUs over a day; `used` GPUs all through the last twelve hours."""
    hours = Window(ago(24 * H), NOW).hours()
    spent = {account: gpus * H for account, gpus in used.items()}
    return replace(
        Course(
            now=NOW,
            known=ago(9 * 24 * H),
            used=[(hour, spent if hour.start >= ago(12 * H) else {}) for hour in hours],
            rates=rates,
            capacity=[Step(ago(9 * 24 * H), 10.0)],
            changesets=EDITS,
            lookback=DAY,
            weight=Weight(),
        ),
        **more,  # type: ignore[arg-type]
    )


def start(of: Course) -> Ranking:
    return ranking_in(of, timedelta(0))


def test_the_projection_begins_where_the_ranking_stands() -> None:
    found = start(course({"a": 10.0, "b": 2.0}, {}))
    assert found.standings["a"].ratio == pytest.approx(10 * 12 / (5 * 24))
    assert [leaf.path for leaf in found.leaves] == ["b", "a"]


def test_who_runs_nothing_is_forgiven_as_its_usage_leaves_the_window() -> None:
    idle = course({"a": 12.0, "b": 2.0}, {})
    found = turns(idle, start(idle), ["a"])["a"]
    assert found.side is not None
    assert found.side.at == NOW + timedelta(hours=14)
    assert found.side.ratio <= 1


def test_what_runs_on_goes_over_target_and_loses_its_rank() -> None:
    busy = course({"b": 3.0}, {"a": 10.0})
    found = turns(busy, start(busy), ["a"])["a"]
    assert found.rank is not None
    assert (found.rank.at, found.rank.rank) == (NOW + timedelta(hours=4), 2)
    assert found.side is not None
    assert found.side.at == NOW + timedelta(hours=13)


def test_nothing_turns_where_nothing_moves() -> None:
    still = course({}, {})
    assert turns(still, start(still), ["a"])["a"].side is None
    assert turns(still, start(still), ["a"])["a"].rank is None


def test_a_budget_that_is_recorded_for_later_takes_effect_then() -> None:
    later = Changeset(2, "ada", "", NOW, NOW + timedelta(hours=2), {"": (Share("a", 9, "a"), Share("b", 1, "b"))})
    coming = course({}, {"a": 2.0, "b": 2.0}, changesets=(*EDITS, later))
    assert ranking_in(coming, timedelta(hours=1)).tree.nodes["a"].effective == 0.5
    assert ranking_in(coming, timedelta(hours=3)).tree.nodes["a"].effective == 0.9


def test_a_half_life_weighs_the_future_as_it_weighs_the_past() -> None:
    half = course({"a": 10.0}, {}, weight=Weight(timedelta(hours=3)))
    now, later = start(half).standings["a"].ratio, ranking_in(half, timedelta(hours=6)).standings["a"].ratio
    assert later < now / 2
