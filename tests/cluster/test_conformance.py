"""Our Fair Tree against `sshare -l` on a real cluster, over 200 random association trees.

Compared are, for every association of every tree: RawShares, RawUsage, NormShares, NormUsage, EffectvUsage and
LevelFS (to a millionth: sshare prints six digits and scontrol shows usage with two), and FairShare, which is the
whole ranking with its ties, digit by digit.

One thing is taken from Slurm and not predicted: which of several *accounts* with an equal LevelFS it visits first.
That is its sort's accident, it is documented nowhere, and users' ranks below depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest

from slurm_fairshare.core.fairtree import Association, Placed, fair_tree, key_of
from slurm_fairshare.reports import fairtree as report
from slurm_fairshare.reports.table import Form, Style, render
from slurm_fairshare.slurm.associations import parse_associations
from tests.cluster.cluster import Cluster
from tests.cluster.forest import Forest, draw, plant

pytestmark = pytest.mark.cluster

TREES = 200
NOW = datetime(2026, 11, 29, tzinfo=UTC)
SSHARE = ("sshare", "-a", "-l", "-P", "-n")
COLUMNS = ("RawShares", "NormShares", "RawUsage", "NormUsage", "EffectvUsage", "FairShare", "LevelFS")

Key = tuple[str, str]
Rows = dict[Key, dict[str, str]]


@pytest.fixture(scope="module")
def forest(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forest]:
    cluster.reset()
    made = draw(TREES, seed=20261129)
    plant(cluster, made, tmp_path_factory.mktemp("forest"))
    cluster.wait(lambda: usage_of_all(sshare(cluster)), 60, "sshare to know usage")
    yield made
    cluster.reset()


def sshare(cluster: Cluster) -> Rows:
    rows = {}
    for line in cluster.slurm_output(*SSHARE).splitlines():
        account, user, *values = line.split("|")
        rows[account.strip(), user] = dict(zip(COLUMNS, values, strict=False))
    return rows


def usage_of_all(rows: Rows) -> int:
    return int(rows["root", ""]["RawUsage"] or 0)


def both(cluster: Cluster) -> tuple[tuple[Association, ...], Rows]:
    """What slurmctld holds and what sshare shows of it, from between two decays."""
    words = ("scontrol", "-o", "show", "assoc_mgr", "flags=assoc")

    for _ in range(10):
        found = parse_associations(cluster.slurm_output(*words))
        shown = sshare(cluster)
        if found == parse_associations(cluster.slurm_output(*words)):
            return found, shown
    raise AssertionError("usage changed at every look")


class AsSlurmVisits:
    """Accounts that tie, in the order in which Slurm visited them, told from the ranks below them: the one that
    begins with the better rank came first, and of two that begin alike the one that ends alike."""

    def __init__(self, associations: Sequence[Association], shown: Rows) -> None:
        self.below: dict[str, list[Association]] = {}
        for one in associations:
            self.below.setdefault(one.account if one.user else one.parent, []).append(one)
        self.shown = shown

    def __call__(self, tied: Sequence[Association]) -> Sequence[Association]:
        return sorted(tied, key=lambda one: (*([] if one.user else self._ranks(one.account)), *key_of(one)))

    def _ranks(self, account: str) -> list[float]:
        ranks = [float(self.shown[one.account, one.user]["FairShare"]) for one in self._users(account)]
        return [-max(ranks, default=0.0), -min(ranks, default=0.0)]

    def _users(self, account: str) -> Iterator[Association]:
        for one in self.below.get(account, []):
            yield from [one] if one.user else self._users(one.account)


def ours(placed: Sequence[Placed]) -> Rows:
    """The report as `shares --as-slurm -a -l -P` prints it."""
    text = render(report.report(placed, NOW, long=True), Form(Style.PARSABLE2)).plain
    rows = {}
    for line in text.splitlines()[1:]:
        account, user, *values = line.split("|")
        rows[account, user] = dict(zip(COLUMNS, values, strict=True))
    return rows


def alike(column: str, mine: str, theirs: str) -> bool:
    if column in ("RawShares", "FairShare") or mine == theirs or "" in (mine, theirs):
        return mine == theirs
    return math.isclose(float(mine), float(theirs), rel_tol=2e-6, abs_tol=1.1e-6)


def differences(mine: Rows, theirs: Rows) -> list[str]:
    return [
        f"{'|'.join(key)} {column}: sshare {theirs[key][column] or 'nothing'}, ours {mine[key][column] or 'nothing'}"
        for key in theirs
        for column in COLUMNS
        if not alike(column, mine[key][column], theirs[key][column])
    ]


def test_every_association_of_200_random_trees_is_as_sshare_shows_it(cluster: Cluster, forest: Forest) -> None:
    associations, shown = both(cluster)
    placed = fair_tree(associations, AsSlurmVisits(associations, shown))
    mine = ours(placed)
    assert list(mine) == list(shown), "the same associations in the same order"
    found = differences(mine, shown)
    assert not found, f"{len(found)} differ, first " + "; ".join(found[:10])
    assert usage_of_all(shown) == pytest.approx(sum(forest.usage.values()), rel=0.01)


def test_the_trees_hold_what_they_are_drawn_for(cluster: Cluster, forest: Forest) -> None:
    """Ties, zero shares, `parent`, no usage: enough of each that agreement says something."""
    associations, shown = both(cluster)
    users = [one for one in associations if one.user]
    accounts = [one for one in associations if not one.user and one.parent]
    levels = [shown[one.account, ""]["LevelFS"] for one in accounts if one.parent]
    assert len(forest.trees) >= 200
    assert sum(1 for one in users if one.shares is None) > 50
    assert sum(1 for one in accounts if one.shares is None) > 50
    assert sum(1 for one in users if one.shares == 0) > 50
    assert sum(1 for one in accounts if one.shares == 0) > 50
    assert sum(1 for one in users if one.usage == 0) > 200
    assert levels.count("inf") > 50
    ranks = [shown[one.account, one.user]["FairShare"] for one in users]
    assert len(ranks) - len(set(ranks)) > 100


def test_each_tree_by_itself_is_ordered_as_sshare_orders_it(cluster: Cluster, forest: Forest) -> None:
    """A tree alone, without the other 199 around it: the same order of its users, best first, and the same ties
    except where a whole account ties with one outside the tree."""
    associations, shown = both(cluster)
    visits = AsSlurmVisits(associations, shown)
    for name in forest.trees:
        inside = alone(associations, name)
        placed = fair_tree(inside, visits)
        rank = {(p.association.account, p.association.user): p.fair_share or 0.0 for p in placed if p.association.user}
        theirs = {key: float(shown[key]["FairShare"]) for key in rank}
        for one in rank:
            for other in rank:
                if rank[one] > rank[other]:
                    assert theirs[one] >= theirs[other], f"{name}: {one} goes before {other}"


def alone(associations: Sequence[Association], name: str) -> tuple[Association, ...]:
    root = next(one for one in associations if one.account == "root" and not one.user)
    return (root, *(one for one in associations if one.account.startswith(name)))
