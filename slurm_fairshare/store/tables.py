"""The tables as SQLAlchemy sees them. The migrations in sql/ make them; a test holds both together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    Interval,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

SCHEMA = "fairshare"

metadata = MetaData(schema=SCHEMA)

Kind = TypeEngine[Any] | type[TypeEngine[Any]]


def _must(name: str, kind: Kind) -> Column[Any]:
    return Column(name, kind, nullable=False)


def _may(name: str, kind: Kind) -> Column[Any]:
    return Column(name, kind, nullable=True)


def _moment() -> DateTime:
    return DateTime(timezone=True)


def _words() -> ARRAY[str]:
    return ARRAY(Text())


def _table(name: str, key: str, *items: Column[Any] | ForeignKeyConstraint | Index) -> Table:
    """A table whose primary key is the cluster and the named columns."""
    columns = ("cluster", *key.split())
    return Table(
        name,
        metadata,
        _must("cluster", Text),
        *items,
        PrimaryKeyConstraint(*columns, name=f"{name}_pkey"),
    )


run = _table(
    "run",
    "key",
    _must("key", Text),
    _must("job_id", BigInteger),
    _must("label", Text),
    _must("account", Text),
    _must("account_key", Text),
    _must("user_name", Text),
    _must("uid", BigInteger),
    _must("partition", Text),
    _must("qos", Text),
    _must("state", Text),
    _must("submit_at", _moment()),
    _may("eligible_at", _moment()),
    _may("start_at", _moment()),
    _may("end_at", _moment()),
    _must("gpus", JSONB),
    _must("gpu_count", Integer),
    _must("cpus", Integer),
    _must("memory_mb", BigInteger),
    _must("milli_gpus", BigInteger),
    _must("charged", Boolean),
    _may("min_runtime", BigInteger),
    _may("resumable", Boolean),
    _may("team_priority", Text),
    _may("notice", Text),
    _must("nodes", Text),
    _must("flag", Text),
    _must("recorded_at", _moment()),
    Index(
        "run_ended",
        "cluster",
        "end_at",
        postgresql_include=["start_at", "account_key", "milli_gpus", "charged"],
    ),
    Index("run_open", "cluster", "job_id", postgresql_where=text("end_at is null")),
    Index("run_job", "cluster", "job_id", "start_at"),
    Index("run_started", "cluster", "start_at", postgresql_where=text("charged")),
)

usage_hour = _table(
    "usage_hour",
    "hour account_key",
    _must("hour", _moment()),
    _must("account_key", Text),
    _must("milli", BigInteger),
    _must("held", BigInteger),
)

rejected_row = _table(
    "rejected_row",
    "digest",
    _must("digest", Text),
    _must("source", Text),
    _must("text", Text),
    _must("reason", Text),
    _must("first_at", _moment()),
    Index("rejected_row_first", "cluster", "first_at"),
)

poll = _table(
    "poll",
    "source",
    _must("source", Text),
    _must("since", _moment()),
    _must("until", _moment()),
    _must("at", _moment()),
    _must("runs", Integer),
    _must("rejected", Integer),
)

capacity = _table(
    "capacity",
    "kind at",
    _must("kind", Text),
    _must("at", _moment()),
    _must("installed", Integer),
    _must("down", Integer),
    _must("drained", Integer),
    _may("allocated", Integer),
)

adjustment = _table(
    "adjustment",
    "id",
    _must("id", Text),
    _must("account", Text),
    _must("account_key", Text),
    _must("milli_gpu_seconds", BigInteger),
    _must("at", _moment()),
    _must("author", Text),
    _must("reason", Text),
    _may("expires_at", _moment()),
    Index("adjustment_at", "cluster", "at"),
)

fact = _table(
    "fact",
    "name",
    _must("name", Text),
    _must("value", JSONB),
    _must("at", _moment()),
)

picture = _table("picture", "", _must("at", _moment()))

queue_job = _table(
    "queue_job",
    "job_id label",
    _must("job_id", BigInteger),
    _must("label", Text),
    _must("name", Text),
    _must("account", Text),
    _must("account_key", Text),
    _must("user_name", Text),
    _must("uid", BigInteger),
    _must("partitions", _words()),
    _must("qos", Text),
    _must("state", Text),
    _must("reason", Text),
    _must("priority", BigInteger),
    _must("submit_at", _moment()),
    _may("eligible_at", _moment()),
    _may("start_at", _moment()),
    _may("time_limit", Interval),
    _must("gpus", JSONB),
    _must("gpu_count", Integer),
    _must("cpus", Integer),
    _must("memory_mb", BigInteger),
    _must("node_count", Integer),
    _must("nodes", _words()),
    _must("by_node", JSONB),
    _may("min_runtime", BigInteger),
    _may("resumable", Boolean),
    _may("team_priority", Text),
    _may("notice", Text),
    _must("requeueable", Boolean),
    _must("batch", Boolean),
    _must("array_size", Integer),
    _must("array_limit", Integer),
    _must("het_leader", BigInteger),
    _must("restarts", Integer),
    _must("constraints", _words()),
    _must("holding", Boolean),
    _must("charged", Boolean),
    _must("milli_gpus", BigInteger),
)

slurm_node = _table(
    "slurm_node",
    "name",
    _must("name", Text),
    _must("states", _words()),
    _must("partitions", _words()),
    _must("features", _words()),
    _must("reason", Text),
    _must("gpus", JSONB),
    _must("cpus", Integer),
    _must("memory_mb", BigInteger),
    _must("allocated_gpus", JSONB),
    _must("allocated_cpus", Integer),
    _must("allocated_memory_mb", BigInteger),
)

sighting = _table(
    "sighting",
    "job_id start_at",
    _must("job_id", BigInteger),
    _must("start_at", _moment()),
    _must("last_seen", _moment()),
    _must("label", Text),
    _must("account", Text),
    _must("account_key", Text),
    _must("user_name", Text),
    _must("qos", Text),
    _must("gpus", JSONB),
    _must("gpu_count", Integer),
    _must("milli_gpus", BigInteger),
    _must("charged", Boolean),
)

demand = _table(
    "demand",
    "account_key at",
    _must("account_key", Text),
    _must("at", _moment()),
    _must("gpus", Double),
)

utilisation = _table(
    "utilisation",
    "key",
    _must("key", Text),
    _must("busy", Double),
)

changeset = _table(
    "changeset",
    "id",
    _must("id", BigInteger),
    _must("author", Text),
    _must("reason", Text),
    _must("created_at", _moment()),
    _must("effective_at", _moment()),
    _may("cancels", BigInteger),
    _must("members", Integer),
    Column("made_in", BigInteger, nullable=False, server_default="0"),
    ForeignKeyConstraint(
        ["cluster", "cancels"],
        ["fairshare.changeset.cluster", "fairshare.changeset.id"],
        name="changeset_cancels",
    ),
    Index("changeset_cancelled_once", "cluster", "cancels", unique=True, postgresql_where=text("cancels is not null")),
)

changeset_set = _table(
    "changeset_set",
    "changeset_id parent",
    _must("changeset_id", BigInteger),
    _must("parent", Text),
    ForeignKeyConstraint(
        ["cluster", "changeset_id"], [changeset.c.cluster, changeset.c.id], name="changeset_set_changeset"
    ),
)

changeset_share = _table(
    "changeset_share",
    "changeset_id parent name",
    _must("changeset_id", BigInteger),
    _must("parent", Text),
    _must("name", Text),
    _must("position", Integer),
    _must("weight", Double),
    _may("account", Text),
    ForeignKeyConstraint(
        ["cluster", "changeset_id", "parent"],
        [changeset_set.c.cluster, changeset_set.c.changeset_id, changeset_set.c.parent],
        name="changeset_share_set",
    ),
    Index("changeset_share_case", "cluster", "changeset_id", "parent", text("lower(name)"), unique=True),
)

manager = _table(
    "manager",
    "id",
    _must("id", BigInteger),
    _must("path", Text),
    _must("role_name", Text),
    _must("granted", Boolean),
    _must("author", Text),
    _must("reason", Text),
    _must("at", _moment()),
)

tick = _table(
    "tick",
    "at",
    _must("at", _moment()),
    _must("finished_at", _moment()),
    _must("window_start", _moment()),
    _must("window_end", _moment()),
    _may("effective_from", _moment()),
    _must("pushed", Boolean),
    _must("changes", _words()),
    _must("unknown_accounts", _words()),
    _must("unbudgeted_accounts", _words()),
    _must("hourly", Boolean),
    Index("tick_passing", "cluster", "at", postgresql_where=text("not hourly")),
)

standing = _table(
    "standing",
    "at path",
    _must("at", _moment()),
    _must("path", Text),
    _must("position", Integer),
    _must("name", Text),
    _must("weight", Double),
    _must("share", Double),
    _must("entitlement", Double),
    _must("usage", Double),
    _may("account", Text),
    _may("account_key", Text),
    _may("rank", Integer),
    _may("label", BigInteger),
    ForeignKeyConstraint(["cluster", "at"], [tick.c.cluster, tick.c.at], name="standing_tick", ondelete="CASCADE"),
)

failure = _table(
    "failure",
    "at phase",
    _must("at", _moment()),
    _must("phase", Text),
    _must("error", Text),
)


def _side(name: str, make: Callable[[str, Kind], Column[Any]]) -> list[Column[Any]]:
    kinds: list[tuple[str, Kind]] = [
        ("job_id", BigInteger),
        ("label", Text),
        ("user", Text),
        ("account", Text),
        ("leaf", Text),
        ("node", Text),
        ("ratio", Double),
        ("gpus", Integer),
    ]
    return [make(f"{name}_{part}", kind) for part, kind in kinds]


decision = _table(
    "decision",
    "id",
    _must("id", Text),
    _must("at", _moment()),
    _must("rule", Text),
    *_side("victim", _must),
    _must("started_at", _moment()),
    _must("min_runtime", BigInteger),
    _must("over_minimum", BigInteger),
    _must("resumable", Boolean),
    _must("requeue", Boolean),
    *_side("preemptor", _may),
    _must("hysteresis", Double),
    _must("nodes", _words()),
    _may("notice", Text),
    _must("dry_run", Boolean),
    _must("outcome", Text),
    _must("changed_at", _moment()),
    _must("detail", Text),
    _must("lost", BigInteger),
    _must("lost_since", Text),
    Index("decision_at", "cluster", "at"),
    Index("decision_victim", "cluster", "victim_job_id"),
    Index("decision_preemptor", "cluster", "preemptor_job_id"),
)

decision_outcome = _table(
    "decision_outcome",
    "decision_id at outcome",
    _must("decision_id", Text),
    _must("at", _moment()),
    _must("outcome", Text),
    _must("detail", Text),
    ForeignKeyConstraint(
        ["cluster", "decision_id"],
        [decision.c.cluster, decision.c.id],
        name="decision_outcome_decision",
    ),
)
