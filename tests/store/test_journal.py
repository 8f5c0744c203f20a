"""What every store promises of ticks, decisions and the leadership."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_fairshare.core.decisions import Outcome, Recorded
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.plan import AddQos, SetPriority
from slurm_fairshare.core.tree import Tree
from slurm_fairshare.errors import NotLeading, StoreError
from slurm_fairshare.store.facts import Failure
from tests.store.build import at, decision, report
from tests.store.conftest import AnyStore

# --- ticks ----------------------------------------------------------------------------------------


def test_the_ranking_comes_back_to_the_last_bit(store: AnyStore) -> None:
    assert store.last_ranking() is None
    tick = report(24)
    store.record_tick(tick)
    found = store.last_ranking()
    assert found == (at(24), tick.ranking)
    assert found is not None
    assert found[1].tree.effective_from == at(0)
    assert list(found[1].tree.nodes) == list(tick.ranking.tree.nodes)
    assert found[1].leaf("VISION") == tick.ranking.leaf("vision")


def test_an_empty_tree_is_a_ranking_too(store: AnyStore) -> None:
    store.record_tick(report(24, over=Tree()))
    assert store.last_ranking() == (at(24), Ranking(Tree(), {}, ()))


def test_the_newest_tick_counts_however_they_arrive(store: AnyStore) -> None:
    store.record_tick(report(25))
    store.record_tick(report(24))
    assert store.last_ranking() == (at(25), report(25).ranking)
    assert store.ranking_at(at(24.5)) == (at(24), report(24).ranking)
    assert store.ranking_at(at(23)) is None


def test_a_doubled_tick_is_one_tick(store: AnyStore) -> None:
    for _ in range(2):
        store.record_tick(report(24))
    assert store.last_ranking() == (at(24), report(24).ranking)


def test_the_last_tick_tells_what_it_did(store: AnyStore) -> None:
    assert store.last_tick() is None
    tick = report(24, AddQos("fs-1h"), SetPriority(("nlp",), 100_000))
    store.record_tick(tick)
    found = store.last_tick()
    assert found is not None
    assert (found.at, found.finished, found.window, found.pushed) == (tick.at, tick.finished, tick.window, True)
    assert found.changes == ("add QOS fs-1h", "set Priority 100000 for nlp")
    assert found.unknown_accounts == ("ghost",)
    assert found.unbudgeted_accounts == ("root", "old")
    assert found.failures == ()


def test_failures_since_the_last_tick_are_told(store: AnyStore) -> None:
    store.record_failure(at(23), "plan", "long ago")
    store.record_tick(report(24))
    store.record_failure(at(25), "apply", "slurmdbd is down")
    store.record_failure(at(26), "read the queue", "slurmctld is down")
    store.record_failure(at(26), "read the queue", "slurmctld is down")
    found = store.last_tick()
    assert found is not None
    assert found.failures == (
        Failure(at(25), "apply", "slurmdbd is down"),
        Failure(at(26), "read the queue", "slurmctld is down"),
    )
    assert [one.at for one in store.failures(at(0))] == [at(23), at(25), at(26)]


def test_labels_are_what_was_pushed_last(store: AnyStore) -> None:
    store.record_tick(report(24, SetPriority(("nlp", "vision"), 100_000), SetPriority(("robots",), 200_000)))
    store.record_tick(report(25, SetPriority(("NLP",), 300_000)))
    store.record_tick(report(26, SetPriority(("robots",), 500_000), pushed=False))
    assert store.labels() == {"nlp": 300_000, "vision": 100_000, "robots": 200_000}


def test_the_newest_standings_are_kept_and_hourly_ones_long(store: AnyStore) -> None:
    ticks = [24 + quarter / 4 for quarter in range(12)]  # four in each of three hours
    for hour in ticks:
        store.record_tick(report(hour))
    store.prune(at(27), keep_ticks=2)
    assert [_kept_at(store, hour) for hour in ticks] == [24, 24, 24, 24, 25, 25, 25, 25, 26, 26, 26.5, 26.75]
    store.prune(at(27), keep_ticks=2, keep_hourly=timedelta(hours=2))
    assert [_kept_at(store, hour) for hour in ticks[:5]] == [None] * 4 + [25]


def _kept_at(store: AnyStore, hour: float) -> float | None:
    found = store.ranking_at(at(hour))
    return None if found is None else 24 + (found[0] - at(24)) / timedelta(hours=1)


# --- decisions ------------------------------------------------------------------------------------


def test_a_decision_comes_back_as_it_was_taken(store: AnyStore) -> None:
    taken = decision("d1", 1)
    drain = decision("d2", 2, preemptor=None)
    store.decide((taken, drain))
    assert store.decisions(at(0)) == (
        Recorded(taken, Outcome.DECIDED, at(1)),
        Recorded(drain, Outcome.DECIDED, at(2)),
    )
    assert [one.decision.id for one in store.decisions(at(1.5))] == ["d2"]


def test_a_decision_keeps_its_outcomes(store: AnyStore) -> None:
    taken = decision("d1", 1)
    store.decide((taken,))
    store.settle("d1", Outcome.NOTICED, at(2), "sent USR1")
    store.settle("d1", Outcome.REQUEUED, at(3))
    assert store.decisions(at(0)) == (Recorded(taken, Outcome.REQUEUED, at(3)),)
    assert store.outcomes("d1") == (
        (at(1), Outcome.DECIDED, ""),
        (at(2), Outcome.NOTICED, "sent USR1"),
        (at(3), Outcome.REQUEUED, ""),
    )


def test_deciding_again_does_not_undo_an_outcome(store: AnyStore) -> None:
    store.decide((decision("d1", 1),))
    store.settle("d1", Outcome.GONE, at(2))
    store.decide((decision("d1", 1),))
    assert [one.outcome for one in store.decisions(at(0))] == [Outcome.GONE]


def test_what_was_never_decided_cannot_be_settled(store: AnyStore) -> None:
    with pytest.raises(StoreError, match="never recorded"):
        store.settle("nothing", Outcome.ENDED, at(1))


def test_open_decisions_are_those_with_something_left_to_do(store: AnyStore) -> None:
    store.decide([decision(name, hour) for hour, name in enumerate(("new", "noticed", "done"))])
    store.decide([decision("dry", 4, dry_run=True)])
    store.settle("noticed", Outcome.NOTICED, at(5))
    store.settle("done", Outcome.ENDED, at(5))
    assert [one.decision.id for one in store.open_decisions()] == ["new", "noticed"]


def test_decisions_are_found_by_either_job(store: AnyStore) -> None:
    store.decide([decision("a", 1, 10, 20), decision("b", 2, 20, 30), decision("c", 3, 40, None)])
    assert [one.decision.id for one in store.decisions_about(20)] == ["a", "b"]
    assert [one.decision.id for one in store.decisions_about(40)] == ["c"]
    assert store.decisions_about(99) == ()


# --- who leads ------------------------------------------------------------------------------------


def test_one_leads_at_a_time(store: AnyStore) -> None:
    with store.lead(), pytest.raises(NotLeading, match="another daemon leads cluster test"), store.lead():
        pass
    with store.lead():
        store.record_tick(report(24))


def test_who_never_led_may_record_all_the_same(store: AnyStore) -> None:
    store.assure_lead()
    store.decide((decision("d1", 1),))
