"""The program on a host whose wall clock somebody sets while it runs: `python -m tests.chaos.clocked FILE WORDS...`.

FILE holds the seconds by which the clock is off. The monotonic clock is left alone, as setting a clock does.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import time_machine

from slurm_fairshare.cli.main import main


def follow(dial: Path) -> None:
    """Set this process's clock as the file says, whenever that changes."""
    off, set_to = 0.0, None
    while True:
        wanted = float(dial.read_text() or 0)
        if wanted != off:
            if set_to is not None:
                set_to.stop()
                set_to = None
            if wanted:
                set_to = time_machine.travel(datetime.now(UTC) + timedelta(seconds=wanted), tick=True)
                set_to.start()
            off = wanted
        time.sleep(0.2)


if __name__ == "__main__":
    threading.Thread(target=follow, args=(Path(sys.argv.pop(1)),), daemon=True).start()
    main()
