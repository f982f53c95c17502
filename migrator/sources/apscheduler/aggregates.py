"""The independent opinion on APScheduler's jobs: what MongoDB and SQL count without any code of the transform."""

from typing import Any, Final

from migrator.sources.aggregates import number
from migrator.sources.profile import Measure

_NEXT_RUN: Final[dict[str, Any]] = {
    "$toLong": {
        "$trunc": [{"$divide": [{"$round": [{"$multiply": [number("$next_run_time"), 1_000_000]}, 0]}, 1_000]}, 0]
    }
}
_OF_TRIGGER: Final = (
    "(SELECT extract(epoch from t.next_fire_at) FROM scheduler.triggers t"
    " WHERE t.source = schedules.source AND t.source_id = schedules.source_id AND t.tenant_id = schedules.tenant_id)"
)
_KEPT: Final = "(schedules.metadata ->> 'next_run_time')::numeric"

MEASURES: Final = (
    Measure(
        "next_run_time",
        "time",
        _NEXT_RUN,
        f"trunc(round(coalesce({_OF_TRIGGER}, {_KEPT}), 6) * 1000)::bigint",
        "trunc(round(this.next_run_time::numeric, 6) * 1000)::bigint",
    ),
    Measure(
        "paused",
        "group",
        {"$cond": [{"$eq": [{"$ifNull": ["$next_run_time", None]}, None]}, "true", "false"]},
        "(status = 'paused')::text",
        "(this.next_run_time IS NULL)::text",
    ),
    Measure(
        "job_state.size",
        "sum",
        {"$binarySize": "$job_state"},
        "length(decode(schedules.metadata ->> 'job_state', 'base64'))::numeric",
        "length(this.job_state)",
    ),
)
