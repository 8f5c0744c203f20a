"""Recorded workloads, from whatever a site has: our own columns, SWF, sacct's answer, the ledger.

Columns of a CSV or Parquet trace, one job a row (only the first four are required):

    submit        seconds from the start, or a moment (2026-01-05T08:00:00Z)
    work          seconds the job computes
    gpus          GPUs in all
    account       the Slurm account
    user limit nodes kind cpus memory_mb min_runtime resumable priority checkpoint notice klass

`limit` is the time limit in seconds (work if empty), `resumable` and `notice` are 0 or 1, `priority` is 0, 1 or 2
(low, normal, high), `klass` a word to group waits by. Shares come from a second file, `path,weight` a row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slurm_fairshare.core.runs import Run
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.sim.jobs import ORIGIN, JobSpec, Workload

REQUIRED = ("submit", "work", "gpus", "account")
COLUMNS = tuple(field.name for field in fields(JobSpec) if field.name != "number")
_TEXT = frozenset({"account", "user", "kind", "klass"})
_FLAG = frozenset({"resumable", "notice"})


class TraceError(FairshareError):
    """A workload cannot be read. The message says which line and what to write."""

    exit_code = 2


def read(path: Path, shares: Mapping[str, float] | None = None) -> Workload:
    """A trace by its ending: .swf, .parquet, anything else is CSV."""
    try:
        if path.suffix == ".swf":
            return from_swf(path.read_text(encoding="utf-8", errors="replace"), path.stem)
        rows = (
            _parquet(path) if path.suffix == ".parquet" else list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
        )
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    return from_rows(rows, shares, path.stem)


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import polars
    except ImportError as error:
        raise TraceError("reading Parquet needs polars: pip install 'slurm-fairshare[sim]'") from error
    return list(polars.read_parquet(path).iter_rows(named=True))


def from_rows(rows: Sequence[Mapping[str, Any]], shares: Mapping[str, float] | None, name: str = "") -> Workload:
    """A workload from rows with our columns; sorted by submit, equal ones in the order of the rows."""
    if not rows:
        raise TraceError(f"{name or 'the trace'} holds no jobs")
    lacking = [column for column in REQUIRED if column not in rows[0]]
    odd = [column for column in rows[0] if column not in COLUMNS and column != "number"]
    if lacking or odd:
        what = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(odd)}, which mean nothing here"
        raise TraceError(f"{name or 'the trace'} {what}; its columns are {', '.join(COLUMNS)}")
    origin, offsets = _submits([row["submit"] for row in rows])
    order = sorted(range(len(rows)), key=lambda index: offsets[index])
    jobs = tuple(_job(number, offsets[index], rows[index], index + 2) for number, index in enumerate(order))
    return Workload(jobs, dict(shares) if shares else even_shares(jobs), origin, name)


def even_shares(jobs: Iterable[JobSpec]) -> dict[str, float]:
    """The same share for every account: what a trace without budgets gets."""
    return dict.fromkeys(sorted({job.account for job in jobs}), 1.0)


def _submits(values: Sequence[Any]) -> tuple[datetime, list[int]]:
    if all(str(value).lstrip("-").isdigit() for value in values):
        return ORIGIN, [int(value) for value in values]
    try:
        moments = [_moment(value) for value in values]
    except ValueError as error:
        raise TraceError(f"{error}: write seconds from the start, or moments such as 2026-01-05T08:00:00Z") from error
    origin = min(moments).replace(hour=0, minute=0, second=0, microsecond=0)
    return origin, [int((moment - origin).total_seconds()) for moment in moments]


def _moment(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _job(number: int, submit: int, row: Mapping[str, Any], line: int) -> JobSpec:
    values: dict[str, Any] = {}
    for column in COLUMNS:
        value = row.get(column)
        if column == "submit" or value is None or value == "":
            continue
        try:
            values[column] = (
                str(value) if column in _TEXT else bool(int(value)) if column in _FLAG else int(float(value))
            )
        except ValueError as error:
            raise TraceError(f"line {line}: {column} is {value!r}: write a whole number") from error
    lacking = [column for column in REQUIRED[1:] if column not in values]
    if lacking or values["gpus"] < 0 or values["work"] < 0:
        raise TraceError(f"line {line}: work, gpus and account are needed, and none below zero")
    return JobSpec(number=number, submit=submit, **values)


def write_csv(workload: Workload) -> str:
    """The workload in our columns: what was simulated, to be simulated again."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for job in workload.jobs:
        writer.writerow([int(v) if isinstance(v := getattr(job, column), bool) else v for column in COLUMNS])
    return text.getvalue()


