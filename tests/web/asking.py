"""Asks an ASGI application without a server, as a browser would from a given address."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from starlette.types import ASGIApp


class Client:
    """GETs, one after the other. A fault of the application is raised, unless its page is what is asked for."""

    def __init__(
        self, app: ASGIApp, peer: str = "127.0.0.1", headers: dict[str, str] | None = None, faults: bool = False
    ) -> None:
        self.app, self.peer, self.headers, self.faults = app, peer, headers or {}, faults

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.ask("GET", path, headers)

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=not self.faults, client=(self.peer, 40_000))
            async with httpx.AsyncClient(transport=transport, base_url="http://dashboard") as client:
                return await client.request(method, path, headers={**self.headers, **(headers or {})})

        return asyncio.run(once())

    def page(self, path: str) -> str:
        """A page that must be there."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text

    def json(self, path: str) -> Any:
        """What the API says; it must be there."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()
