"""What a list of schedules asks of MongoDB: conditions that its indexes serve, and walks in an order that they have.

A schedule document may say the same in several ways: a status may follow from ``enabled``, and a time may be a text or
a date. So the conditions of ``server_filter`` admit all that pass, and may admit more: each row is checked again.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, get_args
from uuid import UUID

import msgspec

from migrator import states
from migrator.records import Schedule, Trigger
from migrator.sources.profile import Document
from migrator.sources.store_documents import names
from migrator.sources.store_documents.schedules import TOOL_ENABLED
from migrator.store.mongo.priority import priority_of
from migrator.store.protocols import ScheduleQuery, SortKey
from migrator.store.validation import DEFAULT_PRIORITY
from migrator.values.times import format_iso, to_bson

ORDERS: Final = get_args(SortKey)

_Where: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[bool, Any, UUID]
"""Whether the sorted value is missing, the value, and the id; smaller keys come first in either direction."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST: Final = datetime.min  # noqa: DTZ901 - as BSON has it
_LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_000)  # noqa: DTZ001 - as BSON has it
_REPLACED: Final = "\ufffd"
"""A column has it in place of U+0000, so a document may hold another text than its row."""
_LAST: Final = chr(sys.maxunicode)
_IDLE_STATUSES: Final = [text for text, word in names.SCHEDULE_STATUSES.items() if word not in states.SCHEDULE_FIRING]
_OVERRIDDEN: Final[_Where] = {"enabled": {"$ne": False}, TOOL_ENABLED: True, "status": {"$in": _IDLE_STATUSES}}
"""Documents that the old application enabled again: they are scheduled, whatever their status says."""


def passes(query: ScheduleQuery, row: Schedule, fire: datetime | None) -> bool:
    """Return whether a schedule that fires next at ``fire`` passes all filters but that on kinds."""
    tags = set(row.tags or ())
    return (
        (not query.statuses or row.status in query.statuses)
        and (not query.handlers or row.handler_name in query.handlers)
        and query.enabled in (None, row.enabled)
        and (not query.tags_any or not tags.isdisjoint(query.tags_any))
        and tags.issuperset(query.tags_all)
        and between(row.created_at, query.created_after, query.created_before)
        and between(fire, query.next_fire_after, query.next_fire_before)
        and (query.name_contains is None or query.name_contains.lower() in row.name.lower())
        and query.created_by in (None, row.created_by)
    )


