"""The container cluster as tests use it: run commands in it, submit jobs, wait, break things, start afresh.

Everything goes through `docker exec` with argv lists, from the host, exactly as the product's own adapter can do it
(`Cluster.command_prefix`).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

REPOSITORY = Path(__file__).resolve().parents[2]
PEOPLE = ("alice", "bob", "carol", "dan", "erin", "frank")
# What the cluster has when it is new; `reset` removes the rest.
OWN_ACCOUNTS = frozenset({"root", "operators"})
OWN_USERS = frozenset({"root", "fairshare"})
OWN_QOS = frozenset({"normal"})
SLURM_CONF = "/etc/slurm/slurm.conf"
LIVE_STATES = frozenset({"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "REQUEUED"})

T = TypeVar("T")


class CommandError(Exception):
    """A command in the cluster ended with an error, which is its message."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.returncode = done.returncode
        self.stderr = done.stderr
        super().__init__(f"{' '.join(done.args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


class JobId(int):
    """A job's number, and what sbatch said to its user (job_submit.lua speaks through it)."""

    messages: str

    def __new__(cls, number: int, messages: str) -> JobId:
        self = super().__new__(cls, number)
        self.messages = messages
        return self


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is up. `project` begins the name of each of its containers."""

    project: str
    release: str
    slurm: str
    database_url: str

    @classmethod
    def up(cls, release: str, *options: str) -> Cluster:
        """Starts the cluster, or finds it running; raises CommandError with the reason if it cannot."""
        tool = str(REPOSITORY / "docker" / "cluster")
        _run([tool, "up", "--release", release, *options])
        found = json.loads(_run([tool, "status", "--release", release, "--json"]).stdout)
        return cls(found["project"], found["release"], found["slurm"], found["database_url"])

    # --- commands ---------------------------------------------------------------------------------------------

    def container(self, service: str) -> str:
        return f"{self.project}-{service}"

    def command_prefix(self, service: str = "slurmctld", user: str = "fairshare") -> list[str]:
        """The argv that any command of Slurm's can follow, to run it in the cluster from the host.

        TZ and SLURM_TIME_FORMAT are passed on if the caller's environment has them. Standard input is connected:
        give it something, or DEVNULL. Ending this command does not end the one inside the container.
        """
        passed = ["-e", "TZ", "-e", "SLURM_TIME_FORMAT"]
        return ["docker", "exec", "-i", *passed, "-u", user, self.container(service)]

    def sh(
        self,
        service: str,
        argv: Sequence[str],
        user: str | None = None,
        check: bool = True,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a service's container, as root unless a user is named."""
        return _run([*self.command_prefix(service, user or "root"), *argv], check=check, stdin=stdin)

    def slurm_output(self, *argv: str, user: str | None = None) -> str:
        """What a Slurm command prints on the controller."""
        return self.sh("slurmctld", argv, user=user).stdout.strip()

    def sacctmgr(self, *argv: str) -> str:
        """Changes accounting without being asked whether one is sure."""
        return self.slurm_output("sacctmgr", "-i", *argv)

    def add_account(self, name: str, *users: str, parent: str = "root", qos: str = "") -> None:
        """An account with its users; for a user who has none yet it becomes the default account.

        job_submit.lua gives every job a rung of the ladder, so an account whose users are to submit needs `qos`
        ("fs-unallocated,fs-1h"), unless the product's own `apply` sets them. Missing ones are made, by name only.
        """
        self.sacctmgr("add", "account", name, f"parent={parent}", f"Description={name}", "Organization=test")
        if users:
            self.sacctmgr("add", "user", ",".join(users), f"account={name}")
        if qos:
            missing = set(qos.split(",")) - self._names("qos", "name")
            if missing:
                self.sacctmgr("add", "qos", ",".join(sorted(missing)))
            self.sacctmgr("modify", "account", name, "set", f"qos+={qos}")

    def write(self, place: str, text: str) -> None:
        """Makes a file anew on the controller."""
        self.sh("slurmctld", ["sh", "-c", f"rm -f {place}; cat > {place}"], stdin=text)

    def reconfigure(self) -> None:
        self.slurm_output("scontrol", "reconfigure")
        self.wait(
            lambda: self.sh("slurmctld", ["scontrol", "show", "assoc_mgr", "flags=qos"], check=False),
            30,
            "slurmctld to answer after a reconfigure",
            until=lambda done: done.returncode == 0 and "QOS=" in done.stdout,
        )

    @contextmanager
    def configured(self, *lines: str) -> Iterator[None]:
        """slurm.conf with these lines at its end: of two lines of a parameter the last one holds."""
        before = self.sh("slurmctld", ["cat", SLURM_CONF]).stdout
        self.write(SLURM_CONF, before + "\n".join(lines) + "\n")
        try:
            self.reconfigure()
            yield
        finally:
            self.write(SLURM_CONF, before)
            self.reconfigure()

    # --- jobs -------------------------------------------------------------------------------------------------

    def sbatch(self, user: str, *args: str, script: str = "sleep 600", account: str | None = None) -> JobId:
        """Submits a batch job as that user. Raises CommandError, holding what the user sees, if it is refused."""
        account_option = ["-A", account] if account else []
        argv = ["sbatch", "--parsable", "-D", f"/home/{user}", *account_option, *args]
        done = self.sh("slurmctld", argv, user=user, stdin=f"#!/bin/bash\n{script}\n")
        return JobId(int(done.stdout.strip().partition(";")[0]), done.stderr)

    def refused(self, user: str, *args: str, account: str | None = None) -> str:
        """What a user is told whose job must not be accepted."""
        try:
            accepted = self.sbatch(user, *args, account=account)
        except CommandError as failure:
            return failure.stderr
        raise AssertionError(f"job {int(accepted)} was accepted: sbatch {' '.join(args)}\n{accepted.messages}")

    def job(self, job_id: int) -> dict[str, str]:
        """`scontrol show job` as a dict. Where a comment repeats a field's name, the real field comes first."""
        text = self.slurm_output("scontrol", "-d", "-o", "show", "job", str(int(job_id)))
        fields: dict[str, str] = {}
        for word in text.split():
            name, equals, value = word.partition("=")
            if equals:
                fields.setdefault(name, value)
        return fields

    def state(self, job_id: int) -> str:
        return self.job(job_id)["JobState"]

    def wait(self, probe: Callable[[], T], timeout: float, what: str, until: Callable[[T], object] = bool) -> T:
        """Asks `probe` again and again until its answer satisfies `until`, and returns that answer."""
        end = time.monotonic() + timeout
        while True:
            seen = probe()
            if until(seen):
                return seen
            if time.monotonic() > end:
                queue = self.slurm_output("squeue", "-a", "-o", "%.9i %.10u %.10a %.15q %.10T %.10Q %.22R")
                raise AssertionError(f"waited {timeout:g} s for {what}; last seen: {seen!r}\n{queue}")
            time.sleep(0.4)

    def wait_state(self, job_id: int, state: str, timeout: float = 30) -> dict[str, str]:
        """Waits until a job is in that state, and returns the job."""
        what = f"job {int(job_id)} to be {state}"
        return self.wait(lambda: self.job(job_id), timeout, what, until=lambda job: job["JobState"] == state)

    # --- containers -------------------------------------------------------------------------------------------

    def stop(self, service: str) -> None:
        _run(["docker", "stop", "-t", "10", self.container(service)])

    def kill(self, service: str) -> None:
        """Ends a service at once, as a crash does."""
        _run(["docker", "kill", self.container(service)])

    def start(self, service: str) -> None:
        """Starts a service and waits until it works."""
        _run(["docker", "start", self.container(service)])
        self.wait_healthy(service)

    def restart(self, service: str) -> None:
        _run(["docker", "restart", "-t", "10", self.container(service)])
        self.wait_healthy(service)

    def wait_healthy(self, service: str, timeout: float = 60) -> None:
        form = "{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}"
        inspect = ["docker", "inspect", "--format", form, self.container(service)]
        end = time.monotonic() + timeout
        while (state := _run(inspect).stdout.strip()) not in ("healthy", "running"):
            if time.monotonic() > end:
                logs = _run(["docker", "logs", "--tail", "20", self.container(service)])
                raise AssertionError(f"{service} is {state} after {timeout:g} s\n{logs.stdout}{logs.stderr}")
            time.sleep(0.3)

    # --- a clean start ----------------------------------------------------------------------------------------

    def reset(self) -> None:
        """As new: no jobs, reservations, accounts, users and QOS but the cluster's own; all nodes idle."""
        self.cancel_all_jobs()
        self._delete_reservations()
        self._resume_nodes()
        self._delete_accounting()
        self.wait(self.node_states, 45, "idle nodes", until=lambda states: set(states.values()) == {"idle"})

    def cancel_all_jobs(self) -> None:
        def left() -> list[str]:
            jobs = self.slurm_output("squeue", "-h", "-a", "-t", "all", "-o", "%A %T").splitlines()
            live = sorted({job.split()[0] for job in jobs if job.split()[1] in LIVE_STATES})
            if live:
                self.sh("slurmctld", ["scancel", *live], check=False)  # some may end by themselves meanwhile
            return live

        self.wait(left, 45, "an empty queue", until=lambda jobs: not jobs)

    def node_states(self) -> dict[str, str]:
        """Node -> state without the flag that says what is planned for it."""
        lines = self.slurm_output("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return {line.split()[0]: line.split()[1].rstrip("-") for line in lines}

    def _delete_reservations(self) -> None:
        for line in self.slurm_output("scontrol", "-o", "show", "reservation").splitlines():
            if line.startswith("ReservationName="):
                self.slurm_output("scontrol", "delete", line.split()[0])

    def _resume_nodes(self) -> None:
        for node, state in self.node_states().items():
            if state.startswith(("drain", "down", "fail")):
                self.slurm_output("scontrol", "update", f"nodename={node}", "state=resume")

    def _delete_accounting(self) -> None:
        self._delete("user", self._names("user", "user") - OWN_USERS)
        self._delete("account", self._names("account", "account") - OWN_ACCOUNTS)
        qos = self._names("qos", "name") - OWN_QOS
        if qos:
            changes = ("qos=normal", "defaultqos=-1", "priority=-1")
            for account in sorted(OWN_ACCOUNTS):
                self.sacctmgr("modify", "account", account, "set", *changes)
        self._delete("qos", qos)

    def _delete(self, entity: str, names: frozenset[str]) -> None:
        if not names:
            return
        argv = ["sacctmgr", "-i", "delete", entity, ",".join(sorted(names))]
        # slurmdbd refuses while it has not heard yet that the last job has ended
        self.wait(
            lambda: self.sh("slurmctld", argv, check=False),
            30,
            f"{entity} {', '.join(sorted(names))} to be deleted",
            until=lambda done: done.returncode == 0,
        )

    def _names(self, entity: str, column: str) -> frozenset[str]:
        return frozenset(self.slurm_output("sacctmgr", "-nP", "show", entity, f"format={column}").split())


class LocalCluster(Cluster):
    """A Slurm on this machine, with its tools on PATH: every command runs here. It cannot be stopped and started."""

    def command_prefix(self, service: str = "slurmctld", user: str = "fairshare") -> list[str]:  # noqa: ARG002  all are here
        return ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]


def _run(argv: Sequence[str], check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    if stdin is None:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    else:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, input=stdin)
    if check and done.returncode != 0:
        raise CommandError(done)
    return done
