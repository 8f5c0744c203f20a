"""The ledger: how fast it reads accounting, and how long a tick reckons however much it has read.

    make bench-ledger                     all of it: a quarter of an hour, 5 GB of disk
    python -m benchmarks.bench_ledger --largest 100000

One run, one machine, one Postgres, the same invented runs (from a seed) for everybody:

ingest  the runs of one day of a week with 1,000,000: from sacct's text to committed rows. Beside it slurm2sql from
        PyPI (its own environment, thrown away) on the same runs in its own columns, and a bare COPY of the same text
        into a table without an index.
tick    the daemon's tick for 1,000 accounts and 10,000 users over 10^4, 10^5 and 10^6 runs in the window and five times
        as many in the ledger, with 2,000 jobs running and 5,000 waiting. What a stand-in for Slurm takes is left out;
        the median of seven ticks counts. A process of its own each time, whose largest memory is told.

Each result is a line `FIGURE name value`, by the clock. On a machine that others keep busy the clock tells of them, so
the processor time of both sides, ours and Postgres's, stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import PENDING, RUNNING, Capacity, Job, Node, Picture
from slurm_fairshare.core.contract import Contract, Ladder
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import Share
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.tick import tick
from slurm_fairshare.slurm.accounting import DELIMITER, FIELDS, RowReader, parse_rows
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.schema import upgrade
from tests.postgres import a_postgres

NOW = datetime(2026, 11, 29, 12, 34, 56, tzinfo=UTC)
CLUSTER = "bench"
ACCOUNTS, USERS_EACH = 1000, 10
WEEK, DAY = 7 * 86_400, 86_400
NODES = 256
TICKS = 7
AIMS = {
    "ingest_vs_slurm2sql": "at least 10",
    "ingest_vs_copy": "at least 0.125 (within 8x of the bare COPY)",
    "tick_seconds_1e6": "below 1",
    "tick_growth_1e4_1e6": "below 100 (sub-linear)",
    "tick_peak_mb": "below 400",
}


# --- invented runs --------------------------------------------------------------------------------


def invented(count: int, end: int, span: int, seed: int = 1) -> Iterator[dict[str, str]]:
    """sacct's fields of runs that ended in the `span` seconds before `end`, in the order in which they ended."""
    chance = random.Random(seed)
    for number, ended in enumerate(sorted(end - chance.randrange(span) for _ in range(count))):
        started = ended - 1 - int(chance.expovariate(1 / 7200))
        submitted = started - chance.randrange(7200)
        gpus, qos = chance.choice((1, 1, 1, 2, 4, 8)), chance.choice(("fs-15m", "fs-1h", "fs-4h", "fs-unallocated"))
        account = chance.randrange(ACCOUNTS)
        user = account * USERS_EACH + chance.randrange(USERS_EACH)
        tres = f"billing={8 * gpus},cpu={8 * gpus},gres/gpu:h100={gpus},gres/gpu={gpus},mem={64_000 * gpus}M,node=1"
        yield {
            "JobIDRaw": str(1000 + number),
            "JobID": str(1000 + number),
            "DBIndex": str(10_463_701_019_408_106_496 + number),
            "Cluster": CLUSTER,
            "Account": f"team{account:04d}",
            "UID": str(10_000 + user),
            "User": f"user{user:05d}",
            "Partition": "gpu",
            "QOS": qos,
            "State": chance.choice(("COMPLETED", "COMPLETED", "FAILED", "PREEMPTED", "CANCELLED by 2001")),
            "Submit": str(submitted),
            "Eligible": str(submitted),
            "Start": str(started),
            "End": str(ended),
            "AllocTRES": tres,
            "NodeList": f"n{chance.randrange(NODES)}",
            "AdminComment": ""
            if qos == "fs-unallocated"
            else "fairshare min_runtime=900 resumable=yes priority=normal",
        }


