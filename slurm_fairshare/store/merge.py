"""Many rows at once: COPY into a staging table, then one statement that touches only what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import Connection, Table, text

from slurm_fairshare.store.connection import raw

CHUNK = 1 << 18
"""Characters sent to Postgres at once: it works on them while the next are made."""


def stage(connection: Connection, table: Table, columns: Sequence[str], lines: Iterable[str]) -> str:
    """Put the rows, as lines for COPY, where the statements of this transaction can join them; returns that table's
    name."""
    name = f"staging_{table.name}"
    connection.execute(
        text(f"create temporary table if not exists {name} (like {table.fullname}) on commit delete rows")
    )
    connection.execute(text(f"delete from {name}"))  # noqa: S608 - names of our own tables
    with raw(connection).cursor() as cursor:
        copied = f"copy {name} ({', '.join(columns)}) from stdin"
        with cursor.copy(copied.encode()) as copy:
            for chunk in _chunks(lines):
                copy.write(chunk)
    # What joins it needs to know: how many rows there are, and how they lie by their key.
    connection.execute(text(f"analyze {name} ({', '.join(column.name for column in table.primary_key)})"))
    return name


def _chunks(lines: Iterable[str]) -> Iterator[str]:
    """The lines put together."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= CHUNK:
            yield "".join(held)
            held.clear()
            size = 0
    yield "".join(held)


def upsert(
    connection: Connection,
    table: Table,
    columns: Sequence[str],
    staged: str,
    *,
    ignored: Sequence[str] = (),
    guard: str = "true",
) -> None:
    """Write the staged rows, one of each key, over those of the same key, leaving rows that do not differ untouched
    on disk.

    The caller holds a lock that keeps other writers of the same keys out. `ignored` columns are written with a row
    that differs and make no difference by themselves. `guard` must hold for a row (`old`, `new`) to be replaced.
    """
    keys = [column.name for column in table.primary_key]
    values = [name for name in columns if name not in keys]
    compared = [name for name in values if name not in ignored]
    same_key = _same_key(table)
    connection.execute(
        text(
            f"update {table.fullname} old set {', '.join(f'{name} = new.{name}' for name in values)} "  # noqa: S608
            f"from {staged} new where {same_key} and {guard} "
            f"and ({_list(compared, 'old')}) is distinct from ({_list(compared, 'new')})"
        )
    )
    # In the order of the key, in which the indexes grow at their end.
    connection.execute(
        text(
            f"insert into {table.fullname} ({', '.join(columns)}) "  # noqa: S608 - names of our own tables
            f"select {', '.join(columns)} from {staged} new "
            f"where not exists (select from {table.fullname} old where {same_key}) order by {', '.join(keys)}"
        )
    )


def remove_others(connection: Connection, table: Table, staged: str, cluster: str) -> None:
    """Delete the cluster's rows that are not staged."""
    connection.execute(
        text(
            f"delete from {table.fullname} old where old.cluster = :cluster "  # noqa: S608 - names of our own tables
            f"and not exists (select from {staged} new where {_same_key(table)})"
        ),
        {"cluster": cluster},
    )


def _same_key(table: Table) -> str:
    return " and ".join(f"old.{column.name} = new.{column.name}" for column in table.primary_key)


def _list(names: Sequence[str], prefix: str) -> str:
    return ", ".join(f"{prefix}.{name}" for name in names)
