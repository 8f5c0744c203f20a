"""A site that has never heard of us: a Debian with Slurm, MariaDB and Postgres from apt, all under systemd, in one
container (tests/cluster/plain). FAIRSHARE_TEST_RELEASE says which Debian, and so which Slurm.

systemd is the container's first process. It needs no privileged container, only the right to mount: what it makes of
cgroups stays in a namespace of its own.

FAIRSHARE_KEEP_SITE=1 leaves the container behind, to look around in.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAIN = Path(__file__).parent / "plain"
RELEASE = os.environ.get("FAIRSHARE_TEST_RELEASE", "trixie")
IMAGE = f"slurm-fairshare-plain:{RELEASE}"
LABEL = "slurm-fairshare.inputs"
CACHE = Path("/var/tmp/slurm-fairshare")
NO_SOURCES = (".*", "build", "dist", "wheels", "*.egg-info", "__pycache__", "_build")
SYSTEMD = (
    *("--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined"),
    *("--cgroupns", "private", "--tmpfs", "/run", "--tmpfs", "/run/lock"),
)
UNITS = ("slurm-fairshare", "slurm-fairshare-web", "slurm-fairshare-tick", "slurmctld", "slurmdbd", "slurmd")


def run(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        pytest.fail(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    return done


class Site:
    """The container, and a shell of its root in which commands are typed one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        # One stream from the beginning: docker keeps no order between two.
        shell = ["bash", "-c", "exec bash -e -o pipefail 2>&1"]
        self.shell = subprocess.Popen(
            ["docker", "exec", "-i", "-w", "/root", name, *shell],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def type(self, commands: str) -> str:
        """Type commands and return what was printed; one that fails ends the shell, and with it the test."""
        end = f"end-{secrets.token_hex(8)}"
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        # In braces all is read before the first command can read from the same input.
        self.shell.stdin.write("{\n:\n" + commands + "} </dev/null\n" + f"echo {end}\n")
        self.shell.stdin.flush()
        printed = ""
        for line in self.shell.stdout:
            if line.strip().endswith(end):
                return printed + line.replace(end, "").rstrip("\n")
            printed += line
        pytest.fail(f"{commands}\nfailed:\n{printed}\n{self.logs()}", pytrace=False)

    def leave(self) -> None:
        self.shell.kill()
        self.shell.communicate()

    def sh(self, command: str, user: str = "root", check: bool = True) -> str:
        """A look by the test itself."""
        return run("docker", "exec", "-u", user, self.name, "bash", "-c", command, check=check).stdout

    def until(self, told: Callable[[], object], what: str, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not told():
            if time.monotonic() > end:
                pytest.fail(f"not within {seconds:.0f} s: {what}\n{self.logs()}", pytrace=False)
            time.sleep(0.5)

    def logs(self) -> str:
        units = " ".join(f"-u {unit}" for unit in UNITS)
        return self.sh(f"journalctl --no-pager -n 40 {units}; tail -n 15 /var/log/slurm/*.log", check=False)

    def unit(self, name: str, *properties: str) -> dict[str, str]:
        """Properties of a unit, as systemd tells them."""
        told = self.sh(f"systemctl show {name} --timestamp=us+utc -p {','.join(properties)}")
        return dict(line.split("=", 1) for line in told.splitlines())


def wheels() -> Path:
    """The folder WHEELS, as the page makes it where there is internet; what does not change is kept."""
    python = run(*_ask_image("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")).stdout.strip()
    key = sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()[:12]
    folder = CACHE / f"wheels-{python}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("slurm_fairshare-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as place:
        # A copy: a build leaves folders behind in the sources, which the next one packs, and two at once would clash.
        source = shutil.copytree(ROOT, Path(place) / "source", ignore=shutil.ignore_patterns(*NO_SOURCES))
        run(sys.executable, "-m", "build", "-q", "--wheel", "--outdir", str(folder), str(source))
    if not (folder / "complete").exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder)]
        wheel = next(folder.glob("slurm_fairshare-*.whl"))
        run(*pip, "--only-binary=:all:", "--python-version", python, f"{wheel}[web]")
        (folder / "complete").touch()
    return folder


def ensure_image() -> None:
    """The site's image, made when it is not there or its recipe has changed."""
    run(str(ROOT / "docker" / "cluster"), "build", "--release", RELEASE)
    base = next(name for name in (f"slurm-fairshare-base:{RELEASE}", f"debian:{RELEASE}") if _inspect(name, ".Id"))
    recipe = b"".join(file.read_bytes() for file in sorted(PLAIN.iterdir()))
    inputs = sha256(_inspect(base, ".Id").encode() + recipe).hexdigest()
    if _inspect(IMAGE, f'index .Config.Labels "{LABEL}"') != inputs:
        options = ["--network", "host", "--build-arg", f"BASE={base}", "--label", f"{LABEL}={inputs}"]
        run("docker", "build", "-q", *options, "-t", IMAGE, str(PLAIN))


@contextmanager
def started() -> Iterator[Site]:
    """The site, its Slurm and its Postgres up."""
    ensure_image()
    name = f"fairshare-plain-{secrets.token_hex(4)}"
    folder = wheels()
    run("docker", "run", "-d", "--hostname", "head", "--name", name, *SYSTEMD, "-v", f"{folder}:/root/wheels:ro", IMAGE)
    try:
        site = Site(name)
        site.until(lambda: _is_up(site), "the plain site is up", 180)
        yield site
        site.leave()
    finally:
        if not os.environ.get("FAIRSHARE_KEEP_SITE"):
            run("docker", "rm", "-f", name, check=False)


def _is_up(site: Site) -> bool:
    if run("docker", "inspect", "-f", "{{.State.Running}}", site.name).stdout.strip() != "true":
        told = run("docker", "logs", site.name)
        pytest.fail(f"systemd does not run in a container here:\n{told.stdout}{told.stderr}", pytrace=False)
    up = "pg_isready -q && scontrol ping | grep -q UP && sinfo -h -o %T | grep -q idle && echo yes"
    return bool(site.sh(up, check=False))


def _inspect(image: str, field: str) -> str:
    form = "{{" + field + "}}"
    return run("docker", "image", "inspect", "--format", form, image, check=False).stdout.strip()


def _ask_image(*argv: str) -> list[str]:
    return ["docker", "run", "--rm", "--entrypoint", argv[0], IMAGE, *argv[1:]]