def sacct_text(rows: Sequence[dict[str, str]]) -> str:
    return "".join(DELIMITER.join(row[name] for name in FIELDS) + DELIMITER + "\n" for row in rows)


# --- ingest ---------------------------------------------------------------------------------------


def ingest_ours(dsn: str, count: int) -> dict[str, float]:
    text = sacct_text(list(invented(count, int(NOW.timestamp()), DAY)))
    window = Window(NOW - timedelta(days=1), NOW)
    with PostgresStore(dsn, CLUSTER) as store:
        store.watermark()  # the connection and the check of the schema are no part of it
        with Stopwatch(dsn) as watch:
            runs, rejected = parse_rows(text, RowReader(Ladder.default(), ChargeRule(), NOW))
            store.record_runs(Batch(window, runs, rejected), NOW)
        peak = peak_mb()
        assert len(store.runs(window)) == count
        assert store.differing_rollups() == 0
    return watch.rates(count) | {"peak_mb": peak}


def ingest_copy(dsn: str, count: int) -> dict[str, float]:
    text = sacct_text(list(invented(count, int(NOW.timestamp()), DAY)))
    columns = ", ".join(f"c{place} text" for place in range(len(FIELDS) + 1))
    with psycopg.connect(dsn) as connection:
        connection.execute(f"create table bare ({columns})")
        connection.commit()
        with Stopwatch(dsn) as watch:
            with connection.cursor().copy("copy bare from stdin with (delimiter E'\\x1f')") as copy:
                copy.write(text)
            connection.commit()
    return watch.rates(count) | {"peak_mb": peak_mb()}


def ingest_slurm2sql(count: int, folder: Path) -> dict[str, float]:
    """Run by the python of an environment that has slurm2sql; see `_SLURM2SQL`."""
    python = folder / "slurm2sql" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "slurm2sql", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "slurm2sql"], check=True, stdin=subprocess.DEVNULL)
    rows = folder / "rows.json"
    rows.write_text(json.dumps(list(invented(count, int(NOW.timestamp()), DAY))), encoding="utf-8")
    words = [str(python), "-c", _SLURM2SQL, str(rows), str(folder / "slurm2sql.db")]
    return dict(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))


_SLURM2SQL = """
import json, pathlib, resource, sqlite3, sys, time
from datetime import datetime, timezone
import slurm2sql
rows = json.loads(pathlib.Path(sys.argv[1]).read_text())
names = [name for name in (*slurm2sql.COLUMNS, *slurm2sql.COLUMNS_EXTRA) if not name.startswith("_")]
moment = lambda text: datetime.fromtimestamp(int(text), timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
def line(row):
    known = dict(row, **{name: moment(row[name]) for name in ("Submit", "Start", "End", "Eligible")})
    known["Elapsed"] = "0-00:00:%02d" % ((int(row["End"]) - int(row["Start"])) % 60)
    return ";|;".join(known.get(name, "") for name in names)
lines = [";|;".join(names), *map(line, rows)]
database = sqlite3.connect(sys.argv[2])
begun, busy = time.perf_counter(), time.process_time()
errors = slurm2sql.slurm2sql(database, raw_sacct=lines, jobs_only=True)
database.commit()
seconds, busy = time.perf_counter() - begun, time.process_time() - busy
held = database.execute("select count(*) from slurm").fetchone()[0]
assert held == len(rows), (held, len(rows), errors)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"rows_per_second": len(rows) / seconds, "rows_per_busy": len(rows) / busy, "peak_mb": peak}))
"""


# --- tick -----------------------------------------------------------------------------------------

