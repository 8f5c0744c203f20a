"""The tick's step that gives the pool its size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.pool import Asked, asked, partitions, remembered, size
from slurm_fairshare.daemon.ports import Errands, Notes

NAME = "pool"
"""What debug jobs asked for lately, and the size that follows from it, are remembered under this name."""


def resize_pool(slurm: Errands, store: Notes, config: Config, picture: Picture) -> None:
    """Change the partitions that differ. Where the site sets the pool's nodes itself there is nothing to do."""
    pool, lane = config.pool_rule, config.lane
    if pool is None or lane is None:
        return
    lately = remembered(pool, _recalled(store), asked(picture, config.ladder, lane))
    count = size(pool, lately, picture.nodes, picture.at.astimezone(config.zone))
    for partition, nodes in partitions(pool, count, picture.nodes).items():
        slurm.repartition(partition, nodes)
    samples = [[one.at.isoformat(), one.gpus] for one in lately]
    store.remember(NAME, {"nodes": count, "of": len(pool.nodes), "asked": samples}, picture.at)


def _recalled(store: Notes) -> Sequence[Asked]:
    found = store.recall(NAME)
    samples = found[1]["asked"] if found else []
    return [Asked(datetime.fromisoformat(at), int(gpus)) for at, gpus in samples]
