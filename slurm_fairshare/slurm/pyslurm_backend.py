"""Queue and nodes through pyslurm, in place of squeue and scontrol: `slurm.backend = "pyslurm"`.

One release of pyslurm fits one release of Slurm. It is taken only where it can be imported, is built for the release
that runs, and shows the same queue and nodes as the command line when it is asked first; else the message says why
not. Everything but the picture stays with the command line: pyslurm's history loses the earlier runs of a requeued
job, and it cannot change a QOS.

What pyslurm tells of a job is put into squeue's words and read by the one reader of those, so that no rule stands
here for a second time.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from slurm_fairshare.core.cluster import Job, Node, Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.errors import ConfigError, SlurmUnreachable, SlurmUnreadable
from slurm_fairshare.slurm.cli import CommandLine
from slurm_fairshare.slurm.jobid import read_label
from slurm_fairshare.slurm.nodes import states_of
from slurm_fairshare.slurm.queue import EXCLUDED, EXCLUSIVE, jobs_from
from slurm_fairshare.slurm.tres import resources

REMEDY = 'set slurm.backend = "cli", which needs Slurm\'s client tools alone'
AGREE_WITHIN = 3
"""How often both are asked until they agree: the queue may change between two questions."""


def load_pyslurm(import_module: Callable[[str], Any] = importlib.import_module) -> Any:
    """The module, or ConfigError with the reason in the importer's words."""
    os.environ["SLURM_BITSTR_LEN"] = "0"  # an array's waiting tasks in full, as the tools are asked for them
    try:
        return import_module("pyslurm")
    except ImportError as error:
        raise ConfigError(
            f'slurm.backend is "pyslurm", and pyslurm cannot be imported ({error}): install slurm-fairshare[pyslurm] '
            f"where its release fits Slurm's, or {REMEDY}"
        ) from error


def check_release(module: Any, release: tuple[int, int]) -> None:
    """pyslurm's release begins with that of the Slurm it is built for."""
    version = str(getattr(module, "__version__", "unknown"))
    if tuple(version.split(".")[:2]) not in {
        (f"{release[0]}", f"{release[1]}"),
        (f"{release[0]}", f"{release[1]:02d}"),
    }:
        raise ConfigError(
            f"pyslurm {version} is not made for Slurm {release[0]}.{release[1]:02d}, which runs here: install the "
            f"pyslurm of that release, or {REMEDY}"
        )


