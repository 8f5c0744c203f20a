"""Columns described once, drawn five ways: table, -P and -p (parsable), JSON, CSV.

A report is a list of columns and a list of rows. A column says how to get a value out of a row and how to write
it; the value itself goes into JSON. The table looks like sshare's: a header, a line of dashes, one row a line,
nothing but blanks between columns. Where it must fit a width, the columns of the least use are left out and
named below it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from slurm_fairshare.errors import FairshareError
from slurm_fairshare.units import moment

Row = TypeVar("Row")

SHORTEST = 8
"""A column that may be cut keeps at least so many characters."""


class Style(Enum):
    """The forms a report comes in."""

    TABLE = "table"
    PARSABLE = "parsable"
    """Separated by |, with a | at the end: sshare's -p."""
    PARSABLE2 = "parsable2"
    """Separated by |, none at the end: sshare's -P."""
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Form:
    """How the reader wants it. `width` None: as wide as it comes, as Slurm's own tools print."""

    style: Style = Style.TABLE
    header: bool = True
    fields: str = ""
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column. `get` gives the value, None where there is none; `about` explains it in the reference.

    `show` writes the value in the table (`tell` does so from the whole row), `plain` in parsable and CSV; where
    they are None, `text` does. `head` is the table's heading where the name is too long for one. `spare`: how
    soon the column is left out where room is short, 0 never, larger sooner. `elastic` may be cut to fit, `length`
    sets the width. `indent` shows a tree, `paint` gives the row's style on a terminal.
    """

    name: str
    get: Callable[[Row], Any]
    about: str
    show: Callable[[Any], str] | None = None
    tell: Callable[[Row], str] | None = None
    plain: Callable[[Any], str] | None = None
    right: bool = False
    spare: int = 0
    elastic: bool = False
    paint: Callable[[Row], str] | None = None
    indent: Callable[[Row], int] | None = None
    length: int = 0
    head: str = ""

    @property
    def heading(self) -> str:
        return self.head or self.name


@dataclass(frozen=True)
class Report(Generic[Row]):
    """Rows, the columns there are, and those shown unless asked otherwise.

    `above` and `below` are sentences around the table; `facts` are what JSON says beside the rows.
    `script` are the columns of parsable and CSV, where they are others than the table's.
    """

    noun: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    shown: Sequence[str]
    script: Sequence[str] = ()
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    empty: str = ""


class FieldError(FairshareError):
    """A field was asked for that the report does not have. sshare ends with 1 then, and so do we."""


def render(report: Report[Row], form: Form) -> Text:
    """The report in the form asked for, with a line break at its end."""
    match form.style:
        case Style.JSON:
            return Text(to_json(report))
        case Style.CSV:
            return Text(to_csv(report, form))
        case Style.PARSABLE | Style.PARSABLE2:
            return Text(to_parsable(report, form))
        case Style.TABLE:
            return to_table(report, form)


# --- which columns --------------------------------------------------------------------------------


def chosen(report: Report[Row], form: Form) -> list[Column[Row]]:
    """The columns to print: those named with -o, else the report's own choice for this form."""
    if form.fields:
        return [
            replace(_named(report.columns, word.strip()), spare=0) for word in form.fields.split(",") if word.strip()
        ]
    by_name = {column.name: column for column in report.columns}
    names = report.shown if form.style is Style.TABLE else (report.script or report.shown)
    return [by_name[name] for name in names]


def _named(columns: Sequence[Column[Row]], word: str) -> Column[Row]:
    """As sshare reads -o: the first column whose name starts so, in any case; `Name%20` sets its width."""
    name, percent, length = word.partition("%")
    if percent and not length.lstrip("-").isdecimal():
        raise FieldError(f'"{word}" is no field: the width behind % is a number, such as Account%30')
    exact = [column for column in columns if column.name.lower() == name.lower()]
    starting = [column for column in columns if name and column.name.lower().startswith(name.lower())]
    found = next(iter(exact or starting), None)
    if found is None:
        known = ", ".join(column.name for column in columns)
        raise FieldError(f'there is no field "{name}": choose from {known}')
    if not percent:
        return found
    return replace(found, length=abs(int(length)), right=not length.startswith("-"), elastic=False)


