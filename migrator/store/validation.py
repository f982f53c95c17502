"""Validation that every backend makes before it writes: the rules of ``store.protocols`` as pure functions.

PostgreSQL's CHECKs remain the last guard. What they refuse is refused here first, with the same message on each
backend.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from migrator import constraints, states
from migrator.errors import TransitionError, UsageError
from migrator.records import Record, Run, Schedule, Trigger
from migrator.values import document, jsonb
from migrator.values.copy_format import column_types

if TYPE_CHECKING:
    from migrator.store.queue import Finish

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
    return tuple((name, kind) for name, kind in column_types(record).items() if kind not in {"uuid", "bool"})


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
    _check_size(f"a row of {kind.table}", msgspec.structs.astuple(record))
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
        check_time(name, value)
        return milliseconds(value) if value.microsecond % 1000 else value
    if column == "text":
        check_text(name, value)
    elif column == "text[]":
        for item in value:
            check_text(name, item)
    elif column == "jsonb":
        check_json(name, value)
    else:
        least, most = constraints.bounds_of(name)
        if not least <= value <= most:
            raise UsageError(f"{name} must be between {least} and {most}")
    return value


def check_time(name: str, value: datetime) -> None:
    """Raise ``UsageError`` for a time without zone, and for one outside the years 1 to 9999 in UTC."""
    if value.tzinfo is None:
        raise UsageError(f"{name} names no time zone")
    if value.tzinfo is not UTC:
        try:
            value.astimezone(UTC)
        except OverflowError:
            raise UsageError(f"{name} must be in the years 1 to 9999 in UTC") from None


def check_text(name: str, value: str) -> None:
    """Raise ``UsageError`` for a text that one of the databases refuses; ``name``: its ``table.column``."""
    if "\0" in value:
        raise UsageError(f"{name} holds the character NUL")
    size = len(value)
    if not value.isascii():
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise UsageError(f"{name} holds half of a surrogate pair, which is no character") from None
    if size > constraints.LONGEST_KEY and name in constraints.INDEXED:
        raise UsageError(f"{name} must have at most {constraints.LONGEST_KEY:,} bytes of UTF-8, since it is indexed")


def check_tenant(tenant: str) -> None:
    """Raise ``UsageError`` for a tenant that no row may have."""
    if not tenant or "\0" in tenant:
        raise UsageError("a session needs a tenant")
    check_text("a tenant", tenant)
    if len(tenant.encode()) > constraints.LONGEST_TENANT:
        raise UsageError(f"a tenant must have at most {constraints.LONGEST_TENANT} bytes of UTF-8, since it is indexed")


DEEPEST = 100
"""Levels of documents and lists in a JSON value; MongoDB refuses deeper documents."""

_LARGEST_DOCUMENT = 16 * 1024 * 1024
_OTHER_FIELDS = 16 * 1024
"""Bytes of a document besides its texts and JSON values, at most."""
_SURELY_FITS = _LARGEST_DOCUMENT // 8
"""Bytes of texts and JSON. In BSON an element of a list takes up to seven times the bytes of its JSON text."""
_INT64 = 2**63
_suspicious = re.compile(rb"\\u0000|[0-9]{16}|[0-9][eE]").search


def check_json(name: str, text: bytes) -> None:
    """Raise ``UsageError`` for a JSON text that one of the databases refuses, or would not give back.

    Numbers are whole ones of 64 bits, or doubles. ``name``: its ``table.column``.
    """
    try:
        value = jsonb.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UsageError(f"{name} is no JSON text, or is nested too deep") from None
    if text.count(b"[") + text.count(b"{") > DEEPEST or _suspicious(text):
        _check_value(name, value, DEEPEST)


def _check_value(name: str, value: object, levels: int) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise UsageError(f"{name} holds the character NUL")
    elif isinstance(value, dict | list):
        if not levels:
            raise UsageError(f"{name} must have at most {DEEPEST} levels of objects and lists")
        for key in value if isinstance(value, dict) else ():
            _check_value(name, key, levels - 1)
        for item in value.values() if isinstance(value, dict) else value:
            _check_value(name, item, levels - 1)
    elif isinstance(value, int) and not -_INT64 <= value < _INT64 and _of_double(value) != value:
        raise UsageError(f"{name} holds a whole number that neither 64 bits nor a double hold")
    elif isinstance(value, float) and not isfinite(value):
        raise UsageError(f"{name} holds a number that is larger than a double")


def _of_double(value: int) -> object:
    """Return the number that comes back if a whole number is stored as a double; None if no double is that large."""
    return jsonb.decode(jsonb.encode(document.double_of(value)))


def _check_size(what: str, values: Iterable[object]) -> None:
    """Raise ``UsageError`` for texts and JSON values that are together larger than a document of MongoDB may be."""
    sized = [value for value in values if isinstance(value, str | bytes | tuple | list)]
    if sum(len(value) if isinstance(value, str | bytes) else sum(map(len, value)) for value in sized) <= _SURELY_FITS:
        return
    held = {str(place): jsonb.decode(value) if isinstance(value, bytes) else value for place, value in enumerate(sized)}
    if len(document.encode(held)) > _LARGEST_DOCUMENT - _OTHER_FIELDS:
        raise UsageError(f"{what} must be smaller than 16 MiB, as a document of MongoDB")


def check_outcome(end: "Finish") -> None:
    """Raise ``UsageError`` for an end of a run whose result or words one of the databases refuses."""
    for name, text in (("runs.error", end.error), ("runs.error_detail", end.error_detail)):
        if text is not None:
            check_text(name, text)
    if end.result is not None:
        check_json("runs.result", end.result)
    _check_size("the outcome of a run", (end.result, end.error, end.error_detail))


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


@overload
def checked_time(now: datetime) -> datetime: ...
@overload
def checked_time(now: None) -> None: ...
def checked_time(now: datetime | None) -> datetime | None:
    """Return the time that a call is given, None if it is the server's; raises ``UsageError`` for one without zone."""
    if now is None:
        return None
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
