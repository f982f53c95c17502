"""Input rules of the client: what a request must be before anything is written.

``UsageError`` names the field, never its value.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, TypeAlias
from uuid import UUID

from migrator import cron, states
from migrator.errors import NotFoundError, RefusedError, TransitionError, UsageError
from migrator.records import Schedule
from migrator.scheduler.models import Timing
from migrator.store import validation
from migrator.store.protocols import Session
from migrator.values import jsonb

_MAX_INT = 2**31 - 1
_MINIMUM = {
    "max_retries": 0,
    "max_concurrency": 1,
    "max_fires": 1,
}
_MILLISECOND = timedelta(milliseconds=1)
_SHORTEST = {
    "retry_delay": timedelta(0),
    "retry_cap": timedelta(0),
    "timeout": _MILLISECOND,
    "misfire_grace": timedelta(0),
}
"""Durations, which are stored as milliseconds in columns whose names end in ``_ms``."""
_LONGEST = _MAX_INT * _MILLISECOND
_MAY_BE_NULL = frozenset({"description", "queue", "timeout", "max_concurrency", "max_fires", "misfire_grace"})
_WORDS = {
    "handler_type": states.HANDLER_TYPES,
    "retry_strategy": states.RETRY_STRATEGIES,
    "on_exhausted": states.EXHAUSTED_POLICIES,
    "misfire_policy": states.MISFIRE_POLICIES,
    "anchor": states.TRIGGER_ANCHORS,
}
_TEXTS = frozenset({"name", "handler_name", "created_by", "description", "queue"})


def check_field(name: str, value: Any) -> None:  # noqa: ANN401 - fields have all types
    """Raise ``UsageError`` unless the field may have this value; fields that are not known here pass."""
    if value is None:
        if name in (_TEXTS | _MINIMUM.keys()) - _MAY_BE_NULL:
            raise UsageError(f"{name} is missing")
    elif name in _TEXTS:
        check_text(name, value)
    elif name in _MINIMUM:
        if type(value) is not int or not _MINIMUM[name] <= value <= _MAX_INT:
            raise UsageError(f"{name} must be a whole number of at least {_MINIMUM[name]}")
    elif name in _WORDS:
        validation.check_known(name, _WORDS[name], (value,))
    elif name == "tags":
        check_several(name, value)
        for tag in value:
            check_text("a tag", tag)


def columns_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a request as columns: durations in milliseconds; raises as ``check_field``."""
    columns: dict[str, Any] = {}
    for name, value in given.items():
        if name in _SHORTEST:
            columns[f"{name}_ms"] = _milliseconds(name, value)
        else:
            check_field(name, value)
            columns[name] = value
    return columns


def _milliseconds(name: str, length: timedelta | None) -> int | None:
    if length is None:
        if name not in _MAY_BE_NULL:
            raise UsageError(f"{name} is missing")
        return None
    if not _SHORTEST[name] <= length <= _LONGEST:
        least = f"{_SHORTEST[name] // _MILLISECOND} ms"
        raise UsageError(f"{name} must be a timedelta of at least {least} and at most {_LONGEST.days} days")
    return length // _MILLISECOND


def check_id(name: str, value: UUID) -> None:
    """Raise ``UsageError`` for an id that is no ``UUID``, such as its text: only one of the drivers would take that."""
    if not isinstance(value, UUID):
        raise UsageError(f"{name} must be a UUID, not {type(value).__name__}")


def check_several(name: str, value: Iterable[str] | None) -> None:
    """Raise ``UsageError`` for one text in place of several: each of its letters would count as one."""
    if isinstance(value, str):
        raise UsageError(f"{name} must be a sequence of texts, not one text")


def check_text(name: str, value: str) -> None:
    """Raise ``UsageError`` for a text that says nothing."""
    if not value.strip():
        raise UsageError(f"{name} must not be blank")


def priority_number(given: int | str | None) -> int | None:
    """Return the number of a priority."""
    if given is None:
        return None
    if isinstance(given, str):
        validation.check_known("priority", states.PRIORITY_WORDS, (given,))
        return states.PRIORITY_WORDS[given]
    if type(given) is not int or not 0 <= given <= states.PRIORITY_WORDS["critical"]:
        raise UsageError("priority must be a whole number from 0 to 100")
    return given


def instant(name: str, value: datetime | None) -> datetime | None:
    """Return a time as it will be stored; raises ``UsageError`` for one without time zone."""
    if value is None:
        return None
    if value.utcoffset() is None:
        raise UsageError(f"{name} names no time zone")
    return validation.milliseconds(value)


def window(since: datetime | None, until: datetime | None) -> tuple[datetime | None, datetime | None]:
    """Return the bounds of a window as they will be stored; raises ``UsageError`` for an empty one."""
    since, until = instant("since", since), instant("until", until)
    if since is not None and until is not None and until <= since:
        raise UsageError("until must come after since")
    return since, until


