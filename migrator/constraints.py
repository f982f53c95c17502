"""The constraints of the schema ``scheduler``: words, codes and bounds of columns, and what a kind of trigger has.

The revisions' CHECK constraints say the same. PostgreSQL refuses a whole statement for one row that breaks a
constraint, and MongoDB has none, so the store and every mapping hold a value to these before they write it.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from migrator import states
from migrator.records import ALL, Record
from migrator.values import copy_format

RECORDS: Final[Mapping[str, type[Record]]] = MappingProxyType({record.table: record for record in ALL})
"""Table to its record."""

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
"""``table.column`` to the words of its closed list."""

CODES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "graph_jobs.type": tuple(states.GRAPH_JOB_TYPES.values()),
        "graph_jobs.status": tuple(states.GRAPH_JOB_CODES.values()),
        "graph_job_events.status": tuple(states.GRAPH_JOB_CODES.values()),
    }
)
"""``table.column`` to the numbers of its closed list."""

KIND_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "cron": ("cron_expression", "cron_dialect"),
        "interval": ("interval_ms", "anchor"),
        "one_time": ("run_at",),
        "event": ("event_name",),
    }
)
"""Kind of a trigger to the columns that it, and no other kind, sets; the first is its cause."""

CAUSES: Final[Mapping[str, str]] = MappingProxyType({names[0]: kind for kind, names in KIND_COLUMNS.items()})
"""Column of a cause to the kind of a trigger that has it."""

INDEXED: Final = frozenset(
    {
        "schedules.name",
        "schedules.tags",
        "handlers.name",
        "runs.trace_id",
        "runs.dedupe_key",
        "triggers.event_name",
        "policy_jobs.run_id",
        "locks.key",
    }
)
"""Texts that an index of the target holds, which limits their length."""
LONGEST_KEY: Final = 2_000
LONGEST_TENANT: Final = 500
"""Bytes of an indexed text, and of the tenant beside it: together they fit PostgreSQL's index entry of 2704 bytes."""

_BITS: Final = {"int2": 15, "int4": 31, "int8": 63}
_BOUNDS: Final = {"schedules.priority": (0, 100), "triggers.interval_ms": (1, 2**63 - 1)}
COUNTERS: Final = frozenset(
    {
        "schedules.retry_count",
        "triggers.fire_count",
        "runs.run_number",
        "runs.attempt",
        "runs.fence",
        "policy_jobs.attempt_count",
        "locks.fence",
    }
)
"""Columns to which one is added: they hold no number to which none can be added."""


@cache
def bounds_of(column: str) -> tuple[int, int]:
    """Return the smallest and the largest number that ``table.column``, a column of numbers, accepts."""
    if column in _BOUNDS:
        return _BOUNDS[column]
    table, _, name = column.partition(".")
    least, most = bounds_of_type(copy_format.column_types(RECORDS[table])[name])
    return least, most - (column in COUNTERS)


def bounds_of_type(kind: str) -> tuple[int, int]:
    """Return the smallest and the largest number of a type of whole numbers."""
    largest = (1 << _BITS[kind]) - 1
    return -largest - 1, largest


def most_of(column: str) -> int:
    """Return the largest number that ``table.column``, a column of numbers, accepts."""
    return bounds_of(column)[1]