_FILL = """
insert into fairshare.run
    (cluster, key, job_id, label, account, account_key, user_name, uid, partition, qos, state, submit_at, eligible_at,
     start_at, end_at, gpus, gpu_count, cpus, memory_mb, milli_gpus, charged, min_runtime, resumable, team_priority,
     notice, nodes, flag, recorded_at)
select %(cluster)s, 'old' || n, n, n::text, account, account, 'user' || uid, 10000 + uid, 'gpu', qos, 'COMPLETED',
       started, started, started, ended, jsonb_build_object('h100', gpus), gpus, gpus * 8, gpus * 64000, gpus * 1000,
       qos <> 'fs-unallocated', 900, true, 'normal', null, 'n1', '', %(now)s
from (
    select n, 'team' || lpad((a)::text, 4, '0') as account, a * 10 + u as uid,
           (array['fs-15m', 'fs-1h', 'fs-4h', 'fs-unallocated'])[q] as qos, (array[1, 1, 1, 2, 4, 8])[g] as gpus, ended,
           ended - length * interval '1 second' as started
    from (
        select n, floor(random() * 1000)::int as a, floor(random() * 10)::int as u, 1 + floor(random() * 4)::int as q,
               1 + floor(random() * 6)::int as g, 1 + floor(-ln(1 - random()) * 7200) as length,
               %(now)s - floor(random() * %(span)s) * interval '1 second' as ended
        from generate_series(%(first)s, %(last)s) as n
    ) drawn
) made
"""


def fill(dsn: str, in_window: int) -> None:
    """Five weeks of runs at a steady rate, of which one week is the window; budgets; capacity."""
    total, bite = 5 * in_window, 500_000
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select setseed(0.5)")
        for first in range(1, total + 1, bite):
            key = {"cluster": CLUSTER, "now": NOW, "span": 5 * WEEK}
            connection.execute(_FILL, {**key, "first": first, "last": min(first + bite - 1, total)})
        connection.execute("vacuum analyze fairshare.run")
        connection.execute("vacuum analyze fairshare.usage_hour")
    with PostgresStore(dsn, CLUSTER) as store:
        store.record_past([(NOW - timedelta(days=60), (Capacity("h100", NODES * 8, 0, 0, None),))])
        start = NOW - timedelta(days=30)
        sets: dict[str, tuple[Share, ...]] = {"": tuple(Share(f"p{n}", 1 + n) for n in range(10))}
        for program in range(10):
            leaves = range(program * 100, program * 100 + 100)
            sets[f"p{program}"] = tuple(Share(f"t{n}", 1 + n % 7, f"team{n:04d}") for n in leaves)
        store.add_changeset("bench", "the programme", start, sets, created=start)


class TimedSlurm(MemorySlurm):
    """Slurm as quick as can be: a fixed picture, a few runs that have just ended. What it takes is counted."""

    def __init__(self, config: Config) -> None:
        super().__init__(CLUSTER, config.ladder, config.charge_rule, NOW)
        self.spent = 0.0
        self.jobs = tuple(_jobs())
        self.machines = tuple(_machines(self.jobs))
        self.polls = 0
        for number in range(ACCOUNTS):
            self.add_account(
                f"team{number:04d}", *(f"user{number * USERS_EACH + one:05d}" for one in range(USERS_EACH))
            )

    def runs(self, window: Window) -> Batch:
        """160 that ended since the last poll, and the 800 before them once more, which the overlap brings again."""
        self.polls += 1
        rows = list(invented(160, int(self.now.timestamp()), 60, seed=self.polls))
        again = list(invented(800, int(NOW.timestamp()), 600, seed=0))
        text = sacct_text([row | {"DBIndex": f"{self.polls}{row['DBIndex']}"} for row in rows] + again)
        runs, rejected = parse_rows(text, RowReader(self._ladder, self._rule, self.now))
        return Batch(window, (*runs, *self._open), rejected)

    @property
    def _open(self) -> tuple[Run, ...]:  # type: ignore[override]
        return tuple(self._row(job, f"open{job.job_id}") for job in self.jobs if job.state == RUNNING)

    @_open.setter
    def _open(self, _value: object) -> None:
        """The twin's own book of open runs is not used."""

    def picture(self, now: datetime) -> Picture:
        return Picture(CLUSTER, now, self.jobs, self.machines)


