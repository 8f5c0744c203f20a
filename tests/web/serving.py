"""The dashboard on a port of this machine, for as long as a test needs it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

PATIENCE = 30.0


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Its address. The server is stopped with the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    until = time.monotonic() + PATIENCE
    while not server.started:
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()