def read_shares(path: Path) -> dict[str, float]:
    """`path,weight` a row."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
        return {row["path"]: float(row["weight"]) for row in rows}
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except (KeyError, ValueError) as error:
        raise TraceError(f"{path} is no list of shares: its head is path,weight, each weight a number") from error


def from_swf(text: str, name: str = "") -> Workload:
    """The Standard Workload Format (Feitelson): a processor counts as a GPU, a group as an account.

    Jobs without a size or a run time are left out: they never ran.
    """
    jobs = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        parts = line.split()
        if len(parts) < 18:
            raise TraceError(f"{name}: an SWF line has 18 fields, this one {len(parts)}: {line[:60]!r}")
        submit, run, used, asked, limit = (int(float(parts[i])) for i in (1, 3, 4, 7, 8))
        size = asked if asked > 0 else used
        if run < 0 or size <= 0:
            continue
        group, user = parts[12], parts[11]
        account = f"g{group}" if group != "-1" else "all"
        jobs.append((submit, run, size, account, user if user != "-1" else "", max(limit, run)))
    jobs.sort(key=lambda job: job[0])
    first = jobs[0][0] if jobs else 0
    specs = tuple(
        JobSpec(number=i, submit=s - first, work=r, gpus=n, account=a, user=u, limit=limit)
        for i, (s, r, n, a, u, limit) in enumerate(jobs)
    )
    return Workload(specs, even_shares(specs), datetime.fromtimestamp(first, UTC), name)


def from_runs(runs: Iterable[Run], shares: Mapping[str, float] | None = None, name: str = "") -> Workload:
    """Accounting as a workload: the attempts of a job are one job again, its work what they held together.

    What an attempt lost cannot be seen from outside, so work is an upper bound for jobs that were stopped. Runs
    that never started ask for nothing that could be known; they are left out.
    """
    attempts: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        if run.start is not None and run.end is not None and run.held.gpu_count:
            attempts.setdefault((run.cluster, run.job_id), []).append(run)
    if not attempts:
        raise TraceError("no finished run with GPUs is in that period: choose a longer one")
    jobs = sorted(_rejoined(attempts.values()), key=lambda row: (row["submit"], row["order"]))
    origin = min(row["submit"] for row in jobs).replace(hour=0, minute=0, second=0, microsecond=0)
    specs = []
    for number, row in enumerate(jobs):
        submit = int((row.pop("submit") - origin).total_seconds())
        row.pop("order")
        specs.append(JobSpec(number=number, submit=submit, **row))
    return Workload(tuple(specs), dict(shares) if shares else even_shares(specs), origin, name)


def _rejoined(attempts: Iterable[list[Run]]) -> Iterator[dict[str, Any]]:
    for runs in attempts:
        runs.sort(key=lambda run: (run.submit, run.key))
        first, last = runs[0], runs[-1]
        work = sum(int((run.end - run.start).total_seconds()) for run in runs if run.start and run.end)
        terms = last.contract
        kinds = [kind for kind, count in last.held.gpus.items() if count]
        yield {
            "submit": first.submit,
            "order": first.job_id,
            "work": work,
            "gpus": last.held.gpu_count,
            "account": first.account,
            "user": first.user,
            "kind": kinds[0] if len(kinds) == 1 else "",
            "min_runtime": terms.min_runtime if terms is not None and last.charged else 0,
            "resumable": terms.resumable if terms is not None else False,
            "notice": terms is not None and terms.notice is not None,
            "priority": terms.priority.site_factor // 20_000 if terms is not None else 1,
            "klass": last.qos,
        }


def from_sacct(text: str, ladder_prefix: str = "fs-") -> Workload:
    """The output of `slurm-fairshare`'s own sacct call, or of one with the same fields and `|` between them."""
    from slurm_fairshare.core.contract import Ladder
    from slurm_fairshare.core.resources import ChargeRule
    from slurm_fairshare.slurm.accounting import DELIMITER, FIELDS, RowReader, parse_rows

    lines = text.splitlines()
    if lines and lines[0].split("|")[0] == FIELDS[0]:
        text = "\n".join(lines[1:]) + "\n"
    delimiter = DELIMITER if DELIMITER in text else "|"
    reader = RowReader(Ladder.default(ladder_prefix), ChargeRule(), datetime.now(UTC))
    closed = text.rstrip("\n").endswith(delimiter)
    runs, rejected = parse_rows(text, reader, delimiter, closed=closed)
    if not runs:
        why = f"the first line that could not be read: {rejected[0].reason}" if rejected else "it is empty"
        raise TraceError(f"no run could be read from sacct's output ({why}); ask for --format={','.join(FIELDS)}")
    return from_runs(runs, name="sacct")
