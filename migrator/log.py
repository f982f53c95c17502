"""The log: structured lines on standard error, or in the file that a verification keeps beside its report.

structlog is imported when the first line is logged, which most commands never do: it takes a tenth of a second.
"""

import logging
import sys
from typing import Any, Final, cast

from migrator.telemetry import LogStream, output_settings, writes_json

_LEVELS: Final = {-1: logging.WARNING, 0: logging.INFO}


def logger() -> Any:  # noqa: ANN401 - structlog's bound loggers have no common type
    """Return the tool's logger: readable on a terminal, JSON lines elsewhere, unless ``--log-format`` was given."""
    import structlog  # noqa: PLC0415 - it takes a tenth of a second

    if not structlog.is_configured():
        as_json = writes_json() or (output_settings().log_format is None and not sys.stderr.isatty())
        renderer = (
            structlog.processors.JSONRenderer(sort_keys=True)
            if as_json
            else structlog.dev.ConsoleRenderer(colors=False)
        )
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                renderer,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(
                _LEVELS.get(output_settings().verbosity, logging.DEBUG)
            ),
            # asked for anew with each logger: the stream may have been replaced since
            logger_factory=lambda *_: structlog.PrintLogger(cast("Any", LogStream())),
        )
    return structlog.get_logger("migrator")
