"""The budgets in Postgres: dated changesets, only ever added to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, text

from slurm_fairshare.core.tree import Changeset, Share, tree_at
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.store import tables
from slurm_fairshare.store.connection import Database
from slurm_fairshare.units import moment

Sets = Mapping[str, Sequence[Share]]


def check_addition(known: Sequence[Changeset], new: Changeset, expected_last_id: int | None) -> None:
    """Refuse an edit of a state that has changed since it was looked at, and one that makes an unusable tree,
    be it from its own moment on or together with one that takes effect later."""
    if expected_last_id is not None:
        meanwhile = [change for change in known if change.id > expected_last_id]
        if meanwhile:
            raise BudgetError(
                "the budget has changed since you looked at it; look again and repeat your edit. Meanwhile:\n"
                + "\n".join(f"  - {_told(change)}" for change in meanwhile)
            )
    if not new.sets:
        raise BudgetError("this edit changes nothing; name at least one sibling set")
    everything = [*known, new]
    later = {change.effective for change in known if change.effective > new.effective}
    for at in (new.effective, *sorted(later)):
        tree_at(everything, at)


def _told(change: Changeset) -> str:
    below = ", ".join(parent or "the root" for parent in sorted(change.sets))
    return f"{change.id}: {change.author}, {moment(change.created)}, below {below}: {change.reason}"


class BudgetStore:
    """Changesets of one cluster."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.database, self.cluster = database, cluster

    def changesets(self) -> tuple[Changeset, ...]:
        with self.database.transaction() as connection:
            return self._changesets(connection)

    def add_changeset(
        self,
        author: str,
        reason: str,
        effective: datetime,
        sets: Sets,
        expected_last_id: int | None = None,
        created: datetime | None = None,
    ) -> Changeset:
        """Record an edit. BudgetError if the tree could not be used, or if changesets after `expected_last_id`
        exist (0 = "there were none"). Two edits at once queue up."""
        with self.database.transaction() as connection:
            connection.execute(
                text("select pg_advisory_xact_lock(hashtext('fairshare.changeset'), hashtext(:cluster))"),
                {"cluster": self.cluster},
            )
            known = self._changesets(connection)
            new = Changeset(
                id=max((change.id for change in known), default=0) + 1,
                author=author,
                reason=reason,
                created=(created or datetime.now(UTC)).astimezone(UTC),
                effective=effective.astimezone(UTC),
                sets={parent: tuple(shares) for parent, shares in sets.items()},
            )
            check_addition(known, new, expected_last_id)
            self._insert(connection, new)
        return new

    def _insert(self, connection: Connection, new: Changeset) -> None:
        key = {"cluster": self.cluster, "changeset_id": new.id}
        connection.execute(
            tables.changeset.insert(),
            {
                "cluster": self.cluster,
                "id": new.id,
                "author": new.author,
                "reason": new.reason,
                "created_at": new.created,
                "effective_at": new.effective,
            },
        )
        connection.execute(tables.changeset_set.insert(), [{**key, "parent": parent} for parent in new.sets])
        shares = [
            {
                **key,
                "parent": parent,
                "name": share.name,
                "position": position,
                "weight": share.weight,
                "account": share.account,
            }
            for parent, siblings in new.sets.items()
            for position, share in enumerate(siblings)
        ]
        if shares:
            connection.execute(tables.changeset_share.insert(), shares)

    def _changesets(self, connection: Connection) -> tuple[Changeset, ...]:
        key = {"cluster": self.cluster}
        sets: dict[int, dict[str, tuple[Share, ...]]] = {}
        for row in connection.execute(
            text("select changeset_id, parent from fairshare.changeset_set where cluster = :cluster"), key
        ):
            sets.setdefault(row.changeset_id, {})[row.parent] = ()
        for row in connection.execute(text(_SHARES), key):
            found = sets[row.changeset_id]
            found[row.parent] = (*found[row.parent], Share(row.name, row.weight, row.account))
        headers = connection.execute(
            text("select * from fairshare.changeset where cluster = :cluster order by id"), key
        )
        return tuple(_changeset(row, sets.get(row.id, {})) for row in headers)


_SHARES = """
    select changeset_id, parent, name, weight, account from fairshare.changeset_share
    where cluster = :cluster order by changeset_id, parent, position
"""


def _changeset(row: Any, sets: Mapping[str, tuple[Share, ...]]) -> Changeset:
    return Changeset(
        id=row.id,
        author=row.author,
        reason=row.reason,
        created=row.created_at.astimezone(UTC),
        effective=row.effective_at.astimezone(UTC),
        sets=sets,
    )
