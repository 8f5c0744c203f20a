"""Headroom: GPUs that unallocated jobs leave free, so that the next small job under contract stops nobody.

Unallocated work takes what nobody under contract can use, hence mostly pieces of nodes: the very pieces that the next
debug or small job takes back from it, at once and at the cost of what it had not saved. With some of them left free
that job starts without waiting for anybody's last process, and fewer runs are thrown away.

    most = held by unallocated runs + free - headroom

is pushed as the limit of all unallocated jobs together (GrpTRES of their QOS). Slurm stops nobody for a limit: it only
starts no more.
"""

from __future__ import annotations

from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.contract import Ladder

STEADY = 4
"""A limit stays while it differs by less than this part of the headroom: each change is written down in slurmdbd."""


def headroom(in_service: int, fraction: float) -> int:
    """GPUs to be left free of so many.

    >>> headroom(1000, 0.02), headroom(16, 0.02), headroom(16, 0.1)
    (20, 0, 1)
    """
    return int(in_service * fraction)


def most_unallocated(held: int, free: int, in_service: int, fraction: float, last: int | None) -> int:
    """GPUs that unallocated jobs may hold together; `last` is the limit pushed last.

    >>> most_unallocated(30, 50, 1000, 0.02, None), most_unallocated(30, 5, 1000, 0.02, None)
    (60, 15)
    >>> most_unallocated(30, 50, 1000, 0.02, last=57), most_unallocated(30, 50, 1000, 0.02, last=50)
    (57, 60)
    """
    kept = headroom(in_service, fraction)
    most = max(0, held + free - kept)
    return last if last is not None and abs(most - last) * STEADY < kept else most


def limit_of(picture: Picture, ladder: Ladder, fraction: float, last: int | None) -> int:
    """The same from what Slurm shows."""
    nodes = [node for node in picture.nodes if node.in_service]
    held = sum(job.wanted.gpu_count for job in picture.holding if job.qos == ladder.unallocated.name)
    free = sum(max(0, node.free.gpu_count) for node in nodes)
    return most_unallocated(held, free, sum(node.total.gpu_count for node in nodes), fraction, last)
