"""What runs are charged inside a window, part by part: quickly from the hourly roll-ups, and the long way round.

For a second t let R(t) be what ended runs are charged from t to the end of its hour. Then over `[a, b)`

    charged = sum of the hours that start in [ceil(a), ceil(b)) + R(a) - R(b) + what runs on

and with H = ceil(t), `held` = milli-GPUs of the runs that go on to H or beyond,

    R(t) = held x (H - t)  -  sum of milli x (s - t) over starts s in (t, H)  +  sum of milli x (e - t) over ends e


so a window costs as many rows as it has hours and accounts, however many runs it holds. Whole seconds and integers
throughout: both ways give the same number, which a property test and `audit` check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from slurm_fairshare.core.window import Window
from slurm_fairshare.store.weighing import Charges

HOUR = 3600

_LIVE = """
    select {key} as account_key, milli_gpus,
           greatest(floor(date_part('epoch', start_at))::bigint, :a) as a,
           least(floor(date_part('epoch', coalesce(until_at, :now)))::bigint, :b) as b
    from fairshare.live_usage
    where cluster = :cluster and charged and start_at < :end and (until_at is null or until_at > :start)
"""
_ENDED = """
    select {key} as account_key, milli_gpus,
           greatest(floor(date_part('epoch', start_at))::bigint, :a) as a,
           least(floor(date_part('epoch', end_at))::bigint, :b) as b
    from fairshare.run
    where cluster = :cluster and charged and start_at < :end and end_at > :start
"""

# Each piece cut at the parts' bounds, which are whole seconds.
_CUT = """
    select account_key, part, milli_gpus * (
        least(b, (cast(:edges as bigint[]))[part + 1]) - greatest(a, (cast(:edges as bigint[]))[part])
    ) as amount
    from ({pieces}) piece {parts}
    where a < b
"""

_PARTS_TOUCHED = """
    cross join lateral generate_series(
        width_bucket(a, cast(:edges as bigint[])), width_bucket(b - 1, cast(:edges as bigint[]))
    ) as part
"""


def parts_touched(count: int) -> str:
    """The number of each part that a piece `[a, b)` inside all of them touches: to be joined to the pieces.

    Where there is one part Postgres is not asked: it would reckon with a thousand for each piece, and sort them all.
    """
    return _PARTS_TOUCHED if count > 1 else "cross join (select 1 as part) as only_part"


_WHOLE_HOURS = """
    select account_key, width_bucket(date_part('epoch', hour)::bigint, cast(:edges as bigint[])) as part,
           milli as amount
    from fairshare.usage_hour
    where cluster = :cluster and hour >= to_timestamp(:first) and hour < to_timestamp(:last)
"""

# R(t), as rows that add up to it.
_REST_OF_HOUR = """
    select account_key, {part} as part, {sign} held * (:{t}_hour - :{t}) as amount
    from fairshare.usage_hour
    where cluster = :cluster and hour = to_timestamp(:{t}_hour - 3600) and :{t} < :{t}_hour
    union all
    select account_key, {part}, - {sign} milli_gpus * (floor(date_part('epoch', start_at))::bigint - :{t})
    from fairshare.run
    where cluster = :cluster and charged and end_at is not null and start_at >= to_timestamp(:{t})
      and start_at < to_timestamp(:{t}_hour)
      and floor(date_part('epoch', end_at)) > floor(date_part('epoch', start_at))
    union all
    select account_key, {part}, {sign} milli_gpus * (floor(date_part('epoch', end_at))::bigint - :{t})
    from fairshare.run
    where cluster = :cluster and charged and end_at >= to_timestamp(:{t}) and end_at < to_timestamp(:{t}_hour)
      and floor(date_part('epoch', end_at)) > floor(date_part('epoch', start_at))
