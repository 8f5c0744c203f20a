"""Postgres and the core judge a tree alike: whoever writes SQL by hand saves nothing that the core could not use."""

from __future__ import annotations

import itertools
import math
from contextlib import closing

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_fairshare.core.tree import Share, build, join, tree_at
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import START, at

numbers = itertools.count()
NAMES = st.sampled_from(["a", "b", "A", "é", " a", "a ", "", "a/b", "a\tb"])
PLAIN = st.sampled_from(["a", "b", "c"])
WEIGHTS = st.sampled_from([1.0, 0.0, 2.5, -1.0, math.nan, math.inf])
ACCOUNTS = st.sampled_from([None, None, "x", "X", "y", "z", "w", "É", "é", "", "  "])
Sets = dict[str, tuple[Share, ...]]


@st.composite
def sets(draw: st.DrawFn) -> Sets:
    """Small trees, most of them sound, some with any fault there is."""
    odd = draw(st.booleans())
    accounts = iter(["x", "y", "z", "w", "v", "u", "t", "s", "r", "q", "p", "o"] * 2)
    found: Sets = {}

    def fill(path: str, levels: int) -> None:
        shares = []
        for name in draw(st.lists(NAMES if odd else PLAIN, min_size=1, max_size=2, unique=True)):
            leaf = not name or levels <= 0 or draw(st.booleans())
            weight = draw(WEIGHTS) if odd else draw(st.sampled_from([1.0, 0.0, 2.5]))
            account = (draw(ACCOUNTS) if odd else next(accounts)) if leaf else None
            shares.append(Share(name, weight, account))
            if not leaf or (name and odd and levels > -2 and draw(st.integers(0, 9)) == 0):
                fill(join(path, name), levels - 1)
        found[path] = tuple(shares)

    fill("", 2)
    return found


def insert(address: str, cluster: str, wanted: Sets) -> bool:
    """As the owner, by hand; whether Postgres took it."""
    members = len(wanted) + sum(map(len, wanted.values()))
    with closing(psycopg.connect(address)) as connection:
        try:
            with connection.transaction():
                connection.execute(
                    "insert into fairshare.changeset (cluster, id, author, reason, created_at, effective_at, members) "
                    "values (%s, 1, 'x', 'y', %s, %s, %s)",
                    (cluster, START, START, members),
                )
                for parent, shares in wanted.items():
                    connection.execute("insert into fairshare.changeset_set values (%s, 1, %s)", (cluster, parent))
                    for position, one in enumerate(shares):
                        connection.execute(
                            "insert into fairshare.changeset_share values (%s, 1, %s, %s, %s, %s, %s)",
                            (cluster, parent, one.name, position, one.weight, one.account),
                        )
        except psycopg.errors.IntegrityError:
            return False
    return True


def usable(wanted: Sets) -> bool:
    try:
        build(wanted)
    except BudgetError:
        return False
    return True


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=sets())
def test_postgres_takes_what_the_core_can_use_and_nothing_else(postgres: str, wanted: Sets) -> None:
    cluster = f"t{next(numbers)}"
    taken = insert(postgres, cluster, wanted)
    if usable(wanted):
        assert taken
    else:
        assert not taken
    with PostgresStore(postgres, cluster) as store:
        tree = tree_at(store.changesets(), at(1))
    assert tree.sets() == (build(wanted).sets() if taken else {"": ()})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["", "a", "b"]), st.integers(0, 3)), max_size=6),
    moment=st.integers(0, 25),
)
def test_the_tree_at_a_moment_is_the_same_by_sql(postgres: str, edits: list[tuple[int, str, int]], moment: int) -> None:
    cluster = f"t{next(numbers)}"
    with PostgresStore(postgres, cluster) as store:
        first = {"": (Share("a", 1), Share("b", 1)), "a": (Share("x", 1, "x"),), "b": (Share("y", 2, "y"),)}
        store.add_changeset("dan", "", at(0), first, created=at(0))
        for number, (hour, parent, cancel) in enumerate(edits):
            wanted = first | {parent: (*first[parent], Share("z", number + 1, "z"))}
            try:
                store.add_changeset("dan", "", at(hour), {parent: wanted[parent]}, created=at(0))
                if cancel == 0 and hour > 0:
                    store.add_changeset("dan", "", at(0), {}, created=at(0), cancels=store.changesets()[-1].id)
            except BudgetError:
                continue  # z stands elsewhere then
        known = store.changesets()
    with psycopg.connect(postgres) as connection:
        found = connection.execute(
            "select path, weight, account from fairshare.tree_at(%s, %s)", (cluster, at(moment))
        ).fetchall()
    expected = [(node.path, node.weight, node.account) for node in tree_at(known, at(moment)).nodes.values()]
    assert sorted(found) == sorted(expected, key=lambda row: row[0])
