"""Every word of ``crawler`` that is not a column: tables, states, units, and what its migration made of cron lines.

Source: migrations 001, 003 and 007 and the state machine of north-cloud's crawler, as ``docs/sources-other.md`` retells
them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NAME: Final = "crawler"

JOBS: Final = "jobs"
EXECUTIONS: Final = "job_executions"

CRON_DIALECT: Final = "robfig"
HANDLER: Final = "crawl"
"""What all jobs run; the source has no name for it."""

RETRY_CAP_MS: Final = 3_600_000
MILLISECONDS: Final = 1_000

STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {word: word for word in ("pending", "scheduled", "running", "paused", "completed", "failed", "cancelled")}
    | {"processing": "running"}
)
"""Processing is the word for running before migration 003."""

EXECUTION_STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {"running": "running", "completed": "completed", "failed": "error", "cancelled": "cancelled"}
)
EXECUTION_STATUSES_BACK: Final[Mapping[str, str]] = MappingProxyType(
    {state: word for word, state in EXECUTION_STATUSES.items()}
    | {"planning": "running", "queued": "running", "timeout": "failed", "skipped": "cancelled"}
)
"""The source has four; the others go to the nearest."""

UNITS: Final[Mapping[str, int]] = MappingProxyType({"minutes": 60_000, "hours": 3_600_000, "days": 86_400_000})
"""Milliseconds of an ``interval_type``: the trigger of the source's database counts ``interval_minutes`` in it."""

LISTED: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "0 * * * *": (60, "hours"),
        "0 */2 * * *": (120, "hours"),
        "0 */3 * * *": (180, "hours"),
        "0 */6 * * *": (360, "hours"),
        "0 */12 * * *": (720, "hours"),
        "0 0 * * *": (1440, "days"),
    }
)
"""What the source's migration writes for the six lines it knows: minutes, and a unit on top of them."""


def converted(line: str) -> tuple[int, str]:
    """Return the interval that the source's migration writes for an enabled job with this cron line."""
    if line in LISTED:
        return LISTED[line]
    return (60, "hours") if line.startswith("0 */") else (60, "minutes")
