"""What the commands read from and write to the store, beside what the daemon needs of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from slurm_fairshare.core.audit import Counted
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.decisions import Recorded
from slurm_fairshare.core.tree import Changeset, Share
from slurm_fairshare.core.window import Weight, Window
from slurm_fairshare.daemon.ports import Store as DaemonStore
from slurm_fairshare.reports.measured import History
from slurm_fairshare.store.breakdown import Used
from slurm_fairshare.store.facts import Adjustment, Failure, ManagerChange, TickFacts
from slurm_fairshare.store.memo import Facts
from slurm_fairshare.store.tallies import Tallies


class Store(DaemonStore, Facts, History, Protocol):
    """The store as the commands see it. Reports need no Slurm call: all they show has been recorded."""

    def last_tick(self) -> TickFacts | None: ...

    def last_picture(self) -> datetime | None: ...

    def led(self) -> bool:
        """Whether anybody leads the cluster now."""

    def tallies(self, since: datetime) -> Tallies: ...

    def failures(self, since: datetime) -> tuple[Failure, ...]: ...

    def latest_queue(self) -> Picture | None: ...

    def labels(self) -> Mapping[str, int]: ...

    def usage_by_user(self, window: Window, weight: Weight, now: datetime) -> Mapping[tuple[str, str], float]:
        """Charged GPU-seconds by account (lower-case key) and user, weighted as `usage` is."""

    def used(self, parts: Sequence[Window], by: Collection[str], now: datetime) -> tuple[Used, ...]:
        """What was used in each of the adjacent parts, grouped by the dimensions named."""

    def counted(self, window: Window, now: datetime) -> tuple[Counted, ...]:
        """Every run that overlaps the window, as it counts."""

    def differing_rollups(self) -> int:
        """Hours of accounts whose roll-up is not what the runs say."""

    def rebuild_rollups(self) -> int:
        """Make the hourly roll-ups anew; says how many hours of accounts there are."""

    def adjustments(self, window: Window) -> tuple[Adjustment, ...]: ...

    def add_adjustment(
        self,
        account: str,
        milli_gpu_seconds: int,
        at: datetime,
        author: str,
        reason: str,
        expires: datetime | None = None,
    ) -> Adjustment: ...

    def decisions_about(self, job_id: int) -> tuple[Recorded, ...]: ...

    def add_changeset(
        self,
        author: str,
        reason: str,
        effective: datetime,
        sets: Mapping[str, Sequence[Share]],
        expected_last_id: int | None = None,
        created: datetime | None = None,
        cancels: int | None = None,
    ) -> Changeset: ...

    def manager_changes(self) -> tuple[ManagerChange, ...]: ...

    def change_manager(
        self, path: str, role: str, granted: bool, author: str, reason: str, at: datetime
    ) -> ManagerChange: ...

    def login(self) -> str | None:
        """The role that signs what is recorded; None where the owner of the tables is logged in."""

    def cannot_manage(self, roles: Sequence[str]) -> tuple[str, ...]:
        """Those of the names that are no login in the managers' or the admins' role."""

    def close(self) -> None: ...
