"""The documents of Agenda and its forks, as their libraries write them.

One shape serves all of them: a field that a library does not know is simply never there. Node writes an integer beyond
32 bits as a double, so every number here may be one.
"""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from bson.code import Code

from migrator.sources.profile import Document, Rejected
from migrator.sources.shapes import Int32, Moment, Shape, optional_instant

Number = int | float

_LIMIT = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Backoff(Shape):
    """How Pulse delays a retry; ``delay`` in milliseconds."""

    type: str
    delay: Number


class Job(Shape, kw_only=True):
    """A job document: definition, state and last run in one."""

    key: Any = msgspec.field(name="_id")
    name: str
    type: str | None = None
    data: Any = None
    priority: Number | None = None
    next_run_at: Moment = None
    locked_at: Moment = None
    last_run_at: Moment = None
    last_finished_at: Moment = None
    failed_at: Moment = None
    fail_count: Number | None = None
    fail_reason: str | None = None
    repeat_interval: str | Number | None = None
    repeat_timezone: str | None = None
    repeat_at: str | None = None
    start_date: Any = None
    end_date: Any = None
    skip_days: str | list[Number] | None = None
    disabled: bool | None = None
    should_save_result: bool | None = None
    result: Any = None
    progress: Number | None = None
    last_modified_by: str | None = None
    fork: bool | None = None
    debounce_started_at: Moment = None
    attempts: Int32 | None = None
    backoff: Backoff | None = None
    run_count: Number | None = None
    finished_count: Number | None = None


class Log(Shape, kw_only=True):
    """A line of ``agenda_logs``, which Agenda 6 writes when logging is on."""

    key: Any = msgspec.field(name="_id")
    level: str
    event: str | None = None
    job_id: str | None = None
    job_name: str | None = None
    message: str | None = None
    duration: Number | None = None
    retry_delay: Number | None = None
    retry_attempt: Number | None = None
    error: str | None = None
    fail_count: Number | None = None
    timestamp: Moment
    agenda_name: str | None = None
    meta: dict[str, Any] | None = None


_TEXTS = frozenset(
    {
        *("name", "type", "failReason", "repeatInterval", "repeatTimezone", "repeatAt", "skipDays", "lastModifiedBy"),
        *("level", "event", "jobId", "jobName", "message", "error", "agendaName"),
    }
)


def refuse_code(document: Document) -> None:
    """Raise ``Rejected`` for JavaScript code in a field of text: it is a ``str`` to Python, and to the reader."""
    if Code in map(type, document.values()):
        for name, value in document.items():
            if name in _TEXTS and isinstance(value, Code):
                raise Rejected("wrong-type", name, "text, not code")


def bound(value: object, path: str) -> datetime | None:
    """Return a start or end date, which may also be a number of milliseconds since 1970 (Agenda 4 and 5, Pulse)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _EPOCH + timedelta(milliseconds=value)
        except (OverflowError, ValueError):
            raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None
    return optional_instant(value, path)


def whole(value: Number | None, path: str) -> int | None:
    """Return a count of 64 bits; a double loses its fraction (the remainder keeps it)."""
    if value is None:
        return None
    if not math.isfinite(value) or not -_LIMIT <= value < _LIMIT:
        raise Rejected("out-of-range", path, "a number of 64 bits")
    return int(value)
