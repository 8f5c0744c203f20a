"""Slurm's own shares and usage, as slurmctld holds them: what its Fair Tree is computed from.

The source is `scontrol show assoc_mgr`, not sshare: sshare prints usage without its fraction, and a result is no
source for the same result.
"""

from __future__ import annotations

import re

from slurm_fairshare.core.fairtree import PARENT_SHARES, Association
from slurm_fairshare.errors import SlurmUnreadable

_LINE = re.compile(
    r"ClusterName=(?P<cluster>\S*) Account=(?P<account>\S*) UserName=(?P<user>\S*?)(?:\(\d+\))? "
    r"Partition=(?P<partition>\S*) Priority=\d+ ID=\d+ SharesRaw/Norm/Level/Factor=(?P<shares>\d+)/\S+ "
    r"UsageRaw/Norm/Efctv=(?P<usage>[\d.]+)/\S+ ParentAccount=(?P<parent>[^\s(]*)"
)


def parse_associations(text: str) -> tuple[Association, ...]:
    """Read `scontrol -o show assoc_mgr flags=assoc`. Raises SlurmUnreadable, also where it holds nothing."""
    found = []
    for line in text.split("\n"):
        if not line.startswith("ClusterName="):
            continue
        match = _LINE.match(line)
        if match is None:
            raise SlurmUnreadable(f'scontrol show assoc_mgr printed a line that is not understood: "{line[:300]}"')
        shares = int(match["shares"])
        found.append(
            Association(
                account=match["account"],
                user=match["user"],
                partition=match["partition"],
                parent=match["parent"],
                shares=None if shares == PARENT_SHARES else shares,
                usage=float(match["usage"]),
            )
        )
    if not found:
        raise SlurmUnreadable(
            "slurmctld shows no associations: it has not reached slurmdbd yet, or this user may not see them "
            "(PrivateData in slurm.conf; it needs AdminLevel Operator)"
        )
    return tuple(found)