# --- for programs ---------------------------------------------------------------------------------


def to_parsable(report: Report[Row], form: Form) -> str:
    """One row a line, | between fields. A | inside a value would shift the fields: it becomes a broken bar.

    Values are exact and unbroken in JSON and CSV.
    """
    columns = chosen(report, form)
    end = "|\n" if form.style is Style.PARSABLE else "\n"
    lines = [[column.name for column in columns]] if form.header else []
    lines += [[_one_line(_plain(column, row)).replace("|", "¦") for column in columns] for row in report.rows]
    return "".join("|".join(cells) + end for cells in lines)


def to_csv(report: Report[Row], form: Form) -> str:
    columns = chosen(report, form)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if form.header:
        writer.writerow([column.name for column in columns])
    writer.writerows([_plain(column, row) for column in columns] for row in report.rows)
    return out.getvalue()


def to_json(report: Report[Row]) -> str:
    """An object with the report's facts and, under its noun, one object a row with every column.

    As in sshare, -o and -n play no part. What is infinite or unknown is null: JSON has no infinity.
    """
    rows = [{json_key(column.name): column.get(row) for column in report.columns} for row in report.rows]
    return dump_json({**report.facts, report.noun: rows})


def json_key(name: str) -> str:
    """A column's name as JSON has it.

    >>> json_key("RawShares"), json_key("LevelFS"), json_key("GPUs")
    ('raw_shares', 'level_fs', 'gpus')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def dump_json(value: Any) -> str:
    return json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def json_ready(value: Any) -> Any:
    """The value in JSON's terms: moments as text with their zone, lengths in seconds, infinities as null."""
    match value:
        case Enum():
            return value.value
        case bool() | int() | str() | None:
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return moment(value)
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): json_ready(inner) for key, inner in value.items()}
        case _:
            return [json_ready(inner) for inner in value]