def interval_ms(length: timedelta) -> int:
    """Return an interval in milliseconds; raises ``UsageError`` for one that is not above zero."""
    validation.check_above_zero("an interval", length)
    if length < _MILLISECOND:
        raise UsageError("an interval must be at least one millisecond")
    return length // _MILLISECOND


def zone_name(name: str) -> str:
    """Return the name of a zone as the database writes it; raises ``ZoneError`` (a ``UsageError``)."""
    return cron.zone(name)[0].key


def own_schedule(session: Session, schedule_id: UUID) -> Schedule:
    """Return a schedule that this tenant may change; raises ``NotFoundError``, or ``UsageError`` for one of ``*``."""
    check_id("schedule_id", schedule_id)
    stored = session.schedules.get(schedule_id)
    if stored is None:
        raise NotFoundError(f"no schedule {schedule_id}")
    if stored.tenant_id != session.tenant:
        raise UsageError(f"schedule {schedule_id} belongs to all tenants: none of them changes it")
    return stored


def next_status(schedule: Schedule, action: str) -> str:
    """Return the status that an action leads to; raises ``TransitionError`` where it may not be asked for now."""
    if not states.may_be_asked(action, schedule.status):
        raise TransitionError(f"cannot {action} a schedule that is {schedule.status}")
    return states.SCHEDULE_ACTIONS[action][1]


def check_may_run(schedule: Schedule) -> None:
    """Raise unless a run that is queued now would be served: ``RefusedError``, ``TransitionError``."""
    if schedule.status == "paused":
        raise RefusedError(f"schedule {schedule.id} is paused: resume it first")
    if not schedule.enabled:
        raise RefusedError(f"schedule {schedule.id} is disabled: enable it first")
    if schedule.status != "running":
        validation.check_transition("schedule", schedule.status, "running")


def check_distinct(names: Iterable[str]) -> None:
    """Raise ``UsageError`` where a name comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{name} is named twice")
        seen.add(name)


def trigger_columns(timing: Timing) -> dict[str, Any]:
    """Return the columns of the trigger that a timing asks for."""
    if (timing.cron is None) == (timing.interval is None):
        raise UsageError("a timing is a cron line or an interval, one of them")
    named = zone_name(timing.timezone)
    if timing.interval is not None:
        check_field("anchor", timing.anchor)
        return {"kind": "interval", "interval_ms": interval_ms(timing.interval), "anchor": timing.anchor}
    assert timing.cron is not None  # noqa: S101 - just looked
    cron.validate(timing.dialect, timing.cron, named)
    return {"kind": "cron", "cron_expression": timing.cron, "cron_dialect": timing.dialect, "timezone": named}


def encode_json(name: str, value: Any) -> bytes | None:  # noqa: ANN401 - any JSON value
    """Return a JSON value as its column holds it; raises ``UsageError`` for what would not be read back as given.

    The message has the path to it: ``name`` is that of the argument, empty if its members are arguments.
    """
    if value is None:
        return None
    try:
        fault = _fault(value, _of_no_json_type)
        if fault is None:
            try:
                return jsonb.encode(value)
            except (ValueError, OverflowError):
                fault = _fault(value, _not_encodable)
    except RecursionError:
        fault = "", "it has too many levels, or contains itself"
    path, words = fault or ("", "it cannot be written")
    raise UsageError(f"{(name + path).removeprefix('.')} is no JSON value: {words}")


_Fault: TypeAlias = tuple[str, str] | None
"""The path to a part of a value, and what is wrong with it."""


def _fault(value: Any, of_leaf: Callable[[Any], str | None]) -> _Fault:  # noqa: ANN401 - anything
    """Return the first part of a value that is no JSON; the path is made only if there is one."""
    if isinstance(value, dict):
        members: Iterable[tuple[Any, Any]] = value.items()
        if not all(isinstance(key, str) and of_leaf(key) is None for key in value):
            return "", "a key of it is no text, or one that JSON does not hold"
    elif isinstance(value, list | tuple):
        members = enumerate(value)
    else:
        words = of_leaf(value)
        return None if words is None else ("", words)
    for key, member in members:
        found = _fault(member, of_leaf)
        if found is not None:
            return (f".{key}" if isinstance(value, dict) else f"[{key}]") + found[0], found[1]
    return None


def _of_no_json_type(value: Any) -> str | None:  # noqa: ANN401 - anything
    if isinstance(value, str):
        return "a text with the character NUL" if "\0" in value else None
    if isinstance(value, float):
        return None if isfinite(value) else "a number that is not finite"
    return None if value is None or type(value) in {bool, int} else f"of the type {type(value).__name__}"


def _not_encodable(value: Any) -> str | None:  # noqa: ANN401 - anything
    try:
        jsonb.encode(value)
    except (ValueError, OverflowError) as error:
        return f"it cannot be written ({type(error).__name__})"
    return None
