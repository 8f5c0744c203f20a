"""Demand over time in Postgres: a step function per account, thinned to hours once it is old."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import insert

from slurm_fairshare.core.window import Step, Window, thinned
from slurm_fairshare.store import tables
from slurm_fairshare.store.spelling import clean

THINNED = "demand thinned"
"""The name of the fact that keeps up to when that has been done."""

KEEP_STEPS = timedelta(days=2)
"""Demand older than this is kept as the mean of each hour: sums over hours stay as they were."""


def record(connection: Connection, cluster: str, at: datetime, demand: Mapping[str, float]) -> None:
    """A row for each account whose demand differs from what is in force; who is not named wants nothing."""
    named = {clean(account): gpus for account, gpus in demand.items()}
    connection.execute(
        text(_RECORD), {"cluster": cluster, "at": at, "keys": list(named), "gpus": [float(g) for g in named.values()]}
    )
    if thinning_is_due(_newest_before(connection, cluster, at), at):
        thin(connection, cluster, before=thin_until(at))


def thinning_is_due(previous: datetime | None, at: datetime) -> bool:
    """Once an hour is enough: when this look is the first in its hour."""
    return previous is not None and _hour(previous) < _hour(at)


def thin_until(at: datetime) -> datetime:
    return _hour(at - KEEP_STEPS)


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _newest_before(connection: Connection, cluster: str, at: datetime) -> datetime | None:
    """The picture before this one: it is replaced in the same transaction, after the demand is recorded."""
    found: datetime | None = connection.execute(
        text("select at from fairshare.picture where cluster = :cluster and at < :at"), {"cluster": cluster, "at": at}
    ).scalar()
    return found


def steps(connection: Connection, cluster: str, window: Window) -> dict[str, tuple[Step, ...]]:
    """Each account's steps inside the window, the one in force at its start first, at the start."""
    found: dict[str, list[Step]] = {}
    rows = connection.execute(text(_STEPS), {"cluster": cluster, "start": window.start, "end": window.end})
    for row in rows:
        at = max(row.at.astimezone(UTC), window.start.astimezone(UTC))
        found.setdefault(row.account_key, []).append(Step(at, row.gpus))
    return {account: tuple(one) for account, one in found.items()}


def thin(connection: Connection, cluster: str, before: datetime) -> None:
    """Put the mean of each whole hour before the moment in place of its steps. Again changes nothing."""
    key: dict[str, Any] = {"cluster": cluster, "before": before, "name": THINNED}
    first = connection.execute(text(_FIRST_UNTHINNED), key).scalar()
    if first is None or first >= before:
        return
    window = Window(first.astimezone(UTC), before)
    known = steps(connection, cluster, window)
    connection.execute(text(_DROP), {**key, "start": window.start})
    rows = [
        {"cluster": cluster, "account_key": account, "at": step.at, "gpus": step.value}
        for account, one in known.items()
        for step in thinned(one, window)
    ]
    if rows:
        connection.execute(insert(tables.demand).on_conflict_do_nothing(), rows)
    connection.execute(text(_REMEMBER), key)


# The accounts there are, without reading every row: one step through the index for each.
_ACCOUNTS = """
    recursive known(account_key) as (
        (select account_key from fairshare.demand where cluster = :cluster order by account_key limit 1)
        union all
        select (
            select d.account_key from fairshare.demand d
            where d.cluster = :cluster and d.account_key > known.account_key order by d.account_key limit 1
        )
        from known where known.account_key is not null
    )
"""

_RECORD = f"""
    with {_ACCOUNTS}, wanted as (
        select * from unnest(cast(:keys as text[]), cast(:gpus as double precision[])) as given(account_key, gpus)
    )
    insert into fairshare.demand as old (cluster, account_key, at, gpus)
    select :cluster, account_key, cast(:at as timestamptz), coalesce(wanted.gpus, 0)
    from (select account_key from known where account_key is not null) known
    full join wanted using (account_key)
    where coalesce(wanted.gpus, 0) is distinct from (
        select d.gpus from fairshare.demand d
        where d.cluster = :cluster and d.account_key = coalesce(known.account_key, wanted.account_key) and d.at <= :at
        order by d.at desc limit 1
    )
    on conflict (cluster, account_key, at) do update set gpus = excluded.gpus
"""  # noqa: S608 - put together from constants

_STEPS = f"""
    with {_ACCOUNTS}
    select known.account_key, d.at, d.gpus
    from known cross join lateral (
        select at, gpus from fairshare.demand
        where cluster = :cluster and account_key = known.account_key and at < :end and at >= coalesce((
            select max(before.at) from fairshare.demand before
            where before.cluster = :cluster and before.account_key = known.account_key and before.at <= :start
        ), '-infinity')
    ) d
    where known.account_key is not null
    order by known.account_key, d.at
"""  # noqa: S608 - put together from constants

_FIRST_UNTHINNED = """
    select coalesce(
        (select at from fairshare.fact where cluster = :cluster and name = :name),
        (select min(at) from fairshare.demand where cluster = :cluster)
    )
"""

_DROP = "delete from fairshare.demand where cluster = :cluster and at >= :start and at < :before"

_REMEMBER = """
    insert into fairshare.fact values (:cluster, :name, 'null', :before)
    on conflict (cluster, name) do update set at = excluded.at
"""
