"""The change stream of the source's database, reduced to the documents that it names, and read ahead.

There is one stream for the whole database: one order, and one position, which also advances while every collection is
idle. The pipeline removes, on the server, everything that an event carries of a document. What is left is never larger
than an ``_id``, so that no event can exceed the limit of 16 MB.

A thread reads events (and documents) while others are applied, so that the servers and this process work at the same
time. Events that arrive while a batch is applied are one batch, up to a limit: the larger the lag, the more events a
transaction holds, and the more of them name the same document, which is read once.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from migrator.connections.mongo import MongoDatabase, first_line
from migrator.pipeline.tail import planned_fires
from migrator.pipeline.tail.planned_fires import PlannedFire
from migrator.pipeline.tail.positions import Position, PositionLostError, position_after
from migrator.sources.profile import Profile
from migrator.values.identity import source_id_of

LOST_CODES = (136, 234, 260, 280, 286, 40576, 40615)
"""Capped position lost, stream ended by force, token not found, fatal, history lost, and two older forms of these."""

AWAIT_MS = 50
"""How long the server waits for an event before it answers that there is none."""

KEPT_FIELDS = {"operationType": 1, "ns": 1, "to": 1, "documentKey": 1, "clusterTime": 1, "wallTime": 1}


class EventBatch(msgspec.Struct):
    """What some events name."""

    position: Position
    touched: dict[str, dict[str, None]] = msgspec.field(default_factory=dict)
    """Collection of the profile → source ids, each once."""
    whole: set[str] = msgspec.field(default_factory=set)
    """Collections that were dropped, renamed, or replaced by a rename: every document must be read again."""
    events: int = 0
    last_event: Timestamp | None = None
    planned: list[PlannedFire] = msgspec.field(default_factory=list)
    """Next fires that the events plan, in their order."""
    wall_ms: float | None = None
    """When the source wrote the last event, in milliseconds of its clock."""
    exhausted: bool = False
    """Whether there was nothing more to be read."""
    ended: bool = False
    """Whether the database was dropped, which ends the stream."""

    def add(self, later: "EventBatch") -> None:
        """Add what later events name."""
        for name, ids in later.touched.items():
            self.touched.setdefault(name, {}).update(ids)
        self.whole |= later.whole
        self.events += later.events
        self.planned += later.planned
        self.last_event = later.last_event or self.last_event
        self.wall_ms = later.wall_ms or self.wall_ms
        self.position, self.exhausted, self.ended = later.position, later.exhausted, later.ended


class ChangeStream:
    """An open change stream."""

    def __init__(
        self, source: MongoDatabase, names: Mapping[str, str], position: Position, profile: Profile | None = None
    ) -> None:
        """Open the stream at a position; ``names`` is source collection → collection of the profile.

        ``profile``: also read the next fires that events plan, where its documents name them.

        Raises ``PositionLostError`` if the source's history does not reach back to it.
        """
        self._names = names
        self._profile = profile
        self._position = position
        mine = {"$in": list(names)}
        ends = {"$in": ["dropDatabase", "invalidate"]}
        pipeline: list[dict[str, Any]] = [
            {"$match": {"$or": [{"ns.coll": mine}, {"to.coll": mine}, {"operationType": ends}]}},
            {"$project": KEPT_FIELDS | planned_fires.projection(profile)},
        ]
        options: dict[str, Any] = {position.start: position.value}
        raw = source.with_options(codec_options=DEFAULT_RAW_BSON_OPTIONS)
        try:
            self._changes = raw.watch(pipeline, max_await_time_ms=AWAIT_MS, **options)
        except OperationFailure as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Close the stream."""
        self._changes.close()

    def take(self, limit: int, seconds: float) -> EventBatch:
        """Return up to ``limit`` events, or those that arrive within ``seconds`` of the first.

        Raises ``PositionLostError`` as opening does.
        """
        batch = EventBatch(self._position)
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
            raise _translated(error) from error
        if last is not None:
            batch.last_event = last.get("clusterTime")
            if "wallTime" in last:
                batch.wall_ms = last["wallTime"].replace(tzinfo=UTC).timestamp() * 1000
        token = self._changes.resume_token
        if (
            token is not None and dict(token) != self._position.value
        ):  # the end of a stream is no position to resume from
            batch.position = self._position = position_after(token, ended=batch.ended)
        return batch

    def _add(self, batch: EventBatch, change: Any) -> None:  # noqa: ANN401 - a raw document
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
                source_id = source_id_of(bytes(key.raw))
                batch.touched.setdefault(name, {})[source_id] = None
                planned = planned_fires.planned_fire(change, self._profile, name, source_id)
                if planned is not None:
                    batch.planned.append(planned)
        elif name is not None:
            batch.whole.add(name)
        if kind == "rename":
            name = self._names.get(change["to"]["coll"])
            if name is not None:
                batch.whole.add(name)


def _translated(error: OperationFailure) -> Exception:
    if error.code in LOST_CODES:
        return PositionLostError(f"the source's history does not reach back to the position ({first_line(error)})")
    return error


Item = TypeVar("Item")

BATCH_EVENTS = 2_000
BATCH_S = 0.1
"""Limits of a transaction, in events and in time: enough for a commit to cost little, too few to be late."""
MAX_BATCH_EVENTS = 10_000
"""The limit in events if they arrived during the transaction before."""
CLOSE_GRACE_S = 1.0


class PrefetchedEvents:
    """Reads events from a stream before they are requested."""

    def __init__(self, stream: ChangeStream) -> None:
        self._stream = stream
        self._wanted = threading.Event()
        self._closed = False
        self._taken: SimpleQueue[EventBatch | BaseException] = SimpleQueue()
        self._thread = _start_thread(self._gather)

    def take(self) -> EventBatch:
        """Return the next batch; there is none after one that ``ended``. Raises what the stream raises."""
        self._wanted.set()
        return _unwrapped(self._taken.get())

    def close(self) -> None:
        """Close the stream; a server that does not answer is not waited for."""
        self._closed = True
        self._wanted.set()
        self._thread.join(CLOSE_GRACE_S)
        self._stream.close()

    def _gather(self) -> None:
        try:
            while not self._closed:
                batch = self._stream.take(BATCH_EVENTS, BATCH_S)
                while not self._wanted.is_set() and not batch.ended and batch.events < MAX_BATCH_EVENTS:
                    batch.add(self._stream.take(BATCH_EVENTS, BATCH_S))
                self._wanted.wait()
                self._wanted.clear()
                self._taken.put(batch)
                if batch.ended:
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the batch is asked for
            self._taken.put(error)


def _start_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="tail", daemon=True)
    thread.start()
    return thread


def _unwrapped(found: Item | BaseException) -> Item:
    if isinstance(found, BaseException):
        raise found
    return found
