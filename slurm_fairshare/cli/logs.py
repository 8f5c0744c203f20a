"""How the daemon's log looks."""

from __future__ import annotations

import sys
from typing import Literal

import structlog
from structlog.typing import Processor


def configure_logs(form: Literal["console", "json"]) -> None:
    """One line an event on standard output, with its time in UTC; JSON for machines."""
    last: Processor = structlog.processors.JSONRenderer() if form == "json" else _console()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([structlog.processors.format_exc_info] if form == "json" else []),
            last,
        ]
    )


def _console() -> Processor:
    """Plain tracebacks: the default ones show local variables, and passwords with them."""
    return structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), exception_formatter=structlog.dev.plain_traceback)
