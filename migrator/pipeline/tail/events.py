"""The change stream of the source's database, reduced to the documents that it names.

One stream for the whole database: one order, one position, and one that moves on while every collection is idle. The
pipeline leaves out all that an event carries of a document, on the server: what is left of it is never larger than an
``_id``, so that no event can pass the limit of 16 MB, whatever happened to a document.
"""

import time
from collections.abc import Mapping
from datetime import UTC
from typing import Any

import msgspec
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from migrator.connections.mongo import MongoDatabase, first_line
from migrator.pipeline.tail.alarms import PositionLostError
from migrator.pipeline.tail.positions import Position, after
from migrator.values.rawid import source_id_of

LOST = (136, 234, 260, 280, 286, 40576, 40615)
"""Capped position lost, stream ended by force, token not found, fatal, history lost, and two older forms of these."""

AWAIT_MS = 50
"""How long the server waits for an event before it answers that there is none."""

KEPT = {"operationType": 1, "ns": 1, "to": 1, "documentKey": 1, "clusterTime": 1, "wallTime": 1}


class Batch(msgspec.Struct):
    """What some events name."""

    position: Position
    touched: dict[str, dict[str, None]] = msgspec.field(default_factory=dict)
    """Collection of the profile → source ids, each once."""
    whole: set[str] = msgspec.field(default_factory=set)
    """Collections that were dropped, renamed, or that another one was renamed to: every document is touched."""
    events: int = 0
    last_event: Timestamp | None = None
    wall_ms: float | None = None
    """When the source wrote the last event, by its clock, in milliseconds."""
    exhausted: bool = False
    """There was nothing more to be read."""
    ended: bool = False
    """The database was dropped, and its stream with it."""

    def add(self, later: "Batch") -> None:
        """Take in what the events after these name."""
        for name, ids in later.touched.items():
            self.touched.setdefault(name, {}).update(ids)
        self.whole |= later.whole
        self.events += later.events
        self.last_event = later.last_event or self.last_event
        self.wall_ms = later.wall_ms or self.wall_ms
        self.position, self.exhausted, self.ended = later.position, later.exhausted, later.ended


class Stream:
    """An open change stream."""

    def __init__(self, source: MongoDatabase, names: Mapping[str, str], position: Position) -> None:
        """Open the stream at a position; ``names`` is source collection → collection of the profile.

        Raises ``PositionLostError`` when the source's history does not reach back to it.
        """
        self._names = names
        self._position = position
        mine = {"$in": list(names)}
        ends = {"$in": ["dropDatabase", "invalidate"]}
        pipeline: list[dict[str, Any]] = [
            {"$match": {"$or": [{"ns.coll": mine}, {"to.coll": mine}, {"operationType": ends}]}},
            {"$project": KEPT},
        ]
        options: dict[str, Any] = {position.start: position.value}
        raw = source.with_options(codec_options=DEFAULT_RAW_BSON_OPTIONS)
        try:
            self._changes = raw.watch(pipeline, max_await_time_ms=AWAIT_MS, **options)
        except OperationFailure as error:
            raise _told(error) from error

    def close(self) -> None:
        """Close the stream."""
        self._changes.close()

    def take(self, limit: int, seconds: float) -> Batch:
        """Return up to ``limit`` events, or what comes within ``seconds`` of the first.

        Raises ``PositionLostError`` as opening does.
        """
        batch = Batch(self._position)
        last: Any = None
        until = 0.0
        try:
            while batch.events < limit:
                change: Any = self._changes.try_next()
                if change is None:
                    batch.exhausted = True
                    break
                self._add(batch, change)
                last = change
                now = time.monotonic()
                if batch.events == 1:
                    until = now + seconds
                if batch.ended or now >= until:
                    break
        except OperationFailure as error:
            raise _told(error) from error
        if last is not None:
            batch.last_event = last.get("clusterTime")
            if "wallTime" in last:
                batch.wall_ms = last["wallTime"].replace(tzinfo=UTC).timestamp() * 1000
        token = self._changes.resume_token
        if token is not None and dict(token) != self._position.value:  # the end of a stream is no place to resume at
            batch.position = self._position = after(token, ended=batch.ended)
        return batch

    def _add(self, batch: Batch, change: Any) -> None:  # noqa: ANN401 - a raw document
        batch.events += 1
        kind = change["operationType"]
        if kind == "invalidate":
            batch.ended = True
            return
        if kind == "dropDatabase":
            return  # a drop of every collection came before it
        name = self._names.get(change["ns"]["coll"])
        if "documentKey" in change:
            if name is not None:
                key: RawBSONDocument = change["documentKey"]
                batch.touched.setdefault(name, {})[source_id_of(bytes(key.raw))] = None
        elif name is not None:
            batch.whole.add(name)
        if kind == "rename":
            name = self._names.get(change["to"]["coll"])
            if name is not None:
                batch.whole.add(name)


def _told(error: OperationFailure) -> Exception:
    if error.code in LOST:
        return PositionLostError(f"the source's history does not reach back to the position ({first_line(error)})")
    return error
