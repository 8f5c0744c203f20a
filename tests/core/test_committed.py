"""What running jobs are still promised, counted when leaves are put in order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.committed import committed_by_user, counting
from slurm_fairshare.core.tree import Share, build
from tests.core.build import LADDER, NOW, contract, job, ranking, tree

TREE = tree(poor=1, rich=1)
"""Each is owed 500 GPU-seconds."""
STANDS = ranking(TREE, poor=0.8, rich=1.0)


def order(*committed: tuple[str, float]) -> list[str]:
    counted = counting(STANDS, {(account, "ada"): amount for account, amount in committed})
    assert counted.standings == STANDS.standings, "ratios stay by usage alone"
    assert [leaf.rank for leaf in counted.leaves] == [1, 2]
    assert all(leaf.standing == STANDS.standings[leaf.path] for leaf in counted.leaves)
    return [leaf.account for leaf in counted.leaves]


def test_a_leaf_goes_behind_once_what_its_runs_are_promised_makes_up_for_what_it_lacked() -> None:
    assert order() == ["poor", "rich"]
    assert order(("poor", 99)) == ["poor", "rich"]
    assert order(("poor", 101)) == ["rich", "poor"]
    assert order(("poor", 101), ("rich", 2)) == ["poor", "rich"]
    assert order(("stranger", 1e9)) == ["poor", "rich"]


def test_what_is_promised_counts_for_the_programme_above_too() -> None:
    halves = {"": (Share("lab", 1),), "lab": (Share("one", 1), Share("two", 1, "two"))}
    deep = build(halves | {"lab/one": (Share("a", 1, "a"), Share("b", 1, "b"))})
    stands = ranking(deep, lab_one=0.8, lab_two=1.0)
    assert [leaf.account for leaf in stands.leaves] == ["a", "b", "two"]
    assert [leaf.account for leaf in counting(stands, {("a", "ada"): 101}).leaves] == ["two", "b", "a"]


def test_only_what_is_charged_and_still_to_come_is_committed() -> None:
    def run(job_id: int, account: str, minimum: int) -> object:
        return job(job_id, account, 4, nodes=("n1",), started=600, terms=contract(minimum))

    jobs = [run(1, "poor", 3600), run(2, "rich", 60), run(3, "free", 0), job(4, "poor", 8, terms=contract(3600))]
    found = committed_by_user(jobs, LADDER, NOW)  # type: ignore[arg-type]
    assert found == {
        ("poor", "user-poor"): 4 * 3000.0,
        ("rich", "user-rich"): 0.0,
        ("free", "user-free"): 0.0,
    }


@given(st.dictionaries(st.sampled_from(["poor", "rich"]), st.floats(0, 1e6)), st.permutations(["ada", "bob"]))
def test_however_what_is_promised_is_divided_among_users_the_order_is_the_same(
    amounts: dict[str, float], users: list[str]
) -> None:
    whole = counting(STANDS, {(account, users[0]): amount for account, amount in amounts.items()})
    halves = {(account, user): amount / 2 for account, amount in amounts.items() for user in users}
    assert counting(STANDS, halves) == whole
    assert counting(whole, {}) == replace(STANDS, leaves=STANDS.leaves)
