"""The policies that are laid side by side."""

from __future__ import annotations

from slurm_fairshare.sim.engine import Policy


class Fifo(Policy):
    """First come, first served; nobody passes a blocked job."""

    name = "fifo"


class FirstFit(Policy):
    """Whoever fits starts, in the order of arrival. Large jobs may starve."""

    name = "first-fit"
    backfill = True


class Easy(Policy):
    """First come, first served; jobs pass the blocked head if they do not delay it (Lifka 1995)."""

    name = "easy"
    backfill = True
    reservations = 1
