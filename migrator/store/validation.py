"""Validation that every backend makes before it writes: the rules of ``store.protocols`` as pure functions.

PostgreSQL's CHECKs remain the last guard. What they refuse is refused here first, with the same message on each
backend.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from migrator import constraints, states
from migrator.errors import TransitionError, UsageError
from migrator.records import Record, Run, Schedule, Trigger
from migrator.values.copy_format import column_types

R = TypeVar("R", bound=Record)

GLOBAL = "*"
"""The tenant whose rows all tenants see."""

KEPT = frozenset({"id", "tenant_id", "source", "source_id", "extra"})
"""Columns that no update changes."""

UNCHANGEABLE = KEPT | {"status", "created_at", "created_by", "deleted_at", "deleted_by"}
"""Columns of a schedule that ``change_status`` takes no changes for."""

DEFAULT_PRIORITY = 50
"""The priority that a null priority of a schedule counts as."""

_MILLISECOND = timedelta(milliseconds=1)


@cache
def _columns(record: type[Record]) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in column_types(record).items() if kind not in {"uuid", "bool", "jsonb"})


@cache
def _words(record: type[Record]) -> tuple[tuple[str, Collection[object]], ...]:
    listed: dict[str, Collection[object]] = {**constraints.WORDS, **constraints.CODES}
    named = ((name, listed.get(f"{record.table}.{name}")) for name in record.__struct_fields__)
    return tuple((name, words) for name, words in named if words is not None)


def checked_record(record: R, tenant: str) -> R:
    """Return the record as ``tenant``'s session writes it: times in whole milliseconds.

    Raises ``UsageError`` for what no session of this tenant may write (see ``store.protocols``).
    """
    kind = type(record)
    check_own_tenant(record.tenant_id, tenant)  # type: ignore[attr-defined] # every table but the tool's own has a tenant
    changes: dict[str, Any] = {}
    for name, column in _columns(kind):
        value = getattr(record, name)
        if value is not None and (cut := _cell(f"{kind.table}.{name}", column, value)) is not value:
            changes[name] = cut
    for name, words in _words(kind):
        value = getattr(record, name)
        if value is not None and value not in words:
            raise UsageError(f"{kind.table}.{name} does not know the given value")
    _check(record)
    if isinstance(record, Run):
        lasted = duration_ms(
            changes.get("started_at", record.started_at), changes.get("finished_at", record.finished_at)
        )
        if lasted != record.duration_ms:
            changes["duration_ms"] = lasted
    return msgspec.structs.replace(record, **changes) if changes else record


def checked_served_record(record: R, tenant: str) -> R:
    """Return the record as the queue writes it: as a session of the tenant would, also where that is ``*``."""
    row: Any = record
    if tenant != GLOBAL or row.tenant_id != GLOBAL:
        return checked_record(record, tenant)
    held: Any = checked_record(msgspec.structs.replace(row, tenant_id="-"), "-")
    return cast("R", msgspec.structs.replace(held, tenant_id=GLOBAL))


def _cell(name: str, column: str, value: Any) -> Any:  # noqa: ANN401 - columns have all types
    """Return the value as its column will hold it."""
    if column == "timestamptz":
        if value.tzinfo is None:
            raise UsageError(f"{name} names no time zone")
        return milliseconds(value) if value.microsecond % 1000 else value
    if column in {"text", "text[]"}:
        if "\0" in (value if column == "text" else "".join(value)):
            raise UsageError(f"{name} holds the character NUL")
    else:
        least, most = constraints.bounds_of(name)
        if not least <= value <= most:
            raise UsageError(f"{name} must be between {least} and {most}")
    return value


def _check(record: Record) -> None:
    if isinstance(record, Trigger):
        check_trigger(record)
    elif isinstance(record, Schedule) and (record.deleted_at is not None or record.deleted_by is not None):
        raise UsageError("a schedule is deleted by soft_delete only")
    elif isinstance(record, Run) and record.duration_ms is not None and record.duration_ms < 0:
        raise UsageError("runs.duration_ms is negative")


def with_stored_precision(record: R, stored: R) -> R:
    """Return the record with the stored microseconds wherever it holds the stored instant cut to milliseconds.

    A migrated row that is read, edited and written back keeps what the source wrote.
    """
    changes: dict[str, Any] = {}
    for name, column in _columns(type(record)):
        if column == "timestamptz":
            before, given = getattr(stored, name), getattr(record, name)
            if before is not None and given is not None and before != given and milliseconds(before) == given:
                changes[name] = before
    return msgspec.structs.replace(record, **changes) if changes else record


def check_own_tenant(tenant: str, mine: str) -> None:
    """Refuse rows of another tenant than the session's, and rows of ``*``."""
    if mine == GLOBAL:
        raise UsageError("rows of the tenant * are not written in a session")
    if tenant != mine:
        raise UsageError("a record of another tenant than the session's")


