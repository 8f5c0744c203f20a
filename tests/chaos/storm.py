"""The product as a site runs it, in a storm: two daemons, a real cluster under load, a pair of Postgres servers.

A fault is put in, held, taken away; then everything that must hold is checked, and how long it took is measured.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.loop import LEADER
from slurm_fairshare.daemon.tick import PENDING
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.store.embedded import Embedded
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.schema import upgrade
from tests.cluster.cluster import REPOSITORY, Cluster, CommandError
from tests.cluster.product import PEOPLE, TEAMS
from tests.postgres import folder

PROGRAM = [sys.executable, "-c", "from slurm_fairshare.cli.main import main; main()"]
DISK = "400m"
MINIMUM = 10
"""Minimum runtime of the load's jobs, in seconds."""

AUDIT_LAG = 30
"""Seconds of the newest past that the ledger is not held to."""

STOPPED = ("REQUEUED", "PREEMPTED", "CANCELLED")
FINE = ("COMPLETED", "RUNNING", "PENDING", "COMPLETING", "REQUEUED", "NODE_FAIL")
"""States that a job of the load may be in: none was lost."""

SETTINGS = {
    "CLUSTER": "lab",
    "LOG_FORMAT": "json",
    "DATABASE_TIMEOUT": "5s",
    "DAEMON__INTERVAL": "4s",
    "DAEMON__MAX_BACKOFF": "8s",
    "DAEMON__FIRST_POLL": "30m",
    "REBALANCE__INTERVAL": "2s",
    "REBALANCE__MAX_AGE": "1m",
    "REBALANCE__SETTLE": "20s",
    "REBALANCE__COOLDOWN": "30s",
    "SLURM__TIMEOUT": "20s",
}


@dataclass(frozen=True)
class Row:
    """What a fault did, and what was measured."""

    fault: str
    recovered: float
    remark: str = ""


class Servers:
    """Two Postgres servers, the second a standby of the first. Data that is lost with the machine."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.first, self.second = Embedded(home / "a"), Embedded(home / "b")
        self.now = self.first
        self._mounted = False

    @property
    def dsn(self) -> str:
        """The address of whichever takes changes."""
        hosts = f"{self.first.place},{self.second.place}"
        return f"postgresql://postgres@/fairshare?host={hosts}&target_session_attrs=read-write"

    def start(self) -> None:
        with psycopg.connect(self.first.start(), autocommit=True) as connection:
            connection.execute("create database fairshare")

    def add_standby(self) -> None:
        """A copy of the first that follows it, on a disk of its own that is small enough to be filled."""
        place = self.second.place
        self.second._prepare()
        owner = place.stat()
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", str(place)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.fail(f"the small disk for Postgres cannot be mounted (run as root): {done.stderr}", pytrace=False)
        self._mounted = True
        os.chown(place, owner.st_uid, owner.st_gid)
        source = ("-h", str(self.first.place), "-U", "postgres")
        self.second._run("pg_basebackup", *source, "-D", str(place), "-R", "-c", "fast")
        (place / ".s.PGSQL.5432.lock").unlink(missing_ok=True)  # the first's own, copied with the rest
        self.second.start()

    def processes(self) -> list[int]:
        """The server's first process and its children."""
        first = int((self.now.place / "postmaster.pid").read_text().split()[0])
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    def kill(self) -> None:
        """kill -9 of the server's first process; the others notice, and end.

        Where nobody reaps the dead, their number looks alive to the next server: its lock files go.
        """
        pids = self.processes()
        os.kill(pids[0], signal.SIGKILL)
        while any(map(alive, pids)):
            time.sleep(0.1)
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self.now.place / lock).unlink(missing_ok=True)

    def fail_over(self) -> None:
        """The first is gone for good, the second takes over."""
        self.kill()
        self.second._run("pg_ctl", "-D", str(self.second.place), "promote")
        self.now = self.second

    def close(self) -> None:
        for server in (self.first, self.second):
            if server.place.exists():
                server.stop()
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.second.place)], capture_output=True, check=False)
        self.first.remove()
        self.second.remove()


def alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass
class Storm:
    """`with storm(cluster) as it:` then `it.fault(...)` for each, and `it.verify()`."""

    cluster: Cluster
    servers: Servers
    home: Path
    began: datetime
    rows: list[Row] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    sentinel: int = 0
    sentinel_start: str = ""

    def __post_init__(self) -> None:
        self.store = PostgresStore(self.servers.dsn, "lab", statement_timeout=timedelta(seconds=10))
        self._calm = threading.Event()
        self._load = threading.Thread(target=self._submit, daemon=True)

    # --- processes

    @property
    def environment(self) -> dict[str, str]:
        prefix = json.dumps(self.cluster.command_prefix())
        settings = {**SETTINGS, "DATABASE_URL": self.servers.dsn, "SLURM__COMMAND_PREFIX": prefix}
        return {**os.environ, **{f"SLURM_FAIRSHARE_{name}": value for name, value in settings.items()}}

    def start(self, name: str, program: Sequence[str] = PROGRAM) -> None:
        environment = {**self.environment, "PYTHONPATH": str(REPOSITORY)}
        with (self.home / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                [*program, "daemon"], cwd=self.home, env=environment, stdout=log, stderr=log
            )

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words], cwd=self.home, env=self.environment, capture_output=True, text=True, check=False
        )

    def leader(self) -> str | None:
        """The name of the daemon that leads, None while nobody does."""
        found = self.store.recall(LEADER) if self.store.led() else None
        pid = None if found is None else found[1]["pid"]
        return next((name for name, daemon in self.daemons.items() if daemon.pid == pid), None)

    def stop_all(self) -> None:
        for daemon in self.daemons.values():
            daemon.send_signal(signal.SIGCONT)
            daemon.kill()
            daemon.wait()

    # --- load

    def begin(self) -> None:
        """A budget, the ladder, a run that must survive it all, and jobs of seconds that come without end."""
        for team in TEAMS:
            self.cluster.add_account(team, *PEOPLE.get(team, ()))
        leaves = tuple(Share(name, weight, name) for name, weight in TEAMS.items())
        now = datetime.now(UTC)
        self.store.add_changeset("ada", "the programme", now, {"": (Share("lab", 1),), "lab": leaves}, created=now)
        self.start("first")
        self.until(lambda: self.settled(now), "the first tick", 90)
        self.start("second")
        words = ("-N1", "--gpus-per-node=8", "-w", "n1", "--comment", "min_runtime=8h resumable=yes")
        self.sentinel = int(self.cluster.sbatch("dan", *words, script="sleep 7200"))
        self.jobs.append(self.sentinel)
        self.sentinel_start = self.cluster.wait_state(self.sentinel, "RUNNING", timeout=90)["StartTime"]
        self._load.start()

    def _submit(self) -> None:
        """Two teams take turns on the other node; what cannot be submitted during a fault is submitted later."""
        users = itertools.cycle(("alice", "dan"))
        comment = f"min_runtime={MINIMUM}s resumable=yes"
        while not self._calm.wait(4):
            try:
                if self._waiting() < 4:
                    words = ("-N1", "--gpus-per-node=8", "--comment", comment)
                    self.jobs.append(int(self.cluster.sbatch(next(users), *words, script="sleep 25")))
            except (CommandError, ValueError):
                continue  # slurmctld is away: that is the fault of the hour

    def _waiting(self) -> int:
        return len(self.cluster.slurm_output("squeue", "-h", "-a", "-t", "PD", "-o", "%A").split())

    # --- faults

    def fault(self, name: str, act: Callable[[Storm], str | None], patience: float = 90) -> Row:
        """Put the fault in and take it away (`act` does both), then wait until the desired state is reached again."""
        act_remark = act(self) or ""
        healed = datetime.now(UTC)
        begun = time.monotonic()
        self.until(lambda: self.settled(healed), f"recovery from: {name}", patience)
        took = time.monotonic() - begun
        self.protected()
        row = Row(name, took, act_remark)
        self.rows.append(row)
        print(f"{name}: recovered after {took:.1f} s. {act_remark}", flush=True)
        return row

    def settled(self, since: datetime) -> bool:
        """Whether a tick that began since then has pushed all there was to push."""
        try:
            last, pending = self.store.last_tick(), self.store.recall(PENDING)
            return last is not None and last.at >= since and last.pushed and pending is not None and pending[1] == 0
        except FairshareError:
            return False

    def until(self, probe: Callable[[], object], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not probe():
            assert time.monotonic() < end, f"waited {seconds:g} s for {what}\n{self.logs()}"
            time.sleep(0.3)

    def logs(self) -> str:
        lines = []
        for log in sorted(self.home.glob("*.log")):
            lines += [log.name, *log.read_text(errors="replace").splitlines()[-12:]]
        return "\n".join(line[:400] for line in lines)

    # --- what must hold

    def protected(self) -> None:
        """No run was stopped before its minimum; the one under an eight-hour contract still runs."""
        job = self.cluster.job(self.sentinel)
        assert (job["JobState"], job["StartTime"]) == ("RUNNING", self.sentinel_start), job
        for number, state, elapsed in self._runs():
            if state.startswith(STOPPED) and number in self.jobs:
                assert elapsed >= MINIMUM, f"job {number} was stopped after {elapsed} s ({state})\n{self.logs()}"

    def _runs(self) -> list[tuple[int, str, int]]:
        since = f"uts{int(self.began.timestamp())}"
        columns = ("-o", "JobIDRaw,State,ElapsedRaw,Start")
        text = self.cluster.slurm_output("sacct", "-a", "-X", "-D", "-n", "-P", "-S", since, *columns)
        rows = [line.split("|") for line in text.splitlines()]
        started = [row for row in rows if row[3] not in ("Unknown", "None", "")]
        return [(int(row[0]), row[1], int(row[2] or 0)) for row in started]

    def verify(self) -> None:
        """At the end, with the load gone: no job lost, the ledger proven, nothing left to push."""
        self._calm.set()
        self._load.join(60)
        self.protected()
        self._nothing_lost()
        calm = datetime.now(UTC)
        self.until(lambda: self.settled(calm), "a tick after the storm", 60)
        self.until(lambda: self.command("plan", "-n", "-P").stdout.strip() == "", "an empty plan", 60)
        time.sleep(AUDIT_LAG)  # slurmdbd hears of a start somewhat later; polls overlap for that
        audit = self.command("audit", "--since", self.began.isoformat(), "--until", f"{AUDIT_LAG}s", "--json")
        assert audit.returncode == 0, audit.stdout + audit.stderr
        status = self.command("status")
        assert status.returncode in (0, 1), status.stdout

    def _nothing_lost(self) -> None:
        """Every job came to a good end; slurmdbd hears of the last ones somewhat later."""
        end = time.monotonic() + 60
        while lost := self._lost():
            assert time.monotonic() < end, f"jobs were lost: {lost}"
            time.sleep(2)

    def _lost(self) -> dict[int, str]:
        since = f"uts{int(self.began.timestamp())}"
        text = self.cluster.slurm_output("sacct", "-a", "-X", "-n", "-P", "-S", since, "-o", "JobIDRaw,State")
        states = {int(line.split("|")[0]): line.split("|")[1] for line in text.splitlines()}
        return {job: states.get(job, "unknown") for job in self.jobs if states.get(job, "") not in FINE}

    def table(self) -> str:
        lines = ["| fault | desired state again after | remark |", "| --- | ---: | --- |"]
        lines += [f"| {row.fault} | {row.recovered:.0f} s | {row.remark} |" for row in self.rows]
        return "\n".join(lines) + "\n"


@contextmanager
def storm(cluster: Cluster, standby: bool = True) -> Iterator[Storm]:
    """Everything up and under load; all of it gone afterwards."""
    with folder("chaos-") as home:
        servers = Servers(home)
        it: Storm | None = None
        try:
            servers.start()
            upgrade(servers.first.database("fairshare"))
            if standby:
                servers.add_standby()
            it = Storm(cluster, servers, home, datetime.now(UTC).replace(microsecond=0))
            it.begin()
            yield it
        finally:
            if it is not None:
                it._calm.set()
                it.stop_all()
                it.store.close()
            servers.close()
