"""The ledger in Postgres: runs, the newest picture, capacity, and what it all adds up to."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, text

from slurm_fairshare.core.capacity import PastStep
from slurm_fairshare.core.cluster import Capacity, Job, Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.demand import demand
from slurm_fairshare.core.records import Batch, newest
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.runs import RejectedRow, Run
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Step, Weight, Window
from slurm_fairshare.errors import StoreError
from slurm_fairshare.store import demand as demands
from slurm_fairshare.store import rollup, rows, tables
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.facts import Adjustment, Rejected
from slurm_fairshare.store.merge import remove_others, stage, upsert
from slurm_fairshare.store.spelling import clean
from slurm_fairshare.store.weighing import Charges, adjust, by_user, capacity_steps, parts, weigh

PRICES = "prices"
"""The name under which is kept by which rule the ledger's runs are charged."""

ACCOUNTING = "sacct"
"""The name of the watermark of what is read from slurmdbd."""


def charged_whole(jobs: Picture) -> Resources:
    """All the cluster has, for a rule that charges fractions of it."""
    whole = Resources()
    for node in jobs.nodes:
        whole = whole.plus(node.total)
    return whole


class LedgerStore:
    """The Ledger half of the store. `rule` and `ladder` value what the picture shows before accounting does."""

    def __init__(self, database: Database, cluster: str, rule: ChargeRule, ladder: Ladder) -> None:
        self.database, self.cluster, self.rule, self.ladder = database, cluster, rule, ladder

    # --- runs -------------------------------------------------------------------------------------

    def record_runs(self, batch: Batch, now: datetime) -> None:
        """Upsert by key in one transaction. A batch read earlier never overwrites what was read later.

        The watermark goes first: its row is the lock at which two writers queue up.
        """
        self._refuse_other_clusters(batch)
        with self.database.transaction() as connection:
            self._move_watermark(connection, batch, now)
            self._upsert_runs(connection, newest(batch.runs), now)
            self._keep_rejected(connection, batch.rejected, now)

    def _refuse_other_clusters(self, batch: Batch) -> None:
        others = sorted({run.cluster for run in batch.runs} - {self.cluster})
        if others:
            raise StoreError(
                f"accounting gave runs of cluster {', '.join(others)}, but this ledger is for {self.cluster}: "
                "set `cluster` to Slurm's ClusterName as sacct prints it"
            )

    def _upsert_runs(self, connection: Connection, runs: Collection[Run], now: datetime) -> None:
        if not runs:
            return
        connection.execute(text("set local work_mem = '64MB'"))  # a day's runs are sorted in memory
        staged = stage(connection, tables.run, rows.RUN, rows.run_lines(runs, now))
        read_later = "old.recorded_at <= new.recorded_at"
        upsert(connection, tables.run, rows.RUN, staged, ignored=("recorded_at",), guard=read_later)

    def _keep_rejected(self, connection: Connection, rejected: Sequence[RejectedRow], now: datetime) -> None:
        if not rejected:
            return
        made = (rows.rejected_line(self.cluster, row, now) for row in rejected)
        staged = stage(connection, tables.rejected_row, rows.REJECTED, made)
        connection.execute(
            text(
                f"insert into fairshare.rejected_row select distinct on (digest) * from {staged} "  # noqa: S608
                "order by digest, ctid on conflict do nothing"
            )
        )

    def _move_watermark(self, connection: Connection, batch: Batch, now: datetime) -> None:
        """Widen the stretch that was read; a batch that leaves a gap to it does not count as reading on."""
        connection.execute(
            text(
                "insert into fairshare.poll as old values "
                "(:cluster, :source, :start, :end, :now, :runs, :rejected) "
                "on conflict (cluster, source) do update set "
                "since = case when :end >= old.since then least(old.since, :start) else old.since end, "
                "until = case when :start <= old.until then greatest(old.until, :end) else old.until end, "
                "at = greatest(old.at, :now), runs = :runs, rejected = :rejected"
            ),
            {
                "cluster": self.cluster,
                "source": ACCOUNTING,
                "start": batch.window.start,
                "end": batch.window.end,
                "now": now,
                "runs": len(batch.runs),
                "rejected": len(batch.rejected),
            },
        )

    def watermark(self) -> datetime | None:
        found = self._one("select until from fairshare.poll where cluster = :cluster and source = :s", s=ACCOUNTING)
        return None if found is None else found["until"].astimezone(UTC)

    def newest_end(self) -> datetime | None:
        """The newest end of all the runs; None where none has ended."""
        found = self._one("select max(end_at) as at from fairshare.run where cluster = :cluster")
        return None if found is None or found["at"] is None else found["at"].astimezone(UTC)

    def runs(self, window: Window, state: str | None = None) -> tuple[Run, ...]:
        """The runs that overlap the window, by start, all or those in a state; what never started is left out."""
        return self._runs(
            "start_at < :end and (end_at is null or end_at > :start) "
            "and (cast(:state as text) is null or state = :state) order by start_at, key",
            start=window.start,
            end=window.end,
            state=state,
        )

    def runs_of(self, job_id: int) -> tuple[Run, ...]:
        """Every attempt of a job, oldest first."""
        return self._runs("job_id = :job_id order by submit_at, start_at nulls last, key", job_id=job_id)

    def _runs(self, condition: str, **parameters: Any) -> tuple[Run, ...]:
        sql = f"select {rows.RUN_READ} from fairshare.run where cluster = :cluster and {condition}"  # noqa: S608
        with self.database.transaction() as connection:
            return tuple(rows.read_runs(connection.execute(text(sql), {"cluster": self.cluster, **parameters})))

    def rejected(self, since: datetime) -> tuple[Rejected, ...]:
        """Rows that could not be read and were met first since then, oldest first."""
        found = self._all(
            "select * from fairshare.rejected_row where cluster = :cluster and first_at >= :since "
            "order by first_at, digest",
            since=since,
        )
        return tuple(
            Rejected(RejectedRow(row["source"], row["text"], row["reason"]), row["first_at"].astimezone(UTC))
            for row in found
        )

    # --- the picture ------------------------------------------------------------------------------

    def record_picture(self, picture: Picture, capacity: Sequence[Capacity]) -> None:
        """Replace the picture in one transaction. One older than what is there changes nothing of the queue."""
        with self.database.transaction() as connection:
            for one in capacity:
                self._capacity_step(connection, one, picture.at)
            self._retire_kinds(connection, {one.kind for one in capacity}, picture.at)
            if self._claim_picture(connection, picture.at):
                demands.record(connection, self.cluster, picture.at, demand(picture, self.ladder, self.rule))
                self._replace_queue(connection, picture)
                self._reprice(connection, picture)

    def _reprice(self, connection: Connection, picture: Picture) -> None:
        """Charge every run of the ledger by the rule and the cluster of today, when either has changed.

        So usage and entitlement are always in the same GPUs, and the same ledger gives the same ranking whenever its
        rows were read.
        """
        prices = self.rule.spelt(picture.whole)
        before = connection.execute(
            text("select value from fairshare.fact where cluster = :cluster and name = :name"),
            {"cluster": self.cluster, "name": PRICES},
        ).scalar()
        if before == prices or (self.rule.dominant and not picture.nodes):
            return
        held = connection.execute(
            text("select distinct gpus, cpus, memory_mb from fairshare.run where cluster = :cluster"),
            {"cluster": self.cluster},
        ).all()
        milli = [self.rule.milli_gpus(Resources(row.gpus, row.cpus, row.memory_mb), picture.whole) for row in held]
        connection.execute(
            text(_REPRICE),
            {
                "cluster": self.cluster,
                "gpus": [rows.gpus_json(row.gpus) for row in held],
                "cpus": [row.cpus for row in held],
                "memory_mb": [row.memory_mb for row in held],
                "milli": milli,
            },
        )
        self._keep(connection, PRICES, prices, picture.at)

    def _claim_picture(self, connection: Connection, at: datetime) -> bool:
        """Lock the picture's row, so that two writers queue up; false if it is newer than ours."""
        key = {"cluster": self.cluster, "at": at}
        connection.execute(text("insert into fairshare.picture values (:cluster, :at) on conflict do nothing"), key)
        locked = text("select at from fairshare.picture where cluster = :cluster for update")
        return bool(connection.execute(locked, key).scalar_one() <= at)

    def _replace_queue(self, connection: Connection, picture: Picture) -> None:
        whole = charged_whole(picture)
        jobs = {(job.job_id, job.label): self._job_line(job, whole) for job in picture.jobs}
        staged_jobs = stage(connection, tables.queue_job, rows.JOB, jobs.values())
        key = {"cluster": self.cluster, "at": picture.at}
        connection.execute(text(_SIGHT_DEPARTED), key)
        connection.execute(text(_FORGET_SETTLED), key)
        remove_others(connection, tables.queue_job, staged_jobs, self.cluster)
        upsert(connection, tables.queue_job, rows.JOB, staged_jobs)
        nodes = {node.name: rows.node_line(self.cluster, node) for node in picture.nodes}
        staged_nodes = stage(connection, tables.slurm_node, rows.NODE, nodes.values())
        remove_others(connection, tables.slurm_node, staged_nodes, self.cluster)
        upsert(connection, tables.slurm_node, rows.NODE, staged_nodes)
        connection.execute(text("update fairshare.picture set at = :at where cluster = :cluster and at <> :at"), key)

    def _job_line(self, job: Job, whole: Resources) -> str:
        charged = self.ladder.is_charged(job.qos)
        return rows.job_line(self.cluster, job, charged, self.rule.milli_gpus(job.wanted, whole))

    def latest_queue(self) -> Picture | None:
        """The newest picture, jobs by number and nodes by name; None before the first."""
        with self.database.transaction() as connection:
            key = {"cluster": self.cluster}
            at = connection.execute(text("select at from fairshare.picture where cluster = :cluster"), key).scalar()
            if at is None:
                return None
            jobs = connection.execute(
                text("select * from fairshare.queue_job where cluster = :cluster order by job_id, label"), key
            ).mappings()
            nodes = connection.execute(
                text("select * from fairshare.slurm_node where cluster = :cluster order by name"), key
            ).mappings()
            return Picture(
                cluster=self.cluster,
                at=at.astimezone(UTC),
                jobs=tuple(rows.read_job(dict(row)) for row in jobs),
                nodes=tuple(rows.read_node(dict(row)) for row in nodes),
            )

    # --- capacity ---------------------------------------------------------------------------------

    def _capacity_step(self, connection: Connection, one: Capacity, at: datetime) -> None:
        """A new row only where it differs from what is in force at that moment."""
        connection.execute(
            text(_CAPACITY_STEP),
            {
                "cluster": self.cluster,
                "kind": clean(one.kind),
                "at": at,
                "installed": one.installed,
                "down": one.down,
                "drained": one.drained,
                "allocated": one.allocated,
            },
        )

    def _retire_kinds(self, connection: Connection, kinds: set[str], at: datetime) -> None:
        """A GPU type that is in the cluster no more has none in service from now on."""
        known = connection.execute(
            text("select distinct kind from fairshare.capacity where cluster = :cluster and at <= :at"),
            {"cluster": self.cluster, "at": at},
        ).scalars()
        for kind in sorted(set(known) - {clean(kind) for kind in kinds}):
            self._capacity_step(connection, Capacity(kind, 0, 0, 0, 0), at)

    def first_capacity(self) -> datetime | None:
        """From when on capacity is known; None before the first picture and without a past."""
        found = self._one("select min(at) as at from fairshare.capacity where cluster = :cluster")
        return found["at"].astimezone(UTC) if found and found["at"] is not None else None

    def record_past(self, steps: Sequence[PastStep]) -> None:
        """Keep capacity from before the first picture, in one transaction: all of it or none."""
        with self.database.transaction() as connection:
            for at, capacity in steps:
                for one in capacity:
                    self._capacity_step(connection, one, at)

    def capacity(self, window: Window) -> tuple[Step, ...]:
        found = self._all(_CAPACITY_ROWS, start=window.start, end=window.end)
        steps = ((row["at"].astimezone(UTC), row["kind"], row["in_service"]) for row in found)
        return capacity_steps(steps, window, self.rule)

    def capacity_history(self, window: Window) -> tuple[tuple[datetime, Capacity], ...]:
        """Every row of the step functions inside the window and those in force at its start, oldest first."""
        found = self._all(_CAPACITY_ROWS, start=window.start, end=window.end)
        return tuple(
            (
                row["at"].astimezone(UTC),
                Capacity(row["kind"], row["installed"], row["down"], row["drained"], row["allocated"]),
            )
            for row in found
        )

    # --- usage ------------------------------------------------------------------------------------

    def usage(self, window: Window, weight: Weight, now: datetime) -> Mapping[str, float]:
        """Charged GPU-seconds by account (lower-case key), weighted, adjustments included."""
        with self.database.transaction() as connection:
            charges = rollup.charges(connection, self.cluster, parts(window, weight), now)
            adjustments = self._adjustments(connection, window)
        return weigh(adjust(charges, adjustments, now), weight, now)

    def usage_by_user(self, window: Window, weight: Weight, now: datetime) -> Mapping[tuple[str, str], float]:
        """Charged GPU-seconds by account (lower-case key) and user, weighted; adjustments are the account's alone."""
        with self.database.transaction() as connection:
            charges = rollup.raw_charges_by_user(connection, self.cluster, parts(window, weight), now)
        return by_user(weigh(charges, weight, now))

    def charges(self, window: Window, now: datetime) -> Charges:
        """What the runs are charged inside the window, by account, in milli-GPU-seconds: exact, not adjusted."""
        with self.database.transaction() as connection:
            return rollup.charges(connection, self.cluster, (window,), now)[0][1]

    def charges_by_hour(self, window: Window, now: datetime) -> tuple[tuple[Window, Charges], ...]:
        """The same hour by hour (of UTC): the parts add up to the whole."""
        with self.database.transaction() as connection:
            return tuple(rollup.charges(connection, self.cluster, window.hours(), now))

    def raw_charges_by_hour(self, window: Window, now: datetime) -> tuple[tuple[Window, Charges], ...]:
        """What `charges_by_hour` tells, summed from each run by itself: to check the roll-ups against."""
        with self.database.transaction() as connection:
            return tuple(rollup.raw_charges(connection, self.cluster, window.hours(), now))

    def rebuild_rollups(self) -> int:
        """Make the hourly roll-ups anew from the runs; says how many hours of accounts there are."""
        with self.database.transaction() as connection:
            return rollup.rebuild(connection, self.cluster)

    def differing_rollups(self) -> int:
        """Hours of accounts whose roll-up is not what the runs say: 0, unless somebody wrote there."""
        with self.database.transaction() as connection:
            return rollup.differing_hours(connection, self.cluster)

    # --- adjustments ------------------------------------------------------------------------------

    def add_adjustment(
        self,
        account: str,
        milli_gpu_seconds: int,
        at: datetime,
        author: str,
        reason: str,
        expires: datetime | None = None,
    ) -> Adjustment:
        """Debit (positive) or credit (negative) an account by hand. It stays; undo it with its opposite."""
        made = Adjustment(
            str(uuid.uuid4()), clean(account), milli_gpu_seconds, at, clean(author), clean(reason), expires
        )
        with self.database.transaction() as connection:
            connection.execute(
                tables.adjustment.insert(),
                {
                    "cluster": self.cluster,
                    "id": made.id,
                    "account": made.account,
                    "account_key": account_key(made.account),
                    "milli_gpu_seconds": milli_gpu_seconds,
                    "at": at,
                    "author": made.author,
                    "reason": made.reason,
                    "expires_at": expires,
                },
            )
        return made

    def adjustments(self, window: Window) -> tuple[Adjustment, ...]:
        """The adjustments made inside the window, expired ones too, oldest first."""
        with self.database.transaction() as connection:
            return self._adjustments(connection, window)

    def _adjustments(self, connection: Connection, window: Window) -> tuple[Adjustment, ...]:
        found = connection.execute(
            text(
                "select * from fairshare.adjustment where cluster = :cluster and at >= :start and at < :end "
                "order by at, id"
            ),
            {"cluster": self.cluster, "start": window.start, "end": window.end},
        )
        return tuple(
            Adjustment(
                row.id,
                row.account,
                row.milli_gpu_seconds,
                row.at.astimezone(UTC),
                row.author,
                row.reason,
                None if row.expires_at is None else row.expires_at.astimezone(UTC),
            )
            for row in found
        )

    # --- facts ------------------------------------------------------------------------------------

    def remember(self, name: str, value: Any, at: datetime) -> None:
        """Keep a small thing (anything JSON can hold) under a name, in place of what was there."""
        with self.database.transaction() as connection:
            self._keep(connection, name, value, at)

    def _keep(self, connection: Connection, name: str, value: Any, at: datetime) -> None:
        connection.execute(
            text(
                "insert into fairshare.fact values (:cluster, :name, cast(:value as jsonb), :at) "
                "on conflict (cluster, name) do update set value = excluded.value, at = excluded.at"
            ),
            {"cluster": self.cluster, "name": name, "value": json.dumps(value), "at": at},
        )

    def recall(self, name: str) -> tuple[datetime, Any] | None:
        """What was kept under the name and when; None if nothing was."""
        found = self._one("select at, value from fairshare.fact where cluster = :cluster and name = :name", name=name)
        return None if found is None else (found["at"].astimezone(UTC), found["value"])

    # --- small helpers ----------------------------------------------------------------------------

    def _one(self, sql: str, **parameters: Any) -> dict[str, Any] | None:
        found = self._all(sql, **parameters)
        return found[0] if found else None

    def _all(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            result = connection.execute(text(sql), {"cluster": self.cluster, **parameters})
            return [dict(row) for row in result.mappings()]


# A job leaves when the new picture no longer shows it holding since the same moment.
_SIGHT_DEPARTED = """
    insert into fairshare.sighting as old
        (cluster, job_id, start_at, last_seen, label, account, account_key, user_name, qos, gpus, gpu_count,
         milli_gpus, charged)
    select distinct on (q.job_id, q.start_at)
           q.cluster, q.job_id, q.start_at, p.at, q.label, q.account, q.account_key, q.user_name, q.qos, q.gpus,
           q.gpu_count, q.milli_gpus, q.charged
    from fairshare.queue_job q
    join fairshare.picture p on p.cluster = q.cluster
    where q.cluster = :cluster and q.holding and q.start_at is not null and p.at < :at and not exists (
        select from staging_queue_job n
        where n.job_id = q.job_id and n.start_at = q.start_at and n.holding
    )
    order by q.job_id, q.start_at, q.label
    on conflict (cluster, job_id, start_at) do update set last_seen = excluded.last_seen
"""

# A sighting has done its work when the job is back in the picture, or accounting has closed its run.
_FORGET_SETTLED = """
    delete from fairshare.sighting s
    where s.cluster = :cluster and (
        exists (
            select from staging_queue_job n
            where n.job_id = s.job_id and n.start_at = s.start_at and n.holding
        )
        or exists (
            select from fairshare.run r
            where r.cluster = s.cluster and r.job_id = s.job_id and r.start_at >= s.start_at
              and r.end_at is not null and r.state <> 'RESIZING'
        )
    )
"""

_REPRICE = """
    update fairshare.run r set milli_gpus = price.milli
    from unnest(
        cast(:gpus as jsonb[]), cast(:cpus as integer[]), cast(:memory_mb as bigint[]), cast(:milli as bigint[])
    ) as price (gpus, cpus, memory_mb, milli)
    where r.cluster = :cluster and r.gpus = price.gpus and r.cpus = price.cpus and r.memory_mb = price.memory_mb
      and r.milli_gpus <> price.milli
"""

_CAPACITY_STEP = """
    insert into fairshare.capacity as old
    select :cluster, cast(:kind as text), cast(:at as timestamptz),
           cast(:installed as integer), cast(:down as integer), cast(:drained as integer), cast(:allocated as integer)
    where not exists (
        select from (
            select * from fairshare.capacity
            where cluster = :cluster and kind = :kind and at <= :at order by at desc limit 1
        ) now
        where (now.installed, now.down, now.drained) = (:installed, :down, :drained)
          and now.allocated is not distinct from cast(:allocated as integer)
    )
    on conflict (cluster, kind, at) do update set
        installed = excluded.installed, down = excluded.down, drained = excluded.drained,
        allocated = excluded.allocated
"""

_CAPACITY_ROWS = """
    select at, kind, installed, down, drained, allocated, installed - down - drained as in_service
    from fairshare.capacity c
    where cluster = :cluster and at < :end and at >= coalesce((
        select max(before.at) from fairshare.capacity before
        where before.cluster = c.cluster and before.kind = c.kind and before.at <= :start
    ), '-infinity')
    order by at, kind
"""
