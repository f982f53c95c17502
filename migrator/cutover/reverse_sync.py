"""The reverse sync: carries what is written to PostgreSQL after the cutover to MongoDB, until the window closes.

Only one runs at a time. It holds a session lock on the target, which a dead process cannot keep. Each of its
transactions in MongoDB verifies a fencing token, which stops a process that was suspended. It ends the transaction that
a killed process left open, for which it would otherwise wait. Notes are deleted when MongoDB has acknowledged their
documents to a majority. After a kill, the next call carries the same rows again, as they are then.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
from psycopg import sql
from pymongo import DeleteOne, ReplaceOne
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from migrator import fault_points
from migrator.config import Settings
from migrator.connections import advisory_locks
from migrator.connections.mongo import MongoDatabase
from migrator.connections.postgres import Connection, fetch_value, target_connection
from migrator.cutover import outbox
from migrator.cutover.journal import BACKUP_STEP, Journal, latest, unfinished_level
from migrator.cutover.library_documents import encode_library_rows
from migrator.cutover.library_tables import library_tables
from migrator.cutover.reverse_documents import Documents, encode_documents
from migrator.cutover.reverse_encoding import (
    DocumentWrite,
    encode_changes,
    triggers_by_schedule,
)
from migrator.errors import LostLockError, RefusedError
from migrator.log import logger
from migrator.pipeline.extract import OWN_COLLECTION
from migrator.pipeline.ledger import latest_plan
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions, run_with_sessions
from migrator.pipeline.tail import backlog
from migrator.pipeline.tail.applier import Applier
from migrator.records import Record, SourcedRecord, Trigger
from migrator.sources.profile import Context
from migrator.sources.store_documents.names import SCHEDULES
from migrator.sources.store_documents.write_back import stated_trigger
from migrator.store.epoch import KEY
from migrator.store.mongo.places import PLACES
from migrator.store.queue import SCRATCH
from migrator.values import document as documents
from migrator.values.identity import source_id, source_id_of, stable_hash64

BATCH_NOTES: Final = 1_000
"""Rows carried at a time."""
ALL_DOCUMENTS: Final = 2**31
TRANSACTION_BYTES: Final = 24 * 1024 * 1024
"""Approximate size of a transaction of MongoDB. An entry of the oplog holds 16 MB; a transaction may need several."""
POLL_S: Final = 0.2
LOCK: Final = stable_hash64("*/migrator/reverse-sync")
FENCE_COLLECTION: Final = OWN_COLLECTION
"""The tool's own collection in the source. It exists while the rollback window is open."""
FENCE_ID: Final = "fence"
"""The ``_id`` of its document."""
BACKUP_PENDING: Final = "the reverse sync begins when the cutover has backed MongoDB up"
SESSION_FIELD: Final = "session"
"""The field that holds the session of the process that writes."""
OPERATION_INTERRUPTED: Final = 11601
"""MongoDB's error for a statement whose session another process has ended (``Interrupted``)."""


class BackupPendingError(RefusedError):
    """The backup of MongoDB is not complete. It shows what stood there at the fence, so nothing is carried before."""


class ReverseSyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call."""

    documents: int = 0
    removed: int = 0
    notes: int = 0
    lost: dict[tuple[str, str], int] = {}
    """(table, column) → documents that have no place for what was written there."""

    def __add__(self, other: "ReverseSyncResult") -> "ReverseSyncResult":
        """Return the sum of both."""
        return ReverseSyncResult(
            documents=self.documents + other.documents,
            removed=self.removed + other.removed,
            notes=self.notes + other.notes,
            lost=dict(Counter(self.lost) + Counter(other.lost)),
        )


def run(settings: Settings, *, noted_by_now: bool = False, stop: threading.Event | None = None) -> ReverseSyncResult:
    """Carry what is noted until ``stop`` is set, or, with ``noted_by_now``, what was noted when the call began.

    The latter ends, however much is written meanwhile. Under a fence it carries everything.

    A server that is unreachable is waited for, as the copy does. Raises ``RefusedError`` if the outbox is not open or
    another reverse sync runs, ``BackupPendingError`` if the cutover has not backed MongoDB up yet, ``LostLockError`` if
    another one has taken over, ``ReverseSyncError`` for a row that has no document.
    """
    stop = stop or threading.Event()
    total = ReverseSyncResult()
    stream = _ReverseSync(noted_by_now=noted_by_now)
    try:
        while not stop.is_set():
            done = run_with_sessions(settings, stream.write_all)
            total += done
            if done.notes:
                logger().info("reverse.carried", documents=done.documents, removed=done.removed)
            elif noted_by_now:
                break
            else:
                stop.wait(POLL_S)
    finally:
        stream.end()
    return total


def write(sessions: Sessions, writes: Sequence[DocumentWrite]) -> None:
    """Write documents as the reverse sync does, under its fencing token; raises as ``run`` does.

    Under the fence of the target, so that the reverse sync of another process, whose token is then used, has nothing
    to carry: ``migrator tail`` runs while a rollback does.
    """
    stream = _ReverseSync()
    try:
        if advisory_locks.is_held(sessions.target, LOCK):
            stream.join(sessions)
        else:
            stream.begin(sessions)
        for part in _transactions(writes):
            stream.write(sessions, part)
    finally:
        stream.end()


class _ReverseSync:
    """The fencing token of this process, and the connection with which it was obtained."""

    def __init__(self, *, noted_by_now: bool = False) -> None:
        self._noted_by_now = noted_by_now
        self._until: int | None = None
        self._fence = 0
        self._connection: Connection | None = None
        self._source: MongoDatabase | None = None
        self._session: ClientSession | None = None
        self._context: Context | None = None

    def write_all(self, sessions: Sessions) -> ReverseSyncResult:
        """Carry the oldest notes, if there are any."""
        if sessions.target is not self._connection:
            self.begin(sessions)
        noted, ids = outbox.oldest(sessions.target, BATCH_NOTES, self._until)
        if not ids:
            if not is_outbox_open(sessions.settings, sessions.target):
                raise RefusedError("the outbox was closed: the cutover was finished or rolled back")
            return ReverseSyncResult()
        assert self._context is not None  # noqa: S101 - set when it began
        sessions.forget()
        writes = encoded(sessions, self._context, noted)
        for part in _transactions(one for one in writes if not one.kept):
            fault_points.reach(fault_points.BEFORE_REVERSE_WRITE)
            self.write(sessions, part)
        fault_points.reach(fault_points.AFTER_REVERSE_WRITE)
        _record_losses(sessions.target, writes)
        library = library_tables(sessions.settings)
        if library is not None:
            library.carried(sessions.target, noted)
        outbox.delete(sessions.target, ids)
        fault_points.reach(fault_points.AFTER_REVERSE_DROP)
        removed = sum(write.document is None and not write.kept for write in writes)
        written = sum(write.document is not None for write in writes)
        lost = Counter(_lost_places(writes))
        return ReverseSyncResult(documents=written, removed=removed, notes=len(ids), lost=dict(lost))

    def end(self) -> None:
        """Release the lock; a lost connection has released it already."""
        if self._session is not None and self._source is not None:
            with suppress(PyMongoError):
                own = {"_id": FENCE_ID, "fence": self._fence}
                self._source[FENCE_COLLECTION].update_one(own, {"$unset": {SESSION_FIELD: ""}})
        if self._session is not None:
            self._session.end_session()
        if self._connection is not None:
            advisory_locks.release(self._connection, LOCK)

    def begin(self, sessions: Sessions) -> None:
        """Take the lock and a new token; raises as ``run`` does."""
        if not is_outbox_open(sessions.settings, sessions.target):
            raise RefusedError("the outbox is not open: there was no cutover, or it was finished or rolled back")
        if _is_backup_pending(sessions.target):
            raise BackupPendingError(BACKUP_PENDING)
        advisory_locks.take(sessions.target, LOCK, busy="another process runs the reverse sync already")
        if self._noted_by_now and self._until is None:
            self._until = outbox.newest_id(sessions.target)
        plan = latest_plan(sessions.target)
        if plan is None:
            raise RefusedError("nothing was ever copied, so there is nothing for the reverse sync")
        self._context = plan_context(plan)
        _end_previous_transaction(sessions)
        self._source, self._session = sessions.source, sessions.source.client.start_session()
        marker: Any = sessions.source[FENCE_COLLECTION].find_one_and_update(
            {"_id": FENCE_ID},
            {"$inc": {"fence": 1}, "$set": {SESSION_FIELD: self._session.session_id["id"]}},
            upsert=True,
            return_document=True,
        )
        self._fence = marker["fence"]
        self._connection = sessions.target

    def join(self, sessions: Sessions) -> None:
        """Use the token of another process, which holds the lock; raises ``RefusedError`` if it has none yet."""
        marker: Any = sessions.source[FENCE_COLLECTION].find_one({"_id": FENCE_ID})
        if marker is None:
            raise RefusedError("the reverse sync of another process is about to begin: call again")
        self._fence, self._session = marker["fence"], sessions.source.client.start_session()

    def write(self, sessions: Sessions, writes: Iterable[DocumentWrite]) -> None:
        """Write documents in one transaction of MongoDB; raises ``LostLockError`` if another process has ended it."""
        operations: dict[str, list[ReplaceOne[dict[str, Any]] | DeleteOne]] = {}
        for write in writes:
            where = {"_id": write.key}
            operations.setdefault(write.collection, []).append(
                DeleteOne(where) if write.document is None else ReplaceOne(where, write.document, upsert=True)
            )
        try:
            self._transact(sessions, operations)
        except OperationFailure as error:
            if error.code != OPERATION_INTERRUPTED:
                raise
            raise LostLockError("another process has ended the reverse sync") from error

    def _transact(
        self, sessions: Sessions, operations: dict[str, list[ReplaceOne[dict[str, Any]] | DeleteOne]]
    ) -> None:
        session = self._session
        assert session is not None  # noqa: S101 - set when it began
        with session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority")):
            held = sessions.source[FENCE_COLLECTION].update_one(
                {"_id": FENCE_ID, "fence": self._fence}, {"$currentDate": {"at": True}}, session=session
            )
            if not held.matched_count:
                raise LostLockError("another process has taken over the reverse sync")
            for collection, requests in operations.items():
                sessions.source[sessions.name_of(collection)].bulk_write(requests, ordered=True, session=session)


def _is_backup_pending(target: Connection) -> bool:
    """Return whether the last cutover has still to back MongoDB up; a rollback that has begun waits for no backup."""
    current = latest(target)
    if current is None or current.state != "running":
        return False
    journal = Journal(target, current)
    return not journal.done(BACKUP_STEP) and unfinished_level(journal) is None


def has_begun(sessions: Sessions) -> bool:
    """Return whether a reverse sync has begun since the cutover, so that it may have written to MongoDB."""
    return FENCE_COLLECTION in sessions.source.list_collection_names()


def is_open(settings: Settings) -> bool:
    """Return whether the outbox is open, so that rows are carried to MongoDB."""
    with target_connection(settings) as target:
        return is_outbox_open(settings, target)


def is_outbox_open(settings: Settings, target: Connection) -> bool:
    """Return whether triggers note what is written to the tables of the configured target."""
    library = library_tables(settings)
    return outbox.is_open(target) if library is None else library.is_outbox_open(target)


def encoded(sessions: Sessions, context: Context, noted: Sequence[outbox.ChangedRow]) -> list[DocumentWrite]:
    """Return the documents that MongoDB must hold for the noted rows, as the rows are now; each document once.

    Raises ``ReverseSyncError`` for a row that has no document.
    """
    library = library_tables(sessions.settings)
    if library is not None:
        return encode_library_rows(sessions, context, library, noted)
    encode = encode_changes if sessions.profile.kept_by_store else encode_documents
    return encode(sessions, context, noted)


def count_written(target: Connection, since: datetime) -> int:
    """Return the number of rows that `written_since` returns, of all tables."""
    total = 0
    for record in outbox.TRACKED_RECORDS:
        where = _written_where(record, since)
        if where is not None:
            count = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(
                sql.Identifier("scheduler", record.table), where[0]
            )
            total += int(fetch_value(target, count, where[1]))
    return total


def written_since(
    target: Connection, record: type[Record], since: datetime | None
) -> Iterator[list[outbox.ChangedRow]]:
    """Yield, in batches, the rows that were created on PostgreSQL, and those changed since an instant, if given."""
    where = _written_where(record, since)
    if where is None:
        return
    columns = set(record.__struct_fields__)
    named = sql.SQL("coalesce(source_id, schedule_id::text)" if "schedule_id" in columns else "source_id")
    rows = sql.SQL("SELECT id::text, tenant_id, source, {} FROM {} WHERE {} ORDER BY id").format(
        named, sql.Identifier("scheduler", record.table), where[0]
    )
    yield from changed_rows(target, record, rows, where[1])


def changed_rows(
    target: Connection, record: type[Record], query: sql.Composed, parameters: Sequence[object]
) -> Iterator[list[outbox.ChangedRow]]:
    """Yield the rows of a table that a query names by id, tenant, source and source id, in batches.

    The server holds what is still to come: a day's runs are not held here, and the table is read once.
    """
    with target.cursor(name=f"changed_{record.table}", withhold=True) as cursor:
        cursor.execute(query, parameters)
        while rows := cursor.fetchmany(BATCH_NOTES):
            yield [outbox.ChangedRow(record.table, *row) for row in rows]


def _written_where(record: type[Record], since: datetime | None) -> tuple[sql.Composed, tuple[datetime, ...]] | None:
    """Return the condition for those rows, and its parameters; None for a table to which rows are only added.

    Each of these is a document of its own.
    """
    columns = set(record.__struct_fields__)
    if "source" not in columns:
        return None
    timed = (since,) if since is not None and "updated_at" in columns else ()
    changed = sql.SQL(" OR updated_at >= %s") if timed else sql.SQL("")
    where = sql.SQL("(source IS NULL{}) AND NOT starts_with(tenant_id, {})").format(changed, sql.Literal(SCRATCH))
    return where, timed


def unwritten(sessions: Sessions, writes: Iterable[DocumentWrite]) -> list[DocumentWrite]:
    """Return those of which MongoDB does not hold what it must; a document that stays as it is, it always holds.

    The documents are read together, as many as one request takes at a time.
    """
    missing: list[DocumentWrite] = []
    wanted: dict[str, dict[str, list[DocumentWrite]]] = {}
    for write in writes:
        if not write.kept:
            wanted.setdefault(write.collection, {}).setdefault(source_id(write.key), []).append(write)
    collections = sessions.profile.by_name()
    for name, by_id in wanted.items():
        existing: set[str] = set()
        for batch in sessions.reader.of(collections[name]).by_ids(by_id):
            for raw in documents.split(batch):
                key = source_id_of(raw)
                existing.add(key)
                missing += [
                    write
                    for write in by_id.get(key, ())
                    if write.document is None or raw != documents.encode(write.document)
                ]
        missing += [
            write for key, same in by_id.items() if key not in existing for write in same if write.document is not None
        ]
    return missing


def _record_losses(target: Connection, writes: Sequence[DocumentWrite]) -> None:
    """Count what has no place in documents, and name these: after a rollback their rows are read again."""
    named: dict[str, list[str]] = {}
    for one in writes:
        if one.lost:
            named.setdefault(one.collection, []).append(source_id(one.key))
    backlog.add(target, named)
    counts = Counter(f"{table}.{column}" for table, column in _lost_places(writes))
    for place, count in counts.items():
        target.execute(
            "UPDATE migration.cutovers SET detail = jsonb_set(jsonb_set(detail, '{lost}', coalesce(detail -> 'lost',"
            " '{}')), ARRAY['lost', %(place)s], to_jsonb(coalesce((detail #>> ARRAY['lost', %(place)s])::bigint, 0)"
            " + %(count)s)) WHERE id = (SELECT id FROM migration.cutovers ORDER BY began_at DESC LIMIT 1)",
            {"place": place, "count": count},
        )


def _lost_places(writes: Iterable[DocumentWrite]) -> Iterator[tuple[str, str]]:
    """Yield table and column of each value that has no place in its document."""
    for write in writes:
        for row in write.lost:
            yield from ((row.table, column) for column in row.columns)


def assign_documents(sessions: Sessions, *, restored: bool = False) -> None:
    """Assign the rows that were created on PostgreSQL to their documents in the source, at the end of a rollback.

    What each side computes for itself (the next fire of a schedule's own rule) is then again as the documents state it.
    ``restored``: the source is as it was before the cutover, so that those documents do not exist. Nothing is deleted
    here: these are extra rows, which the parity check finds, and its repair removes.
    """
    if not sessions.profile.kept_by_store:
        _delete_created(sessions, restored=restored)
        return
    collections = sessions.profile.by_name()
    for record in outbox.TRACKED_RECORDS:
        place = PLACES[record][0] if record in PLACES else None
        if place is None or not issubclass(record, SourcedRecord):
            continue
        if collections.get(place.name) is not place.collection:
            continue  # this profile has no documents for these rows
        if record is Trigger:
            _assign_stated_triggers(sessions)
        sessions.target.execute(
            sql.SQL(
                "UPDATE {} SET source = %s, source_id = %s || replace(id::text, '-', '') WHERE source IS NULL"
            ).format(sql.Identifier("scheduler", record.table)),
            (sessions.profile.source_of(place.name), place.prefixes[0]),
        )
    plan = None if restored else latest_plan(sessions.target)
    if plan is not None and SCHEDULES in sessions.profile.by_name():
        own = sessions.profile.source_of(SCHEDULES)
        rows = sessions.target.execute("SELECT source_id FROM scheduler.triggers WHERE source = %s", (own,)).fetchall()
        Applier(sessions, plan).apply({SCHEDULES: [row[0] for row in rows]})


def _delete_created(sessions: Sessions, *, restored: bool) -> None:
    """Delete the rows that were created on PostgreSQL, and load those that their documents make.

    A document may stand for several of them, and gives its rows other ids. What no document holds was exported.
    """
    plan = latest_plan(sessions.target)
    named: dict[str, set[str]] = {}
    if plan is not None and not restored:
        created = [
            one
            for record in outbox.TRACKED_RECORDS
            for part in written_since(sessions.target, record, None)
            for one in part
            if one.source is None
        ]
        sessions.forget()
        found = Documents(sessions, plan_context(plan))
        found.name(created)
        named = {name: set(ids) for name, ids in found.named().items()}
        for name, ids in backlog.take(sessions.target, list(sessions.profile.by_name()), ALL_DOCUMENTS).items():
            named.setdefault(name, set()).update(ids)
    for record in reversed(outbox.TRACKED_RECORDS):
        if issubclass(record, SourcedRecord):
            sessions.target.execute(
                sql.SQL("DELETE FROM {} WHERE source IS NULL AND NOT starts_with(tenant_id, %s)").format(
                    sql.Identifier("scheduler", record.table)
                ),
                (SCRATCH,),
            )
    if plan is not None and named:
        sessions.forget()
        Applier(sessions, plan).apply(named)


def _assign_stated_triggers(sessions: Sessions) -> None:
    """Assign triggers created on PostgreSQL that schedule documents state to those documents."""
    assigned = sessions.target.execute(
        "SELECT id::text, tenant_id FROM scheduler.triggers WHERE (tenant_id, schedule_id) IN"
        " (SELECT tenant_id, schedule_id FROM scheduler.triggers WHERE source IS NULL)"
    ).fetchall()
    grouped = triggers_by_schedule(sessions.target, assigned)
    every = [one for rows in grouped.values() if (one := stated_trigger(rows)) is not None and one.source is None]
    sessions.target.execute(
        "UPDATE scheduler.triggers AS own SET source = of.source, source_id = of.source_id"
        " FROM scheduler.schedules AS of WHERE of.id = own.schedule_id AND of.tenant_id = own.tenant_id"
        " AND (own.id, own.tenant_id) IN (SELECT * FROM unnest(%s::uuid[], %s::text[])) AND own.source IS NULL",
        ([one.id for one in every], [one.tenant_id for one in every]),
    )


def delete_processes(sessions: Sessions) -> None:
    """Delete the processes and the locks of PostgreSQL: under the same ids they begin again on MongoDB."""
    sessions.target.execute("DELETE FROM scheduler.workers WHERE source IS NULL")
    sessions.target.execute("DELETE FROM scheduler.locks WHERE source IS NULL AND key <> %s", (KEY,))


def drop_fence_collection(sessions: Sessions) -> None:
    """Remove the collection of the reverse sync from the source: the window is closed."""
    _end_previous_transaction(sessions)
    sessions.source.drop_collection(FENCE_COLLECTION)


def _end_previous_transaction(sessions: Sessions) -> None:
    """End the transaction of a killed reverse sync; it is a session of this user, which needs no right."""
    marker: Any = sessions.source[FENCE_COLLECTION].find_one({"_id": FENCE_ID}, {SESSION_FIELD: 1})
    if marker is not None and SESSION_FIELD in marker:
        sessions.source.client.admin.command("killSessions", [{"id": marker[SESSION_FIELD]}])


def _transactions(writes: Iterable[DocumentWrite]) -> Iterator[list[DocumentWrite]]:
    """Divide the writes into transactions of limited size; a document of any size fits into one."""
    part: list[DocumentWrite] = []
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
