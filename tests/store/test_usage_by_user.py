"""Usage by user adds up to the usage of the account, on both stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.window import Weight
from tests.store.build import at, run, span
from tests.store.conftest import AnyStore

RUNS = (
    run("1", 0, 2, account="NLP", count=4),
    replace(run("2", 1, 3, account="nlp", count=2), user="bob"),
    replace(run("3", 1, 3, account="vision", count=1), user="bob"),
    replace(run("4", 1, 3, account="nlp", count=8, charged=False), user="carol"),
)


@pytest.mark.parametrize("half_life", [None, timedelta(hours=1)])
def test_the_users_of_an_account_add_up_to_it(store: AnyStore, half_life: timedelta | None) -> None:
    store.record_runs(Batch(span(0, 4), RUNS), at(4))
    weight = Weight(half_life)
    whole = store.usage(span(0, 4), weight, at(4))
    parts = store.usage_by_user(span(0, 4), weight, at(4))
    assert set(parts) == {("nlp", "alice"), ("nlp", "bob"), ("vision", "bob")}
    for account, amount in whole.items():
        assert sum(mine for (name, _), mine in parts.items() if name == account) == pytest.approx(amount)


def test_a_user_is_charged_gpus_times_seconds(store: AnyStore) -> None:
    store.record_runs(Batch(span(0, 4), RUNS), at(4))
    assert store.usage_by_user(span(0, 4), Weight(), at(4))["nlp", "alice"] == 2 * 4 * 3600
