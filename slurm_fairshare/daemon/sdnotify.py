"""Tells systemd how the daemon does: ready, alive, stopping. Without systemd nothing happens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import timedelta


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send lines such as `READY=1` to the socket systemd named; False where nobody listens.

    >>> notify("READY=1", {})
    False
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    place = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.connect(place)
            out.sendall(state.encode())
    except OSError:
        return False  # systemd is restarting: it asks again by its own watchdog
    return True


def watchdog(environment: Mapping[str, str] = os.environ) -> timedelta | None:
    """Within what time systemd wants to hear `WATCHDOG=1`, None if it does not care about this process.

    >>> watchdog({"WATCHDOG_USEC": "90000000"})
    datetime.timedelta(seconds=90)
    """
    microseconds, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or int(microseconds) == 0 or pid not in ("", str(os.getpid())):
        return None
    return timedelta(microseconds=int(microseconds))
