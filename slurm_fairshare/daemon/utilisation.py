"""Once an hour: how busy the GPUs of runs were, where a site asks for it. No decision stands on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from slurm_fairshare.config import Config
from slurm_fairshare.core.window import HOUR, Window
from slurm_fairshare.daemon.ports import Slurm, Store

NAME = "utilisation"
"""The fact that keeps up to when it was read, and when that was tried last."""

FIRST = timedelta(days=1)
OVERLAP = HOUR
"""A step is told when it ends, and slurmdbd may learn that late."""


def learn_utilisation(slurm: Slurm, store: Store, config: Config, now: datetime) -> None:
    """Read what has ended since the last time. A try that fails is not repeated before the next hour, and nothing is
    lost by it."""
    if not config.slurm.gpu_utilisation:
        return
    found = store.recall(NAME)
    if found is not None and now - found[0] < HOUR:
        return
    until = now - FIRST if found is None else datetime.fromtimestamp(float(found[1]), UTC)
    store.remember(NAME, until.timestamp(), now)
    store.record_busy(slurm.busy(Window(min(until - OVERLAP, now), now)))
    store.remember(NAME, now.timestamp(), now)
