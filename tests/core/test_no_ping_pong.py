"""Over time: nobody is stopped before its minimum, no two jobs stop each other in turn, and evictions are bounded.

A tiny cluster lives for two hours of steps: jobs arrive and end, the ranking follows their usage over a sliding
window, a pass decides on what there is, victims are requeued. What the hysteresis implies is derived here.

Two jobs in turn. Let a and b be the two sides that are compared, with effective shares s_a, s_b of a cluster of C
GPUs and a window of L seconds. Entitlements are E = s C L. Usage grows by at most C a second (the side holds all),
and shrinks by at most C (the past that leaves the window), so a ratio moves by at most 1/(s L) a second and the
difference of two by at most v = (1/s_a + 1/s_b) / L. A job of a stops one of b only while r_b - r_a > h, the other
way round only while r_a - r_b > h: between the two the difference has moved by more than 2h, which takes 2h/v. By
the debug lane's rule a job of a stops one of b while r_a - r_b <= h/2; being stopped in turn takes a movement of
h/2 or more. By the in-team rule it cannot happen at all: priorities do not change. And whatever the ratios do, no
job stops within the hour the one it was stopped for.

Evictions. Give each GPU the ratio of the side that holds it. An eviction lowers that by more than h. It is raised
only when a job starts by itself, to R at most (the largest ratio met), and while it is held, by 1/(s L) a second.
What goes down by evictions has first gone up, so over T seconds, with N GPUs started on by themselves:

    evicted GPUs x h  <  N x R + C x T / (s_min L) + C x R (where all began)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import DebugLane, Priority
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded, Rule
from slurm_fairshare.core.fairshare import Ranking, Standing, ranked
from slurm_fairshare.core.rebalance import Rules, rebalance
from tests.core.build import LADDER, NOW, contract, gpus, job, node, picture, tree

WINDOW = 7200
STEP = 30
STEPS = 240
NODES = 3
CAPACITY = 8 * NODES
REQUEUE_DELAY = 120
H = 0.10


@dataclass
class Life:
    """A cluster over time. `used` is each team's GPU-seconds by step, oldest first, a window long."""

    shares: dict[str, float]
    jobs: dict[int, Job]
    ends: dict[int, int]
    """Steps of work left, by job."""
    used: dict[str, list[float]]
    lane: DebugLane | None = None
    hysteresis: float = H
    step: int = 0
    evictions: list[Decision] = field(default_factory=list)
    recent: list[Recorded] = field(default_factory=list)
    started_gpus: int = 0
    largest: float = 0.0
    back: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tree = tree(**self.shares)
        self.nodes = [node(f"n{n}") for n in range(NODES)]
        self.whole = sum(self.shares.values())

    @property
    def now(self):  # type: ignore[no-untyped-def]
        return NOW + timedelta(seconds=self.step * STEP)

    def share(self, team: str) -> float:
        return self.shares[team] / self.whole

    def ranking(self) -> Ranking:
        standings = {}
        for path, at in self.tree.nodes.items():
            owed = at.effective * CAPACITY * WINDOW
            teams = self.used if at.account is None else [at.name]
            standings[path] = Standing(owed, sum(sum(self.used[name]) for name in teams), at.effective)
        return Ranking(self.tree, standings, ranked(self.tree, standings))

    def live(self) -> None:
        for _ in range(STEPS):
            self._end_and_arrive()
            ranking = self.ranking()
            self.largest = max(self.largest, *(leaf.standing.ratio for leaf in ranking.leaves))
            self._start(ranking)
            self._evict(ranking)
            self._pay()
            self.step += 1

    def _end_and_arrive(self) -> None:
        for number, one in list(self.jobs.items()):
            if one.holding:
                self.ends[number] -= 1
                if self.ends[number] <= 0:
                    del self.jobs[number]
            elif one.reason == "BeginTime" and self.back[number] <= self.step:
                self.jobs[number] = replace(one, reason="Resources")

    def _free(self, name: str) -> int:
        return 8 - sum(run.by_node[name].gpu_count for run in self.jobs.values() if name in run.by_node)

    def _start(self, ranking: Ranking) -> None:
        order = {leaf.account: leaf.rank for leaf in ranking.leaves}
        waiting = [one for one in self.jobs.values() if one.pending and one.reason == "Resources"]
        taken = {one.preemptor.job_id: one.nodes for one in self.evictions if one.preemptor is not None}
        for one in sorted(waiting, key=lambda one: (order[one.account], one.submit, one.job_id)):
            each = one.wanted.gpu_count // one.node_count
            places = [n.name for n in self.nodes if self._free(n.name) >= each][: one.node_count]
            if len(places) == one.node_count:
                by_node = dict.fromkeys(places, gpus(each))
                running = replace(one, state="RUNNING", start=self.now, nodes=tuple(places), by_node=by_node)
                self.jobs[one.job_id] = running
                self.started_gpus += one.wanted.gpu_count if one.job_id not in taken else 0

    def _evict(self, ranking: Ranking) -> None:
        seen = replace(picture(self.nodes, *self.jobs.values()), at=self.now)
        rules = Rules(hysteresis=self.hysteresis)
        found = rebalance(seen, ranking, self.now, LADDER, self.lane, rules, self.recent, self.now)
        for one in found.decisions:
            run = self.jobs[one.victim.job_id]
            assert run.start is not None
            assert run.contract is not None
            assert (self.now - run.start).total_seconds() >= run.contract.min_runtime
            self.jobs[run.job_id] = replace(
                run, state="PENDING", reason="BeginTime", start=None, nodes=(), by_node={}, submit=self.now
            )
            self.back[run.job_id] = self.step + REQUEUE_DELAY // STEP
            self.evictions.append(one)
            self.recent.append(Recorded(one, Outcome.REQUEUED, self.now))

    def _pay(self) -> None:
        for team, steps in self.used.items():
            held = sum(run.wanted.gpu_count for run in self.jobs.values() if run.holding and run.account == team)
            steps.append(float(held * STEP))
            del steps[0]


