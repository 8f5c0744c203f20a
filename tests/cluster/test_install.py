"""The installation page, followed to the letter on a site that has never heard of us, and what systemd makes of it.

Every block marked `sh` of docs/howto/install.md, then of docs/howto/dashboard.md, is typed into one root shell, in
order; nothing but the words in CAPITALS is filled in. The wheels are gathered outside, as the page says for sites
without internet. The tests share the site; the last one takes the product out of it again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cluster.plain_site import RELEASE, ROOT, Site, run, started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

HOWTO = ROOT / "docs" / "howto"
PAGE, DASHBOARD = HOWTO / "install.md", HOWTO / "dashboard.md"
CAPITALS = {
    "WHEELS": "/root/wheels",
    "DBHOST": "localhost",
    "CLUSTER": "hall",
    "OWNER_PASSWORD": "owner-secret",
    "DAEMON_PASSWORD": "daemon-secret",
    "READER_PASSWORD": "reader-secret",
    "WEB_PASSWORD": "web-secret",
    "ADMIN": "otto",
    "ADMIN_PASSWORD": "admin-secret",
    "SOMEBODY": "alice",
    "TEAM1": "vision",
    "TEAM2": "language",
    "YOUR_SCHEDULER_PARAMETERS": "bf_window=4320,bf_resolution=300",
}
LATER_SLURM = "fairshare-23.02.conf"
"""What the one block holds that the page tells sites with Slurm 22.05 to leave out."""
HARMLESS = frozenset[str]()
"""Warnings that a site which followed the page may be left with, by name of the check: none."""


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of the page, and the heading above them."""

    heading: str
    commands: str


