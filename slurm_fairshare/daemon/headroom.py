"""The tick's step that keeps some GPUs free of unallocated work."""

from __future__ import annotations

from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.headroom import limit_of
from slurm_fairshare.daemon.ports import Errands, Notes

NAME = "headroom"
"""The limit pushed last is remembered under this name, None once it was taken away."""


def keep_headroom(slurm: Errands, store: Notes, config: Config, picture: Picture) -> None:
    """Limit unallocated jobs anew where that differs enough; without the setting, take away a limit of ours."""
    found = store.recall(NAME)
    last = None if found is None else found[1]
    fraction = config.contract.headroom
    most = limit_of(picture, config.ladder, fraction, last) if fraction else None
    if most != last:
        slurm.limit(config.ladder.unallocated.name, most)
        store.remember(NAME, most, picture.at)
