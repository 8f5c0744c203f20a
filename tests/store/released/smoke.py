"""What a daemon of a released version does with Postgres. It travels with that version's code, and is run on newer
schemas: `python -m tests.store.released.smoke DSN [write|read]`."""

from __future__ import annotations

import sys
from datetime import timedelta

from slurm_fairshare.core.decisions import Outcome
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.tree import Share
from slurm_fairshare.core.window import Weight
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import CLUSTER, at, batch, capacity, decision, job, picture, report, run, span

SETS = {"": (Share("lab", 1),), "lab": (Share("nlp", 2, "nlp"), Share("vision", 1, "vision"))}


def write(dsn: str, day: float = 0) -> None:
    """A day of it: runs, a queue, ticks, decisions, a failure, a budget, an adjustment."""
    hour = 24 * day
    with PostgresStore(dsn, CLUSTER) as store, store.lead():
        name = f"d{day:g}"
        if not store.changesets():
            store.add_changeset("ada", "the programme", at(0), SETS, created=at(0))
        store.record_runs(batch(run(f"{name}-1", hour + 1, hour + 2), run(f"{name}-2", hour + 3, None)), at(hour + 24))
        store.record_runs(Batch(span(hour, hour + 1), (), (RejectedRow("sacct", name, "unreadable"),)), at(hour + 24))
        store.record_picture(picture(hour + 23, job(10, hour + 1), job(11, None)), (capacity(8),))
        store.record_tick(report(hour + 24))
        store.decide((decision(name, hour + 5),))
        store.settle(name, Outcome.REQUEUED, at(hour + 6))
        store.record_failure(at(hour + 24.5), "plan", "slurmdbd is down")
        store.remember("smoke", name, at(hour + 24))


def read(dsn: str, day: float = 0) -> None:
    """All of it comes back as it was written."""
    hour = 24 * day
    with PostgresStore(dsn, CLUSTER) as store:
        name = f"d{day:g}"
        assert [one.key for one in store.runs(span(hour, hour + 24)) if one.key.startswith(name)] == [
            f"{name}-1",
            f"{name}-2",
        ]
        assert store.usage(span(hour + 1, hour + 2), Weight(), at(hour + 24))["nlp"] >= 3600
        assert store.ranking_at(at(hour + 24)) == (at(hour + 24), report(hour + 24).ranking)
        assert [one.outcome for one in store.decisions(at(hour)) if one.decision.id == name] == [Outcome.REQUEUED]
        assert [one.row.text for one in store.rejected(at(0)) if one.row.text == name] == [name]
        assert any(one.at == at(hour + 24) + timedelta(minutes=30) for one in store.failures(at(0)))
        assert store.changesets()[0].reason == "the programme"
        assert store.recall("smoke") is not None


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[2]](sys.argv[1], float(sys.argv[3]) if len(sys.argv) > 3 else 0)
