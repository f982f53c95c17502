"""What the columns of the target accept: the words, bounds and lengths that a mapping must keep to.

PostgreSQL refuses a whole chunk for one row that breaks a constraint. A mapping is data of its user, so every value is
held to the constraints before a row is made, and the document that breaks one is quarantined alone.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from migrator import states
from migrator.records import ALL, Record
from migrator.sources.profile import Rejected
from migrator.values import copy_format

RECORDS: Final[Mapping[str, type[Record]]] = MappingProxyType({record.table: record for record in ALL})
"""Every table that a mapping in Python may feed."""

TABLES: Final = (
    "audit",
    "execution_logs",
    "handlers",
    "locks",
    "policy_jobs",
    "runs",
    "schedules",
    "triggers",
    "workers",
)
"""The tables that a mapping file may feed. The others hold what only one scheduler has, or follow from these."""

FILLED_BY_THE_TOOL: Final = frozenset({"id", "tenant_id", "source", "source_id", "extra", "lock_id"})
"""Columns that follow from the document's ``_id``, its tenant and its remainder."""

FOLLOWING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "triggers.kind": "the field that makes the trigger fire",
        "triggers.cron_dialect": "the field that makes the trigger fire",
        "runs.duration_ms": "runs.started_at and runs.finished_at",
    }
)
"""Columns that no field and no constant fills, to what they follow from."""

TARGETS: Final[Mapping[str, str]] = MappingProxyType(
    {"schedule_id": "schedules", "trigger_id": "triggers", "run_id": "runs", "retry_of": "runs"}
)
"""Column of a reference to the table that it refers to."""

FURTHER: Final = frozenset({"audit", "execution_logs", "runs", "schedules", "triggers"})
"""Tables that may stand second: none has a unique key that two documents could share by it."""

UNIQUE: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        "runs": (
            ("tenant_id", "schedule_id", "run_number"),
            ("tenant_id", "trigger_id", "scheduled_at", "attempt"),
            ("tenant_id", "trigger_id", "dedupe_key"),
        ),
        "handlers": (("tenant_id", "name"),),
        "locks": (("key",),),
        "run_summaries": (("tenant_id", "schedule_id"),),
        "policy_jobs": (("tenant_id", "source", "run_id"),),
    }
)
"""Table to the columns, besides its primary key, that it keeps unique."""

WORDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "schedules.status": tuple(states.SCHEDULE),
        "schedules.mode": states.SCHEDULE_MODES,
        "schedules.handler_type": states.HANDLER_TYPES,
        "schedules.retry_strategy": states.RETRY_STRATEGIES,
        "schedules.on_exhausted": states.EXHAUSTED_POLICIES,
        "triggers.kind": states.TRIGGER_KINDS,
        "triggers.anchor": states.TRIGGER_ANCHORS,
        "triggers.misfire_policy": states.MISFIRE_POLICIES,
        "runs.state": tuple(states.RUN),
        "policy_jobs.mode": states.POLICY_MODES,
        "policy_jobs.priority": states.POLICY_PRIORITIES,
        "policy_jobs.status": tuple(states.POLICY_JOB),
        "execution_logs.level": states.LOG_LEVELS,
        "handlers.handler_type": states.HANDLER_TYPES,
        "workers.kind": states.WORKER_KINDS,
        "workers.status": states.WORKER_STATUSES,
    }
)
"""Columns that hold one word of a closed list."""

_BITS: Final = {"int2": 15, "int4": 31, "int8": 63}
_BOUNDS: Final = {"schedules.priority": (0, 100), "triggers.interval_ms": (1, 2**63 - 1)}
_NOT_NEGATIVE: Final = frozenset(
    {
        "schedules.max_retries",
        "schedules.retry_delay_ms",
        "schedules.retry_cap_ms",
        "schedules.retry_count",
        "schedules.timeout_ms",
        "schedules.max_concurrency",
    }
)

INDEXED: Final = frozenset(
    {"schedules.name", "handlers.name", "runs.trace_id", "runs.dedupe_key", "triggers.event_name", "policy_jobs.run_id"}
    | {"schedules.tags", "locks.key"}
)
"""Texts that an index of the target holds, which limits their length."""

CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {"cron_expression": "cron", "interval_ms": "interval", "run_at": "one_time", "event_name": "event"}
)
"""Column to the kind of a trigger that has it."""


def split(column: str) -> tuple[str, str]:
    """Return table and column of ``table.column``; with a member, that stays with the column."""
    table, _, name = column.partition(".")
    return table, name


def member_of(column: str) -> str:
    """Return the member of ``table.column.member``; empty for a whole column."""
    return split(split(column)[1])[1]


@cache
def types_of(table: str) -> Mapping[str, str]:
    """Return column to PostgreSQL type of a table that a mapping may feed."""
    return copy_format.column_types(RECORDS[table])


def type_of(column: str) -> str:
    """Return the PostgreSQL type of ``table.column``."""
    table, name = split(column)
    return types_of(table)[split(name)[0]]


def bounds_of(column: str) -> tuple[int, int]:
    """Return the smallest and the largest number that ``table.column`` accepts."""
    if column in _BOUNDS:
        return _BOUNDS[column]
    largest = (1 << _BITS[type_of(column)]) - 1
    return (0 if column in _NOT_NEGATIVE else -largest - 1, largest)


@cache
def needed_columns(table: str) -> frozenset[str]:
    """Return the columns of a table that may not be null, have no default, and are not filled by the tool.

    The kind of a trigger follows from its cause.
    """
    fields = msgspec.structs.fields(RECORDS[table])
    return frozenset(field.name for field in fields if field.required) - FILLED_BY_THE_TOOL - {"kind"} | (
        {"kind"} if table == "workers" else set()
    )


def complete_trigger(columns: dict[str, Any]) -> None:
    """Add the kind of a trigger and the columns that go with it; hold it to the constraints of its table.

    Raises ``Rejected`` for a trigger with two causes, and for a period that ends before it begins.
    """
    causes = [name for name in CAUSES if columns.get(name) is not None]
    if len(causes) != 1:
        raise Rejected("wrong-kind", "", "exactly one of a cron line, an interval, a time and an event")
    kind = columns["kind"] = CAUSES[causes[0]]
    if kind == "interval":
        columns.setdefault("anchor", "fixed_rate")
    else:
        columns.pop("anchor", None)
    if kind == "event":
        columns.pop("timezone", None)
        columns.pop("next_fire_at", None)
    start, end = columns.get("start_at"), columns.get("end_at")
    if start is not None and end is not None and end <= start:
        raise Rejected("out-of-range", "", "a trigger that ends after it begins")


def complete_run(columns: dict[str, Any]) -> bool:
    """Set the attempt of a run that names a trigger and a slot (a constraint demands it), and its duration.

    Return False for a run that ends before it begins.
    """
    if columns.get("trigger_id") is not None and columns.get("scheduled_at") is not None:
        columns.setdefault("attempt", 1)
    started, finished = columns.get("started_at"), columns.get("finished_at")
    if started is None or finished is None:
        return True
    if finished < started:
        return False
    if "duration_ms" not in columns:
        lasted = finished - started  # three times as fast as a division of two durations
        columns["duration_ms"] = (lasted.days * 86_400 + lasted.seconds) * 1_000 + lasted.microseconds // 1_000
    return True
