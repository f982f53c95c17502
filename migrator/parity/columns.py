"""Figures per column, by MongoDB and by SQL: how many values a column holds, and how many characters or members.

Which field a column comes from is written down here a second time, apart from the profiles: a column that was mixed up
with another passes the round trip where reading and writing mix them up alike. Columns that a profile derives (ids,
references, durations, words with older spellings) are compared by the round trip and the other figures alone.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.parity.model import AggregateResult
from migrator.sources.profile import Collection, Measure, Profile

Kind: TypeAlias = Literal["filled", "characters", "members"]
"""Not null; besides the length of a text; besides the length of a list."""

PREFIX: Final = "column "
"""The names of these measures begin with it."""

WHITE_SPACE: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What trimming takes from the ends of a text; what MongoDB's ``$trim`` takes by itself is another set."""

_AUTHORED = "createdBy updatedBy deletedBy"
_SCHEDULE = (
    "selection onlyIf notify limits createdAt updatedAt deletedAt payload priority maxRetries retryDelayMs"
    " retryStrategy retryCapMs retryCount onExhausted timeoutMs maxConcurrency metadata pausedAt cancelledAt"
    " completedAt mode"
)
_RUN = (
    "stats reason deltas createdAt startedAt finishedAt runNumber attempt scheduledAt availableAt fence"
    " leaseExpiresAt result metadata"
)
_FIELDS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "stellaops/schedules": (_SCHEDULE, "name description handlerName queue", _AUTHORED, "subscribers tags"),
    "stellaops/triggers": (
        "intervalMs anchor runAt startAt endAt maxFires misfirePolicy misfireGraceMs nextFireAt lastFireAt",
        "cronExpression timezone eventName",
        "",
        "",
    ),
    "stellaops/runs": (
        _RUN,
        "workerId externalTaskId errorDetail traceId spanId parentSpanId triggeredBy dedupeKey",
        "error",
        "",
    ),
    "stellaops/execution_logs": ("loggedAt context", "level message", "", ""),
    "stellaops/impact_snapshots": ("selector images usageOnly generatedAt total", "", "snapshotId", ""),
    "stellaops/run_summaries": ("updatedAt lastRun recent counters", "", "", ""),
    "stellaops/workers": ("pid capacity registeredAt lastHeartbeatAt metadata", "hostname version", "", "queues"),
    "stellaops/locks": ("acquiredAt metadata", "", "", ""),
    "stellaops/audit": ("occurredAt actor metadata", "category action", "entityId correlationId message", ""),
    "stellaops/handlers": ("defaultTimeoutMs", "name handlerPath queue", "", ""),
    "stellaops/graph_jobs": ("", "", "correlationId", ""),
}
"""Fields that are a column of the same name in camelCase: filled only, texts, texts that are trimmed, lists.

A text that is trimmed is counted as the source's model keeps it: without white space at its ends, a blank one not at
all. Any other text counts as it is, an empty one too.
"""


def with_columns(profile: Profile) -> Profile:
    """Return the profile, its collections measured column by column as well."""
    return msgspec.structs.replace(
        profile, collections=tuple(_with_columns(profile, collection) for collection in profile.collections)
    )


def states_columns(profile: str) -> bool:
    """Tell whether fields of this profile are columns as they stand, so that both databases can count them."""
    return any(source.startswith(f"{profile}/") for source in _FIELDS)


def split(results: list[AggregateResult]) -> tuple[list[AggregateResult], list[AggregateResult]]:
    """Return the figures of the profile, and those of the columns."""
    own = [one for one in results if not one.measure.startswith(PREFIX)]
    return own, [one for one in results if one.measure.startswith(PREFIX)]


def column_of(measure: str) -> tuple[str, str]:
    """Return column and kind of one of these measures."""
    column, _, kind = measure.removeprefix(PREFIX).partition(" ")
    return column, kind


def _with_columns(profile: Profile, collection: Collection) -> Collection:
    filled, texts, trimmed, lists = _FIELDS.get(profile.source_of(collection.name), ("", "", "", ""))
    measures = [
        *(_measure(field, "filled") for field in f"{filled} {texts} {lists}".split()),
        *(_measure(field, "filled", trim=True) for field in trimmed.split()),
        *(_measure(field, "characters") for field in texts.split()),
        *(_measure(field, "characters", trim=True) for field in trimmed.split()),
        *(_measure(field, "members") for field in lists.split()),
    ]
    return msgspec.structs.replace(collection, measures=(*collection.measures, *measures))


def _trimmed(path: str) -> Any:  # noqa: ANN401 - a MongoDB expression
    """Return the expression of a text without white space at its ends; of a blank one, null."""
    text = {"$cond": [{"$eq": [{"$type": path}, "string"]}, path, ""]}
    bare = {"$trim": {"input": text, "chars": WHITE_SPACE}}
    return {"$cond": [{"$eq": [bare, ""]}, None, bare]}


def _measure(field: str, kind: Kind, *, trim: bool = False) -> Measure:
    column = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)
    path = f"${field}"
    value: Any = _trimmed(path) if trim else path
    expression: Any
    if kind == "filled":
        expression = {"$cond": [{"$ne": [{"$ifNull": [value, None]}, None]}, 1, 0]}
        sql = f"(CASE WHEN {column} IS NULL THEN 0 ELSE 1 END)"
    elif kind == "characters":
        text = {"$ifNull": [value, ""]} if trim else {"$cond": [{"$eq": [{"$type": path}, "string"]}, path, ""]}
        expression = {"$strLenCP": text}
        sql = f"coalesce(length({column}), 0)"
    else:
        expression = {"$cond": [{"$isArray": path}, {"$size": path}, 0]}
        sql = f"coalesce(cardinality({column}), 0)"
    return Measure(name=f"{PREFIX}{column} {kind}", kind="sum", expression=expression, sql=sql)
