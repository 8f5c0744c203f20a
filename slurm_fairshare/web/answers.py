"""Finished answers, kept for a few seconds: everybody who asks for the same within them is served the same bytes."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

MOST = 2000
"""So many answers are kept at once; what is asked beyond them is made anew each time."""

WORTH_PACKING = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """The bytes of a page, as they are and packed, and the tag that tells whether a browser has them already."""

    body: bytes
    packed: bytes | None
    kind: str
    tag: str

    @classmethod
    def of(cls, body: bytes, kind: str) -> Answer:
        packed = gzip.compress(body, 5, mtime=0) if len(body) >= WORTH_PACKING else None
        return cls(body, packed, kind, f'W/"{hashlib.sha256(body).hexdigest()[:20]}"')

    def response(self, request: Request, cache: str) -> Response:
        """304 where the browser has it; packed where it says it can unpack."""
        headers = {"ETag": self.tag, "Cache-Control": cache, "Vary": "Accept-Encoding"}
        if _has(request.headers.get("if-none-match", ""), self.tag):
            return Response(status_code=304, headers=headers)
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, media_type=self.kind, headers=headers | {"Content-Encoding": "gzip"})
        return Response(self.body, media_type=self.kind, headers=headers)


def _has(given: str, tag: str) -> bool:
    return tag in [one.strip() for one in given.split(",")]


class Answers:
    """The answers of the present few seconds."""

    def __init__(self, length: timedelta) -> None:
        self.length = length.total_seconds()
        self._span: int | None = None
        self._kept: dict[object, asyncio.Future[Answer]] = {}

    async def get(self, key: object, now: datetime, make: Callable[[], Answer]) -> Answer:
        """The answer under this key, made in a thread by the first who asks; who comes meanwhile waits for it."""
        span = int(now.timestamp() // self.length)
        if span != self._span:
            self._span, self._kept = span, {}
        kept = self._kept
        found = kept.get(key)
        if found is None:
            found = asyncio.ensure_future(run_in_threadpool(make))
            if len(kept) < MOST:
                kept[key] = found
        try:
            return await asyncio.shield(found)
        except Exception:
            if kept.get(key) is found:
                del kept[key]
            raise
