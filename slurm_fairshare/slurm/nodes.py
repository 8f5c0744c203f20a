"""Nodes, from `scontrol -o show nodes`. A node that cannot be read is an error: capacity must not shrink unseen."""

from __future__ import annotations

import re
from dataclasses import replace

from slurm_fairshare.core.cluster import Node
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.errors import GpusNotTracked, SlurmUnreadable
from slurm_fairshare.slurm.tres import GPU, NOTHING, pairs, resources

_SIGNS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWERING_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
"""The signs behind a state that older releases print instead of a flag's name."""

_STATE = re.compile(r"([A-Z_+]+)([*~#!%$@^-]*)")
_WITHOUT_TYPES = "set AccountingStorageTRES=gres/gpu (and each gres/gpu:TYPE) in slurm.conf and restart slurmctld"


def parse_nodes(text: str) -> tuple[Node, ...]:
    """All nodes. Raises SlurmUnreadable at the first that cannot be read, GpusNotTracked if GPUs go uncounted."""
    return tuple(_node(line) for line in text.split("\n") if line.strip())


def _node(line: str) -> Node:
    try:
        if not line.startswith("NodeName="):
            raise ValueError("it does not start with NodeName=")
        name = _word(line, "NodeName")
        total, _ = resources(_word(line, "CfgTRES"))
        node = Node(
            name=name,
            states=states_of(_word(line, "State")),
            total=total,
            allocated=_allocated(_word(line, "CfgTRES"), _word(line, "AllocTRES")),
            partitions=_list(line, "Partitions"),
            features=_list(line, "ActiveFeatures"),
            reason=_reason(line),
        )
    except ValueError as error:
        raise SlurmUnreadable(
            f'scontrol show nodes printed a line that is not understood ({error}): "{line[:300]}"'
        ) from error
    if not total.gpu_count and _has_gpus(_optional(line, "Gres")):
        raise GpusNotTracked(
            f"node {name} has GPUs (Gres={_word(line, 'Gres')}) but no gres/gpu in CfgTRES: {_WITHOUT_TYPES}"
        )
    return node


def _allocated(configured: str, allocated: str) -> Resources:
    """22.05 forgets to take a type's count back: where the node counts gres/gpu and nothing of it is allocated,
    a gres/gpu:TYPE that is left over is no allocation."""
    held, _ = resources(allocated)
    if GPU in pairs(configured) and GPU not in pairs(allocated):
        return replace(held, gpus={})
    return held


def _optional(line: str, key: str) -> str:
    """The value behind the first `key=`: what an admin may write freely (Reason, Comment) stands behind it."""
    match = re.search(rf"(?:^|\s){key}=(\S*)", line)
    return "" if match is None or match.group(1) in NOTHING else match.group(1)


def _word(line: str, key: str) -> str:
    if re.search(rf"(?:^|\s){key}=", line) is None:
        raise ValueError(f"{key}= is missing")
    return _optional(line, key)


def _list(line: str, key: str) -> tuple[str, ...]:
    return tuple(part for part in _optional(line, key).split(",") if part)


def states_of(text: str) -> frozenset[str]:
    """Base state and flags: `MIXED+DRAIN`, and the signs that older releases print for some flags (`DOWN*`)."""
    match = _STATE.fullmatch(text)
    if match is None:
        raise ValueError(f'State "{text}"')
    names, signs = match.groups()
    return frozenset({*names.strip("+").split("+"), *(_SIGNS[sign] for sign in signs)})


def _reason(line: str) -> str:
    match = re.search(r"\sReason=(.*)$", line)
    return " ".join(match.group(1).split()) if match else ""


def _has_gpus(gres: str) -> bool:
    return any(re.match(r"gpu(:|$)", part) for part in gres.split(","))
