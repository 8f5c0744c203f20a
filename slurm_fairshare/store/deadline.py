"""A connection whose every wait ends: where the other side says nothing more, it is given up.

statement_timeout is kept by the server, so it helps only while the server can be heard. A server that hangs, or a
network that swallows packets, would keep a client waiting for a quarter of an hour or for ever.
"""

from __future__ import annotations

import os
import socket
from threading import Lock, Timer
from typing import Any

import psycopg


class PatientConnection(psycopg.Connection[Any]):
    """Gives the connection up after `patience` seconds without the end of what was asked; None waits for ever."""

    patience: float | None = None

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Every statement, commit and COPY of psycopg comes through here."""
        if self.patience is None:
            return super().wait(gen, *args, **kwargs)
        deadline = _Deadline(self.pgconn.socket, self.patience)
        try:
            return super().wait(gen, *args, **kwargs)
        except psycopg.OperationalError as error:
            if not deadline.passed:
                raise
            raise psycopg.OperationalError(
                f"no answer within {self.patience:g} s, the connection was given up"
            ) from error
        finally:
            deadline.lift()


class _Deadline:
    """Shuts a socket down when the time is over, so that whoever waits on it wakes with an error."""

    def __init__(self, descriptor: int, seconds: float) -> None:
        self.passed = False
        self._done = False
        self._door = Lock()
        self._descriptor = descriptor
        self._timer = Timer(seconds, self._strike)
        self._timer.daemon = True
        self._timer.start()

    def lift(self) -> None:
        self._timer.cancel()
        with self._door:
            self._done = True

    def _strike(self) -> None:
        with self._door:
            if self._done:  # the number may belong to another socket by now
                return
            self.passed = True
            with socket.socket(fileno=os.dup(self._descriptor)) as double:
                double.shutdown(socket.SHUT_RDWR)
