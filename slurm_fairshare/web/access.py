"""Who asks, and what they may see. Signing in is the site's proxy's work; here its word is believed or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from threading import Lock

from starlette.requests import HTTPConnection

from slurm_fairshare.config import WebSection
from slurm_fairshare.errors import StoreUnreachable
from slurm_fairshare.store.viewers import Sight
from slurm_fairshare.web.ports import Roles

BELIEVED = timedelta(minutes=1)
"""What a role may see is asked anew so often."""

MOST_NAMES = 10_000


class AccessDenied(Exception):
    """Who asks may not look; the message says why. `status` is HTTP's."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks (no name where the pages are open) and with whose rights."""

    name: str
    sight: Sight


class Door:
    """Lets viewers in."""

    def __init__(self, section: WebSection, roles: Roles, clock: Callable[[], datetime]) -> None:
        self.section, self.roles, self.clock = section, roles, clock
        self._proxies = [ip_network(one) for one in section.trusted_proxies]
        self._known: dict[str, tuple[datetime, Sight]] = {}
        self._lock = Lock()

    def name_of(self, connection: HTTPConnection) -> str:
        """Who is signed in; empty where the pages are open. AccessDenied where that cannot be believed."""
        header = self.section.user_header
        if header is None:
            return ""
        if not self._is_proxy(connection):
            raise AccessDenied(403, "These pages are shown through the site's proxy only; use its address.")
        names = connection.headers.getlist(header)
        if len(names) != 1 or not names[0].strip():
            raise AccessDenied(401, f"The proxy did not say who is signed in ({header}); sign in there first.")
        return names[0].strip()

    def admit_machine(self, connection: HTTPConnection) -> None:
        """Programs that watch do not sign in: they ask from where proxies do, or from anywhere if pages are open."""
        if self.section.user_header is not None and not self._is_proxy(connection):
            raise AccessDenied(403, "This is for programs at the addresses in web.trusted_proxies.")

    def _is_proxy(self, connection: HTTPConnection) -> bool:
        try:
            peer = ip_address(connection.client.host) if connection.client is not None else None
        except ValueError:
            return False
        return peer is not None and any(peer in network for network in self._proxies)

    def known(self, name: str) -> Viewer | None:
        """The viewer if what they may see has been asked lately."""
        sight = self._lately(name)
        return self._admitted(name, sight) if sight is not None else None

    def _lately(self, name: str) -> Sight | None:
        found = self._known.get(name)
        if found is None or not timedelta(0) <= self.clock() - found[0] < BELIEVED:
            return None
        return found[1]

    def viewer(self, name: str) -> Viewer:
        """What the name may see, asked of Postgres. While that does not answer, what it said last holds."""
        return self._admitted(name, self.sight(name))

    def sight(self, name: str = "") -> Sight:
        """What the name may look at, admitted or not; without a name, what a stranger may."""
        with self._lock:
            sight = self._lately(name)
            if sight is not None:
                return sight
            try:
                sight = self.roles.sight(name)
            except StoreUnreachable:
                if name not in self._known:
                    raise
                return self._known[name][1]
            if len(self._known) >= MOST_NAMES:
                self._known.clear()
            self._known[name] = (self.clock(), sight)
            return sight

    def _admitted(self, name: str, sight: Sight) -> Viewer:
        if sight is Sight.STRANGER and self.section.strangers == "nothing":
            raise AccessDenied(
                403, f"{name} has no role in this site's Postgres; an admin can grant one (fairshare_reader)."
            )
        return Viewer(name, sight)