def check_purgeable(tenant: str) -> None:
    """Raise ``UsageError`` for an empty tenant, and for ``*``."""
    if not tenant or "\0" in tenant:
        raise UsageError("a purge needs a tenant")
    if tenant == GLOBAL:
        raise UsageError("the tenant * is not purged: its rows belong to all tenants")


def checked_time(now: datetime) -> datetime:
    """Return the time that a call is given; raises ``UsageError`` for one without zone."""
    if now.tzinfo is None:
        raise UsageError("the time of a call names no time zone")
    return milliseconds(now)


def milliseconds(instant: datetime) -> datetime:
    """Cut an instant to whole milliseconds."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def duration_ms(started: datetime | None, finished: datetime | None) -> int | None:
    """Return whole milliseconds from start to end; None if one of them is None, or if the end comes first."""
    if started is None or finished is None or finished < started:
        return None
    return (finished - started) // _MILLISECOND


def check_trigger(trigger: Trigger) -> None:
    """Check a trigger by its table's CHECKs."""
    for kind, columns in constraints.KIND_COLUMNS.items():
        for column in columns:
            if (kind == trigger.kind) != (getattr(trigger, column) is not None):
                verb = "needs" if kind == trigger.kind else "has no"
                raise UsageError(f"a trigger of kind {trigger.kind} {verb} {column}")
    if trigger.kind == "event" and (trigger.timezone is not None or trigger.next_fire_at is not None):
        raise UsageError("a trigger of kind event has neither timezone nor next_fire_at")
    if trigger.start_at is not None and trigger.end_at is not None and trigger.end_at <= trigger.start_at:
        raise UsageError("a trigger's end_at must come after its start_at")


def check_page(limit: int, offset: int = 0) -> None:
    """Raise ``UsageError`` for a limit below 1 or a negative offset."""
    if limit < 1:
        raise UsageError("a limit must be at least 1")
    if offset < 0:
        raise UsageError("an offset must not be negative")


def check_known(what: str, words: Collection[str], given: Collection[str]) -> None:
    """Raise ``UsageError`` if a filter has an unknown word; the message names the words, which are ours."""
    for word in given:
        if word not in words:
            raise UsageError(f"unknown {what} {word!r}; known: {', '.join(words)}")


def check_above_zero(what: str, length: timedelta) -> None:
    """Raise ``UsageError`` for a length of time that is not above zero."""
    if length <= timedelta(0):
        raise UsageError(f"{what} must be above zero")


def check_transition(machine: str, state: str, follower: str) -> None:
    """Raise ``TransitionError`` unless ``follower`` may come after ``state`` (``machine``: of ``states.MACHINES``)."""
    edges = states.MACHINES[machine]
    check_known(f"{machine} state", edges, (state, follower))
    if not states.may_follow(edges, state, follower):
        raise TransitionError(f"a {machine} does not go from {state} to {follower}")


def check_changes(changes: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for changes that ``Schedules.change_status`` does not make."""
    for name in changes:
        if name not in Schedule.__struct_fields__ or name in UNCHANGEABLE:
            raise UsageError(f"a change of status cannot change {name}")
