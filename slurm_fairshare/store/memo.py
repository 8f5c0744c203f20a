"""One remembered text in the store, so that a `tick` from cron knows what the tick before it was told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol


class Facts(Protocol):
    def remember(self, name: str, value: Any, at: datetime) -> None: ...

    def recall(self, name: str) -> tuple[datetime, Any] | None: ...


def _utc_now() -> datetime:
    return datetime.now(UTC)


class StoreMemo:
    """What sacctmgr told of the QOS; nothing is lost with it but one more sacctmgr call."""

    NAME = "slurm settings"

    def __init__(self, store: Facts, clock: Callable[[], datetime] = _utc_now) -> None:
        self._store, self._clock = store, clock

    def get(self) -> str | None:
        found = self._store.recall(self.NAME)
        return None if found is None else str(found[1])

    def put(self, text: str) -> None:
        self._store.remember(self.NAME, text, self._clock())