def blocks(page: Path) -> Iterator[Block]:
    """What the page says to type, in order, with its capitals filled in."""
    heading = ""
    for title, commands in re.findall(r"^## ([^\n]+)$|^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        heading = title or heading
        if commands and not (RELEASE == "bookworm" and LATER_SLURM in commands):
            yield Block(heading, filled(commands))


def filled(commands: str) -> str:
    for word, value in CAPITALS.items():
        commands = re.sub(rf"\b{word}\b", value, commands)
    return commands


@dataclass
class Installed:
    """The site after the page, what was typed there and printed, and what there was before."""

    site: Site
    before: str
    earlier: str
    said: dict[str, str] = field(default_factory=dict)

    def follow(self, steps: Iterator[Block]) -> None:
        for block in steps:
            began = time.monotonic()
            printed = self.site.type(block.commands)
            # pytest shows it where a step fails
            print(f"== {block.heading} ({time.monotonic() - began:.1f} s)\n{block.commands}{printed}")
            self.said[block.heading] = self.said.get(block.heading, "") + printed
            submits_work(self.site)


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """Both pages followed, up to where install.md takes everything out again."""
    assert len(list(blocks(PAGE))) > 15, "the page's blocks are not found"
    with started() as site:
        found = Installed(site, slurm(site), submit(site, "alice", "vision", ""))
        found.follow(block for block in blocks(PAGE) if not takes_out(block))
        found.follow(blocks(DASHBOARD))
        yield found


@pytest.fixture
def site(installed: Installed) -> Site:
    return installed.site


def takes_out(block: Block) -> bool:
    return block.heading.startswith("Take it out")


# --- looks ----------------------------------------------------------------------------------------------------


def slurm(site: Site) -> str:
    """Everything of Slurm's that the product could have changed."""
    return site.sh(
        "sacctmgr -nP show assoc format=cluster,account,user,partition,share,priority,qos,defaultqos,"
        "grptres,maxjobs | sort;"
        "sacctmgr -nP show qos format=name,priority,gracetime,preempt,preemptmode,flags,grptres,maxtrespu,"
        "maxtrespj,usagefactor | sort;"
        "sacctmgr -nP show user format=user,adminlevel,defaultaccount | sort;"
        "grep -v '^$' /etc/slurm/slurm.conf; scontrol show config | grep -E '^(Priority|Preempt|JobSubmit)'"
    )


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


def ticks(site: Site, unit: str = "slurm-fairshare") -> list[datetime]:
    """When the ticks of this boot ended, as their log says."""
    lines = site.sh(f"journalctl -u {unit} -o cat --no-pager").splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [datetime.fromisoformat(entry["timestamp"]) for entry in entries if entry["event"] == "tick"]


# --- the page -------------------------------------------------------------------------------------------------


def test_a_job_is_under_contract(installed: Installed) -> None:
    site, said = installed.site, installed.said["8. The ladder, the plugin, slurm.conf"]
    assert "fairshare: contract min_runtime=1h resumable=yes" in said
    assert " fs-1h " in said
    job = re.findall(r"Submitted batch job (\d+)", said)[-1]
    shown = site.sh(f"scontrol show job {job}")
    assert "AdminComment=fairshare min_runtime=3600 resumable=yes priority=normal" in shown
    assert "QOS=fs-1h" in shown
    site.until(lambda: state(site, job) in ("RUNNING", "COMPLETED"), "the job under contract to run")
    assert state(site, installed.earlier) in {"RUNNING", "COMPLETED"}, "a job from before must not notice"


def test_doctor_is_green(site: Site) -> None:
    """No error at all, and no warning but those that are known to be harmless."""
    done = run("docker", "exec", "-u", "fairshare", site.name, "slurm-fairshare", "doctor", "--json", check=False)
    found = json.loads(done.stdout)
    assert found["left_out"] == [], "every check can be made by the daemon's user on the controller"
    worse = [one for one in found["findings"] if one["severity"] != "advice" and one["check"] not in HARMLESS]
    assert worse == []


def test_people_read_and_nobody_changes_a_budget_by_way_of_the_settings(site: Site) -> None:
    """The daemon's password is the daemon's."""
    assert "vision" in site.sh("cd / && sfair shares", "alice")
    assert "denied" in site.sh("cat /etc/slurm-fairshare/environment 2>&1", "alice", check=False).lower()
    edit = "cd / && sfair budget set lab --child vision=99:vision --reason mine 2>&1"
    for user in ("alice", "fairshare"):
        told = run("docker", "exec", "-u", user, site.name, "bash", "-c", edit, check=False)
        assert told.returncode != 0, f"{user} changed a budget: {told.stdout}"


# --- systemd --------------------------------------------------------------------------------------------------


def test_systemd_has_nothing_to_say_against_the_units(site: Site) -> None:
    told = site.sh("systemd-analyze verify /etc/systemd/system/slurm-fairshare*.service 2>&1", check=False)
    assert [line for line in told.splitlines() if "slurm-fairshare" in line] == []


def test_the_daemon_is_active_once_its_first_tick_has_ended(site: Site) -> None:
    site.sh("systemctl restart slurm-fairshare")
    shown = site.unit("slurm-fairshare", "ActiveState", "ExecMainStartTimestamp", "ActiveEnterTimestamp", "StatusText")
    begun, active = moment(shown["ExecMainStartTimestamp"]), moment(shown["ActiveEnterTimestamp"])
    assert shown["ActiveState"] == "active"
    assert [at for at in ticks(site) if begun < at <= active], "it was called active before its first tick had ended"
    site.until(lambda: site.unit("slurm-fairshare", "StatusText")["StatusText"] == "leading", "systemd shows who leads")


def test_a_daemon_whose_first_tick_fails_is_active_too(site: Site) -> None:
    """Or systemd would end it while it waits for what is down."""
    site.sh("systemctl stop slurm-fairshare slurmctld")
    before = len(ticks(site))
    try:
        site.sh("systemctl start slurm-fairshare")
        assert site.unit("slurm-fairshare", "ActiveState")["ActiveState"] == "active"
        assert len(ticks(site)) == before
    finally:
        site.sh("systemctl start slurmctld && systemctl restart slurm-fairshare")


def test_the_daemon_is_locked_in(site: Site) -> None:
    """What the unit takes away is really gone: rights, the file system, new rights."""
    pid = site.unit("slurm-fairshare", "MainPID")["MainPID"]
    status = dict(line.split(":\t", 1) for line in site.sh(f"cat /proc/{pid}/status").splitlines() if ":\t" in line)
    assert int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    root = next(line.split() for line in site.sh(f"cat /proc/{pid}/mountinfo").splitlines() if line.split()[4] == "/")
    assert "ro" in root[5].split(",")


def test_a_daemon_that_hangs_is_started_anew(site: Site) -> None:
    """The watchdog of ten minutes, as one of twenty seconds."""
    short = "/run/systemd/system/slurm-fairshare.service.d"
    site.sh(f"mkdir -p {short} && printf '[Service]\\nWatchdogSec=20s\\n' > {short}/short.conf")
    site.sh("systemctl daemon-reload && systemctl restart slurm-fairshare")
    try:
        before = site.unit("slurm-fairshare", "MainPID", "NRestarts")
        site.sh("systemctl kill -s STOP --kill-who=main slurm-fairshare")
        hung = datetime.now(UTC)
        site.until(lambda: [at for at in ticks(site) if at > hung], "another daemon ticks", 120)
        after = site.unit("slurm-fairshare", "MainPID", "NRestarts")
        assert after["MainPID"] != before["MainPID"]
        assert int(after["NRestarts"]) == int(before["NRestarts"]) + 1
        assert "atchdog timeout" in site.sh("journalctl -u slurm-fairshare -n 200 --no-pager")
    finally:
        site.sh(f"rm -r {short} && systemctl daemon-reload && systemctl restart slurm-fairshare")


def test_the_daemon_stops_at_once_and_well(site: Site) -> None:
    try:
        begun = time.monotonic()
        site.sh("systemctl stop slurm-fairshare")
        assert time.monotonic() - begun < 30
        shown = site.unit("slurm-fairshare", "ActiveState", "Result", "ExecMainStatus")
        assert shown == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
        # Whoever comes next need not wait for the lead.
        site.sh("cd / && slurm-fairshare tick", "fairshare")
    finally:
        site.sh("systemctl start slurm-fairshare")


def test_a_timer_in_the_daemons_place_ticks(site: Site) -> None:
    share, timer = "/opt/slurm-fairshare/share/slurm-fairshare/systemd", "slurm-fairshare-tick.timer"
    site.sh("systemctl stop slurm-fairshare")
    try:
        site.sh(f"cp {share}/slurm-fairshare-tick.* /etc/systemd/system/ && systemctl daemon-reload")
        site.sh(f"systemctl enable --now {timer}")
        ended = lambda: site.unit("slurm-fairshare-tick", "ExecMainExitTimestamp")["ExecMainExitTimestamp"]  # noqa: E731
        site.until(ended, "the timer's tick and pass have ended", 120)
        shown = site.unit("slurm-fairshare-tick", "Result", "ExecMainStatus")
        assert shown == {"Result": "success", "ExecMainStatus": "0"}
        assert site.unit(timer, "NextElapseUSecMonotonic")["NextElapseUSecMonotonic"] not in ("", "infinity")
    finally:
        site.sh(f"systemctl disable --now {timer}; rm -f /etc/systemd/system/slurm-fairshare-tick.*")
        site.sh("systemctl daemon-reload; systemctl start slurm-fairshare")


def test_the_pages_are_served(site: Site) -> None:
    """By a login that may read, and a process that needs neither Slurm nor rights."""
    get = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/api/v1/tree').read().decode())"
    site.until(lambda: "lab/vision" in site.sh(f'python3 -c "{get}"', check=False), "the pages show the tree")
    assert site.unit("slurm-fairshare-web", "ActiveState")["ActiveState"] == "active"


def moment(timestamp: str) -> datetime:
    """`Mon 2026-11-30 00:45:52.123456 UTC`"""
    return datetime.strptime(timestamp, "%a %Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC)


# --- the end --------------------------------------------------------------------------------------------------


def test_taken_out_again_it_leaves_slurm_as_it_was(installed: Installed) -> None:
    site = installed.site
    site.sh("squeue -h -o %i | xargs -r scancel")
    site.until(lambda: not site.sh("squeue -h").strip(), "the queue is empty")
    installed.follow(block for block in blocks(PAGE) if takes_out(block))
    site.sh("sacctmgr -i delete user fairshare; sacctmgr -i delete account operators")
    assert slurm(site) == installed.before