class PyslurmBackend(CommandLine):
    """The command line backend with another way to the picture. `pyslurm` is the imported module."""

    def __init__(self, pyslurm: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pyslurm = pyslurm
        self._agreed = False

    def picture(self, now: datetime) -> Picture:
        if not self._agreed:
            self._agree(now)
        return self._picture(now)

    def _picture(self, now: datetime) -> Picture:
        try:
            jobs = list(self._pyslurm.Jobs.load().values())
            nodes = list(self._pyslurm.Nodes.load().values())
        except self._pyslurm.RPCError as error:
            raise SlurmUnreachable(f"pyslurm could not ask slurmctld ({error}): see `scontrol ping`") from error
        read = tuple(node_of(node) for node in nodes)
        found, self.rejected = jobs_of(jobs, self._ladder)
        return Picture(self.cluster, now, self._placed(found, read), read)

    def _agree(self, now: datetime) -> None:
        """Believe it once it has told what the command line tells."""
        check_release(self._pyslurm, self.release())
        difference = ""
        for _ in range(AGREE_WITHIN):
            difference = first_difference(self._picture(now), super().picture(now))
            if not difference:
                self._agreed = True
                return
        raise SlurmUnreadable(
            f"pyslurm and Slurm's own tools disagree about {difference}: see that every type of GPU stands in "
            f"AccountingStorageTRES, which pyslurm cannot do without, or {REMEDY}"
        )


def first_difference(one: Picture, other: Picture) -> str:
    """What two pictures disagree on first, "" for nothing. Left out is what moves from one question to the next
    (priorities, reasons), what its owner writes (the name), and what pyslurm has other words for."""
    for what, mine, theirs in (
        ("job", _by_label(one.jobs), _by_label(other.jobs)),
        ("node", {node.name: node for node in one.nodes}, {node.name: node for node in other.nodes}),
    ):
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                return f"{what} {name} ({mine.get(name)} / {theirs.get(name)})"
    return ""


def _by_label(jobs: Sequence[Job]) -> dict[str, Job]:
    """Without what may differ, and an array's requeued tasks in its waiting line, where squeue folds them: the line
    counts them, and loses its limit."""
    lines = {read_label(job.label).job for job in jobs if "[" in job.label}
    found: dict[str, Job] = {}
    for job in sorted(jobs, key=lambda job: "[" not in job.label):
        number = read_label(job.label).job
        folds = job.pending and number in lines
        label = f"{number}_[]" if folds else job.label
        plain = replace(job, label=label, priority=0, reason="", name="", constraints=_lasting(job), by_node={})
        line = found.get(label)
        if line is not None:
            plain = replace(line, array_size=line.array_size + job.array_size)
        found[label] = replace(plain, array_limit=0) if folds else plain
    return found


def _lasting(job: Job) -> tuple[str, ...]:
    return tuple(one for one in job.constraints if not one.startswith(_OTHER_WORDS))


_OTHER_WORDS = ("dependency=", "tres_per_socket=")


# --- in squeue's words ----------------------------------------------------------------------------


def jobs_of(jobs: Iterable[Any], ladder: Ladder) -> tuple[tuple[Job, ...], tuple[RejectedRow, ...]]:
    """Jobs that are in squeue's list, not those that have ended and are only remembered, and those that could not be
    read. Raises SlurmUnreadable if these are all."""
    rows: list[dict[str, str]] = []
    untold: list[RejectedRow] = []
    users: dict[int, str] = {}
    for job in jobs:
        try:
            if str(job.state) not in _ENDED:
                rows.append(row_of(job, users))
        except ValueError as error:
            untold.append(RejectedRow("pyslurm", f"job {job.id}", str(error)))
    found, unread = jobs_from(rows, ladder, "pyslurm")
    rejected = (*untold, *unread)
    if rejected and not found:
        raise SlurmUnreadable(f"no job that pyslurm told of can be read ({rejected[0].reason}); {REMEDY}")
    return found, rejected


_ENDED = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
        *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)


def row_of(job: Any, users: dict[int, str]) -> dict[str, str]:
    """squeue's columns of one job. `users` remembers names: pyslurm looks them up job by job."""
    if job.user_id not in users:
        users[job.user_id] = _text(job.user_name)
    return {
        "JobID": str(job.id),
        "JobArrayID": _label(job),
        "Account": _text(job.account),
        "UserName": users[job.user_id],
        "UserID": str(job.user_id),
        "Partition": _text(job.partition),
        "QOS": _text(job.qos),
        "State": _text(job.state),
        "Reason": _text(job.state_reason),
        "PriorityLong": str(job.priority or 0),
        "SubmitTime": _moment(job.submit_time),
        "EligibleTime": _moment(job.eligible_time),
        "StartTime": _moment(job.start_time),
        "TimeLimit": f"{int(job.time_limit)}:00" if job.time_limit else "UNLIMITED",
        "tres-alloc": _tres(job.allocated_tres or job.requested_tres),
        "NumNodes": str(job.num_nodes or 1),
        "NodeList": _text(job.allocated_nodes),
        "admin_comment": _written(job, "admin_comment"),
        "Requeue": "1" if job.is_requeueable else "0",
        "BatchFlag": "1" if job.is_batch_job else "0",
        "HetJobId": str(job.heterogeneous_id or 0),
        "RestartCnt": str(job.requeue_count or 0),
        "Dependency": _dependency(job.dependencies),
        "Feature": ",".join(job.constraints or ()),
        "Licenses": ",".join(job.licenses or ()),
        "ReqNodes": _text(job.required_nodes),
        "OverSubscribe": _text(job.resource_sharing),
        "Contiguous": "1" if job.requires_contiguous_nodes else "0",
        "ReqSwitch": str(job.required_switches or 0),
        "Reservation": _text(job.reservation),
        "Name": _written(job, "name"),
        EXCLUDED: _text(job.excluded_nodes),
        EXCLUSIVE: "",
        # pyslurm cannot read these; what they say of types the node's GPUs say too, or nothing agrees
        "tres-per-job": "",
        "tres-per-node": "",
        "tres-per-task": "",
        "tres-per-socket": _per_socket(job),
    }