"""

_SUM = "select account_key, part, sum(amount) as amount from ({rows}) piece group by 1, 2 having sum(amount) <> 0"

_BY_ACCOUNT = "account_key"
_BY_USER = "account_key || chr(31) || user_name"


def _rolled(count: int) -> str:
    return _SUM.format(
        rows=" union all ".join(
            (
                _WHOLE_HOURS,
                _REST_OF_HOUR.format(t="a", part="1", sign=""),
                _REST_OF_HOUR.format(t="b", part=":count", sign="-"),
                _CUT.format(pieces=_LIVE.format(key=_BY_ACCOUNT), parts=parts_touched(count)),
            )
        )
    )


def _raw(key: str, count: int) -> str:
    """The same from every run by itself. Ended and live ones apart: only so does an index find the former."""
    pieces = (_CUT.format(pieces=source.format(key=key), parts=parts_touched(count)) for source in (_ENDED, _LIVE))
    return _SUM.format(rows=" union all ".join(pieces))


def charges(
    connection: Connection, cluster: str, parts: Sequence[Window], now: datetime
) -> list[tuple[Window, Charges]]:
    """Milli-GPU-seconds by account key in each part, from the roll-ups. Parts are adjacent, in order, and cut at
    whole hours if there are several."""
    return _charges(connection, _rolled(len(parts)), cluster, parts, now)


def raw_charges(
    connection: Connection, cluster: str, parts: Sequence[Window], now: datetime
) -> list[tuple[Window, Charges]]:
    """The same, run by run. Parts are adjacent and in order."""
    return _charges(connection, _raw(_BY_ACCOUNT, len(parts)), cluster, parts, now)


def raw_charges_by_user(
    connection: Connection, cluster: str, parts: Sequence[Window], now: datetime
) -> list[tuple[Window, Charges]]:
    """Keyed by account and user as one (see `weighing.by_user`)."""
    return _charges(connection, _raw(_BY_USER, len(parts)), cluster, parts, now)


def _charges(
    connection: Connection, sql: str, cluster: str, parts: Sequence[Window], now: datetime
) -> list[tuple[Window, Charges]]:
    found: list[tuple[Window, Charges]] = [(part, {}) for part in parts]
    if found:
        for row in connection.execute(text(sql), _parameters(cluster, parts, now)):
            found[row.part - 1][1][row.account_key] = int(row.amount)
    return found


def _parameters(cluster: str, parts: Sequence[Window], now: datetime) -> dict[str, Any]:
    start, end = parts[0].start, parts[-1].end
    a, b = _second(start), _second(end)
    return {
        "cluster": cluster,
        "now": now,
        "start": start,
        "end": end,
        "a": a,
        "b": b,
        "a_hour": _ceil(a),
        "b_hour": _ceil(b),
        "first": _ceil(a),
        "last": _ceil(b),
        "count": len(parts),
        "edges": [_second(part.start) for part in parts] + [b],
    }


def _second(at: datetime) -> int:
    return math.floor(at.timestamp())


def _ceil(second: int) -> int:
    return -(-second // HOUR) * HOUR


# What the trigger on fairshare.run keeps up to date, from the beginning.
_DERIVED = """
    select cluster, to_timestamp(h * 3600) as hour, account_key,
           sum(milli_gpus * (least(b, (h + 1) * 3600) - greatest(a, h * 3600)))::bigint as milli,
           sum(case when b >= (h + 1) * 3600 then milli_gpus else 0 end)::bigint as held
    from (
        select cluster, account_key, milli_gpus, floor(date_part('epoch', start_at))::bigint as a,
               floor(date_part('epoch', end_at))::bigint as b
        from fairshare.run where cluster = :cluster and charged and end_at is not null
    ) run
    cross join lateral generate_series(a / 3600, (b - 1) / 3600) as h
    where a < b group by 1, 2, 3
"""


def rebuild(connection: Connection, cluster: str) -> int:
    """Make the roll-ups anew from the runs; says how many hours of accounts there are. Others wait meanwhile."""
    key = {"cluster": cluster}
    connection.execute(text("lock table fairshare.run in share row exclusive mode"))
    connection.execute(text("delete from fairshare.usage_hour where cluster = :cluster"), key)
    made = connection.execute(text(f"insert into fairshare.usage_hour {_DERIVED}"), key)
    return made.rowcount


def differing_hours(connection: Connection, cluster: str) -> int:
    """In how many hours of accounts the roll-ups differ from what the runs say. None, unless somebody wrote there."""
    found = connection.execute(
        text(
            f"select count(*) from ({_DERIVED}) run "  # noqa: S608 - a constant
            "full join (select * from fairshare.usage_hour where cluster = :cluster) rolled "
            "using (cluster, hour, account_key) "
            "where coalesce(run.milli, 0) <> coalesce(rolled.milli, 0) "
            "or coalesce(run.held, 0) <> coalesce(rolled.held, 0)"
        ),
        {"cluster": cluster},
    )
    return int(found.scalar_one())
