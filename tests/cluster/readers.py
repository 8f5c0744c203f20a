"""Two hundred people at the dashboard and at `shares` on a living cluster, and what that costs slurmctld and slurmdbd.

Everything is a process as a site runs it: the daemon ticks, `slurm-fairshare web` serves, `slurm-fairshare shares` is
run again and again by the login that may only read. slurmctld and slurmdbd count by user the calls they answer. The
readers' processes have Slurm's tools at hand as a user of their own, so whatever they asked would stand in that count.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

from slurm_fairshare.store.roles import DAEMON as DAEMON_ROLE
from slurm_fairshare.store.roles import MANAGER, READER
from tests.cluster.cluster import Cluster
from tests.cluster.product import PEOPLE, TEAMS, Product
from tests.roles import a_place
from tests.web.crowd import Commands, Crowd, refresh

READERS = 200
DAEMON, READER_USER = "fairshare", "frank"
"""Users of the cluster: as whom the daemon asks Slurm, and as whom the readers' processes would."""
EVERY = 5
"""Seconds between two ticks, and between two passes: more than a site would ask for."""
PAGES = ("/", *(f"/team/lab/{team}" for team in TEAMS), "/queue", "/cluster", "/budget", "/api/v1/tree")
T = TypeVar("T")

_BY_USER = re.compile(r"^\s+(\S+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls answered so far, by user."""

    slurmctld: Counter[str]
    slurmdbd: Counter[str]

    @classmethod
    def counted(cls, cluster: Cluster) -> Calls:
        """As both say it themselves. Asking costs root's calls, which are nobody else's."""
        tools = (("sdiag",), ("sacctmgr", "show", "stats"))
        return cls(*(_by_user(cluster.slurm_output(*tool)) for tool in tools))

    def since(self, before: Calls) -> Calls:
        return Calls(self.slurmctld - before.slurmctld, self.slurmdbd - before.slurmdbd)


def _by_user(told: str) -> Counter[str]:
    return Counter({user: int(count) for user, count in _BY_USER.findall(told.partition("statistics by user")[2])})


@dataclass(frozen=True, slots=True)
class Shared:
    """What a time under readers cost, beside a quiet one of the same length."""

    quiet: Calls
    busy: Calls
    crowd: Crowd
    commands: int
    failed: list[str]
    """What `shares` said where it failed."""


def shared_run(cluster: Cluster, seconds: float) -> Shared:
    """On an empty cluster: teams, some work, the daemon, the pages; then nobody for so long, then everybody."""
    cluster.reset()
    logins = {"service": (DAEMON_ROLE,), "guest": (READER,), "pages": (READER, MANAGER)}
    with a_place(cluster.database_url, logins) as place, _work(cluster, place.owner):
        listen = _free_address()
        with (
            _process(_settings(cluster, DAEMON, place.address("service")), "daemon"),
            _process(_settings(cluster, READER_USER, place.address("pages")), "web", "--listen", listen),
        ):
            address = f"http://{listen}"
            _await(address)
            asyncio.run(_read(address, 1, 3 * EVERY))  # the first reader of the day; and the daemon's first ticks
            quiet, _ = _during(cluster, lambda: time.sleep(seconds))
            shares = Commands(**_settings(cluster, READER_USER, place.address("guest")))
            busy, crowd = _during(cluster, lambda: _crowded(address, shares, seconds))
    return Shared(quiet, busy, crowd, shares.runs, shares.failed)


def _crowded(address: str, shares: Commands, seconds: float) -> Crowd:
    shares.start()
    try:
        return asyncio.run(_read(address, READERS, seconds))
    finally:
        shares.stop()


async def _read(address: str, readers: int, seconds: float) -> Crowd:
    def line(_number: int) -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(verify=False)  # nobody encrypts here, and reading certificates takes time

    return await refresh(line, PAGES, readers, seconds, pause=1.0, address=address)


def _during(cluster: Cluster, what: Callable[[], T]) -> tuple[Calls, T]:
    before = Calls.counted(cluster)
    result = what()
    return Calls.counted(cluster).since(before), result


# --- the site -------------------------------------------------------------------------------------------------


@contextmanager
def _work(cluster: Cluster, dsn: str) -> Iterator[None]:
    """Teams with a budget, and jobs for both nodes and the queue, so that a tick and a page have what to tell."""
    product = Product.on(cluster, dsn)
    try:
        product.fund()
        product.tick()
        for team in TEAMS:
            for _ in range(4):
                cluster.sbatch(PEOPLE[team][0], "--gpus-per-node=4", "--comment=min_runtime=1h", account=team)
        yield
    finally:
        product.store.close()
        cluster.cancel_all_jobs()


def _settings(cluster: Cluster, user: str, address: str) -> dict[str, str]:
    """Settings of a process of the product: it logs in there, and has the cluster's tools of Slurm as this user."""
    return {
        "SLURM_FAIRSHARE_CLUSTER": "lab",
        "SLURM_FAIRSHARE_DATABASE_URL": address,
        "SLURM_FAIRSHARE_SLURM__COMMAND_PREFIX": json.dumps(cluster.command_prefix(user=user)),
        "SLURM_FAIRSHARE_DAEMON__INTERVAL": f"{EVERY}s",
        "SLURM_FAIRSHARE_DAEMON__FIRST_POLL": "1s",
        "SLURM_FAIRSHARE_REBALANCE__INTERVAL": f"{EVERY}s",
    }


@contextmanager
def _process(settings: dict[str, str], *words: str) -> Iterator[None]:
    """A command that runs until the block ends."""
    command = [str(Path(sys.executable).parent / "slurm-fairshare"), *words]
    with tempfile.TemporaryFile() as log:
        running = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
        try:
            yield
            assert running.poll() is None, f"{words[0]} ended by itself"
        except BaseException as error:
            log.seek(0)
            error.add_note(f"{words[0]} said:\n{log.read().decode()[-2000:]}")
            raise
        finally:
            running.terminate()
            running.wait(60)


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _await(address: str) -> None:
    """The pages answer."""
    end = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{address}/healthz", timeout=5).raise_for_status()
            return
        except httpx.HTTPError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
