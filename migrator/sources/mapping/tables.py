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
from migrator.constraints import LONGEST_KEY
from migrator.records import Record
from migrator.sources.profile import Rejected
from migrator.sources.shapes import plain
from migrator.targets import native_table
from migrator.targets.model import Column, UniqueAmong, tool_schema
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


def record_of(table: str) -> type[Record]:
    """Return the record of a table, which a native target names ``target/table``."""
    native = native_table(table)
    return constraints.RECORDS[table] if native is None else native.record


def types_of(table: str) -> Mapping[str, str]:
    """Return column to PostgreSQL type of a table that a mapping may feed."""
    return copy_format.column_types(record_of(table))


@cache
def fields_of(record: type[Record]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the columns of a record with their defaults: msgspec evaluates the annotations at each call.

    By record and not by name: a name may stand for another table in the next mapping that is loaded.
    """
    return msgspec.structs.fields(record)


def native_column(column: str) -> Column | None:
    """Return ``table.column`` of a native target; None for any other."""
    table, name = split(column)
    native = native_table(table)
    return None if native is None else native.column(split(name)[0])


def words_of(column: str) -> tuple[str, ...]:
    """Return the closed list of words of ``table.column``; empty: it has none."""
    native = native_column(column)
    return constraints.WORDS.get(column, ()) if native is None else native.words


def unique_of(table: str) -> tuple[tuple[str, ...], ...]:
    """Return the columns, besides the primary key of its record, that a table keeps unique."""
    native = native_table(table)
    if native is None:
        return UNIQUE.get(table, ())
    key = () if native.made else (native.key,)
    return tuple(tuple(map(native.member_of, columns)) for columns in (*key, *native.unique))


def unique_among_of(table: str) -> tuple[UniqueAmong, ...]:
    """Return the columns that a table keeps unique among some of its rows, as its record names them."""
    native = native_table(table)
    if native is None:
        return ()
    return tuple(
        UniqueAmong(
            tuple(map(native.member_of, one.columns)),
            {native.member_of(column): value for column, value in one.when.items()},
        )
        for one in native.unique_among
    )


def referred_table(column: str) -> str:
    """Return the table that ``table.column`` refers to; empty: it is no reference."""
    table, name = split(column)
    native = native_table(table)
    if native is None:
        return TARGETS.get(name, "")
    if name in native.links:
        return f"{native.target}/{native.links[name].table}"
    return next(
        (
            f"{native.target}/{referred}"
            for place, referred in native.references.items()
            if native.member_of(place) == name
        ),
        "",
    )


def parents_of(column: str) -> tuple[str, ...]:
    """Return the tables of which ``table.column`` may hold a row's id; none: it is no reference."""
    table, name = split(column)
    native = native_table(table)
    if native is not None:
        for place, worded in native.worded.items():
            if native.member_of(place) == name:
                return tuple(f"{native.target}/{referred}" for referred in worded.tables.values())
    referred = referred_table(column)
    return (referred,) if referred else ()


def references_of(table: str) -> Mapping[str, tuple[str, ...]]:
    """Return the columns of a table that refer to rows, each with the tables that it may refer to."""
    types = types_of(table).items()
    return {name: others for name, kind in types if kind == "uuid" and (others := parents_of(f"{table}.{name}"))}


def longest_of(column: str) -> int:
    """Return how long a text of ``table.column`` may be: bytes that an index holds, characters of a type; 0: any."""
    native = native_column(column)
    if native is None:
        return LONGEST_KEY if column in INDEXED else 0
    return native.longest


def checked_text(column: str, value: str, path: str) -> str:
    """Return a text that ``table.column`` of a native target can hold; raises ``Rejected`` for another one."""
    longest = longest_of(column)
    if longest and len(value) > longest:
        raise Rejected("too-long", path, f"at most {longest} characters")
    return plain(value, path)


def sql_name(table: str) -> str:
    """Return the name of a table, or of a native target's view, in SQL."""
    native = native_table(table)
    return f"scheduler.{table}" if native is None else f'{tool_schema(native.target)}."{native.name}"'


def alias(table: str) -> str:
    """Return how SQL over the rows of a table calls them."""
    native = native_table(table)
    return table if native is None else f'"{native.name}"'


def type_of(column: str) -> str:
    """Return the PostgreSQL type of ``table.column``."""
    table, name = split(column)
    return types_of(table)[split(name)[0]]


def bounds_of(column: str) -> tuple[int, int]:
    """Return the smallest and the largest number that a mapping may give ``table.column``."""
    table, name = split(column)
    native = native_column(column)
    if native is not None:
        least, most = constraints.bounds_of_type(types_of(table)[split(name)[0]])
        return (least if native.least is None else max(least, native.least)), most
    least, most = constraints.bounds_of(f"{table}.{split(name)[0]}")
    return (max(least, 0) if column in _NOT_NEGATIVE else least), most


def needed_columns(table: str) -> frozenset[str]:
    """Return the columns of a table that may not be null, have no default, and are not filled by the tool.

    The kind of a trigger follows from its cause.
    """
    fields = fields_of(record_of(table))
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