@st.composite
def lives(draw: st.DrawFn, *, lane: bool, priorities: bool) -> Life:
    teams = ["a", "b", "c"][: draw(st.integers(2, 3))]
    shares = {team: float(draw(st.integers(1, 4))) for team in teams}
    jobs: dict[int, Job] = {}
    ends: dict[int, int] = {}
    for number in range(1, draw(st.integers(6, 30)) + 1):
        count = draw(st.sampled_from([1, 1, 1, 2]))
        size = draw(st.sampled_from([8] if count > 1 else [1, 2, 4, 8])) * count
        level = draw(st.sampled_from(list(Priority))) if priorities else Priority.NORMAL
        terms = contract(draw(st.sampled_from([60, 300, 1000, 3600])), priority=level)
        one = job(number, draw(st.sampled_from(teams)), size, node_count=count, terms=terms)
        late = draw(st.integers(0, STEPS // 2)) if draw(st.booleans()) else 0
        eligible = NOW + timedelta(seconds=late * STEP)
        jobs[number] = replace(one, submit=eligible, eligible=eligible, reason="BeginTime")
        ends[number] = draw(st.integers(4, 2 * STEPS))
    weights = {team: draw(st.integers(0, 5)) for team in teams}
    whole = sum(weights.values()) or 1
    each = {team: CAPACITY * STEP * weight / whole for team, weight in weights.items()}
    used = {team: [amount] * (WINDOW // STEP) for team, amount in each.items()}
    life = Life(shares, jobs, ends, used, DebugLane() if lane else None)
    life.back = {number: int((one.submit - NOW).total_seconds()) // STEP for number, one in jobs.items()}
    return life


def in_turn(life: Life) -> list[tuple[Decision, Decision]]:
    """Each eviction with the first later one that goes the other way between the same two jobs."""
    pairs = []
    for place, one in enumerate(life.evictions):
        for other in life.evictions[place + 1 :]:
            assert one.preemptor is not None
            assert other.preemptor is not None
            if (other.victim.job_id, other.preemptor.job_id) == (one.preemptor.job_id, one.victim.job_id):
                pairs.append((one, other))
                break
    return pairs


@pytest.mark.parametrize("lane", [False, True])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_two_jobs_stop_each_other_in_turn(lane: bool, data: st.DataObject) -> None:
    life = data.draw(lives(lane=lane, priorities=True))
    life.live()
    for one, other in in_turn(life):
        assert Rule.IN_TEAM_PRIORITY not in {one.rule, other.rule}
        speed = (1 / life.share(one.victim.account) + 1 / life.share(other.victim.account)) / WINDOW
        movement = H / 2 if Rule.DEBUG_LANE in {one.rule, other.rule} else 2 * H
        assert (other.at - one.at).total_seconds() >= max(3600, movement / speed - 2 * STEP)


@settings(max_examples=40, deadline=None)
@given(lives(lane=False, priorities=False), st.sampled_from([H, 0.5, 1.0]))
def test_evictions_stay_under_the_bound_that_the_hysteresis_implies(life: Life, hysteresis: float) -> None:
    life.hysteresis = hysteresis
    life.live()
    assert descended(life, hysteresis) <= climbed(life)


def descended(life: Life, hysteresis: float) -> float:
    return sum(one.victim.gpus for one in life.evictions) * hysteresis


def climbed(life: Life) -> float:
    held = CAPACITY * STEPS * STEP / (min(map(life.share, life.shares)) * WINDOW)
    return (life.started_gpus + CAPACITY) * life.largest + held


def test_a_rule_without_hysteresis_breaks_the_bound() -> None:
    """Two teams over target, whose jobs then take the cluster from each other as often as the minimum lets them."""
    jobs = {n: replace(job(n, "a" if n % 2 else "b", 8, terms=contract(60)), reason="Resources") for n in range(1, 25)}
    used = {team: [CAPACITY * STEP / 2] * (WINDOW // STEP) for team in "ab"} | {"c": [0.0] * (WINDOW // STEP)}
    life = Life({"a": 1, "b": 1, "c": 2}, jobs, dict.fromkeys(jobs, 2 * STEPS), used, hysteresis=-10)
    life.live()
    assert descended(life, 1.0) > climbed(life)


def test_a_starved_team_gets_its_share_and_the_two_change_places_no_oftener_than_the_window_allows() -> None:
    """One team holds all from the start; the other, owed half, arrives. Over four windows both come to their half."""
    jobs = {n: job(n, "a", 8, nodes=(f"n{n - 1}",), terms=contract(300)) for n in (1, 2, 3)}
    late = {n: replace(job(n, "b", 8, terms=contract(300)), reason="Resources") for n in (4, 5, 6)}
    history = {"a": [float(CAPACITY * STEP)] * (WINDOW // STEP), "b": [0.0] * (WINDOW // STEP)}
    life = Life({"a": 1, "b": 1}, {**jobs, **late}, dict.fromkeys(range(1, 7), 10 * STEPS), history)
    life.live()
    first = [one.victim.account for one in life.evictions[:3]]
    assert first == ["a", "a", "a"]
    for _ in range(3):
        life.live()
    ratios = [leaf.standing.ratio for leaf in life.ranking().leaves]
    assert all(0.85 < ratio < 1.15 for ratio in ratios)
    assert len(life.evictions) <= 3 * 2 * 4
