"""The faults: each puts itself in and takes itself away, and says what was seen meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg

from slurm_fairshare.core.tree import Share
from tests.chaos.storm import Storm
from tests.cluster.product import TEAMS

HELD = 10.0
"""Seconds for which a fault stays in."""


# --- the daemon -----------------------------------------------------------------------------------


def _leader(it: Storm) -> str:
    it.until(it.leader, "a leader", 60)
    found = it.leader()
    assert found is not None
    return found


def _taken_over(it: Storm, former: str, limit: float) -> str:
    begun = time.monotonic()
    it.until(lambda: it.leader() not in (None, former), f"another leader than {former}", limit)
    return f"another daemon led after {time.monotonic() - begun:.1f} s"


def kill_leader(it: Storm) -> str:
    """kill -9 of the daemon that leads; two ticks are eight seconds."""
    former = _leader(it)
    it.daemons[former].kill()
    it.daemons[former].wait()
    words = _taken_over(it, former, 30)
    it.start(former)
    return words


def freeze_leader(it: Storm) -> str:
    """A daemon that hangs keeps its session until its lease is over, and is fenced when it wakes."""
    former = _leader(it)
    it.daemons[former].send_signal(signal.SIGSTOP)
    words = _taken_over(it, former, 60)
    it.daemons[former].send_signal(signal.SIGCONT)
    time.sleep(HELD)
    assert it.leader() != former, "who was frozen leads again without having asked"
    return f"{words}; the frozen one stood by when it woke"


@contextmanager
def clock_of_both(it: Storm, hours: int) -> Iterator[None]:
    """Both daemons anew, on a host whose clock is set while they run."""
    dial = it.home / "clock"
    dial.write_text("0")
    names = list(it.daemons)
    it.stop_all()
    for name in names:
        it.start(name, [sys.executable, "-m", "tests.chaos.clocked", str(dial)])
    begun = datetime.now(UTC)
    it.until(lambda: it.settled(begun), "a tick of the daemons started anew", 60)
    dial.write_text(str(hours * 3600))
    try:
        yield
    finally:
        dial.write_text("0")


def _clock(hours: int, it: Storm) -> str:
    with clock_of_both(it, hours):
        time.sleep(1)
        asked = datetime.now(UTC)
        before = len(it.store.decisions(it.began))
        time.sleep(HELD)
        assert not it.settled(asked), "a tick was recorded by a wrong clock"
        assert len(it.store.decisions(it.began)) == before, "somebody was told to yield by a wrong clock"
    failures = it.store.failures(it.began - timedelta(hours=2))
    assert any("slurmctld's clock" in one.error for one in failures)
    return "nothing was pushed or stopped meanwhile"


def clock_ahead(it: Storm) -> str:
    return _clock(1, it)


def clock_behind(it: Storm) -> str:
    return _clock(-1, it)


# --- Postgres -------------------------------------------------------------------------------------


def restart_postgres(it: Storm) -> str:
    it.servers.now.stop()
    time.sleep(HELD)
    it.servers.now.start()
    return f"down for {HELD:g} s"


def kill_postgres(it: Storm) -> str:
    it.servers.kill()
    it.servers.now.start()
    return "kill -9 of its first process"


def freeze_postgres(it: Storm) -> str:
    """Connections stay open and nothing answers, as with a network that swallows packets."""
    pids = it.servers.processes()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2 * HELD)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    return f"no process of it answered for {2 * HELD:g} s"


def fail_over(it: Storm) -> str:
    it.servers.fail_over()
    return "the standby was promoted; the daemons found it by their address (target_session_attrs=read-write)"


def fill_disk(it: Storm) -> str:
    """The disk of Postgres is full: what is written fails, what is there stays."""
    size = it.servers.now.place / "filler"
    begun = datetime.now(UTC)
    with size.open("wb") as filler:
        try:
            while True:
                filler.write(b"\0" * 1_048_576)
                filler.flush()
        except OSError:
            pass  # full
    failed = _writes_fail(it)
    time.sleep(HELD)
    stuck = not it.settled(begun)
    size.unlink()
    it.servers.now.start()  # it ends itself where it could not write its log
    return "writes failed with: " + failed + ("; no tick was recorded meanwhile" if stuck else "")


def _writes_fail(it: Storm) -> str:
    for _ in range(200):
        try:
            with psycopg.connect(
                it.servers.now.database("fairshare"), autocommit=True, connect_timeout=5
            ) as connection:
                connection.execute("create table if not exists public.ballast (words text)")
                connection.execute("alter table public.ballast alter words set storage plain")
                connection.execute("insert into public.ballast select repeat('x', 7000) from generate_series(1, 500)")
        except psycopg.Error as error:
            return str(error).splitlines()[0]
    raise AssertionError("the disk did not fill")


# --- Slurm ----------------------------------------------------------------------------------------


def _turn_budget(it: Storm, first: str) -> None:
    """Shares that turn the order round, so that there is something to push."""
    leaves = tuple(Share(name, 100.0 if name == first else weight / 10, name) for name, weight in TEAMS.items())
    it.store.add_changeset("ada", f"{first} first", datetime.now(UTC), {"lab": leaves})


def restart_slurmctld(it: Storm) -> str:
    """While changes are carried out: a budget has just been turned round."""
    _turn_budget(it, "language")
    time.sleep(2)
    it.cluster.restart("slurmctld")
    return "in the middle of a push"


def kill_slurmctld(it: Storm) -> str:
    _turn_budget(it, "vision")
    time.sleep(2)
    it.cluster.kill("slurmctld")
    time.sleep(HELD)
    it.cluster.start("slurmctld")
    return f"kill -9 in the middle of a push, down for {HELD:g} s"


def kill_slurmdbd(it: Storm) -> str:
    it.cluster.kill("slurmdbd")
    time.sleep(HELD)
    it.cluster.start("slurmdbd")
    return f"kill -9, down for {HELD:g} s"


def restart_mariadb(it: Storm) -> str:
    it.cluster.restart("mariadb")
    it.cluster.wait_healthy("slurmdbd")
    return "under slurmdbd"


def kill_slurmd(it: Storm) -> str:
    """A node's crash takes its runs with it; Slurm requeues them."""
    it.cluster.kill("n2")
    time.sleep(2)
    it.cluster.start("n2")
    return "a node and what ran on it; its run came again"


