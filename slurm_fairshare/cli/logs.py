"""How the daemon's log looks."""

from __future__ import annotations

from typing import Literal

import structlog
from structlog.typing import Processor


def configure_logs(form: Literal["console", "json"]) -> None:
    """One line an event on standard output, with its time in UTC; JSON for machines."""
    last: Processor = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([structlog.processors.format_exc_info] if form == "json" else []),
            last,
        ]
    )
