"""Many readers at once, and tools of Slurm that do nothing but note that they were called."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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


async def refresh(app: ASGIApp, pages: Sequence[str], readers: int, length: float, pause: float = 0.0) -> Crowd:
    """So many readers, each with a browser's memory of tags, refresh pages at random for so many seconds."""
    crowd = Crowd()
    until = time.monotonic() + length

    async def reader(number: int) -> None:
        draw = random.Random(number)
        tags: dict[str, str] = {}
        transport = httpx.ASGITransport(app=app, client=(f"10.0.{number // 250}.{number % 250 + 1}", 40_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://dashboard") as client:
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