def _label(job: Any) -> str:
    """`7`, `7_2`, `7_[2-3%2]` or `11+1`, as squeue has it."""
    if job.array_tasks_waiting:
        at_once = f"%{job.array_tasks_parallel}" if job.array_tasks_parallel else ""
        return f"{job.array_id}_[{job.array_tasks_waiting}{at_once}]"
    if job.array_id:
        return f"{job.array_id}_{job.array_task_id or 0}"  # pyslurm's word for number 0 is None
    if job.heterogeneous_id:
        return f"{job.heterogeneous_id}+{job.heterogeneous_offset or 0}"
    return str(job.id)


def _dependency(told: Mapping[str, Any] | None) -> str:
    """`afterok:12(unfulfilled),afterany:13`. Of a singleton that has not its turn yet pyslurm tells nothing."""
    if not told:
        return ""
    named = [f"{kind}:{job}" for kind, jobs in told.items() if isinstance(jobs, list) for job in jobs]
    return ("?" if told["satisfy"] == "any" else ",").join(named) or "singleton"


def _per_socket(job: Any) -> str:
    """GPUs by socket are asked for with the number of sockets, which is all that pyslurm tells of them."""
    sockets = job.sockets_per_node or 1
    return f"gres/gpu,sockets={sockets}" if sockets > 1 and "gres/gpu" in _tres(job.requested_tres) else ""


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _written(thing: Any, what: str) -> str:
    """What people write as they like: pyslurm raises where that is no UTF-8."""
    try:
        return _text(getattr(thing, what))
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")


def _moment(value: Any) -> str:
    return str(int(value)) if value else "N/A"


def _tres(tres: Any) -> str:
    """CPUs, memory and GRES of pyslurm's TRES, as Slurm writes them."""
    if tres is None:
        return ""
    parts = [f"{name}={one.count}" for name in ("cpu", "mem") if (one := getattr(tres, name, None)) is not None]
    parts += [f"gres/{name}={one.count}" for name, one in (getattr(tres, "gres", None) or {}).items()]
    return ",".join(parts)


def node_of(node: Any) -> Node:
    """A node as `scontrol show nodes` tells it."""
    try:
        total, _ = resources(_gres_text(node.configured_gres or {}))
        allocated, _ = resources(",".join(f"{name}={count}" for name, count in (node.allocated_tres or {}).items()))
        return Node(
            name=node.name,
            states=states_of(str(node.state)),
            total=replace(total, cpus=int(node.effective_cpus or 0), memory_mb=int(node.real_memory or 0)),
            allocated=allocated,
            partitions=tuple(node.partitions or ()),
            features=tuple(node.active_features or ()),
            reason=_reason(node),
        )
    except ValueError as error:
        raise SlurmUnreadable(f"pyslurm told of node {node.name} what is not understood ({error}); {REMEDY}") from error


def _reason(node: Any) -> str:
    """With who said it and when, as scontrol has it."""
    words = " ".join(_written(node, "reason").split())
    return f"{words} [{node.reason_user}@{_moment(node.reason_time)}]" if words and node.reason_time else words


def _gres_text(gres: Mapping[str, Any]) -> str:
    return ",".join(f"gres/{name}={count}" for name, count in gres.items())
