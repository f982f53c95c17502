"""What a mapping may feed, and what it must keep to beside the constraints of the tables.

A mapping is data of its user, so every value is held to ``migrator.constraints`` and to what is here before a row is
made, and the document that breaks one is quarantined alone.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from migrator import constraints
from migrator.sources.profile import Rejected
from migrator.values import copy_format

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

INDEXED: Final = constraints.INDEXED

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
"""Numbers that mean nothing below zero; the table would accept them."""


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
    return copy_format.column_types(constraints.RECORDS[table])


def type_of(column: str) -> str:
    """Return the PostgreSQL type of ``table.column``."""
    table, name = split(column)
    return types_of(table)[split(name)[0]]


def bounds_of(column: str) -> tuple[int, int]:
    """Return the smallest and the largest number that a mapping may give ``table.column``."""
    table, name = split(column)
    least, most = constraints.bounds_of(f"{table}.{split(name)[0]}")
    return (max(least, 0) if column in _NOT_NEGATIVE else least), most


@cache
def needed_columns(table: str) -> frozenset[str]:
    """Return the columns of a table that may not be null, have no default, and are not filled by the tool.

    The kind of a trigger follows from its cause.
    """
    fields = msgspec.structs.fields(constraints.RECORDS[table])
    return frozenset(field.name for field in fields if field.required) - FILLED_BY_THE_TOOL - {"kind"} | (
        {"kind"} if table == "workers" else set()
    )


def complete_trigger(columns: dict[str, Any]) -> None:
    """Add the kind of a trigger and the columns that go with it; hold it to the constraints of its table.

    Raises ``Rejected`` for a trigger with two causes, and for a period that ends before it begins.
    """
    causes = [name for name in constraints.CAUSES if columns.get(name) is not None]
    if len(causes) != 1:
        raise Rejected("wrong-kind", "", "exactly one of a cron line, an interval, a time and an event")
    kind = columns["kind"] = constraints.CAUSES[causes[0]]
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
    if started is None or finished is None or "duration_ms" in columns:
        return True
    if finished < started:
        return False
    lasted = finished - started  # three times as fast as a division of two durations
    columns["duration_ms"] = (lasted.days * 86_400 + lasted.seconds) * 1_000 + lasted.microseconds // 1_000
    return True
