"""The independent opinion on Agenda's collections: what MongoDB and SQL count without any code of the transform."""

from typing import Any, Final

from migrator.sources.profile import Measure

_PRIORITY: Final[dict[str, Any]] = {
    "$max": [0, {"$min": [100, {"$floor": {"$add": [50, {"$multiply": [2, {"$ifNull": ["$priority", 0]}]}]}}]}]
}
_FROM_OBJECT_ID: Final[dict[str, Any]] = {
    "$cond": [{"$eq": [{"$type": "$_id"}, "objectId"]}, {"$toDate": "$_id"}, None]
}


def _given(field: str) -> dict[str, Any]:
    """Return an expression that is true where the field is neither absent nor null."""
    return {"$ne": [{"$ifNull": [field, None]}, None]}


JOB_MEASURES: Final = (
    Measure("job", "group", "$name", "handler_name"),
    Measure(
        "enabled",
        "group",
        {"$cond": [{"$eq": ["$disabled", True]}, "disabled", "enabled"]},
        "case when enabled then 'enabled' else 'disabled' end",
    ),
    Measure(
        "locked",
        "group",
        {"$cond": [_given("$lockedAt"), "locked", "free"]},
        "case when status = 'running' then 'locked' else 'free' end",
    ),
    Measure("priority", "sum", _PRIORITY, "priority"),
    Measure("created", "time", _FROM_OBJECT_ID, "created_at"),
)
LOG_MEASURES: Final = (
    Measure("level", "group", "$level", "level"),
    Measure("event", "group", {"$ifNull": ["$event", "none"]}, "coalesce(context ->> 'event', 'none')"),
    Measure("logged", "time", "$timestamp", "logged_at"),
)
