"""The installation page, followed to the letter on a site that has never heard of us.

The site is a Debian 13 with Slurm, MariaDB and Postgres from apt (tests/cluster/plain). Every block marked `sh` of
docs/howto/install.md is typed into one root shell there, in order; nothing but the words in CAPITALS is filled in.
The wheels are gathered outside, as the page says for sites without internet.

What stands in for something real: `systemctl` (a container runs no systemd) is a script that starts what a unit's
ExecStart says, as its User, with its EnvironmentFile.

FAIRSHARE_KEEP_SITE=1 leaves the container behind, to look around in.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "install.md"
PLAIN = Path(__file__).parent / "plain"
IMAGE = "slurm-fairshare-plain:trixie"
BASE = "slurm-fairshare-base:trixie"
LABEL = "slurm-fairshare.inputs"
CACHE = Path("/var/tmp/slurm-fairshare")
CAPITALS = {
    "WHEELS": "/root/wheels",
    "DBHOST": "localhost",
    "CLUSTER": "hall",
    "OWNER_PASSWORD": "owner-secret",
    "DAEMON_PASSWORD": "daemon-secret",
    "READER_PASSWORD": "reader-secret",
    "ADMIN": "otto",
    "ADMIN_PASSWORD": "admin-secret",
    "SOMEBODY": "alice",
    "TEAM1": "vision",
    "TEAM2": "language",
    "YOUR_SCHEDULER_PARAMETERS": "bf_window=4320,bf_resolution=300",
}
HARMLESS = frozenset[str]()
"""Warnings that a site which followed the page may be left with, by name of the check: none."""
PYTHON = "3.13"
"""Debian 13's."""


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of the page, and the heading above them."""

    heading: str
    commands: str


def blocks() -> Iterator[Block]:
    """What the page says to type, in order, with its capitals filled in."""
    heading = ""
    for title, commands in re.findall(r"^## ([^\n]+)$|^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        heading = title or heading
        if commands:
            yield Block(heading, filled(commands))


def filled(commands: str) -> str:
    for word, value in CAPITALS.items():
        commands = re.sub(rf"\b{word}\b", value, commands)
    return commands


def run(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        pytest.fail(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    return done


# --- the site -------------------------------------------------------------------------------------------------


class Site:
    """The container, and the shell of its root in which the page's commands are typed one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.shell = subprocess.Popen(
            ["docker", "exec", "-i", "-w", "/root", name, "bash", "-e", "-o", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, block: Block) -> str:
        """Type a block and return what was printed; a command that fails ends the shell, and with it the test."""
        end = f"end-{secrets.token_hex(8)}"
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        # In braces the whole block is read before its first command can read from the same input.
        self.shell.stdin.write("{\n:\n" + block.commands + "} </dev/null\n" + f"echo {end}\n")
        self.shell.stdin.flush()
        printed = ""
        for line in self.shell.stdout:
            if line.strip().endswith(end):
                return printed + line.replace(end, "").rstrip("\n")
            printed += line
        logs = self.sh("tail -n 15 /var/log/units/*.log /var/log/slurm/*.log", check=False)
        pytest.fail(f"{block.heading}:\n{block.commands}\nfailed:\n{printed}\n{logs}", pytrace=False)

    def leave(self) -> None:
        self.shell.kill()
        self.shell.communicate()

    def sh(self, command: str, user: str = "root", check: bool = True) -> str:
        """A look by the test itself."""
        return run("docker", "exec", "-u", user, self.name, "bash", "-c", command, check=check).stdout

    def until(self, told: Callable[[], bool], what: str, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not told():
            if time.monotonic() > end:
                pytest.fail(f"not within {seconds:.0f} s: {what}\n{self.sh('tail -n 30 /var/log/units/*.log')}")
            time.sleep(0.5)

    def slurm(self) -> str:
        """Everything of Slurm's that the product could have changed."""
        return self.sh(
            "sacctmgr -nP show assoc format=cluster,account,user,partition,share,priority,qos,defaultqos,"
            "grptres,maxjobs | sort;"
            "sacctmgr -nP show qos format=name,priority,gracetime,preempt,preemptmode,flags,grptres,maxtrespu,"
            "maxtrespj,usagefactor | sort;"
            "sacctmgr -nP show user format=user,adminlevel,defaultaccount | sort;"
            "grep -v '^$' /etc/slurm/slurm.conf; scontrol show config | grep -E '^(Priority|Preempt|JobSubmit)'"
        )


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The folder WHEELS, as the page makes it where there is internet; what does not change is kept."""
    files = [ROOT / "pyproject.toml"]
    folder = CACHE / f"wheels-{sha256(b''.join(file.read_bytes() for file in files)).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("slurm_fairshare-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "-q", "--outdir", str(folder), str(ROOT))
    if not (folder / "complete").exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder)]
        run(*pip, "--only-binary=:all:", "--python-version", PYTHON, str(next(folder.glob("*fairshare-*.whl"))))
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="module")
def image() -> str:
    """The plain site's image, made when it is not there or its recipe has changed."""
    if run("docker", "image", "inspect", BASE, check=False).returncode:
        run(str(ROOT / "docker" / "cluster"), "up")
    base = run("docker", "image", "inspect", "--format", "{{.Id}}", BASE).stdout
    recipe = b"".join(file.read_bytes() for file in sorted(PLAIN.iterdir()))
    inputs = sha256(base.encode() + recipe).hexdigest()
    label = f'{{{{index .Config.Labels "{LABEL}"}}}}'
    if run("docker", "image", "inspect", "--format", label, IMAGE, check=False).stdout.strip() != inputs:
        options = ["--network", "host", "--build-arg", f"BASE={BASE}", "--label", f"{LABEL}={inputs}"]
        run("docker", "build", "-q", *options, "-t", IMAGE, str(PLAIN))
    return IMAGE


@pytest.fixture
def site(image: str, wheels: Path) -> Iterator[Site]:
    name = f"fairshare-plain-{secrets.token_hex(4)}"
    run("docker", "run", "-d", "--hostname", "head", "--name", name, "-v", f"{wheels}:/root/wheels:ro", image)
    try:
        up = time.monotonic() + 180
        while run("docker", "exec", name, "test", "-e", "/run/site-is-up", check=False).returncode:
            alive = run("docker", "inspect", "-f", "{{.State.Running}}", name).stdout.strip() == "true"
            if not alive or time.monotonic() > up:
                logs = run("docker", "logs", name)
                pytest.fail(f"the plain site does not come up:\n{logs.stdout}{logs.stderr}", pytrace=False)
            time.sleep(0.5)
        there = Site(name)
        yield there
        there.leave()
    finally:
        if not os.environ.get("FAIRSHARE_KEEP_SITE"):
            run("docker", "rm", "-f", name, check=False)


# --- the test -------------------------------------------------------------------------------------------------


def test_the_page_followed_to_the_letter_ends_with_doctor_green_and_leaves_slurm_as_it_was(site: Site) -> None:
    assert len(list(blocks())) > 15, "the page's blocks are not found"
    before = site.slurm()
    earlier = submit(site, "alice", "vision", "")
    said: dict[str, str] = {}
    for block in blocks():
        if block.heading.startswith("Take it out"):
            break
        if "slurm-fairshare doctor" in block.commands:
            wait_for_pushed_tick(site)
        began = time.monotonic()
        printed = site.type(block)
        # pytest shows it where a step fails
        print(f"== {block.heading} ({time.monotonic() - began:.1f} s)\n{block.commands}{printed}")
        said[block.heading] = said.get(block.heading, "") + printed
        submits_work(site)
    check_contract(site, said["8. The ladder, the plugin, slurm.conf"])
    check_doctor(site)
    check_unit(site)
    check_rights(site)
    assert state(site, earlier) in {"RUNNING", "COMPLETED"}, "a job from before must not notice"

    site.sh("squeue -h -o %i | xargs -r scancel")
    site.until(lambda: not site.sh("squeue -h").strip(), "the queue is empty")
    for block in blocks():
        if block.heading.startswith("Take it out"):
            site.type(block)
    submits_work(site)
    site.sh("sacctmgr -i delete user fairshare; sacctmgr -i delete account operators")
    assert site.slurm() == before


def submit(site: Site, user: str, account: str, comment: str) -> str:
    line = f"cd /tmp && sbatch --parsable -A {account} --gpus=1 --comment='{comment}' -o /dev/null --wrap 'sleep 600'"
    return site.sh(line, user).strip()


def submits_work(site: Site) -> None:
    """Between any two steps, people of teams with and without a budget can submit."""
    for user, account in (("bob", "language"), ("carol", "physics")):
        job = submit(site, user, account, "")
        site.sh(f"scancel {job}")


def state(site: Site, job: str) -> str:
    return site.sh(f"scontrol show job {job} | grep -o 'JobState=[A-Z]*'").strip().removeprefix("JobState=")


def wait_for_pushed_tick(site: Site) -> None:
    """The page says: a minute later."""
    pushed = "grep -c '\"pushed\": true' /var/log/units/slurm-fairshare.log || true"
    site.until(lambda: int(site.sh(pushed)) > 0, "a tick that may push")


def check_contract(site: Site, said: str) -> None:
    assert "fairshare: contract min_runtime=1h resumable=yes" in said
    assert " fs-1h " in said
    job = re.findall(r"Submitted batch job (\d+)", said)[-1]
    shown = site.sh(f"scontrol show job {job}")
    assert "AdminComment=fairshare min_runtime=3600 resumable=yes priority=normal" in shown
    assert "QOS=fs-1h" in shown
    site.until(lambda: state(site, job) in ("RUNNING", "COMPLETED"), "the job under contract to run")


def check_doctor(site: Site) -> None:
    """Green: no error at all, and no warning but those that are known to be harmless."""
    done = run("docker", "exec", "-u", "fairshare", site.name, "slurm-fairshare", "doctor", "--json", check=False)
    found = json.loads(done.stdout)
    assert found["left_out"] == [], "every check can be made by the daemon's user on the controller"
    worse = [one for one in found["findings"] if one["severity"] != "advice" and one["check"] not in HARMLESS]
    assert worse == []


def check_unit(site: Site) -> None:
    """systemd itself has nothing to say against the unit."""
    told = site.sh("/usr/bin/systemd-analyze verify /etc/systemd/system/slurm-fairshare.service 2>&1", check=False)
    assert [line for line in told.splitlines() if "slurm-fairshare" in line] == []


def check_rights(site: Site) -> None:
    """People read; the daemon's password is the daemon's; nobody can change a budget by way of the settings."""
    assert "vision" in site.sh("cd / && sfair shares", "alice")
    assert "denied" in site.sh("cat /etc/slurm-fairshare/environment 2>&1", "alice", check=False).lower()
    edit = "cd / && sfair budget set lab --child vision=99:vision --reason mine 2>&1"
    for user in ("alice", "fairshare"):
        told = run("docker", "exec", "-u", user, site.name, "bash", "-c", edit, check=False)
        assert told.returncode != 0, f"{user} changed a budget: {told.stdout}"