def kill_munge(it: Storm) -> str:
    """Every question is denied while the key daemon is away."""
    it.cluster.sh("slurmctld", ["pkill", "-9", "munged"])
    time.sleep(HELD)
    it.cluster.sh(
        "slurmctld",
        ["sh", "-c", "rm -f /run/munge/*; exec setpriv --reuid munge --regid munge --init-groups munged --force"],
    )
    return f"no question was allowed for {HELD:g} s"


def break_plugin(it: Storm) -> str:
    """slurmctld keeps the script it has."""
    place = "/etc/slurm/job_submit.lua"
    it.cluster.sh("slurmctld", ["sh", "-c", f"rm {place}; echo 'function slurm_job_submit(' > {place}"])
    job = it.cluster.sbatch(
        "alice", "-N1", "--gpus-per-node=8", "--comment", "min_runtime=1m resumable=yes", script="sleep 5"
    )
    it.jobs.append(int(job))
    assert it.cluster.job(job)["QOS"] == "fs-15m", "a contract was not kept"
    time.sleep(2)
    it.cluster.sh("slurmctld", ["ln", "-sfn", "/usr/local/share/slurm-fairshare/plugin/job_submit.lua", place])
    return "a job submitted meanwhile got its contract from the script slurmctld had"


# --- the network ----------------------------------------------------------------------------------


def _network(it: Storm) -> str:
    form = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"
    words = ["docker", "inspect", "--format", form, it.cluster.container("slurmctld")]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0]


def _cut(it: Storm, service: str) -> str:
    network, container = _network(it), it.cluster.container(service)
    subprocess.run(["docker", "network", "disconnect", network, container], check=True, capture_output=True)
    time.sleep(HELD)
    words = ["docker", "network", "connect", "--alias", service, network, container]
    subprocess.run(words, check=True, capture_output=True)
    return f"out of the network for {HELD:g} s"


def cut_slurmdbd(it: Storm) -> str:
    return _cut(it, "slurmdbd")


def cut_mariadb(it: Storm) -> str:
    return _cut(it, "mariadb")


def cut_node(it: Storm) -> str:
    return _cut(it, "n2")
