"""What somebody may look at: as the roles of Postgres say it, asked by the name they signed in with elsewhere."""

from __future__ import annotations

from enum import Enum

from sqlalchemy import text

from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.roles import ADMIN, DAEMON, MANAGER, READER, in_force

PAGES = "slurm-fairshare web"
"""The name under which the dashboard's sessions are known to Postgres."""


class Sight(Enum):
    """Whose rights a look at the tables is taken with.

    Who looks shares the answer with everybody of the same sight, so looks are taken as the group, not as the person:
    what a person may read is what the group may.
    """

    OWN = "none"
    """No roles are set up: the rights of the login itself."""
    INSIDER = MANAGER
    """Managers, admins and the daemon read everything."""
    READER = READER
    STRANGER = ""
    """Roles are set up, and nobody of this name is in any of them."""

    @property
    def role(self) -> str:
        """The role whose rights hold for the transaction; `none` keeps those of the login."""
        return self.value or READER


class Viewers:
    """Asks the roles of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def sight(self, name: str) -> Sight:
        """What the login of this name may look at; a name that is no login, or none at all, is a stranger's."""
        with self.database.unchecked() as connection:  # Postgres's own tables: they need no rights in ours
            if not in_force(connection):
                return Sight.OWN
            groups = set(connection.execute(text(_GROUPS), {"name": name, "groups": [*_INSIDERS, READER]}).scalars())
        if groups.intersection(_INSIDERS):
            return Sight.INSIDER
        return Sight.READER if groups else Sight.STRANGER

    def close(self) -> None:
        self.database.close()


_INSIDERS = (MANAGER, ADMIN, DAEMON)

_GROUPS = """
    select groups.rolname from pg_roles login, pg_roles groups
    where login.rolname = :name and login.rolcanlogin and groups.rolname = any(cast(:groups as text[]))
      and pg_has_role(login.oid, groups.oid, 'member')
"""
