"""The reverse stream: what is written to PostgreSQL after the switch, carried to MongoDB, until the window closes.

One at a time: a session lock on the target, which a dead process cannot keep, and a fence in MongoDB, which a process
that was asleep meets with every transaction it writes. Notes are removed when MongoDB has acknowledged their documents
to a majority: killed at any point, the next call carries the same rows again, as they are by then.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
import psycopg
from pymongo import DeleteOne, ReplaceOne
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from migrator import signals, telemetry
from migrator.config import Settings
from migrator.cutover import outbox
from migrator.cutover.carry import Write, carried
from migrator.errors import LostLockError, RefusedError
from migrator.pipeline.ledger import latest_plan
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions, retrying
from migrator.sources.profile import Context
from migrator.sources.stellaops.names import TRIGGERS
from migrator.store.mongo.indexes import adopt_triggers
from migrator.store.postgres.connection import Connection
from migrator.values import document as documents
from migrator.values.identity import stable_hash64

NOTES: Final = 1_000
"""Rows carried at a time."""
TRANSACTION_BYTES: Final = 24 * 1024 * 1024
"""About what one transaction of MongoDB writes; an entry of its oplog holds 16 MB, and it may need several."""
POLL_S: Final = 0.2
LOCK: Final = "migrator reverse stream"
MARKERS: Final = "migrator_reverse"
"""The tool's own collection in the source; it exists while the window is open."""
MARKER: Final = "fence"
"""The ``_id`` of its document."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What a call has carried."""

    documents: int = 0
    removed: int = 0
    notes: int = 0
    lost: dict[tuple[str, str], int] = {}
    """(table, column) → documents that have no place for what was written there."""

    def __add__(self, other: "Carried") -> "Carried":
        """Return both together."""
        return Carried(
            documents=self.documents + other.documents,
            removed=self.removed + other.removed,
            notes=self.notes + other.notes,
            lost=dict(Counter(self.lost) + Counter(other.lost)),
        )


def run(settings: Settings, *, until_empty: bool = False, stop: threading.Event | None = None) -> Carried:
    """Carry what was noted until ``stop`` is set, or, with ``until_empty``, until nothing is noted any more.

    A server that goes away is waited for, as the copy does. Raises ``RefusedError`` where the outbox is not open or
    another reverse stream runs, ``LostLockError`` when another one has taken over, ``CarryError`` for a row that no
    document stands for.
    """
    stop = stop or threading.Event()
    total = Carried()
    stream = _Stream()
    try:
        while not stop.is_set():
            done = retrying(settings, stream.carry)
            total += done
            if done.notes:
                telemetry.logger().info("reverse.carried", documents=done.documents, removed=done.removed)
            elif until_empty:
                break
            else:
                stop.wait(POLL_S)
    finally:
        stream.end()
    return total


class _Stream:
    """The fence of this process, and the connection under which it was taken."""

    def __init__(self) -> None:
        self._fence = 0
        self._connection: Connection | None = None
        self._context: Context | None = None

    def carry(self, sessions: Sessions) -> Carried:
        """Carry the oldest notes; nothing noted, nothing done."""
        if sessions.target is not self._connection:
            self._begin(sessions)
        noted, ids = outbox.take(sessions.target, NOTES)
        if not ids:
            return Carried()
        assert self._context is not None  # noqa: S101 - set when it began
        sessions.forget()
        writes = carried(sessions, self._context, noted)
        for part in _parts(writes):
            signals.passed(signals.BEFORE_REVERSE_WRITE)
            self._write(sessions, part)
        signals.passed(signals.AFTER_REVERSE_WRITE)
        outbox.drop(sessions.target, ids)
        signals.passed(signals.AFTER_REVERSE_DROP)
        removed = sum(write.document is None for write in writes)
        lost = Counter(place for write in writes for place in write.lost)
        return Carried(documents=len(writes) - removed, removed=removed, notes=len(ids), lost=dict(lost))

    def end(self) -> None:
        """Let another stream begin; a connection that is gone has let it already."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (stable_hash64(LOCK),))

    def _begin(self, sessions: Sessions) -> None:
        if not outbox.is_open(sessions.target):
            raise RefusedError("the outbox is not open: there was no cutover, or it was finished or taken back")
        row = sessions.target.execute("SELECT pg_try_advisory_lock(%s)", (stable_hash64(LOCK),)).fetchone()
        if row != (True,):
            raise RefusedError("another process carries the rows back already")
        plan = latest_plan(sessions.target)
        if plan is None:
            raise RefusedError("nothing was ever copied, so nothing can be carried back")
        self._context = plan_context(plan)
        if not self._context.has_triggers and TRIGGERS in sessions.profile.by_name():
            adopt_triggers(sessions.source)  # all of them at once: a source with some of them would hide the others
        marker: Any = sessions.source[MARKERS].find_one_and_update(
            {"_id": MARKER}, {"$inc": {"fence": 1}}, upsert=True, return_document=True
        )
        self._fence = marker["fence"]
        self._connection = sessions.target

    def _write(self, sessions: Sessions, writes: Iterable[Write]) -> None:
        """Write documents in one transaction of MongoDB, which fails where another stream has begun since."""
        operations: dict[str, list[ReplaceOne[dict[str, Any]] | DeleteOne]] = {}
        for write in writes:
            where = {"_id": write.key}
            operations.setdefault(write.collection, []).append(
                DeleteOne(where) if write.document is None else ReplaceOne(where, write.document, upsert=True)
            )
        with (
            sessions.source.client.start_session() as session,
            session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority")),
        ):
            held = sessions.source[MARKERS].update_one(
                {"_id": MARKER, "fence": self._fence}, {"$currentDate": {"at": True}}, session=session
            )
            if not held.matched_count:
                raise LostLockError("another reverse stream has taken over")
            for collection, requests in operations.items():
                sessions.source[sessions.name_of(collection)].bulk_write(requests, ordered=True, session=session)


def forget(sessions: Sessions) -> None:
    """Remove what the stream keeps in the source: the window is closed."""
    sessions.source.drop_collection(MARKERS)


def _parts(writes: Iterable[Write]) -> Iterator[list[Write]]:
    """Cut the writes into what one transaction takes; a document of any size goes somewhere."""
    part: list[Write] = []
    size = 0
    for write in writes:
        weight = 0 if write.document is None else len(documents.encode(write.document))
        if part and size + weight > TRANSACTION_BYTES:
            yield part
            part, size = [], 0
        part.append(write)
        size += weight
    if part:
        yield part
