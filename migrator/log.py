"""The log: structured lines on standard error.

Not in ``telemetry``, which every command loads: structlog takes a tenth of a second to import.
"""

import sys
from typing import Any

import structlog


def logger() -> Any:  # noqa: ANN401 - structlog's bound loggers have no common type
    """Return the tool's logger: readable on a terminal, JSON lines elsewhere."""
    if not structlog.is_configured():
        renderer = (
            structlog.dev.ConsoleRenderer(colors=False)
            if sys.stderr.isatty()
            else structlog.processors.JSONRenderer(sort_keys=True)
        )
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                renderer,
            ],
            # asked for anew with each logger: the stream may have been replaced since
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        )
    return structlog.get_logger("migrator")