def between(value: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    """Return whether a time is within bounds, which exclude themselves; no time is within any bound."""
    if after is None and before is None:
        return True
    return value is not None and (after is None or value > after) and (before is None or value < before)


def earliest(triggers: Sequence[Trigger]) -> dict[UUID, datetime]:
    """Return the next fire of each schedule of which an enabled trigger fires."""
    fires: dict[UUID, datetime] = {}
    for trigger in triggers:
        if trigger.enabled and trigger.next_fire_at is not None:
            fires[trigger.schedule_id] = min(trigger.next_fire_at, fires.get(trigger.schedule_id, trigger.next_fire_at))
    return fires


def sort_key(query: ScheduleQuery, row: Schedule, fire: datetime | None) -> Key:
    """Return the place of a schedule that fires next at ``fire`` in the order of a query."""
    sign = -1 if query.descending else 1
    if query.sort_by == "name":
        name: Any = row.name
        if query.descending:
            name = (*(-ord(character) for character in row.name), 1)
        return False, name, row.id
    if query.sort_by == "priority":
        return False, sign * priority_of(row), row.id
    at = row.created_at if query.sort_by == "created_at" else fire
    return (True, 0, row.id) if at is None else (False, sign * (at - _EPOCH), row.id)


def fire_bounds(query: ScheduleQuery) -> _Where:
    """Return the condition on ``nextFireAt``: of the times that a date and a row hold, those within the bounds."""
    after, before = query.next_fire_after, query.next_fire_before
    return {
        "$gte": _EARLIEST if after is None else to_bson(after),
        "$lte": _LATEST if before is None else to_bson(before),
    }


def server_filter(query: ScheduleQuery) -> _Where:
    """Return a condition that every document passes whose row passes the filters on columns of schedules."""
    parts: list[_Where] = [{"deletedAt": None}]
    if query.statuses:
        parts.append(_of_status(query.statuses))
    if query.handlers and _are_exact(query.handlers):
        parts.append({"handlerName": {"$in": [*query.handlers]}})
    if query.enabled is not None:
        parts.append(_of_enabled(query.enabled))
    if query.tags_any and _are_exact(query.tags_any):
        parts.append({"tags": {"$in": [*query.tags_any]}})
    if query.tags_all and _are_exact(query.tags_all):
        parts.append({"tags": {"$all": [*query.tags_all]}})
    if query.created_by is not None and _are_exact([query.created_by]):
        parts.append(_of_creator(query.created_by))
    return {"$and": parts}


def server_count(query: ScheduleQuery) -> _Where | None:
    """Return the condition of the documents that pass; None if none says so exactly."""
    others = (
        *(query.kinds or None, query.next_fire_after, query.next_fire_before, query.name_contains),
        *(query.created_after, query.created_before, query.created_by),
    )
    texts = (*query.handlers, *query.tags_any, *query.tags_all)
    return server_filter(query) if all(one is None for one in others) and _are_exact(texts) else None


def created_bounds(query: ScheduleQuery) -> _Where:
    """Return the condition on ``createdAt`` if it is a text, in UTC, to the second."""
    bounds = {"$gte": ""}  # of texts alone
    if query.created_after is not None:
        bounds["$gte"] = _second(query.created_after)
    if query.created_before is not None and query.created_before < datetime.max.replace(tzinfo=UTC) - _SECOND:
        bounds["$lt"] = _second(query.created_before + _SECOND)
    return {"createdAt": bounds}


_SECOND: Final = timedelta(seconds=1)


def _second(at: datetime) -> str:
    return format_iso(at.astimezone(UTC).replace(microsecond=0)).removesuffix("+00:00")


def _of_status(statuses: Sequence[str]) -> _Where:
    spelled = [text for text, word in names.SCHEDULE_STATUSES.items() if word in statuses]
    branches: list[_Where] = [{"status": {"$in": spelled}, "$nor": [_OVERRIDDEN]}]
    if "scheduled" in statuses:
        branches += [{"status": None, "enabled": {"$ne": False}}, _OVERRIDDEN]
    if "paused" in statuses:
        branches.append({"status": None, "enabled": False})
    return branches[0] if len(branches) == 1 else {"$or": branches}


def _of_enabled(enabled: bool) -> _Where:  # noqa: FBT001 - the value that is looked for
    if enabled:
        return {"$or": [{"enabled": {"$ne": False}}, {TOOL_ENABLED: True}]}
    return {"enabled": False, TOOL_ENABLED: {"$ne": True}}


def _of_creator(by: str) -> _Where:
    """Return the condition on texts that are ``by`` without the white space around it: ranges that hold them all.

    Such a text begins with ``by``, a space or control character, or a character that is not ASCII; after ``by`` follows
    one of the last two.
    """
    ranges = [(by, f"{by}!"), (f"{by}\x85", by + _LAST), ("", "!"), ("\x85", _LAST)]
    return {"$or": [{"createdBy": {"$gte": first, "$lt": last}} for first, last in ranges]}


def _are_exact(texts: Sequence[str]) -> bool:
    return not any(_REPLACED in text for text in texts)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Documents that the server returns in order; those of the next segment of the walk come after them."""

    where: _Where
    sort: Sequence[tuple[str, int]]
    bucket: Callable[[Schedule], Any]
    """What the server sorts by, as far as its order can be relied on: what differs in it is in order."""
    is_exact: Callable[[Schedule, Document], bool]
    """Whether all that follow a document come after it, if no ``_id`` was made by another application."""


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """How the schedules of a tenant are read in an order."""

    segments: Sequence[Segment]
    misplaced: Sequence[_Where] = ()
    """Conditions on the documents that are in no segment."""


def walk_of(query: ScheduleQuery) -> Walk:
    """Return the walk in the order of a query, if that is no order by next fire."""
    down = query.descending
    if query.sort_by == "name":
        by_name = Segment(where={}, sort=[("name", -1 if down else 1)], bucket=lambda row: row.name, is_exact=_never)
        return Walk(segments=[by_name])
    return _by_priority(down=down) if query.sort_by == "priority" else _by_creation(query)


def _by_priority(*, down: bool) -> Walk:
    sort = [("priority", -1), ("_id", 1)] if down else [("priority", 1)]
    higher, lower = (
        Segment(
            where={"priority": {compared: DEFAULT_PRIORITY}},
            sort=sort,
            bucket=priority_of,
            is_exact=_always if down else _never,
        )
        for compared in ("$gt", "$lt")
    )
    usual = Segment(
        where={"priority": {"$in": [DEFAULT_PRIORITY, None]}}, sort=[("_id", 1)], bucket=priority_of, is_exact=_always
    )
    return Walk(segments=[higher, usual, lower] if down else [lower, usual, higher])


def _by_creation(query: ScheduleQuery) -> Walk:
    """Return the walk by ``createdAt``: texts in UTC, whose order can be relied on to the second, and none.

    Texts with another offset are taken for UTC, as in lists of runs. Dates, which another application may write, are
    read apart.
    """
    bounds = created_bounds(query)
    texts = Segment(
        where=bounds,
        sort=[("createdAt", -1), ("_id", 1)] if query.descending else [("createdAt", 1)],
        bucket=lambda row: row.created_at and row.created_at.replace(microsecond=0),
        is_exact=_is_spelled_as_here if query.descending else _never,
    )
    if query.created_after is not None or query.created_before is not None:
        return Walk(segments=[texts], misplaced=[{"createdAt": {"$type": "date"}}])
    none = Segment(where={"createdAt": None}, sort=[("_id", 1)], bucket=lambda row: row.created_at, is_exact=_always)
    return Walk(segments=[texts, none], misplaced=[{"createdAt": {"$type": "date"}}])


def _is_spelled_as_here(row: Schedule, document: Document) -> bool:
    """Return whether no text that is smaller than this ``createdAt`` is a later time, or the same."""
    return row.created_at is not None and document.get("createdAt") == format_iso(row.created_at)


def _always(_row: Schedule, _document: Document) -> bool:
    return True


def _never(_row: Schedule, _document: Document) -> bool:
    return False
