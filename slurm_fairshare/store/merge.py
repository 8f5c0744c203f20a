"""Many rows at once: COPY into a staging table, then one statement that touches only what differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Table, text

from slurm_fairshare.store.connection import raw
from slurm_fairshare.store.rows import Row


def stage(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Row]) -> str:
    """Put the rows where the statements of this transaction can join them; returns that table's name."""
    name = f"staging_{table.name}"
    connection.execute(
        text(f"create temporary table if not exists {name} (like {table.fullname}) on commit delete rows")
    )
    connection.execute(text(f"delete from {name}"))  # noqa: S608 - names of our own tables
    with raw(connection).cursor() as cursor:
        copied = f"copy {name} ({', '.join(columns)}) from stdin"
        with cursor.copy(copied.encode()) as copy:
            for row in rows:
                copy.write_row(row)
    connection.execute(text(f"analyze {name}"))
    return name


def upsert(
    connection: Connection,
    table: Table,
    columns: Sequence[str],
    staged: str,
    *,
    newest: str = "",
    ignored: Sequence[str] = (),
    guard: str = "true",
) -> None:
    """Write the staged rows over those of the same key, leaving rows that do not differ untouched on disk.

    `ignored` columns are written with a row that differs and make no difference by themselves. `newest` orders
    staged rows of one key, of which the first is taken. `guard` must hold for a row (`old`, `excluded`) to be
    replaced.
    """
    keys = [column.name for column in table.primary_key]
    values = [name for name in columns if name not in keys]
    compared = [name for name in values if name not in ignored]
    order = ", ".join([*keys, *([newest] if newest else []), "ctid desc"])
    same_key = " and ".join(f"old.{name} = new.{name}" for name in keys)
    differs = f"({_list(compared, 'old')}) is distinct from ({_list(compared, 'excluded')})" if compared else "false"
    same = f"({_list(compared, 'old')}) is not distinct from ({_list(compared, 'new')})" if compared else "true"
    action = (
        f"do update set {', '.join(f'{name} = excluded.{name}' for name in values)} where {guard} and {differs}"
        if values
        else "do nothing"
    )
    connection.execute(
        text(
            f"insert into {table.fullname} as old ({', '.join(columns)}) "  # noqa: S608 - names of our own tables
            f"select {', '.join(columns)} from ("
            f"select distinct on ({', '.join(keys)}) * from {staged} order by {order}) new "
            f"where not exists (select from {table.fullname} old where {same_key} and {same}) "
            f"on conflict ({', '.join(keys)}) {action}"
        )
    )


def remove_others(connection: Connection, table: Table, staged: str, cluster: str) -> None:
    """Delete the cluster's rows that are not staged."""
    keys = [column.name for column in table.primary_key]
    same_key = " and ".join(f"old.{name} = new.{name}" for name in keys)
    connection.execute(
        text(
            f"delete from {table.fullname} old where old.cluster = :cluster "  # noqa: S608 - names of our own tables
            f"and not exists (select from {staged} new where {same_key})"
        ),
        {"cluster": cluster},
    )


def _list(names: Sequence[str], prefix: str) -> str:
    return ", ".join(f"{prefix}.{name}" for name in names)
