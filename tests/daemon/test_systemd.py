"""The daemon as a process under systemd: what it says, and when it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def test_a_daemon_says_that_it_is_ready_alive_and_stopping(postgres: str, tmp_path: Path) -> None:
    """Slurm's tools are missing here and every tick fails: the daemon lives on, and says so."""
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(place))
        ear.settimeout(30)
        environment = os.environ | {
            "NOTIFY_SOCKET": str(place),
            "WATCHDOG_USEC": "60000000",
            "SLURM_FAIRSHARE_DATABASE_URL": postgres,
            "SLURM_FAIRSHARE_CLUSTER": "lab",
            "SLURM_FAIRSHARE_SLURM__COMMAND_PREFIX": f'["{tmp_path / "no-such-tool"}"]',
        }
        words = [sys.executable, "-c", "from slurm_fairshare.cli.main import main; main()", "daemon"]
        daemon = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert ear.recv(200) == b"READY=1"
            assert ear.recv(200) == b"WATCHDOG=1\nSTATUS=leading"
            daemon.send_signal(signal.SIGTERM)
            while (said := ear.recv(200)).startswith(b"WATCHDOG=1"):
                pass
            assert said == b"STOPPING=1"
            output = daemon.communicate(timeout=30)[0]
        finally:
            daemon.kill()
            daemon.wait()
    assert daemon.returncode == 0
    assert "tick failed" in output
    assert "cannot be run" in output
