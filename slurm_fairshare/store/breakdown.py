"""What was used, run by run and taken apart: for the audit and for reports on usage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import text

from slurm_fairshare.core.audit import Basis, Counted
from slurm_fairshare.core.window import Window, whole_second
from slurm_fairshare.store.connection import Database
from slurm_fairshare.store.rollup import parts_touched

DIMENSIONS = ("account", "user", "qos", "type")


@dataclass(frozen=True, slots=True)
class Used:
    """GPU-seconds of one group in one part of a window, and the same weighted as they are charged.

    A dimension that was not asked for is "". By type the weighted sum is not known (None): a run is charged as one.
    """

    part: Window
    account: str
    user: str
    qos: str
    type: str
    charged: bool
    gpu_seconds: int
    milli_gpu_seconds: int | None
    runs: int


class BreakdownStore:
    """Usage as reports show it."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.database, self.cluster = database, cluster

    def counted(self, window: Window, now: datetime) -> tuple[Counted, ...]:
        """Every run that overlaps the window, as it counts."""
        with self.database.transaction() as connection:
            found = connection.execute(
                text(_COUNTED), {"cluster": self.cluster, "start": window.start, "end": window.end, "now": now}
            )
            return tuple(
                Counted(
                    key=row.key or "",
                    job_id=row.job_id,
                    label=row.label,
                    account=row.account,
                    user=row.user_name,
                    qos=row.qos,
                    state=row.state or "",
                    gpus=row.gpus,
                    milli_gpus=row.milli_gpus,
                    charged=row.charged,
                    start=row.start_at.astimezone(UTC),
                    until=None if row.until_at is None else row.until_at.astimezone(UTC),
                    basis=Basis(row.basis),
                )
                for row in found
            )

    def used(self, parts: Sequence[Window], by: Collection[str], now: datetime) -> tuple[Used, ...]:
        """What was used in each of the adjacent parts, grouped by the dimensions named, in their order."""
        if not parts:
            return ()
        parameters = {
            "cluster": self.cluster,
            "start": parts[0].start,
            "end": parts[-1].end,
            "now": now,
            "edges": [whole_second(part.start) for part in parts] + [whole_second(parts[-1].end)],
        }
        with self.database.transaction() as connection:
            connection.execute(text("set local work_mem = '64MB'"))  # the groups fit into memory
            found = connection.execute(text(_used_sql(by, len(parts))), parameters)
            return tuple(
                Used(
                    part=parts[row.part - 1],
                    account=row.account,
                    user=row.user_name,
                    qos=row.qos,
                    type=row.kind,
                    charged=row.charged,
                    gpu_seconds=int(row.gpu_seconds),
                    milli_gpu_seconds=None if row.milli is None else int(row.milli),
                    runs=row.runs,
                )
                for row in found
            )


_COUNTED = """
    select u.key, u.job_id, u.label, u.account, u.user_name, u.qos, r.state, u.gpus, u.milli_gpus, u.charged,
           u.start_at, u.until_at, u.basis
    from fairshare.run_usage u
    left join fairshare.run r on r.cluster = u.cluster and r.key = u.key
    where u.cluster = :cluster and u.start_at < :end and u.until_at > :start
    union all
    select u.key, u.job_id, u.label, u.account, u.user_name, u.qos, r.state, u.gpus, u.milli_gpus, u.charged,
           u.start_at, u.until_at, u.basis
    from fairshare.run_usage u
    left join fairshare.run r on r.cluster = u.cluster and r.key = u.key
    where u.cluster = :cluster and u.start_at < :end and u.until_at is null and cast(:now as timestamptz) > :start
    order by 11, 2, 1
"""

_PIECE = """
    select {columns}, charged, {gpus}, milli_gpus,
           floor(date_part('epoch', greatest(start_at, :start)))::bigint as a,
           floor(date_part('epoch', least({until}, :end)))::bigint as b
    from fairshare.run_usage {types}
    where cluster = :cluster and start_at < :end and {where} and (gpu_count > 0 or milli_gpus > 0)
"""
_COLUMNS: Mapping[str, str] = {"account": "account_key", "user": "user_name", "qos": "qos"}


def _used_sql(by: Collection[str], count: int) -> str:
    """Put together from constants alone."""
    names = {"account": "account", "user": "user_name", "qos": "qos", "type": "kind"}
    columns = [f"{_COLUMNS[one] if one in by else repr('')} as {names[one]}" for one in DIMENSIONS if one != "type"]
    by_type = "type" in by
    columns.append("kind" if by_type else "'' as kind")
    shape = {
        "columns": ", ".join(columns),
        "gpus": "kind_count::bigint as gpus" if by_type else "gpu_count::bigint as gpus",
        "types": "cross join lateral jsonb_each_text(gpus) as each (kind, kind_count)" if by_type else "",
    }
    ended = _PIECE.format(**shape, until="until_at", where="until_at > :start")
    running = _PIECE.format(**shape, until="cast(:now as timestamptz)", where="until_at is null")
    return f"""
        select part, account, user_name, qos, kind, charged, count(*) as runs, sum(gpus * seconds) as gpu_seconds,
               {"null::bigint" if by_type else "sum(milli_gpus * seconds)"} as milli
        from (
            select account, user_name, qos, kind, charged, gpus, milli_gpus, part,
                   least(b, (cast(:edges as bigint[]))[part + 1]) - greatest(a, (cast(:edges as bigint[]))[part])
                   as seconds
            from ({ended} union all {running}) piece {parts_touched(count)}
            where a < b
        ) cut
        group by 1, 2, 3, 4, 5, 6 order by 1, 2, 3, 4, 5, 6
    """  # noqa: S608 - constants
