"""Keep a version that is being released: its schema with data (VERSION.sql) and its code (VERSION.tar.xz)."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import psycopg

from slurm_fairshare.store.embedded import Embedded, binaries, default_place
from slurm_fairshare.store.schema import upgrade
from tests.store.released.smoke import write

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def dump(dsn: str) -> str:
    """The database as SQL, without what differs from one pg_dump to the next."""
    words = [
        str(binaries() / "pg_dump"),
        "--no-owner",
        "--no-privileges",
        "--inserts",
        "--schema=fairshare",
        f"--dbname={dsn}",
    ]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return re.sub(r"^\\(?:un)?restrict.*\n|^SET transaction_timeout.*\n", "", text, flags=re.MULTILINE)


def pack(target: Path) -> None:
    """The code, and the test that travels with it."""
    tops = ("__init__.py", "config.py", "errors.py", "units.py", "core", "store")
    places = [*(ROOT / "slurm_fairshare" / top for top in tops), ROOT / "sql"]
    sources = [path for top in places for path in sorted([top, *top.rglob("*")]) if _wanted(path)]
    tests = [
        ROOT / "tests" / "__init__.py",
        ROOT / "tests" / "store" / "__init__.py",
        ROOT / "tests" / "store" / "build.py",
    ]
    with tarfile.open(target, "w:xz") as tar:
        for path in (*sources, *tests, HERE / "__init__.py", HERE / "smoke.py"):
            tar.add(path, str(path.relative_to(ROOT)))


def _wanted(path: Path) -> bool:
    return path.suffix in (".py", ".ini", ".mako", ".sql") and "__pycache__" not in path.parts


def main(version: str) -> None:
    with tempfile.TemporaryDirectory(dir=default_place().parent) as folder:
        Path(folder).chmod(0o755)
        server = Embedded(Path(folder) / "pg", quick=True)
        try:
            with psycopg.connect(server.start(), autocommit=True) as connection:
                connection.execute("create database released")
            dsn = server.database("released")
            upgrade(dsn)
            write(dsn)
            (HERE / f"{version}.sql").write_text(dump(dsn), encoding="utf-8")
        finally:
            server.remove()
    pack(HERE / f"{version}.tar.xz")


if __name__ == "__main__":
    main(sys.argv[1])
