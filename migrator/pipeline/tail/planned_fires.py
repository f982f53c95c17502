"""Next fires that the old scheduler planned, one after the other, as the change stream says.

A scheduler that keeps no runs moves the next fire of a job when it takes a slot. In a parallel run the tail records
each value that an event gives to that field, in the transaction of its position. Rows are never made of events: this is
the only content of an event that is used, and it is one instant.

If the next fire moves on when it was due, the old scheduler took that slot: it counted as due, and was fired or passed
over as misfired. Whether the job's function was called, and how it ended, is not known.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, LiteralString

import msgspec
from bson.timestamp import Timestamp

from migrator.connections.postgres import Connection
from migrator.sources.profile import Profile
from migrator.store.postgres import parallel_run

PLANNED: Final = "planned"
"""The field of a reduced event that has the new next fire, as the only element of an array."""

_SMALL: Final = ["double", "int", "long", "decimal", "date", "null"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

CLOCKS_APART: Final = timedelta(seconds=1)
"""How far the clock of MongoDB, which dates an event in whole milliseconds, may be behind the old scheduler's."""


class PlannedFire(msgspec.Struct, frozen=True):
    """A next fire that was planned."""

    collection: str
    source_id: str
    planned_at: datetime | None
    """None: there is none any more."""
    seen_at: datetime
    """When the old scheduler wrote it."""


def projection(profile: Profile | None) -> dict[str, Any]:
    """Return the expressions by which a change stream keeps next fires of events; empty if no document names one."""
    collections = () if profile is None else profile.collections
    fields = sorted({one.next_fire.field for one in collections if one.next_fire is not None})
    return {PLANNED: {"$ifNull": [*map(_planned, fields), "$$REMOVE"]}} if fields else {}


def _planned(field: str) -> dict[str, Any]:
    """Return an expression: an array of the new value of a field; null if the event does not change it."""
    places = (f"$updateDescription.updatedFields.{field}", f"$fullDocument.{field}")
    removed = {"$in": [field, {"$ifNull": ["$updateDescription.removedFields", []]}]}
    branches: list[dict[str, Any]] = [
        {
            "case": {"$ne": [{"$type": place}, "missing"]},
            "then": [{"$cond": [{"$in": [{"$type": place}, _SMALL]}, place, None]}],
        }
        for place in places
    ]
    return {"$switch": {"branches": [*branches, {"case": removed, "then": [None]}], "default": None}}


def planned_fire(
    change: Mapping[str, Any], profile: Profile | None, collection: str, source_id: str
) -> PlannedFire | None:
    """Return the next fire that a reduced event plans; None if it plans none."""
    place = None if profile is None or PLANNED not in change else profile.by_name()[collection].next_fire
    if place is None:
        return None
    (value,) = change[PLANNED]
    wall, cluster = change.get("wallTime"), change["clusterTime"]
    return PlannedFire(collection, source_id, _instant(value, seconds=place.seconds), _written(wall, cluster))


def _instant(value: object, *, seconds: bool) -> datetime | None:
    """Return a next fire; None also for one that is no instant, because no trigger is made of it."""
    try:
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC)
        if seconds and isinstance(value, int | float):
            return _EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):
        pass
    return None


def _written(wall: datetime | None, cluster: Timestamp) -> datetime:
    """Return when an event was written; servers before MongoDB 6.0 say only the second, of which this is the end."""
    return wall.replace(tzinfo=UTC) if wall is not None else _EPOCH + timedelta(seconds=cluster.time + 1)


_INSERT: LiteralString = (
    "INSERT INTO migration.planned_fires (collection, source_id, planned_at, seen_at)"
    " SELECT * FROM unnest(%s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[])"
)
_SNAPSHOT: LiteralString = """
INSERT INTO migration.planned_fires (collection, source_id, planned_at, seen_at)
SELECT split_part(source, '/', 2), source_id, next_fire_at, %(at)s FROM scheduler.triggers
WHERE source = ANY(%(sources)s) AND next_fire_at IS NOT NULL AND source_id IS NOT NULL
"""
_ALL: LiteralString = "SELECT collection, source_id, planned_at, seen_at FROM migration.planned_fires ORDER BY position"


def record(target: Connection, planned: Sequence[PlannedFire]) -> None:
    """Record next fires in their order, if a parallel run is in progress."""
    if planned and parallel_run.since(target) is not None:
        target.execute(_INSERT, [*map(list, zip(*map(msgspec.structs.astuple, planned), strict=True))])


def begin(target: Connection, profile: Profile, at: datetime) -> None:
    """Forget what was recorded, and record the next fires that the rows have."""
    target.execute("DELETE FROM migration.planned_fires")
    sources = [profile.source_of(one.name) for one in profile.collections if one.next_fire is not None]
    target.execute(_SNAPSHOT, {"at": at, "sources": sources})


def recorded(target: Connection) -> list[PlannedFire]:
    """Return the next fires in the order in which they were planned."""
    return [PlannedFire(*row) for row in target.execute(_ALL).fetchall()]


class TakenSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot from which the next fire of a document moved on."""

    collection: str
    source_id: str
    slot: datetime
    until: datetime
    """Slots before this one that follow in the trigger were taken with it: due together, or passed over as misfired."""


def taken(planned: Iterable[PlannedFire]) -> Iterator[TakenSlot]:
    """Yield the slots that were taken, each once for a document. Pure.

    A slot was taken if the next fire moved on from it at or after its time, give or take ``CLOCKS_APART``. What moved
    on before was planned anew; and a value before the last one is a repetition, because the first values are those of
    the rows, which may be newer than the events that follow.
    """
    last: dict[tuple[str, str], PlannedFire] = {}
    seen: set[tuple[str, str, datetime]] = set()
    for fire in planned:
        document = (fire.collection, fire.source_id)
        before = last.get(document)
        last[document] = fire
        slot = None if before is None else before.planned_at
        if (
            slot is None
            or fire.seen_at < slot - CLOCKS_APART
            or (fire.planned_at is not None and fire.planned_at <= slot)
        ):
            continue
        if (*document, slot) not in seen:
            seen.add((*document, slot))
            until = slot if fire.planned_at is None else min(fire.planned_at, max(fire.seen_at, slot))
            yield TakenSlot(collection=fire.collection, source_id=fire.source_id, slot=slot, until=until)