def text(value: Any) -> str:
    """A value as text: nothing for None, moments with their zone, yes and no."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return moment(value)
        case timedelta():
            return str(int(value.total_seconds()))
        case Enum():
            return str(value.value)
        case float():
            return number(value)
        case _:
            return str(value)


def number(value: float) -> str:
    """Six digits, as sshare prints; `inf` where there is no bound.

    >>> number(0.5), number(float("inf"))
    ('0.500000', 'inf')
    """
    return f"{value:.6f}"


def _plain(column: Column[Row], row: Row) -> str:
    value = column.get(row)
    return (column.plain or text)(value) if value is not None else ""


def _one_line(words: str) -> str:
    """Nothing in a value may break a line or reach the terminal as a command."""
    return "".join(char if char.isprintable() else "?" for char in words.replace("\n", " "))


# --- for people -----------------------------------------------------------------------------------


def to_table(report: Report[Row], form: Form) -> Text:
    above = [Text(line, style="bold" if line.startswith("STALE") else "dim") for line in report.above]
    out = above if form.header else []
    wanted = chosen(report, form)
    if not report.rows and report.empty:
        return _lines([*out, Text(report.empty)], form.width)
    columns, left_out = _fitting(wanted, report.rows, form)
    widths = [_width(column, report.rows, form.header) for column in columns]
    widths = _cut_elastic(columns, widths, form.width)
    body = []
    if form.header:
        body.append(_line(columns, widths, [column.heading for column in columns], ["bold"] * len(columns)))
        body.append(Text(" ".join("-" * width for width in widths)))
    for row in report.rows:
        cells = [_shown(column, row) for column in columns]
        paints = [column.paint(row) if column.paint else "" for column in columns]
        body.append(_line(columns, widths, cells, paints))
    after = [Text(line, style="dim") for line in report.below] if form.header else []
    if left_out and form.header:
        names = ", ".join(column.name for column in left_out)
        after.append(Text(f"Left out to fit {form.width} columns: {names} (-o, -P and --json have them).", style="dim"))
    return _lines([*_wrapped(out, form.width), *body, *_wrapped(after, form.width)], None)


def _lines(lines: Sequence[Text], width: int | None) -> Text:
    return Text("").join([part for line in _wrapped(lines, width) for part in (line, Text("\n"))])


def _wrapped(lines: Sequence[Text], width: int | None) -> list[Text]:
    return [part for line in lines for part in wrap(line, width)]


def wrap(line: Text, width: int | None) -> list[Text]:
    """The sentence on as many lines as it takes, broken between words."""
    if width is None or cell_len(line.plain) <= width:
        return [line]
    parts: list[str] = []
    for word in line.plain.split(" "):
        if parts and cell_len(parts[-1]) + 1 + cell_len(word) <= width:
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return [Text(part, style=line.style) for part in parts]


def paragraphs(lines: Sequence[Text], width: int | None) -> Text:
    """Sentences for people, each wrapped below its own indentation, with nothing in them that a terminal obeys."""
    found = []
    for line in lines:
        words = _one_line(line.plain)
        indent = " " * (len(words) - len(words.lstrip(" ")))
        room = None if width is None else max(width - len(indent), SHORTEST)
        found += [Text(indent + part.plain, style=line.style) for part in wrap(Text(words.lstrip(" ")), room)]
    return Text("").join([part for line in found for part in (line, Text("\n"))])


def _shown(column: Column[Row], row: Row) -> str:
    value = column.get(row)
    if column.tell is not None:
        words = column.tell(row)
    else:
        words = (column.show or column.plain or text)(value) if value is not None else ""
    words = _one_line(words)
    return " " * column.indent(row) + words if column.indent else words


def _width(column: Column[Row], rows: Sequence[Row], header: bool) -> int:
    if column.length:
        return column.length
    return max([cell_len(_shown(column, row)) for row in rows] + [cell_len(column.heading) if header else 1])


def _fitting(
    columns: list[Column[Row]], rows: Sequence[Row], form: Form
) -> tuple[list[Column[Row]], list[Column[Row]]]:
    """The columns that fit, and those left out for it, most expendable first."""
    if form.width is None:
        return columns, []
    kept = list(columns)
    for candidate in sorted(columns, key=lambda column: -column.spare):
        if candidate.spare == 0 or _total(kept, rows, form) <= form.width:
            break
        kept = [column for column in kept if column is not candidate]
    return kept, [column for column in columns if column not in kept]


def _total(columns: Sequence[Column[Row]], rows: Sequence[Row], form: Form) -> int:
    widths = [_width(column, rows, form.header) for column in columns]
    return sum(widths) + len(columns) - 1


def _cut_elastic(columns: Sequence[Column[Row]], widths: list[int], room: int | None) -> list[int]:
    """Narrow the widest elastic column, again and again, until the line fits or nothing is left to give."""
    widths = list(widths)
    if room is None:
        return widths
    while sum(widths) + len(widths) - 1 > room:
        able = [i for i, column in enumerate(columns) if column.elastic and widths[i] > SHORTEST]
        if not able:
            break
        widths[max(able, key=lambda i: widths[i])] -= 1
    return widths


def _line(columns: Sequence[Column[Row]], widths: Sequence[int], cells: Sequence[str], paints: Sequence[str]) -> Text:
    line = Text()
    for index, (column, width, cell, paint) in enumerate(zip(columns, widths, cells, paints, strict=True)):
        if index:
            line.append(" ")
        line.append(_cell(cell, width, column.right), style=paint or None)
    line.rstrip()
    return line


def _cell(words: str, width: int, right: bool) -> str:
    """Slurm marks a cut value with a + at its end; so do we."""
    if cell_len(words) > width:
        return set_cell_size(words, width - 1) + "+"
    blanks = " " * (width - cell_len(words))
    return blanks + words if right else words + blanks
