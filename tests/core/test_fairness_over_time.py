"""The ranking in the long run: who comes first decides each free GPU, hour after hour, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from slurm_fairshare.core.delivery import Delivery, delivery
from slurm_fairshare.core.fairshare import Usage, rank
from slurm_fairshare.core.tree import Epoch, Share, build
from slurm_fairshare.core.window import HOUR, Step, Weight
from tests.core.build import NOW

GPUS = 12
LOOKBACK = timedelta(days=7)
TREE = build({"": (Share("a", 1, "a"), Share("b", 1, "b"), Share("c", 1, "c"))})
Wants = Callable[[str, int], int]


def shared_out(hours: int, wants: Wants) -> dict[str, list[int]]:
    """GPUs of each team in each hour: every hour all GPUs go one by one to the first team that still wants some."""
    held: dict[str, list[int]] = {name: [] for name in "abc"}
    for hour in range(hours):
        at = NOW + hour * HOUR
        given = dict.fromkeys("abc", 0)
        for _ in range(GPUS):
            order = [leaf.account for leaf in _ranking(held, given, hour, at)]
            taker = next((name for name in order if given[name] < wants(name, hour)), None)
            if taker is not None:
                given[taker] += 1
        for name, count in given.items():
            held[name].append(count)
    return held


def _ranking(held: dict[str, list[int]], given: dict[str, int], hour: int, at: datetime):  # type: ignore[no-untyped-def]
    """What is given in this hour counts at once, as a run counts from its start."""
    back = int(LOOKBACK / HOUR)
    used = {name: (sum(hours[max(0, hour - back) :]) + given[name]) * 3600.0 for name, hours in held.items()}
    window = Epoch(max(NOW, at - LOOKBACK), at + HOUR, TREE)
    return rank(TREE, [Step(NOW, float(GPUS))], [Usage(window, used)], Weight(), at + HOUR).leaves


def delivered(held: dict[str, list[int]], wants: Wants, name: str, hours: range) -> Delivery:
    return delivery(
        [GPUS / 3] * len(hours), [wants(name, hour) for hour in hours], [held[name][hour] for hour in hours]
    )


def test_of_three_equal_teams_one_that_floods_first_costs_the_others_nothing_over_a_week() -> None:
    def wants(name: str, hour: int) -> int:
        return GPUS if name == "a" or hour >= 6 else 0

    held = shared_out(168, wants)
    assert sum(held["a"][:6]) == 6 * GPUS
    for name in "bc":
        assert delivered(held, wants, name, range(168)).delivered >= 0.95


def test_an_unused_share_may_be_used_by_others_and_is_paid_back_within_the_window() -> None:
    """`b` is idle for two days while `a` and `c` have all of it; then it catches up."""

    def wants(name: str, hour: int) -> int:
        return 0 if name == "b" and hour < 48 else GPUS

    held = shared_out(168, wants)
    assert sum(held["a"][:48]) + sum(held["c"][:48]) == 48 * GPUS
    assert held["b"][48:54] == [GPUS] * 6
    assert sum(held["b"]) == pytest.approx(168 * GPUS / 3, rel=0.02)


def test_what_was_used_beyond_the_window_is_forgiven() -> None:
    """After nine days alone `a` waits while its last seven days still outweigh the others', and not for all nine."""

    def wants(name: str, hour: int) -> int:
        return GPUS if name == "a" or hour >= 216 else 0

    held = shared_out(216 + 168, wants)
    assert sum(held["a"][216:320]) == 0
    assert sum(held["a"][330:]) > 0
    assert sum(held["a"]) > 0.6 * GPUS * len(held["a"])
