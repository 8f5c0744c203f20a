"""This host's clock beside slurmctld's.

Slurm dates the start of a run by slurmctld's clock, and the daemon decides by its own. Where the two drift apart, or
one of them is set while the daemon runs, protection would end early and usage be counted that never was. So both are
compared in each tick, and again right before anybody is stopped.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from slurm_fairshare.config import Config
from slurm_fairshare.daemon.ports import Cluster
from slurm_fairshare.errors import ClockSkew
from slurm_fairshare.units import duration, moment

RESOLUTION = timedelta(seconds=1)
"""slurmctld tells whole seconds, cut off."""


def skew(theirs: datetime, earliest: datetime, latest: datetime) -> timedelta:
    """How far their clock is ahead of ours (negative: behind), when ours stood between the two moments as theirs was
    read. What the second cut off and the time of the question leave open counts as no skew.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> second = timedelta(seconds=1)
    >>> [str(skew(noon, noon + a * second, noon + b * second)) for a, b in ((0.5, 0.7), (61, 62), (-62, -61))]
    ['0:00:00', '-1 day, 23:59:00', '0:01:01']
    """
    ahead, behind = theirs - latest, earliest - (theirs + RESOLUTION)
    if ahead > timedelta(0):
        return ahead
    return -behind if behind > timedelta(0) else timedelta(0)


def compare(slurm: Cluster, config: Config, now: datetime, since: float) -> tuple[datetime, timedelta]:
    """slurmctld's clock and how far it is ahead; ClockSkew beyond `daemon.max_skew`.

    `now` was this host's clock when its monotonic clock was at `since`.
    """
    earliest = now + timedelta(seconds=time.monotonic() - since)
    theirs = slurm.clock()
    latest = now + timedelta(seconds=time.monotonic() - since)
    off = skew(theirs, earliest, latest)
    if abs(off) > config.daemon.max_skew:
        side = "ahead of" if off > timedelta(0) else "behind"
        raise ClockSkew(
            f"slurmctld's clock ({moment(theirs)}) is {duration(abs(off).total_seconds())} {side} this host's "
            f"({moment(latest)}); nothing is read, pushed or stopped until they agree within "
            f"{duration(config.daemon.max_skew.total_seconds())}: see whether both are kept by NTP (timedatectl, "
            "chronyc tracking)"
        )
    return theirs, off
