"""What every store counts for those who watch."""

from __future__ import annotations

from slurm_fairshare.core.decisions import Outcome
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.store.tallies import Tallies
from tests.store.build import at, capacity, decision, picture, span
from tests.store.conftest import AnyStore


def test_nothing_is_counted_in_an_empty_store(store: AnyStore) -> None:
    found = store.tallies(at(0))
    assert (dict(found.failures), dict(found.decisions), dict(found.rejected)) == ({}, {}, {})
    assert store.last_picture() is None
    assert not store.led()


def test_failures_decisions_and_rejected_rows_are_counted(store: AnyStore) -> None:
    store.record_failure(at(1), "plan", "no")
    store.record_failure(at(2), "plan", "no")
    store.record_failure(at(2), "apply", "no")
    store.decide([decision(name, hour) for hour, name in enumerate(("a", "b", "c"))])
    store.decide([decision("dry", 4, dry_run=True)])
    store.settle("a", Outcome.REQUEUED, at(5))
    rows = tuple(RejectedRow("sacct", f"row {n}", "unreadable") for n in range(2))
    store.record_runs(Batch(span(0, 1), (), rows), at(1))
    store.record_runs(Batch(span(0, 1), (), (RejectedRow("squeue", "row", "unreadable"),)), at(3))
    rule = decision("a", 0).rule.value
    assert store.tallies(at(2)) == Tallies(
        failures={"apply": 1, "plan": 2},
        decisions={(rule, "decided"): 2, (rule, "requeued"): 1},
        rejected={"sacct": 2, "squeue": 1},
        failures_since=2,
        rejected_since=1,
    )


def test_the_last_look_at_the_queue_is_known(store: AnyStore) -> None:
    store.record_picture(picture(2), (capacity(8),))
    assert store.last_picture() == at(2)