def _jobs() -> Iterator[Job]:
    """2,000 jobs of one GPU that run, 5,000 that wait."""
    for number in range(7000):
        running = number < 2000
        account = number % ACCOUNTS
        node = f"n{number % NODES}"
        yield Job(
            job_id=10_000_000 + number,
            label=str(10_000_000 + number),
            account=f"team{account:04d}",
            user=f"user{account * USERS_EACH:05d}",
            uid=10_000 + account * USERS_EACH,
            partitions=("gpu",),
            qos="fs-1h",
            state=RUNNING if running else PENDING,
            reason="None" if running else "Priority",
            priority=100_000,
            submit=NOW - timedelta(hours=3),
            eligible=NOW - timedelta(hours=3),
            start=NOW - timedelta(hours=1) if running else None,
            time_limit=timedelta(hours=8),
            wanted=Resources({"h100": 1}, 8, 64_000),
            node_count=1,
            nodes=(node,) if running else (),
            by_node={node: Resources({"h100": 1}, 8, 64_000)} if running else {},
            contract=Contract(3600),
        )


def _machines(jobs: Sequence[Job]) -> Iterator[Node]:
    held: dict[str, int] = {}
    for job in jobs:
        for node in job.nodes:
            held[node] = held.get(node, 0) + 1
    for number in range(NODES):
        name = f"n{number}"
        busy = Resources({"h100": held.get(name, 0)}, 8 * held.get(name, 0), 64_000 * held.get(name, 0))
        yield Node(name, frozenset({"MIXED"}), Resources({"h100": 8}, 64, 512_000), busy, ("gpu",))


