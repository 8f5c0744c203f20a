"""What is done and asked now and then: checkpoints of jobs, words to a session, a lift, a drain, the pool's nodes,
a limit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.errors import SlurmRefused
from slurm_fairshare.slurm import hands
from slurm_fairshare.slurm.changes import ADMINISTRATOR, OPERATOR, UNCHANGED, safe
from slurm_fairshare.slurm.queue import Table
from slurm_fairshare.slurm.run import Runner

_CHECKPOINT = re.compile(r"(?:^|[\s,;])checkpoint=([0-9]{9,11})(?=$|[\s,;])")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_checkpoint(comment: str) -> datetime | None:
    """The moment a job says it saved last: the last `checkpoint=EPOCH` of its comment, in seconds since 1970.

    >>> read_checkpoint("min_runtime=4h checkpoint=1790000000").isoformat()
    '2026-09-21T14:13:20+00:00'
    >>> read_checkpoint("checkpoint=soon") is None
    True
    """
    found = _CHECKPOINT.findall(comment)
    return datetime.fromtimestamp(int(found[-1]), UTC) if found else None


def _checked(names: Sequence[str]) -> str:
    for name in names:
        if not _NODE.fullmatch(name) or name.upper() == "ALL":  # to Slurm ALL means every node
            raise SlurmRefused(f'"{name}" is no name of a node: write one such as n1, and several one by one')
    return ",".join(names)


class Errands:
    """The part of the Slurm port that is no daily bread. `teller` runs `scontrol notify`: only the job's owner,
    root and SlurmUser may."""

    runner: Runner
    teller: Runner

    def _there(self, job_id: int) -> Job:
        raise NotImplementedError

    def checkpoints(self) -> Mapping[int, datetime]:
        """When running jobs say they saved last, in their Comment. One squeue for all."""
        mark = Table.fresh((0, 0)).behind
        words = ("-a", "-h", "-t", "R,S", "-O", f"JobID:{mark},Comment:{mark}")
        *values, _ = self.runner.read("squeue", *words).stdout.split(mark)
        found = {}
        for number, comment in zip(values[::2], values[1::2], strict=True):
            at = read_checkpoint(comment)
            if at is not None:
                found[int(number)] = at
        return found

    def tell(self, job_id: int, words: str) -> None:
        text = re.sub(r"[^ -~]", "?", " ".join(words.split()))
        self.teller.write("scontrol", "notify", hands.address(self._there(job_id)), text, level="SlurmUser")

    def lift(self, job_id: int, site_factor: int) -> None:
        number = hands.waiting_address(self._there(job_id))
        self.runner.write("scontrol", "update", f"JobId={number}", f"SiteFactor={site_factor:d}", level=OPERATOR)

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        words = (f"NodeName={_checked(nodes)}", "State=DRAIN", f"Reason={' '.join(reason.split())}")
        self.runner.write("scontrol", "update", *words, level=ADMINISTRATOR)

    def undrain(self, nodes: Sequence[str]) -> None:
        self.runner.write("scontrol", "update", f"NodeName={_checked(nodes)}", "State=RESUME", level=ADMINISTRATOR)

    def repartition(self, partition: str, nodes: Sequence[str]) -> None:
        words = (f"PartitionName={partition}", f"Nodes={_checked(nodes)}")
        self.runner.write("scontrol", "update", *words, level=ADMINISTRATOR)

    def limit(self, qos: str, gpus: int | None) -> None:
        wanted = -1 if gpus is None else gpus
        words = ("modify", "qos", "where", f"name={safe(qos)}", "set", f"GrpTRES=gres/gpu={wanted:d}")
        self.runner.write("sacctmgr", "-i", *words, level=ADMINISTRATOR, unchanged=UNCHANGED)
