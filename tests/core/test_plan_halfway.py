"""A plan may be cut off after any of its changes: what stands then protects too much, never too little.

Each story is carried out change by change on a Slurm in memory, cut at every place, and then finished by a second plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from slurm_fairshare.core.contract import Contract, DebugLane, Ladder
from slurm_fairshare.core.plan import Change, Held, Qos, SetPriority, SetQos, plan, removal, retirement
from slurm_fairshare.slurm.memory import MemorySlurm
from tests.core.build import LADDER, ranking, tree

LANE = DebugLane()
ORDER = ranking(tree(vision=3, language=1), vision=0.2, language=0.9)
TURNED = ranking(tree(vision=3, language=1), vision=0.9, language=0.2)
PREFIX = "fs-"
LONGER = Ladder.of((900, 3600, 7200, 14_400, 28_800, 43_200))
SHORTER = Ladder.of((900, 3600, 14_400, 28_800))


def fresh() -> MemorySlurm:
    slurm = MemorySlurm("lab")
    slurm.add_node("n1")
    slurm.add_account("vision", "alice")
    slurm.add_account("language", "dan")
    slurm.add_account("guests", "gina", priority=7)
    return slurm


def settled() -> MemorySlurm:
    """All of ours applied, and a run under contract on the 4-hour rung."""
    slurm = fresh()
    slurm.carry_out(plan(ORDER, LADDER, LANE, slurm.held()))
    slurm.start(slurm.submit("vision", "alice", 2, contract=Contract(14_400)))
    return slurm


def tampered() -> MemorySlurm:
    """Somebody has weakened two rungs, let one preempt another, and let a QOS of their own preempt ours."""
    slurm = settled()
    held = slurm.held().qos
    slurm.add_qos(replace(held["fs-1h"], exempt=0, grace=0))
    slurm.add_qos(replace(held["fs-8h"], preempts=frozenset({"fs-unallocated", "fs-1h"})))
    slurm.add_qos(replace(held["fs-unallocated"], exempt=3600))
    slurm.add_qos(Qos("vip", preempts=frozenset({"fs-2h", "normal"})))
    slurm.set_user_priority("vision", "alice", 5)
    return slurm


def used(slurm: MemorySlurm) -> set[str]:
    return {job.qos for job in slurm.picture(slurm.now).jobs}


Planner = Callable[[MemorySlurm], tuple[Change, ...]]


@dataclass(frozen=True)
class Story:
    """Where it starts, what is planned, and the ladder that is wanted in the end."""

    name: str
    start: Callable[[], MemorySlurm]
    planned: Planner
    ladder: Ladder = LADDER


def applying(ladder: Ladder, lane: DebugLane | None = LANE, order: object = ORDER) -> Planner:
    def planned(slurm: MemorySlurm) -> tuple[Change, ...]:
        held = slurm.held()
        mine = plan(order, ladder, lane, held)  # type: ignore[arg-type]
        return (*mine, *retirement(ladder, held, PREFIX, used(slurm)))

    return planned


def removing(slurm: MemorySlurm) -> tuple[Change, ...]:
    return removal(("vision", "language"), slurm.held(), PREFIX, used(slurm))


STORIES = (
    Story("the first apply", fresh, applying(LADDER)),
    Story("after tampering", tampered, applying(LADDER)),
    Story("a rung more", settled, applying(LONGER), LONGER),
    Story("a rung less", settled, applying(SHORTER), SHORTER),
    Story("no lane any more", settled, applying(LADDER, None)),
    Story("the order turned around", settled, applying(LADDER, LANE, TURNED)),
    Story("removal", settled, removing),
    Story("removal after tampering", tampered, removing),
)


def cuts(story: Story) -> Iterator[tuple[int, MemorySlurm]]:
    """The same start cut off after each number of changes."""
    for count in range(len(story.planned(story.start())) + 1):
        slurm = story.start()
        slurm.carry_out(story.planned(slurm)[:count])
        yield count, slurm


def usable(held: Held) -> set[str]:
    return {name for has in held.accounts.values() for name in has.qos}


def promised(name: str) -> int:
    rung = LONGER.rung(name)
    assert rung is not None
    return rung.min_runtime


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_cut_off_anywhere_no_protection_is_lost(story: Story) -> None:
    before = story.start().held()
    for count, slurm in cuts(story):
        held = slurm.held()
        for name in usable(held) & {one for one in held.qos if one.startswith(PREFIX)}:
            now, was = held.qos[name], before.qos.get(name)
            least = promised(name) if was is None else min(promised(name), was.exempt, was.grace)
            assert min(now.exempt, now.grace) >= least, f"{name} after {count} changes"
            # Whom a rung may stop: unallocated, or what it could stop before somebody's change was taken back.
            assert now.preempts <= {"fs-unallocated"} | (was.preempts if was else frozenset())
        for job in slurm.picture(slurm.now).jobs:
            assert held.qos[job.qos].exempt >= promised(job.qos), f"the run lost its QOS after {count} changes"
            assert job.qos in held.accounts[job.account].qos, f"the run lost its access after {count} changes"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_cut_off_anywhere_the_next_plan_ends_where_the_whole_one_does(story: Story) -> None:
    whole = story.start()
    whole.carry_out(story.planned(whole))
    assert story.planned(whole) == (), "a second plan is empty"
    for count, slurm in cuts(story):
        slurm.carry_out(story.planned(slurm))
        assert slurm.held() == whole.held(), f"after {count} changes"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_what_others_set_is_never_touched(story: Story) -> None:
    for _, slurm in cuts(story):
        held = slurm.held()
        assert held.qos["normal"] == Qos("normal")
        assert held.accounts["guests"].priority == 7
        if "vip" in held.qos:
            assert held.qos["vip"].preempts - {"fs-2h"} == {"normal"}


def test_access_comes_last_and_goes_first() -> None:
    kinds = [type(change).__name__ for change in applying(LADDER)(fresh())]
    assert kinds.index("Allow") > max(place for place, kind in enumerate(kinds) if kind in ("AddQos", "SetQos"))
    slurm = settled()
    (job,) = slurm.picture(slurm.now).jobs
    slurm.finish(job.job_id)
    kinds = [type(change).__name__ for change in removing(slurm)]
    assert kinds == ["Disallow"] + ["RemoveQos"] * len(LADDER.rungs)


def test_turning_the_order_around_moves_one_label() -> None:
    changes = applying(LADDER, LANE, TURNED)(settled())
    assert [type(change) for change in changes] == [SetPriority]


def test_a_removed_name_is_taken_off_every_list_first() -> None:
    slurm = tampered()
    changes = removing(slurm)
    lists = [change for change in changes if isinstance(change, SetQos)]
    assert {change.qos.name for change in lists} == {"vip", "fs-4h"}
    assert all(not any(name.startswith(PREFIX) for name in change.qos.preempts) for change in lists)
