"""The budgets in Postgres: dated changesets, only ever added to. Postgres itself holds to that (sql/versions/0004)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, text

from slurm_fairshare.core.edits import check_addition, told
from slurm_fairshare.core.tree import Changeset, Share
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.store import tables
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.facts import ManagerChange, managers_now
from slurm_fairshare.store.spelling import clean

Sets = Mapping[str, Sequence[Share]]
_AT_ONCE = 1000


class BudgetStore:
    """Changesets and managers of one cluster."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.database, self.cluster = database, cluster

    # --- changesets -------------------------------------------------------------------------------

    def changesets(self) -> tuple[Changeset, ...]:
        """All there are, cancelled ones and cancellations too, in the order in which they were recorded."""
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
        cancels: int | None = None,
    ) -> Changeset:
        """Record an edit. BudgetError if the tree could not be used, or if changesets after `expected_last_id`
        exist (0 = "there were none"). Two edits at once queue up.

        Who logs in as a role of the site signs with that role, at Postgres's own time; `author` and `created` are
        what the owner of the tables says. What takes effect by `created` takes effect when it is recorded.
        """
        with self.database.transaction() as connection:
            connection.execute(text(_ALONE), {"cluster": self.cluster})
            login, clock = _login(connection)
            known = self._changesets(connection)
            recorded = (created or datetime.now(UTC)).astimezone(UTC)
            at_once = effective <= recorded
            if login is not None:
                author, recorded = login, clock
                effective = clock if at_once else effective
                self._refuse_unmanaged(connection, login, _touched(known, sets, cancels))
            new = Changeset(
                id=max((change.id for change in known), default=0) + 1,
                author=author,
                reason=reason,
                created=recorded,
                effective=effective.astimezone(UTC),
                sets={parent: tuple(shares) for parent, shares in sets.items()},
                cancels=cancels,
            )
            check_addition(known, new, expected_last_id)
            return self._insert(connection, new)

    def _refuse_unmanaged(self, connection: Connection, login: str, parents: Sequence[str]) -> None:
        """Say what Postgres would say in fewer words."""
        found = connection.execute(text(_UNMANAGED), {"cluster": self.cluster, "parents": list(parents)})
        refused = [told(row.parent) for row in found]
        if refused:
            mine = [told(path) for path, role in managers_now(self._manager_changes(connection)) if role == login]
            raise BudgetError(
                f"you are {login} here and do not manage the shares below {', '.join(refused)}; "
                + (f"you manage what is below {', '.join(mine)}. " if mine else "you manage nothing. ")
                + "See `slurm-fairshare budget managers`, and ask one of them or an admin"
            )

    def _insert(self, connection: Connection, new: Changeset) -> Changeset:
        key = {"cluster": self.cluster, "changeset_id": new.id}
        header = connection.execute(
            tables.changeset.insert().returning(tables.changeset.c.created_at, tables.changeset.c.effective_at),
            {
                "cluster": self.cluster,
                "id": new.id,
                "author": new.author,
                "reason": clean(new.reason),
                "created_at": new.created,
                "effective_at": new.effective,
                "cancels": new.cancels,
                "members": len(new.sets) + sum(len(shares) for shares in new.sets.values()),
            },
        ).one()
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
        # Many rows a statement, since each statement is checked.
        parents = [{**key, "parent": parent} for parent in new.sets]
        for table, rows in ((tables.changeset_set, parents), (tables.changeset_share, shares)):
            for start in range(0, len(rows), _AT_ONCE):
                connection.execute(table.insert().values(rows[start : start + _AT_ONCE]))
        return Changeset(
            id=new.id,
            author=new.author,
            reason=new.reason,
            created=header.created_at.astimezone(UTC),
            effective=header.effective_at.astimezone(UTC),
            sets=new.sets,
            cancels=new.cancels,
        )

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

    # --- managers ---------------------------------------------------------------------------------

    def manager_changes(self) -> tuple[ManagerChange, ...]:
        """Every grant and every end of one, oldest first; `managers_now` tells what holds."""
        with self.database.transaction() as connection:
            return self._manager_changes(connection)

    def change_manager(
        self, path: str, role: str, granted: bool, author: str, reason: str, at: datetime
    ) -> ManagerChange:
        """Make a login role a manager of what is below a node, or end that. Signed as changesets are."""
        with self.database.transaction() as connection:
            row = connection.execute(
                tables.manager.insert().returning(tables.manager),
                {
                    "cluster": self.cluster,
                    "id": 0,  # Postgres numbers them
                    "path": path,
                    "role_name": role,
                    "granted": granted,
                    "author": author,
                    "reason": clean(reason),
                    "at": at,
                },
            ).one()
        return _manager_change(row)

    def _manager_changes(self, connection: Connection) -> tuple[ManagerChange, ...]:
        found = connection.execute(
            text("select * from fairshare.manager where cluster = :cluster order by id"), {"cluster": self.cluster}
        )
        return tuple(_manager_change(row) for row in found)

    def login(self) -> str | None:
        """The role that signs what is recorded; None where the owner of the tables is logged in."""
        with self.database.transaction() as connection:
            return _login(connection)[0]

    def cannot_manage(self, roles: Sequence[str]) -> tuple[str, ...]:
        """Those of the names that are no login of this Postgres in fairshare_manager (nor fairshare_admin)."""
        with self.database.transaction() as connection:
            found = connection.execute(text(_CANNOT_MANAGE), {"names": list(roles)})
            return tuple(row.name for row in found)


def _touched(known: Sequence[Changeset], sets: Sets, cancels: int | None) -> tuple[str, ...]:
    """The parents whose children an edit replaces, or gives back."""
    cancelled = next((change.sets for change in known if change.id == cancels), {})
    return tuple(sorted({*sets, *cancelled}))


def _login(connection: Connection) -> tuple[str | None, datetime]:
    row = connection.execute(text(_LOGIN)).one()
    return row.login, row.clock.astimezone(UTC)


_LOGIN = """
    select case when not fairshare.is_owner() then session_user::text end as login, clock_timestamp() as clock
"""

_ALONE = "select pg_advisory_xact_lock(hashtext('fairshare.changeset'), hashtext(:cluster))"

_UNMANAGED = """
    select parent from unnest(cast(:parents as text[])) with ordinality as asked (parent, position)
    where not fairshare.may_edit(:cluster, parent) order by position
"""

# A role that does not exist (yet) is nobody's member.
_CANNOT_MANAGE = """
    select name from unnest(cast(:names as text[])) with ordinality as asked (name, position)
    where not exists (
        select from pg_roles login, pg_roles groups
        where login.rolname = asked.name and groups.rolname in ('fairshare_manager', 'fairshare_admin')
          and pg_has_role(login.oid, groups.oid, 'member')
    ) order by position
"""

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
        cancels=row.cancels,
    )


def _manager_change(row: Any) -> ManagerChange:
    return ManagerChange(
        id=row.id,
        path=row.path,
        role=row.role_name,
        granted=row.granted,
        author=row.author,
        reason=row.reason,
        at=row.at.astimezone(UTC),
    )
