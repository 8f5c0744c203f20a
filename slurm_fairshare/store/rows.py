"""Values of the core as rows of the tables, and back. Nothing is lost either way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Table

from slurm_fairshare.core.cluster import Job, Node
from slurm_fairshare.core.contract import Contract, Priority
from slurm_fairshare.core.decisions import Decision, Outcome, Recorded, Rule, Side
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.runs import RejectedRow, Run
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.store import tables
from slurm_fairshare.store.spelling import clean, line, spell, spell_text

Row = tuple[Any, ...]
"""Values to write, in the order of the table's columns."""
Read = Mapping[str, Any]
"""A row as it is read: values by column name."""


def columns(table: Table) -> tuple[str, ...]:
    """The names of a table's columns, in the order in which a row of it is written."""
    return tuple(column.name for column in table.columns)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


def _sure(at: datetime) -> datetime:
    return at.astimezone(UTC)


# --- parts ----------------------------------------------------------------------------------------


def gpus_json(gpus: Mapping[str, int]) -> str:
    return _gpus_json(tuple(sorted(gpus.items())))


@lru_cache(maxsize=4096)
def _gpus_json(items: tuple[tuple[str, int], ...]) -> str:
    return json.dumps({clean(kind): count for kind, count in items})


def _resources(row: Read, prefix: str = "") -> Resources:
    return Resources(dict(row[f"{prefix}gpus"]), row[f"{prefix}cpus"], row[f"{prefix}memory_mb"])


def _contract_row(contract: Contract | None) -> Row:
    if contract is None:
        return (None, None, None, None)
    return (contract.min_runtime, contract.resumable, contract.priority.value, contract.notice)


def _contract(min_runtime: int | None, resumable: bool, priority: str, notice: str | None) -> Contract | None:
    return None if min_runtime is None else Contract(min_runtime, resumable, Priority(priority), notice)


# --- runs -----------------------------------------------------------------------------------------

RUN = columns(tables.run)


def run_lines(runs: Collection[Run], recorded: datetime) -> Iterator[str]:
    """The runs as lines for COPY. A day's runs have few accounts, users and moments: each is spelt once.

    So are what a run held and its contract, which runs read together share as objects.
    """
    word, account, moment = cache(spell_text), cache(_account_text), cache(spell)
    shared: dict[int, str] = {}
    end = f"{spell(recorded)}\n"
    for run in runs:
        held, contract = id(run.held), id(run.contract)
        yield (
            f"{word(run.cluster)}\t{spell_text(run.key)}\t{run.job_id}\t{spell_text(run.label)}\t"
            f"{account(run.account)}\t{word(run.user)}\t{run.uid}\t{word(run.partition)}\t{word(run.qos)}\t"
            f"{word(run.state)}\t{moment(run.submit)}\t{moment(run.eligible)}\t{moment(run.start)}\t"
            f"{moment(run.end)}\t{shared.get(held) or shared.setdefault(held, _held_text(run.held))}\t"
            f"{run.milli_gpus}\t{'t' if run.charged else 'f'}\t"
            f"{shared.get(contract) or shared.setdefault(contract, _contract_text(run.contract))}\t"
            f"{word(run.nodes)}\t{word(run.flag)}\t{end}"
        )


def _account_text(account: str) -> str:
    spelt = spell_text(account)
    return f"{spelt}\t{account_key(spelt)}"


def _held_text(held: Resources) -> str:
    return f"{spell_text(gpus_json(held.gpus))}\t{held.gpu_count}\t{held.cpus}\t{held.memory_mb}"


def _contract_text(contract: Contract | None) -> str:
    return "\t".join(map(spell, _contract_row(contract)))


RUN_READ = """
    cluster, key, job_id, label, account, user_name, uid, partition, qos, state,
    submit_at, eligible_at, start_at, end_at, cast(gpus as text), cpus, memory_mb, milli_gpus, charged,
    min_runtime, resumable, team_priority, notice, nodes, flag
"""
"""What `read_runs` reads."""


def read_runs(found: Iterable[Sequence[Any]]) -> Iterator[Run]:
    """The runs from rows of RUN_READ. What they held and their contracts are few: runs share them as objects."""
    resources = cache(lambda gpus, cpus, memory_mb: Resources(json.loads(gpus), cpus, memory_mb))
    contract = cache(_contract)
    for row in found:
        cluster, key, job_id, label, account, user, uid, partition, qos, state = row[:10]
        submit, eligible, start, end, gpus, cpus, memory_mb, milli_gpus, charged = row[10:19]
        minimum, resumable, priority, notice, nodes, flag = row[19:]
        yield Run(
            cluster,
            key,
            job_id,
            label,
            account,
            user,
            uid,
            partition,
            qos,
            state,
            _sure(submit),
            _utc(eligible),
            _utc(start),
            _utc(end),
            resources(gpus, cpus, memory_mb),
            milli_gpus,
            charged,
            contract(minimum, resumable, priority, notice),
            nodes,
            flag,
        )


REJECTED = columns(tables.rejected_row)


def rejected_line(cluster: str, row: RejectedRow, first: datetime) -> str:
    digest = hashlib.sha256(f"{clean(row.source)}\0{clean(row.text)}".encode()).hexdigest()
    return line((cluster, digest, row.source, row.text, row.reason, first))


# --- the picture ----------------------------------------------------------------------------------

JOB = columns(tables.queue_job)


