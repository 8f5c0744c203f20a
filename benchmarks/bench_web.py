"""The dashboard under two hundred readers for a minute, and with ten thousand jobs in the queue.

    python -m benchmarks.bench_web [--cluster] [SECONDS]

With --cluster on a living one, which is started if it does not run: a daemon that ticks, the pages and `shares` as
processes; slurmctld and slurmdbd count what they are asked, in a quiet time and then under the readers. Without it,
served on an invented lab in a Postgres of its own. Readers refresh pages about once a second, each as a browser does
that remembers tags; meanwhile `slurm-fairshare shares` is run again and again, as a user runs it. Tools of Slurm
stand first on PATH that do nothing but note that they were called: none may be.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
from starlette.types import ASGIApp

from slurm_fairshare.config import Config, WebSection
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.schema import upgrade
from slurm_fairshare.web.server import application
from tests.cluster.cluster import Cluster
from tests.cluster.readers import DAEMON, READER_USER, shared_run
from tests.postgres import folder, own_postgres
from tests.web.crowd import Commands, Crowd, Watch, refresh, straight
from tests.web.sample import CLUSTER, fill
from tests.web.test_load import PAGES, READERS, transactions

DAYS, JOBS = 14, 10_000
ONE_SECOND = 1.0
"""So long a page may take the server with all these jobs waiting."""


def main(seconds: float) -> int:
    with own_postgres("bench-web-") as address, folder("bench-web-") as home:
        upgrade(address)
        with PostgresStore(address, CLUSTER) as store:
            fill(store, now=datetime.now(UTC), days=DAYS, waiting=JOBS, every=4)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("analyze")
        watch = Watch(home)
        os.environ["PATH"] = f"{watch.folder}{os.pathsep}{os.environ['PATH']}"
        return measured(address, watch, seconds)


def on_cluster(seconds: float) -> int:
    """What slurmctld and slurmdbd were asked, by user, without readers and with them."""
    run = shared_run(Cluster.up("trixie"), seconds)
    told(run.crowd, seconds)
    print(f"`shares` was run {run.commands} times beside them {run.failed[:1]}")
    for server in ("slurmctld", "slurmdbd"):
        quiet, busy = getattr(run.quiet, server), getattr(run.busy, server)
        print(f"FIGURE readers_calls_{server} {busy[READER_USER]}  (the readers' own; aim: 0)")
        print(f"FIGURE daemon_calls_{server} {busy[DAEMON]}  (without readers: {quiet[DAEMON]})")
    print(f"FIGURE readers_answers {len(run.crowd.seconds)}")
    print(f"FIGURE readers_p99_seconds {run.crowd.at(0.99):.3f}")
    asked = run.busy.slurmctld[READER_USER] + run.busy.slurmdbd[READER_USER]
    return int(bool(asked or run.crowd.wrong or run.failed))


def measured(address: str, watch: Watch, seconds: float) -> int:
    slow = cold(address)
    app = application(Config(cluster=CLUSTER, database_url=address))
    try:
        asyncio.run(refresh(straight(app), PAGES, 1, 10.0))  # as the server does before its first reader
        commands = Commands(SLURM_FAIRSHARE_DATABASE_URL=address, SLURM_FAIRSHARE_CLUSTER=CLUSTER)
        before = transactions(address)
        commands.start()
        crowd = asyncio.run(refresh(straight(app), PAGES, READERS, seconds, pause=1.0))
        commands.stop()
        spent = transactions(address) - before
    finally:
        app.close()
    told(crowd, seconds)
    print(f"`shares` was run {commands.runs} times beside them")
    print(f"transactions in Postgres: {spent:,}, {spent / seconds:.1f} a second, those of `shares` among them")
    print(f"calls of Slurm's tools: {len(watch.calls)}")
    return int(bool(crowd.wrong or watch.calls or commands.failed or slow > ONE_SECOND))


def cold(address: str) -> float:
    """Each page made anew, several times: the seconds it takes when nothing is finished yet. Returns the slowest."""
    brief = WebSection(refresh=timedelta(milliseconds=100))
    app = application(Config(cluster=CLUSTER, database_url=address, web=brief))
    print(f"pages made anew, {JOBS:,} jobs waiting (first: with all that is read once; then the median of 5):")
    slowest = 0.0
    for page in PAGES:
        first, *later = asyncio.run(times(app, page))
        slowest = max(slowest, statistics.median(later))
        print(f"  {page:28} {first * 1000:7.0f} ms {statistics.median(later) * 1000:7.0f} ms", flush=True)
    app.close()
    return slowest


async def times(app: ASGIApp, page: str) -> Sequence[float]:
    found = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://dashboard") as client:
        for _ in range(6):
            begun = time.monotonic()
            answer = await client.get(page)
            found.append(time.monotonic() - begun)
            assert answer.status_code == 200, page
            await asyncio.sleep(0.2)  # until finished answers are let go
    return found


def told(crowd: Crowd, seconds: float) -> None:
    count = len(crowd.seconds)
    print(f"{READERS} readers for {seconds:g} s: {count:,} answers ({count / seconds:,.0f} a second)")
    print(f"  half within {crowd.at(0.5) * 1000:.0f} ms, 99% within {crowd.at(0.99) * 1000:.0f} ms")
    print(f"  {crowd.kept:,} of them said that nothing had changed; {len(crowd.wrong)} went wrong {crowd.wrong[:3]}")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--cluster"]
    start = on_cluster if "--cluster" in sys.argv else main
    raise SystemExit(start(float(words[0]) if words else 60.0))
