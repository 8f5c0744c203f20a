"""The queue, from squeue.

Columns come without a width, so nothing is cut off, with separators that hold a number drawn for each call:
a job's name may hold any character, and nobody can write a name that looks like the next column or job.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ClusterShell.NodeSet import NodeSet, NodeSetException

from slurm_fairshare.core.cluster import COMPLETING, PENDING, RUNNING, Job, Node
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.resources import UNTYPED, Resources
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.errors import SlurmUnreadable
from slurm_fairshare.slurm.jobid import read_label
from slurm_fairshare.slurm.pin import contract_of
from slurm_fairshare.slurm.times import limit, moment, needed
from slurm_fairshare.slurm.tres import NOTHING, resources

COLUMNS = (
    "JobID",
    "JobArrayID",
    "Account",
    "UserName",
    "UserID",
    "Partition",
    "QOS",
    "State",
    "Reason",
    "PriorityLong",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "TimeLimit",
    "tres-alloc",
    "NumNodes",
    "NodeList",
    "admin_comment",
    "Requeue",
    "BatchFlag",
    "HetJobId",
    "RestartCnt",
    "Dependency",
    "Feature",
    "Licenses",
    "ReqNodes",
    "OverSubscribe",
    "Contiguous",
    "ReqSwitch",
    "Reservation",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "Name",
)
EXCLUDED = "ExcNodes"
"""A column since 23.02; 22.05 tells it in another format only."""
EXCLUSIVE = "Exclusive"
"""A column of its own since 26.05; before, OverSubscribe=NO says it."""

_TYPED_GPU = re.compile(r"gres[/:]gpu:([^:=,\s]*[^:=,\s\d][^:=,\s]*)")


@dataclass(frozen=True, slots=True)
class Table:
    """Which columns are asked for, and what stands between them and behind each job."""

    columns: tuple[str, ...]
    between: str
    behind: str

    @classmethod
    def fresh(cls, release: tuple[int, int]) -> Table:
        number = secrets.token_hex(6)
        extra = [EXCLUDED] if release >= (23, 2) else []
        extra += [EXCLUSIVE] if release >= (26, 5) else []
        return cls((*COLUMNS[:-1], *extra, COLUMNS[-1]), f"\x1f{number}\x1f", f"\x1e{number}\x1e")

    @property
    def format(self) -> str:
        """The argument of `squeue -O`: a name, a colon, no width, and the text that follows the value."""
        last = len(self.columns) - 1
        return ",".join(
            f"{name}:{self.behind if place == last else self.between}" for place, name in enumerate(self.columns)
        )

    def rows(self, text: str) -> list[str]:
        """Raises SlurmUnreadable where text stands behind the last row: then the answer was cut off."""
        *rows, rest = text.split(self.behind)
        if rest.strip():
            raise SlurmUnreadable(f'squeue printed something that is not understood: "{rest.strip()[:300]}"')
        return [row.removeprefix("\n") for row in rows]


def release_of(version: str) -> tuple[int, int]:
    """
    >>> release_of("slurm-wlm 22.05.8"), release_of("slurm 26.05.5-1")
    ((22, 5), (26, 5))
    """
    match = re.search(r"\b(\d+)\.(\d+)\.", version)
    if match is None:
        raise SlurmUnreadable(f'squeue --version printed "{version.strip()[:100]}", which names no release')
    return int(match.group(1)), int(match.group(2))


def parse_jobs(
    text: str, table: Table, ladder: Ladder, excluded: Mapping[int, str] | None = None
) -> tuple[tuple[Job, ...], tuple[RejectedRow, ...]]:
    """All jobs, and the rows that could not be read. Raises SlurmUnreadable if that is every row.

    A job whose contract is damaged is kept, protected as its rung says, and shown among the rejected.
    """
    jobs: list[Job] = []
    rejected: list[RejectedRow] = []
    rows = table.rows(text)
    for row in rows:
        values = row.split(table.between)
        try:
            if len(values) != len(table.columns):
                raise ValueError(f"{len(values)} columns where {len(table.columns)} were asked for")
            job, odd = _job(dict(zip(table.columns, values, strict=True)), ladder, excluded or {})
        except (ValueError, OverflowError, OSError, NodeSetException) as error:
            rejected.append(RejectedRow("squeue", row.replace(table.between, "|"), str(error)))
            continue
        jobs.append(job)
        if odd:
            rejected.append(RejectedRow("squeue", row.replace(table.between, "|"), odd))
    if rows and not jobs:
        raise SlurmUnreadable(f'no job in squeue\'s answer can be read ({rejected[0].reason}): "{rows[0][:300]}"')
    return tuple(jobs), tuple(rejected)


def jobs_from(
    rows: Iterable[Mapping[str, str]], ladder: Ladder, source: str
) -> tuple[tuple[Job, ...], tuple[RejectedRow, ...]]:
    """The same from columns that somebody else than squeue told."""
    jobs: list[Job] = []
    rejected: list[RejectedRow] = []
    for values in rows:
        try:
            job, odd = _job(values, ladder, {})
        except (ValueError, OverflowError, OSError, NodeSetException) as error:
            rejected.append(RejectedRow(source, "|".join(values.values()), str(error)))
            continue
        jobs.append(job)
        if odd:
            rejected.append(RejectedRow(source, "|".join(values.values()), odd))
    return tuple(jobs), tuple(rejected)


def _job(values: Mapping[str, str], ladder: Ladder, excluded: Mapping[int, str]) -> tuple[Job, str]:
    job_id = int(values["JobID"])
    label = read_label(values["JobArrayID"])
    state = RUNNING if values["State"] == "RESIZING" else values["State"]
    wanted, odd_gpus = resources(values["tres-alloc"])
    contract, odd_pin = contract_of(values["admin_comment"], values["QOS"], ladder)
    nodes = node_names(values["NodeList"])
    pending = state == PENDING
    start = None if pending else moment(values["StartTime"])  # of a pending job: backfill's guess
    if start is None and not pending and state in {RUNNING, "SUSPENDED"}:
        raise ValueError(f'StartTime of a {state} job is "{values["StartTime"]}"')
    job = Job(
        job_id=job_id,
        label=values["JobArrayID"],
        account=_said(values["Account"]),
        user=values["UserName"],
        uid=int(values["UserID"]),
        partitions=tuple(part for part in values["Partition"].split(",") if part),
        qos=_said(values["QOS"]),
        state=state,
        reason=_own_reason(_said(values["Reason"]), values["JobArrayID"]),
        priority=int(values["PriorityLong"]),
        submit=needed(values["SubmitTime"], "SubmitTime"),
        eligible=moment(values["EligibleTime"]),
        start=start,
        time_limit=limit(values["TimeLimit"]),
        wanted=wanted,
        node_count=int(values["NumNodes"]),
        nodes=nodes,
        by_node={} if pending else evenly(wanted, nodes),
        contract=contract,
        requeueable=values["Requeue"] == "1",
        batch=values["BatchFlag"] != "0",
        array_size=label.waiting,
        array_limit=label.at_once,
        het_leader=int(values["HetJobId"]) if values["HetJobId"].isdigit() else 0,
        restarts=int(values["RestartCnt"]),
        name=values["Name"],
        constraints=_constraints(values, wanted, values.get(EXCLUDED) or excluded.get(job_id, "")),
    )
    return job, "; ".join(odd for odd in (odd_gpus, odd_pin) if odd)


def _said(text: str) -> str:
    return "" if text in NOTHING else text


_FOLDED = re.compile(r"[A-Za-z]+(?:,[A-Za-z]+)+")


def _own_reason(reason: str, label: str) -> str:
    """squeue folds an array's requeued tasks back into its waiting line, and strings their reasons together.

    The first is the line's own, of the tasks that never ran. (The fold also loses `%2`, the limit on tasks at
    once. It is display only: asked for by its number, a folded task is itself.)

    >>> _own_reason("Resources,BeginTime", "7_[1,4]"), _own_reason("ReqNodeNotAvail, UnavailableNodes:n1", "7")
    ('Resources', 'ReqNodeNotAvail, UnavailableNodes:n1')
    """
    folded = "[" in label and _FOLDED.fullmatch(reason)
    return reason.split(",")[0] if folded else reason


def node_names(text: str) -> tuple[str, ...]:
    """
    >>> node_names("n[1-2],gpu-a03"), node_names("")
    (('gpu-a03', 'n1', 'n2'), ())
    """
    return tuple(sorted(NodeSet(text))) if _said(text) else ()


def evenly(held: Resources, nodes: Sequence[str]) -> dict[str, Resources]:
    """What a job holds on each node where that can be said: all on one node, or the same on each of several.

    squeue knows only the sum. GPUs that do not divide by the nodes lie unevenly, so nothing is said then. Where
    they do divide it may still be uneven (`--gpus=4` over two nodes as 3 + 1): `doubtful` checks that
    against the nodes.
    """
    count = len(nodes)
    if count == 0 or any(number % count for number in held.gpus.values()):
        return {}
    share = Resources(
        {kind: number // count for kind, number in held.gpus.items()},
        held.cpus // count,
        held.memory_mb // count,
    )
    return dict.fromkeys(nodes, share)


_CONSTRAINTS = (
    ("dependency", "Dependency"),
    ("features", "Feature"),
    ("licenses", "Licenses"),
    ("reservation", "Reservation"),
    ("required_nodes", "ReqNodes"),
    ("tres_per_socket", "tres-per-socket"),
)


def _constraints(values: Mapping[str, str], wanted: Resources, excluded: str) -> tuple[str, ...]:
    found = [f"{word}={values[column]}" for word, column in _CONSTRAINTS if _said(values[column])]
    if _said(excluded):
        found.append(f"excluded_nodes={excluded}")
    found += _sharing(values.get(EXCLUSIVE, ""), values["OverSubscribe"])
    if values["Contiguous"] not in {"0", ""}:
        found.append("contiguous")
    if values["ReqSwitch"] not in {"0", ""}:
        found.append(f"switches={values['ReqSwitch']}")
    return (*found, *_untracked_types(values, wanted))


def _sharing(exclusive: str, oversubscribe: str) -> list[str]:
    """26.05 has a word for it (NODE, USER, MCS, TOPO); before, OverSubscribe is NO for a whole node."""
    word = exclusive or {"NO": "NODE", "USER": "USER", "MCS": "MCS", "TOPO": "TOPO"}.get(oversubscribe, "NO")
    return [] if word == "NO" else [f"exclusive={word.lower()}"]


def _untracked_types(values: Mapping[str, str], wanted: Resources) -> list[str]:
    """GPU types the job asks for by name that the TRES do not show, since accounting does not track them."""
    if not wanted.gpus.get(UNTYPED):
        return []
    asked = ",".join(values[f"tres-per-{what}"] for what in ("job", "node", "socket", "task"))
    return [f"gpu_type={kind}" for kind in sorted(set(_TYPED_GPU.findall(asked))) if kind not in wanted.gpus]


_ON_NODES = re.compile(r"\sNodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")
_GRES = re.compile(r"gpu(?::([^:(,]+))??:(\d+)(?:\(([^)]*)\))?")


def detail_by_node(text: str, job: Job) -> dict[str, Resources]:
    """What `scontrol -d -o show job` says the job holds on each node; empty unless it agrees with the job.

    The text also holds words of the job's owner, so it is believed only where the nodes are the job's nodes
    and the GPUs add up to what squeue said.
    """
    found: dict[str, Resources] = {}
    for match in _ON_NODES.finditer(text):
        hosts, cpus, memory, gres = match.groups()
        gpus: dict[str, int] = {}
        for kind, number, _ in _GRES.findall(gres):
            gpus[kind] = gpus.get(kind, 0) + int(number)
        share = Resources(_as_in(job.wanted, gpus), _cpu_ids(cpus), int(memory))
        found.update(dict.fromkeys(node_names(hosts), share))
    total = sum(share.gpu_count for share in found.values())
    return found if set(found) == set(job.nodes) and total == job.wanted.gpu_count else {}


def _as_in(wanted: Resources, gpus: Mapping[str, int]) -> dict[str, int]:
    """Types as the TRES name them: a type accounting does not track is untyped there."""
    found: dict[str, int] = {}
    for kind, number in gpus.items():
        known = kind if kind in wanted.gpus else UNTYPED
        found[known] = found.get(known, 0) + number
    return found


def _cpu_ids(text: str) -> int:
    """
    >>> _cpu_ids("0-3,8"), _cpu_ids("")
    (5, 0)
    """
    parts = [part.split("-") for part in text.split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


def holds(job: Job) -> bool:
    """Whether what it holds on its nodes is there to be known."""
    return job.holding and bool(job.nodes) and job.wanted.gpu_count > 0 and job.state != COMPLETING


def doubtful(jobs: Sequence[Job], nodes: Sequence[Node]) -> tuple[Job, ...]:
    """Jobs on several nodes of which dividing evenly may be wrong: it does not come out, or not on their nodes.

    On each node what the jobs hold must add up to what the node says is allocated. Whole nodes are certain.
    """
    known = {node.name: node for node in nodes}
    sums: dict[str, int] = {}
    for job in jobs:
        for name, share in job.by_node.items():
            sums[name] = sums.get(name, 0) + share.gpu_count
    wrong = {name for name, node in known.items() if sums.get(name, 0) != node.allocated.gpu_count}

    def certain(job: Job) -> bool:
        return bool(job.by_node) and all(
            name not in wrong or (name in known and share.gpu_count == known[name].total.gpu_count)
            for name, share in job.by_node.items()
        )

    return tuple(job for job in jobs if len(job.nodes) > 1 and holds(job) and not certain(job))
