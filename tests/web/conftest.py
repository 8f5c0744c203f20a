"""The dashboard on the sample lab: in one process for pages and the API, on a port for the browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright
from starlette.types import ASGIApp

from slurm_fairshare.config import Config
from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.viewers import Sight
from slurm_fairshare.web.app import create_app
from tests.web.asking import Client
from tests.web.sample import CLUSTER, NOW, Lab, fill
from tests.web.serving import served


class NoRoles:
    """A database in which no roles were set up."""

    def sight(self, _name: str) -> Sight:
        return Sight.OWN

    def close(self) -> None:
        pass


@dataclass
class Desk:
    """A dashboard, what is behind it, and its clock."""

    lab: Lab
    store: Any
    config: Config
    now: datetime = NOW
    roles: Any = field(default_factory=NoRoles)

    @cached_property
    def app(self) -> ASGIApp:
        return create_app(self.config, lambda _sight: self.store, self.roles, lambda: self.now)

    def client(self, **more: Any) -> Client:
        return Client(self.app, **more)

    def later(self, **length: float) -> None:
        self.now += timedelta(**length)


@pytest.fixture(scope="session")
def sample() -> tuple[MemoryStore, Lab]:
    """One store for all tests that only read it."""
    store = MemoryStore(CLUSTER)
    return store, fill(store, days=9, every=4)


@pytest.fixture(scope="session")
def shared_desk(sample: tuple[MemoryStore, Lab]) -> Desk:
    store, lab = sample
    return Desk(lab, store, lab.config)


@pytest.fixture
def desk(shared_desk: Desk) -> Desk:
    """The sample lab's dashboard at its own hour, with what earlier tests made it read."""
    shared_desk.now = NOW
    return shared_desk


@pytest.fixture
def make_desk() -> Callable[..., Desk]:
    """A desk of one's own, for tests that change it."""

    def make(**more: Any) -> Desk:
        store = MemoryStore(CLUSTER)
        lab = fill(store, **{"days": 3, "every": 6, **more})
        return Desk(lab, store, lab.config)

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Where it is not there the tests fail, they do not pass unseen.

    Not for the whole session: playwright keeps an event loop in the main thread, and other tests run their own.
    """
    place = shutil.which("chromium")
    if place is None:
        pytest.fail("chromium is not installed: run tools/setup as root, or apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=place, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def address(shared_desk: Desk) -> Iterator[str]:
    """Where the sample lab's dashboard is served."""
    with served(shared_desk.app) as found:
        assert httpx.get(f"{found}/healthz", timeout=30).status_code == 200
        yield found