def timed(slurm: TimedSlurm) -> None:
    """Count what every question and change takes."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                slurm.spent += time.perf_counter() - begun

        return call

    for name in ("runs", "picture", "past", "job", "held", "carry_out", "clock", "utilisation"):
        if hasattr(slurm, name):
            setattr(slurm, name, wrap(getattr(slurm, name)))


def ticks(dsn: str) -> dict[str, Any]:
    config = Config(cluster=CLUSTER, database_url=dsn)
    slurm = TimedSlurm(config)
    timed(slurm)
    seconds, busy = [], []
    with PostgresStore(dsn, CLUSTER, config.charge_rule, config.ladder) as store, store.lead():
        for number in range(TICKS + 2):
            slurm.now = NOW + timedelta(minutes=number)
            slurm.spent = 0.0
            with Stopwatch(dsn) as watch:
                tick(slurm, store, config, slurm.now)
            # The first makes the ladder in the stand-in and reads everything for the first time.
            if number > 1:
                seconds.append(watch.seconds - slurm.spent)
                busy.append(watch.busy)
        phases = store.recall("phases")
        assert store.differing_rollups() == 0
    return {
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "busy": statistics.median(busy),
        "peak_mb": peak_mb(),
        "phases": None if phases is None else phases[1],
    }


# --- all together ---------------------------------------------------------------------------------


class Stopwatch:
    """The time a block takes, by the clock and of the processor: of this process and of the database's sessions that
    are open before and after it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.seconds = self.busy = 0.0

    def __enter__(self) -> Stopwatch:
        self._sessions = self._of_sessions()
        self._begun, self._used = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begun
        self.busy = time.process_time() - self._used
        after = self._of_sessions()
        self.busy += sum(after[pid] - self._sessions[pid] for pid in after.keys() & self._sessions.keys())

    def rates(self, count: int) -> dict[str, float]:
        return {"rows_per_second": count / self.seconds, "rows_per_busy": count / self.busy}

    def _of_sessions(self) -> dict[int, float]:
        """By process id, as Linux counts it: Postgres runs on this machine."""
        with psycopg.connect(self._dsn) as connection:
            found = connection.execute("select pid from pg_stat_activity where datname = current_database()")
            stats = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split() for (pid,) in found}
        return {pid: (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") for pid, words in stats.items()}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def database(server_dsn: str, name: str) -> Iterator[str]:
    identifier = sql.Identifier(f"bench_{name}_{os.getpid()}")
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template template0").format(identifier))
    try:
        yield make_conninfo(server_dsn, dbname=f"bench_{name}_{os.getpid()}")
    finally:
        with psycopg.connect(server_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(identifier))


def child(what: str, *words: str) -> dict[str, Any]:
    """A process of its own, so that each has its own peak of memory."""
    command = [sys.executable, "-m", "benchmarks.bench_ledger", "--child", what, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def say(words: str) -> None:
    print(words, flush=True)


def bench(largest: int, rows: int, folder: Path) -> dict[str, float]:
    figures: dict[str, float] = {}
    with a_postgres("bench-") as dsn:
        with database(dsn, "ingest") as ours:
            upgrade(ours)
            mine = child("ours", ours, str(rows))
            bare = child("copy", ours, str(rows))
        other = ingest_slurm2sql(min(rows, 40_000), folder)
        for name, found in (("slurm-fairshare", mine), ("bare COPY", bare), ("slurm2sql", other)):
            say(
                f"ingest  {name:<16}{found['rows_per_second']:>10,.0f} rows/s   "
                f"{found['rows_per_busy']:>10,.0f} a second of processor time   peak {found['peak_mb']:,.0f} MB"
            )
        figures["ingest_vs_slurm2sql"] = mine["rows_per_second"] / other["rows_per_second"]
        figures["ingest_vs_copy"] = mine["rows_per_second"] / bare["rows_per_second"]
        by_size = {}
        for size in (10_000, 100_000, 1_000_000):
            if size <= largest:
                by_size[size] = _tick_of(dsn, size)
    figures["tick_seconds_1e6"] = by_size[max(by_size)]["seconds"]
    figures["tick_growth_1e4_1e6"] = by_size[max(by_size)]["seconds"] / by_size[min(by_size)]["seconds"]
    figures["tick_peak_mb"] = by_size[max(by_size)]["peak_mb"]
    return figures


def _tick_of(server_dsn: str, size: int) -> dict[str, Any]:
    with database(server_dsn, f"tick{size}") as dsn:
        upgrade(dsn)
        begun = time.perf_counter()
        fill(dsn, size)
        filled = time.perf_counter() - begun
        found = child("ticks", dsn)
        with psycopg.connect(dsn) as connection:
            held = connection.execute(
                "select count(*) from fairshare.run where end_at > %s", (NOW - timedelta(days=7),)
            )
            (inside,) = held.fetchone() or (0,)
    say(
        f"tick    {inside:>9,} runs in the window, {5 * size:>9,} in the ledger (filled in {filled:,.0f} s): "
        f"{found['seconds']:.3f} s (from {found['fastest']:.3f} to {found['slowest']:.3f}), "
        f"{found['busy']:.2f} s of processor time with the stand-in's, "
        f"peak {found['peak_mb']:,.0f} MB"
    )
    say(f"        by step: {found['phases']}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1_000_000, help="most runs in the window")
    parser.add_argument("--rows", type=int, default=142_857, help="runs that are ingested")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, *words = options.child
        if what == "ticks":
            print(json.dumps(ticks(words[0])))
        else:
            print(json.dumps((ingest_ours if what == "ours" else ingest_copy)(words[0], int(words[1]))))
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-ledger-"))
    try:
        figures = bench(options.largest, options.rows, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.largest != 1_000_000:
        say(f"The names say 1e6; this run went up to {options.largest:,}.")
    for name, value in figures.items():
        say(f"FIGURE {name} {value:.3g}    (aim: {AIMS[name]})")


if __name__ == "__main__":
    main()