def job_line(cluster: str, job: Job, charged: bool, milli_gpus: int) -> str:
    values = (
        cluster,
        job.job_id,
        job.label,
        job.name,
        job.account,
        account_key(job.account),
        job.user,
        job.uid,
        job.partitions,
        job.qos,
        job.state,
        job.reason,
        job.priority,
        job.submit,
        job.eligible,
        job.start,
        job.time_limit,
        gpus_json(job.wanted.gpus),
        job.wanted.gpu_count,
        job.wanted.cpus,
        job.wanted.memory_mb,
        job.node_count,
        job.nodes,
        _by_node_json(job.by_node),
        *_contract_row(job.contract),
        job.requeueable,
        job.batch,
        job.array_size,
        job.array_limit,
        job.het_leader,
        job.restarts,
        job.constraints,
        job.holding,
        charged,
        milli_gpus,
    )
    return line(values)


def _by_node_json(by_node: Mapping[str, Resources]) -> str:
    return json.dumps(
        {
            clean(name): {"gpus": dict(part.gpus), "cpus": part.cpus, "memory_mb": part.memory_mb}
            for name, part in sorted(by_node.items())
        }
    )


def read_job(row: Read) -> Job:
    return Job(
        job_id=row["job_id"],
        label=row["label"],
        account=row["account"],
        user=row["user_name"],
        uid=row["uid"],
        partitions=tuple(row["partitions"]),
        qos=row["qos"],
        state=row["state"],
        reason=row["reason"],
        priority=row["priority"],
        submit=_sure(row["submit_at"]),
        eligible=_utc(row["eligible_at"]),
        start=_utc(row["start_at"]),
        time_limit=row["time_limit"],
        wanted=_resources(row),
        node_count=row["node_count"],
        nodes=tuple(row["nodes"]),
        by_node={name: _resources(part) for name, part in row["by_node"].items()},
        contract=_contract(row["min_runtime"], row["resumable"], row["team_priority"], row["notice"]),
        requeueable=row["requeueable"],
        batch=row["batch"],
        array_size=row["array_size"],
        array_limit=row["array_limit"],
        het_leader=row["het_leader"],
        restarts=row["restarts"],
        name=row["name"],
        constraints=tuple(row["constraints"]),
    )


NODE = columns(tables.slurm_node)


def node_line(cluster: str, node: Node) -> str:
    values = (
        cluster,
        node.name,
        tuple(sorted(node.states)),
        node.partitions,
        node.features,
        node.reason,
        gpus_json(node.total.gpus),
        node.total.cpus,
        node.total.memory_mb,
        gpus_json(node.allocated.gpus),
        node.allocated.cpus,
        node.allocated.memory_mb,
    )
    return line(values)


def read_node(row: Read) -> Node:
    return Node(
        name=row["name"],
        states=frozenset(row["states"]),
        total=_resources(row),
        allocated=_resources(row, "allocated_"),
        partitions=tuple(row["partitions"]),
        features=tuple(row["features"]),
        reason=row["reason"],
    )


# --- decisions ------------------------------------------------------------------------------------


def _words(words: Sequence[str]) -> list[str]:
    return [clean(word) for word in words]


def _side_row(name: str, side: Side | None) -> dict[str, Any]:
    if side is None:
        return {}
    return {
        f"{name}_job_id": side.job_id,
        f"{name}_label": clean(side.label),
        f"{name}_user": clean(side.user),
        f"{name}_account": clean(side.account),
        f"{name}_leaf": clean(side.leaf),
        f"{name}_node": clean(side.node),
        f"{name}_ratio": side.ratio,
        f"{name}_gpus": side.gpus,
    }


def _side(name: str, row: Read) -> Side:
    parts = ("job_id", "label", "user", "account", "leaf", "node", "ratio", "gpus")
    return Side(**{part: row[f"{name}_{part}"] for part in parts})


def decision_row(cluster: str, decision: Decision) -> dict[str, Any]:
    """A new decision: nothing done about it yet."""
    return {
        "cluster": cluster,
        "id": decision.id,
        "at": decision.at,
        "rule": decision.rule.value,
        **_side_row("victim", decision.victim),
        "started_at": decision.started,
        "min_runtime": decision.min_runtime,
        "over_minimum": decision.over_minimum,
        "resumable": decision.resumable,
        "requeue": decision.requeue,
        **_side_row("preemptor", decision.preemptor),
        "hysteresis": decision.hysteresis,
        "nodes": _words(decision.nodes),
        "notice": decision.notice,
        "dry_run": decision.dry_run,
        "outcome": Outcome.DECIDED.value,
        "changed_at": decision.at,
        "detail": "",
        "lost": decision.lost,
        "lost_since": decision.lost_since,
    }


def read_recorded(row: Read) -> Recorded:
    decision = Decision(
        id=row["id"],
        at=_sure(row["at"]),
        rule=Rule(row["rule"]),
        victim=_side("victim", row),
        started=_sure(row["started_at"]),
        min_runtime=row["min_runtime"],
        over_minimum=row["over_minimum"],
        resumable=row["resumable"],
        requeue=row["requeue"],
        preemptor=None if row["preemptor_job_id"] is None else _side("preemptor", row),
        hysteresis=row["hysteresis"],
        nodes=tuple(row["nodes"]),
        notice=row["notice"],
        dry_run=row["dry_run"],
        lost=row["lost"],
        lost_since=row["lost_since"],
    )
    return Recorded(decision, Outcome(row["outcome"]), _sure(row["changed_at"]), row["detail"])
