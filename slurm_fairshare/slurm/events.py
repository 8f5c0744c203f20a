"""The cluster's size and its nodes' outages, from `sacctmgr show event`."""

from __future__ import annotations

from datetime import datetime

from ClusterShell.NodeSet import NodeSet, NodeSetException

from slurm_fairshare.core.capacity import Outage, Past, Registration
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Window
from slurm_fairshare.slurm.nodes import states_of
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.slurm.times import moment, needed
from slurm_fairshare.slurm.tres import resources

FIELDS = ("Cluster", "NodeName", "ClusterNodes", "TimeStart", "TimeEnd", "State", "TRES")
"""Not the reason: anybody's words."""


def read_past(runner: Runner, cluster: str, window: Window) -> Past:
    """Every registration and outage that reaches into the window."""
    words = ["-n", "-P", "show", "event", f"cluster={cluster}", f"start={_local(window.start)}"]
    text = runner.read("sacctmgr", *words, f"end={_local(window.end)}", f"format={','.join(FIELDS)}").stdout
    return parse_events(text)


def _local(at: datetime) -> str:
    """As sacctmgr takes a moment; the tools run in UTC."""
    return f"{at:%Y-%m-%dT%H:%M:%S}"


def parse_events(text: str) -> Past:
    """A row that is not understood is kept aside: without that outage the cluster looks larger than it was, which is
    no reason to have no past at all."""
    registrations: list[Registration] = []
    outages: list[Outage] = []
    rejected: list[RejectedRow] = []
    for row in text.split("\n"):
        if not row.strip():
            continue
        try:
            found = _event(row.split("|"))
        except (ValueError, OverflowError, OSError, NodeSetException) as error:
            rejected.append(RejectedRow("sacctmgr show event", row, str(error)))
            continue
        if isinstance(found, Registration):
            registrations.append(found)
        else:
            outages.append(found)
    return Past(tuple(registrations), tuple(outages), tuple(rejected))


def _event(values: list[str]) -> Registration | Outage:
    if len(values) != len(FIELDS):
        raise ValueError(f"{len(values)} fields where {len(FIELDS)} were asked for")
    _, node, nodes, start, end, states, tres = values
    total, _ = resources(tres)
    begun = needed(start, "TimeStart")
    if not node:
        return Registration(begun, total, frozenset(NodeSet(nodes)) if nodes else frozenset())
    return Outage(node, begun, moment(end), states_of(states), total)
