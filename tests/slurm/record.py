"""Records what the tools of one release print for a known workload: `python -m tests.slurm.record RELEASE`.

Needs the container cluster of that release (docker/cluster up --release RELEASE). Writes tests/slurm/recorded/RELEASE;
the tests in test_recorded.py say what must be read from it. Leaves the cluster as it was.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from slurm_fairshare.slurm.accounting import DELIMITER, FIELDS
from slurm_fairshare.slurm.queue import Table, release_of
from slurm_fairshare.slurm.run import SETTINGS
from slurm_fairshare.slurm.settings import ACCESS_FIELDS, QOS_FIELDS

RECORDED = Path(__file__).parent / "recorded"
BETWEEN, BEHIND = "\x1fbetween\x1f", "\x1ebehind\x1e"
ACCOUNT = "adp-bio"
UNGUESSED = "na|me \x1f JobId=1 State=RUNNING\nsecond line"


class Site:
    """One container that has Slurm's tools."""

    def __init__(self, release: str) -> None:
        default = "slurm-fairshare" if release == "trixie" else f"slurm-fairshare-{release}"
        self.container = f"{os.environ.get('COMPOSE_PROJECT_NAME', default)}-slurmctld"

    def run(self, user: str, *argv: str) -> str:
        command = ["docker", "exec", "-i", "-u", user, self.container, "env", *SETTINGS, *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if "No such container" in done.stderr:
            sys.exit(f"{self.container} does not run: docker/cluster up")
        if done.returncode:
            print(" ".join(argv), done.returncode, done.stdout, done.stderr, file=sys.stderr)
        return done.stdout

    def sbatch(self, user: str, *argv: str) -> str:
        words = ("sbatch", "--parsable", "-D", "/tmp", "-o", "/dev/null", "-A", ACCOUNT, *argv, "--wrap", "sleep 900")
        return self.run(user, *words).strip()

    def admin(self, *argv: str) -> None:
        self.run("root", "sacctmgr", "-i", *argv)


def settings(site: Site) -> None:
    site.admin("add", "account", ACCOUNT, "Description=x", "Organization=x")
    site.admin("add", "user", "alice,bob", f"account={ACCOUNT}")
    site.admin("add", "qos", "fs-unallocated,fs-15m,fs-1h,fs-2h,fs-4h,fs-8h")
    site.admin(
        *("modify", "qos", "where", "name=fs-1h", "set", "GraceTime=3600", "PreemptExemptTime=01:00:00"),
        *("Preempt=fs-unallocated", "Flags=DenyOnLimit", "MaxTRESPerJob=gres/gpu=8"),
        "MaxTRESPerAccount=gres/gpu=12",
    )
    names = "fs-unallocated,fs-15m,fs-1h,fs-2h,fs-4h,fs-8h"
    site.admin(
        *("modify", "account", "where", f"name={ACCOUNT}", "set", f"qos+={names}", "DefaultQOS=fs-unallocated"),
        "Priority=300000",
    )
    site.admin("modify", "user", "where", "name=bob", f"account={ACCOUNT}", "set", "Priority=7")


def workload(site: Site) -> dict[str, str]:
    contract = "--comment=min_runtime=1h resumable=yes"
    jobs = {"protected": site.sbatch("alice", "--gres=gpu:2", "-w", "n1", contract, "-J", UNGUESSED, "-t", "90")}
    jobs["uneven"] = site.sbatch("bob", "--gpus=9", "-N2", "-t", "60")
    time.sleep(4)
    jobs["array"] = site.sbatch("alice", "--gres=gpu:h100:2", "--array=1-4%2", "-t", "1-00:00:00")
    jobs["picky"] = site.sbatch(
        *("bob", "--gpus-per-node=8", "-N1-2", "--exclusive", "-x", "n2", "--begin=now+1hour", "--no-requeue"),
        *("-t", "10"),
    )
    jobs["held"] = site.sbatch("bob", "--gres=gpu:1", "-H", f"--dependency=afterany:{jobs['protected']}")
    jobs["ended"] = site.sbatch("alice", "--gres=gpu:1", "-t", "5")
    jobs["het"] = site.run(
        *("alice", "sbatch", "--parsable", "-D", "/tmp", "-A", ACCOUNT, "--gres=gpu:8", "-t", "10", ":"),
        *("--gres=gpu:8", "-t", "10", "--wrap", "sleep 900"),
    ).strip()
    time.sleep(8)
    note = "fairshare min_runtime=3600 resumable=yes priority=normal; noted | on\ntwo lines"
    site.run("root", "scontrol", "update", f"JobId={jobs['protected']}", f"AdminComment={note}")
    site.run("root", "scontrol", "requeue", f"{jobs['array']}_1")
    site.run("alice", "scancel", jobs["ended"])
    time.sleep(8)
    return jobs


def record(site: Site, folder: Path, jobs: dict[str, str], since: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    version = site.run("root", "squeue", "--version")
    fresh = Table.fresh(release_of(version))
    table = Table(fresh.columns, BETWEEN, BEHIND)
    show = ("sacctmgr", "-n", "-P", "show")
    words = ("-a", "-X", "-D", "-n", "-p", "--noconvert", f"--delimiter={DELIMITER}")
    window = ("-S", f"uts{since}", "-E", f"uts{int(time.time()) + 1}")
    texts = {
        "version": version,
        "jobs": "".join(f"{name}={number}\n" for name, number in jobs.items()),
        "squeue": site.run("root", "squeue", "-a", "-h", "--noconvert", "-O", table.format),
        "excluded": site.run("root", "squeue", "-a", "-h", "-t", "PD", "-o", "%A %x"),
        "nodes": site.run("root", "scontrol", "-o", "show", "nodes"),
        "detail": site.run("root", "scontrol", "-d", "-o", "show", "job", jobs["uneven"]),
        "assoc_mgr": site.run("root", "scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"),
        "qos": site.run("root", *show, "qos", f"format={','.join(QOS_FIELDS)}"),
        "access": site.run("root", *show, "assoc", "cluster=lab", f"format={','.join(ACCESS_FIELDS)}"),
        "sacct": site.run("root", "sacct", *words, "-A", ACCOUNT, *window, "-o", ",".join(FIELDS)),
    }
    site.run("alice", "scancel", jobs["protected"])
    time.sleep(5)
    texts["sacct-later"] = site.run("root", "sacct", *words, "-A", ACCOUNT, *window, "-o", ",".join(FIELDS))
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)


def clean(site: Site) -> None:
    site.run("root", "scancel", "-A", ACCOUNT)
    time.sleep(10)
    site.admin("delete", "user", "where", "name=alice,bob", f"account={ACCOUNT}")
    site.admin("delete", "account", "where", f"name={ACCOUNT}")
    site.admin("delete", "qos", "where", "name=fs-unallocated,fs-15m,fs-1h,fs-2h,fs-4h,fs-8h")


def main(release: str) -> None:
    site, since = Site(release), int(time.time()) - 1
    settings(site)
    try:
        record(site, RECORDED / release, workload(site), since)
    finally:
        clean(site)


if __name__ == "__main__":
    main(sys.argv[1])
