"""What the pages read from the store. Nothing here writes, and nothing asks Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from slurm_fairshare import metrics
from slurm_fairshare.core.decisions import Recorded
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.window import Weight, Window
from slurm_fairshare.store.viewers import Sight


class Store(metrics.Store, Protocol):
    """The store as the pages see it."""

    def first_capacity(self) -> datetime | None: ...

    def usage_by_user(self, window: Window, weight: Weight, now: datetime) -> Mapping[tuple[str, str], float]: ...

    def decisions_about(self, job_id: int) -> tuple[Recorded, ...]: ...

    def runs_of(self, job_id: int) -> tuple[Run, ...]: ...

    def close(self) -> None: ...


class Stores(Protocol):
    """A store for each sight: each reads with the rights of its role."""

    def __call__(self, sight: Sight) -> Store: ...


class Roles(Protocol):
    """Tells what the role of a name may look at."""

    def sight(self, name: str) -> Sight: ...

    def close(self) -> None: ...
