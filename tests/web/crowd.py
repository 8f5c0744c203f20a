"""Many readers at once, at pages and at the command line; tools of Slurm that only note that they were called."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import httpx
from starlette.types import ASGIApp

TOOLS = ("sacct", "sacctmgr", "scontrol", "sdiag", "sinfo", "sprio", "squeue", "sreport", "sshare", "scancel", "srun")


class Watch:
    """A folder for PATH whose tools note each call. Nobody's Slurm is asked through them unseen."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.noted = folder / "bin", folder / "called"
        self.folder.mkdir()
        for tool in TOOLS:
            place = self.folder / tool
            place.write_text(f'#!/bin/sh\necho "{tool} $*" >> "{self.noted}"\nexit 1\n')
            place.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.noted.read_text().splitlines() if self.noted.exists() else []


@dataclass
class Crowd:
    """What the readers met: seconds of each answer, and everything that was no answer."""

    seconds: list[float] = field(default_factory=list)
    kept: int = 0
    wrong: list[str] = field(default_factory=list)

    def at(self, part: float) -> float:
        return sorted(self.seconds)[int(part * (len(self.seconds) - 1))]


Line = Callable[[int], httpx.AsyncBaseTransport]
"""How the reader of this number reaches the dashboard."""


def straight(app: ASGIApp) -> Line:
    """Without a server between: each from an address of its own."""
    return lambda n: httpx.ASGITransport(app=app, client=(f"10.0.{n // 250}.{n % 250 + 1}", 40_000))


async def refresh(
    line: Line, pages: Sequence[str], readers: int, length: float, pause: float = 0.0, address: str = "http://dashboard"
) -> Crowd:
    """So many readers, each with a browser's memory of tags, refresh pages at random for so many seconds."""
    crowd = Crowd()
    until = time.monotonic() + length

    async def reader(number: int) -> None:
        draw = random.Random(number)
        tags: dict[str, str] = {}
        async with httpx.AsyncClient(transport=line(number), base_url=address, timeout=60) as client:
            while time.monotonic() < until:
                page = draw.choice(pages)
                begun = time.monotonic()
                answer = await client.get(page, headers={"If-None-Match": tags.get(page, "")})
                crowd.seconds.append(time.monotonic() - begun)
                if answer.status_code == 200:
                    tags[page] = answer.headers["etag"]
                elif answer.status_code == 304:
                    crowd.kept += 1
                else:
                    crowd.wrong.append(f"{page}: {answer.status_code}")
                await asyncio.sleep(pause * draw.uniform(0.5, 1.5))

    await asyncio.gather(*(reader(number) for number in range(readers)))
    return crowd


class Commands(Thread):
    """`slurm-fairshare shares` as a process, one after the other until it is stopped."""

    def __init__(self, **environment: str) -> None:
        super().__init__(daemon=True)
        self.environment, self.ended = os.environ | environment, Event()
        self.runs = 0
        self.failed: list[str] = []
        """What it said where it failed."""

    def run(self) -> None:
        command = [str(Path(sys.executable).parent / "slurm-fairshare"), "shares", "-a"]
        while not self.ended.is_set():
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
            self.runs += 1
            self.failed += [done.stderr] if done.returncode else []

    def stop(self) -> None:
        self.ended.set()
        self.join()
