"""The independent opinion on Agenda's collections: what MongoDB and SQL count without any code of the transform.

Times are compared in whole milliseconds since 1970. A job's run is in another table than its schedule, whence the
sub-selects; the run of a job that has only been locked tells nothing about the run before it.
"""

from typing import Any, Final

from migrator.sources.profile import Measure

_PRIORITY: Final[dict[str, Any]] = {
    "$max": [0, {"$min": [100, {"$floor": {"$add": [50, {"$multiply": [2, {"$ifNull": ["$priority", 0]}]}]}}]}]
}
_IS_OBJECT_ID: Final[dict[str, Any]] = {"$eq": [{"$type": "$_id"}, "objectId"]}
_IS_GIVEN: Final[dict[str, Any]] = {"$ne": [{"$ifNull": ["$lockedAt", None]}, None]}
_BEGUN: Final = "r.metadata ->> 'claimed' IS NULL"


def _milliseconds(field: str) -> dict[str, Any]:
    """Return the expression of a time that is a date or a text; null where there is none."""
    return {"$toLong": {"$toDate": field}}


def _text(field: str) -> dict[str, Any]:
    """Return the expression of a text as PostgreSQL can hold it: U+0000 replaced."""
    return {"$replaceAll": {"input": field, "find": "\0", "replacement": "\ufffd"}}


def _cut(time: str) -> str:
    """Return the same in SQL."""
    return f"floor(extract(epoch from {time}) * 1000)::bigint"


def _of_run(column: str, condition: str = "true") -> str:
    """Return the SQL of a column of the run that came with the schedule's own document."""
    return (
        f"(SELECT {column} FROM scheduler.runs r WHERE r.schedule_id = schedules.id"  # noqa: S608 - literals of this file
        " AND r.tenant_id = schedules.tenant_id"
        f" AND r.source = schedules.source AND r.source_id = schedules.source_id AND {condition})"
    )


def _remembered(field: str) -> str:
    """Return the SQL of a time that stands in the schedule's metadata."""
    return f"(schedules.metadata ->> '{field}')::timestamptz"


JOB_MEASURES: Final = (
    Measure("job", "group", _text("$name"), "handler_name"),
    Measure(
        "enabled",
        "group",
        {"$cond": [{"$eq": ["$disabled", True]}, "false", "true"]},
        "enabled::text",
    ),
    Measure("locked", "group", {"$cond": [_IS_GIVEN, "true", "false"]}, "(status = 'running')::text"),
    Measure("priority", "sum", _PRIORITY, "priority"),
    Measure("failCount", "sum", "$failCount", "(schedules.metadata ->> 'failCount')::numeric"),
    Measure("created", "time", {"$cond": [_IS_OBJECT_ID, _milliseconds("$_id"), None]}, _cut("created_at")),
    Measure(
        "lockedAt", "time", _milliseconds("$lockedAt"), _cut(_of_run("r.lease_expires_at - interval '10 minutes'"))
    ),
    Measure(
        "lastRunAt",
        "time",
        _milliseconds("$lastRunAt"),
        _cut(f"coalesce({_of_run('r.started_at', _BEGUN)}, {_remembered('lastRunAt')})"),
    ),
    Measure(
        "lastFinishedAt",
        "time",
        _milliseconds("$lastFinishedAt"),
        _cut(f"coalesce({_of_run('r.finished_at')}, {_remembered('lastFinishedAt')})"),
    ),
)
LOG_MEASURES: Final = (
    Measure("level", "group", "$level", "level"),
    Measure("event", "group", _text("$event"), "context ->> 'event'"),
    Measure("duration", "sum", "$duration", "(context ->> 'duration')::numeric"),
    Measure("timestamp", "time", _milliseconds("$timestamp"), _cut("logged_at")),
)
