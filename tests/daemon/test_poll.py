"""The watermark: what slurmctld still keeps back for slurmdbd is never passed over, and nothing is read for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_fairshare.config import Config
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.tick import BACKLOG, poll
from slurm_fairshare.errors import SlurmUnreachable
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.store.memory import MemoryStore
from tests.daemon.world import T0

DAY = timedelta(days=1)
ALWAYS = Window(T0 - 400 * DAY, T0 + 400 * DAY)
SETTINGS = {"poll_overlap": "0s", "first_poll": "80d"}


class SlowSlurmdbd(MemorySlurm):
    """Before each answer slurmdbd takes some messages more; it dies after so many answers."""

    def __init__(self) -> None:
        super().__init__("lab", now=T0)
        self.takes: Iterator[int] = iter(())
        self.answers: int | None = None
        self.asked: list[Window] = []
        self.add_node("n1", {"h100": 1000}, cpus=1000, memory_mb=10**7)
        self.add_account("vision", "ada")

    def runs(self, window: Window) -> Batch:
        self.asked.append(window)
        self.hand_over(next(self.takes, 0))
        if self.answers is not None:
            if self.answers == 0:
                raise SlurmUnreachable("slurmdbd is gone")
            self.answers -= 1
        return super().runs(window)


@dataclass
class Site:
    """Overlap: none. The twin's ends and their messages are of one moment."""

    slurm: SlowSlurmdbd = field(default_factory=SlowSlurmdbd)
    store: MemoryStore = field(default_factory=lambda: MemoryStore("lab"))
    config: Config = field(default_factory=lambda: Config(cluster="lab", daemon=SETTINGS))  # type: ignore[arg-type]
    running: list[int] = field(default_factory=list)

    def start(self) -> None:
        job = self.slurm.submit("vision", "ada", 1)
        self.slurm.start(job)
        self.running.append(job)

    def finish(self, place: int = 0) -> None:
        if self.running:
            self.slurm.finish(self.running.pop(place % len(self.running)))

    def short(self) -> datetime:
        """A run that nobody sees alive; when it ended."""
        self.start()
        end = self.slurm.advance(2)
        self.finish(-1)
        self.slurm.advance(3)
        return end

    def poll(self, takes: Sequence[int] = (), answers: int | None = None) -> None:
        self.slurm.takes, self.slurm.answers, self.slurm.asked = iter(takes), answers, []
        try:
            poll(self.slurm, self.store, self.config, self.slurm.now)
        except SlurmUnreachable:
            assert answers is not None
        self.slurm.takes, self.slurm.answers = iter(()), None

    @property
    def mark(self) -> datetime | None:
        return self.store.watermark()

    def missing(self) -> list[Run]:
        known = self.store.runs(ALWAYS)
        return [run for run in self.slurm.runs(ALWAYS).runs if run not in known]


@pytest.fixture
def site() -> Site:
    made = Site()
    made.short()
    made.poll()
    return made


def test_with_nothing_kept_back_the_watermark_is_now(site: Site) -> None:
    assert site.mark == site.slurm.now
    site.slurm.advance(3600)
    site.poll()
    assert site.mark == site.slurm.now


def test_what_arrives_long_after_the_first_poll_is_not_passed_over(site: Site) -> None:
    before = site.mark
    site.slurm.holds_back = True
    site.short()
    site.poll()
    assert site.mark == before
    site.slurm.advance(3600)
    site.poll()
    assert site.mark == before
    assert site.store.recall(BACKLOG) == (site.slurm.now, 2)
    site.slurm.hand_over()
    site.poll()
    assert not site.missing()
    assert site.mark == site.slurm.now


def test_where_the_queue_is_never_empty_the_newest_end_moves_the_watermark_on(site: Site) -> None:
    site.slurm.holds_back = True
    ends = [site.short() for _ in range(4)]
    site.slurm.hand_over(4)  # start and end of two: a third has been told of half way, at the most
    site.poll()
    assert site.mark is not None
    assert site.mark < ends[1]
    site.poll()
    assert site.mark == ends[1]


def test_a_gap_of_days_is_read_in_slices_and_the_watermark_follows_in_the_second_reading(site: Site) -> None:
    before = site.mark
    site.slurm.holds_back = True
    for _ in range(3):
        site.slurm.advance(DAY.total_seconds())
        end = site.short()
    site.short()
    site.slurm.hand_over(6)
    site.poll()
    assert site.mark == before
    assert len(site.slurm.asked) == 4
    site.poll()
    assert site.mark == end
    assert max(window.end - window.start for window in site.slurm.asked) == DAY
    site.poll()
    assert [window.start for window in site.slurm.asked] == [end]


def test_a_first_poll_that_cannot_be_sure_of_anything_begins_again(site: Site) -> None:
    fresh = Site(slurm=site.slurm)
    site.slurm.holds_back = True
    late = site.short()
    fresh.poll()
    assert fresh.mark == fresh.slurm.now - fresh.config.daemon.first_poll
    fresh.slurm.hand_over()
    fresh.poll()
    assert fresh.mark == fresh.slurm.now
    assert late in {run.end for run in fresh.store.runs(ALWAYS)}


WAITS = st.sampled_from([0, 1, 30, 600, 7 * 3600, int(2.5 * 86_400)])
FEW = st.integers(0, 3)
ACTIONS = st.one_of(
    st.tuples(st.just("short")),
    st.tuples(st.just("start")),
    st.tuples(st.just("finish"), FEW),
    st.tuples(st.just("wait"), WAITS),
    st.tuples(st.just("slurmdbd"), st.booleans()),
    st.tuples(st.just("hand over"), FEW),
    st.tuples(st.just("poll")),
    st.tuples(st.just("poll"), st.lists(FEW, max_size=3), st.none() | st.integers(0, 3)),
)


@settings(max_examples=400, deadline=None)
@given(fresh=st.booleans(), actions=st.lists(ACTIONS, max_size=30))
def test_whatever_the_order_of_outage_backlog_polls_and_deaths_in_the_end_the_ledger_is_slurmdbd(
    fresh: bool, actions: list[tuple[Any, ...]]
) -> None:
    site = Site()
    if not fresh:
        site.poll()
    marks = []
    for action in actions:
        match action:
            case ("short",):
                site.short()
            case ("start",):
                site.start()
            case ("finish", place):
                site.finish(place)
            case ("wait", seconds):
                site.slurm.advance(seconds)
            case ("slurmdbd", works):
                site.slurm.holds_back = not works
            case ("hand over", count):
                site.slurm.hand_over(count)
            case ("poll", *how):
                site.poll(*how)
                marks += [site.mark] if site.mark else []
    while site.running:
        site.finish()
    site.slurm.advance(1)
    site.slurm.hand_over()
    site.poll()
    assert not site.missing()
    assert site.mark == site.slurm.now
    assert marks == sorted(marks)
