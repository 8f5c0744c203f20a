"""A TCP proxy before Postgres that can be told to fail: as a network does, and as a server does that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK = 65_536


class Proxy:
    """Passes everything on, until told otherwise. Its methods are called from the test's thread."""

    def __init__(self, server: str) -> None:
        parts = conninfo_to_dict(server)
        self._server = parts
        self._host, self._port = str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432)
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._delay = 0.0
        self._refusing = False
        self._passing = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._passing.set()
        self._listener = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._listener.sockets[0].getsockname()[1]

    def address(self, dsn: str) -> str:
        """The same database, through this proxy."""
        return make_conninfo(dsn, host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable")

    # --- faults

    def cut(self) -> None:
        """Close what is open, as a restart does; new connections pass."""

        async def close() -> None:
            for writer in list(self._open):
                writer.transport.abort()

        self._do(close())

    def refuse(self, refusing: bool = True) -> None:
        """Close what is open and every new connection at once."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def swallow(self, swallowing: bool = True) -> None:
        """Take everything and pass on nothing, as a network does that drops packets."""
        self._loop.call_soon_threadsafe(self._passing.clear if swallowing else self._passing.set)

    def delay(self, seconds: float) -> None:
        """Keep every packet for so long."""
        self._delay = seconds

    def heal(self) -> None:
        self._refusing, self._delay = False, 0.0
        self.swallow(False)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._listener.close)
        self.heal()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # --- the work

    def _do(self, what: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await what

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        if self._host.startswith("/"):
            there = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            there = await asyncio.open_connection(self._host, self._port)
        both = {writer, there[1]}
        self._open |= both
        try:
            await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
        finally:
            self._open -= both

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._passing.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # one side is gone: the other side is told below
        finally:
            sink.close()


@contextmanager
def proxied(dsn: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the database, and the address through it."""
    proxy = Proxy(dsn)
    try:
        yield proxy, proxy.address(dsn)
    finally:
        proxy.close()
