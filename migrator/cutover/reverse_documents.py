"""Encoding rows of PostgreSQL as documents of an application that keeps its own: Agenda's, or those of a mapping.

A row that came from a document changes that document: only the fields that its changed columns make. A row created in
PostgreSQL becomes a document of the collection that holds its table. The document of a schedule may also hold one
trigger and the last run; which of several these are, is decided here among the rows that are stored. What has no place
in any document is not written: columns are counted as they are met, rows when the rollback exports them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import bson
import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.cutover import outbox
from migrator.cutover.outbox import ChangedRow
from migrator.cutover.reverse_encoding import (
    PROVENANCE,
    RECORDS,
    DocumentKey,
    DocumentWrite,
    ReverseSyncError,
    current_outcomes,
    patched,
    stored_rows,
    triggers_by_schedule,
)
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import DocumentOutcome, SerializedRow, rebuild, serialize_rows
from migrator.records import Record, Run, RunSummary, Schedule, SourcedRecord, Trigger
from migrator.sources import write_back
from migrator.sources.profile import Collection, Context, Document, Profile, Rows, RunHistory
from migrator.store.queue import SCRATCH
from migrator.values import identity
from migrator.values.copy_format import codec

_HELD: Final[Mapping[type[Record], sql.SQL]] = {
    Run: sql.SQL("(begun > 0)::int"),
    Trigger: sql.SQL("(created = every)::int"),
}
"""Rows that the document of a schedule holds, of those that were created in PostgreSQL: SQL over their counts."""
_RULE: Final = ("kind", "cron_expression", "cron_dialect", "timezone", "interval_ms", "run_at", "event_name")
"""Columns that say when a trigger fires."""
_FOLLOWING: Final = frozenset({"id", "source_spec", "duration_ms", "updated_at"})
"""Columns that are not lost: the store writes the time of the last change, the others follow from what is stated."""
_OF_OWNER: Final = frozenset({"schedule_id", "trigger_id"})
"""Columns of further rows that follow from the document in which they are."""

# Runs that came from a document have no updated_at until the scheduler changes them.
_HISTORIES: Final = """
SELECT schedule_id::text,
    (array_agg(id::text ORDER BY started_at DESC, id) FILTER (WHERE started_at IS NOT NULL))[1],
    (array_agg(id::text ORDER BY finished_at DESC, id) FILTER (WHERE state IN ('error', 'timeout')
        AND finished_at IS NOT NULL))[1],
    min(coalesce(available_at, scheduled_at, created_at)) FILTER (WHERE state IN ('planning', 'queued')),
    count(*) FILTER (WHERE started_at IS NOT NULL AND (source IS NULL OR updated_at IS NOT NULL)),
    count(*) FILTER (WHERE state = 'completed' AND (source IS NULL OR updated_at IS NOT NULL)),
    count(*) FILTER (WHERE state IN ('error', 'timeout') AND (source IS NULL OR updated_at IS NOT NULL)),
    count(*) FILTER (WHERE state IN ('error', 'timeout') AND (source IS NULL OR updated_at IS NOT NULL)
        AND finished_at > completed_at)
FROM (
    SELECT *, max(finished_at) FILTER (WHERE state = 'completed' AND (source IS NULL OR updated_at IS NOT NULL))
        OVER (PARTITION BY schedule_id) AS completed_at
    FROM scheduler.runs WHERE schedule_id = ANY(%s::uuid[])
) AS runs GROUP BY schedule_id
"""


class _Wanted(msgspec.Struct):
    """A document to be encoded."""

    collection: Collection
    key: Any
    rows: dict[tuple[str, str], ChangedRow] = msgspec.field(default_factory=dict)
    """The rows that were noted for it."""
    schedule: Schedule | None = None
    """The schedule whose document it is."""


class Documents:
    """The documents of one batch of notes."""

    def __init__(self, sessions: Sessions, context: Context) -> None:
        self._sessions, self._context = sessions, context
        self._profile = sessions.profile
        self._collections = self._profile.by_name()
        self._homes: dict[type[Record], Collection | None] = {}
        self._wanted: dict[DocumentKey, _Wanted] = {}

    def name(self, noted: Sequence[ChangedRow]) -> None:
        """Find the documents of rows that were noted; raise ``ReverseSyncError`` for a row of another source."""
        born: dict[type[Record], list[ChangedRow]] = {}
        schedules: set[str] = set()
        sourced: dict[str, set[str]] = {}
        for one in noted:
            record = RECORDS[one.table]
            if one.source is not None:
                collection = self._collection_of(one)
                if collection.tables[0] is Schedule:
                    sourced.setdefault(collection.name, set()).add(one.source_id or "")
                else:
                    self._want(collection, identity.parse_source_id(one.source_id or ""), one)
            elif record is Schedule:
                schedules.add(one.row_id)
            elif self._is_beside_schedule(record):
                schedules |= {one.source_id} if one.source_id else set()
            elif write_back.homes(self._profile, record):
                born.setdefault(record, []).append(one)
        self._name_schedules(schedules, sourced)
        for record, several in born.items():
            self._name_born(record, several)

    def named(self) -> Mapping[str, set[str]]:
        """Return collection → source ids of the documents."""
        found: dict[str, set[str]] = {}
        for one in self._wanted.values():
            found.setdefault(one.collection.name, set()).add(identity.source_id(one.key))
        return found

    def writes(self) -> list[DocumentWrite]:
        """Return what MongoDB must hold for these documents, as the rows are now."""
        found: list[DocumentWrite] = []
        for name in dict.fromkeys(collection for collection, _ in self._wanted):
            several = [one for one in self._wanted.values() if one.collection.name == name]
            found += self._of_schedules(several) if several[0].collection.tables[0] is Schedule else self._of(several)
        return found

    def _collection_of(self, one: ChangedRow) -> Collection:
        profile, _, name = (one.source or "").partition("/")
        if profile != self._profile.name or name not in self._collections:
            raise ReverseSyncError(f"a row of {one.table} is of {one.source}, which profile {self._profile.name} lacks")
        return self._collections[name]

    def _is_beside_schedule(self, record: type[Record]) -> bool:
        holder = write_back.holder(self._profile, record)
        return record in (Trigger, Run) and holder is not None and holder.tables[0] is Schedule

    def _want(self, collection: Collection, key: Any, one: ChangedRow | None = None) -> _Wanted:  # noqa: ANN401 - any BSON
        wanted = self._wanted.setdefault((collection.name, bson.encode({"": key})), _Wanted(collection, key))
        if one is not None:
            wanted.rows[one.table, one.row_id] = one
        return wanted

    def _home(self, record: type[Record]) -> Collection | None:
        """Return the collection for rows created in PostgreSQL: the first of its table that has documents."""
        if record not in self._homes:
            found = write_back.homes(self._profile, record)
            source, named = self._sessions.source, self._sessions.name_of
            used = (one for one in found[1:] and found if source[named(one.name)].find_one({}, {"_id": 1}))
            self._homes[record] = next(used, next(iter(found), None))
        return self._homes[record]

    def _name_schedules(self, ids: set[str], sourced: Mapping[str, set[str]]) -> None:
        """Find the documents of schedules by id, and by document; a schedule that is gone leaves none."""
        created = ids
        for name, keys in sourced.items():
            rows = self._sessions.target.execute(
                "SELECT id::text, source_id FROM scheduler.schedules WHERE source = %s AND source_id = ANY(%s)",
                (self._profile.source_of(name), list(keys)),
            ).fetchall()
            ids = ids | {row[0] for row in rows}
            for gone in keys - {row[1] for row in rows}:
                self._want(self._collections[name], identity.parse_source_id(gone))
        if not ids:
            return
        home, stored = self._home(Schedule), stored_rows(self._sessions.target, Schedule, sorted(ids))
        for key in () if home is None else self._keys_of_deleted(home, sorted(created - stored.keys())):
            self._want(home, key)  # type: ignore[arg-type] # there are none without it
        for row in stored.values():
            if row.source is not None:
                collection = self._collection_of(ChangedRow(Schedule.table, str(row.id), row.source, row.source_id))
                if collection.tables[0] is not Schedule:
                    continue
            elif home is not None:
                collection = home
            else:
                continue
            self._want(collection, write_back.key_of(collection, row)).schedule = row

    def _name_born(self, record: type[Record], noted: Sequence[ChangedRow]) -> None:
        """Find the documents of rows created in PostgreSQL, in a collection of their own."""
        collection = self._home(record)
        if collection is None:
            return
        stored = stored_rows(self._sessions.target, record, [one.row_id for one in noted])
        for one in noted:
            row = stored.get(one.row_id)
            if isinstance(row, SourcedRecord):
                self._want(collection, write_back.key_of(collection, row), one)
        for key in self._keys_of_deleted(collection, [one.row_id for one in noted if one.row_id not in stored]):
            self._want(collection, key)

    def _keys_of_deleted(self, collection: Collection, ids: Sequence[str]) -> Iterator[Any]:
        """Yield the ``_id``s of documents for rows that do not exist any more; half of such an ObjectId is known."""
        if not collection.object_ids:
            yield from (str(UUID(one)) for one in ids)
        elif ids:
            text = {"$convert": {"input": "$_id", "to": "string", "onError": "", "onNull": ""}}
            halves = [UUID(one).hex[16:] for one in ids]
            where = {"$expr": {"$in": [{"$substrCP": [text, 8, 16]}, halves]}}
            for found in self._sessions.source[self._sessions.name_of(collection.name)].find(where, {"_id": 1}):
                yield found["_id"]

    def _of_schedules(self, wanted: Sequence[_Wanted]) -> list[DocumentWrite]:
        collection, target = wanted[0].collection, self._sessions.target
        there = current_outcomes(self._sessions, self._context, collection, [one.key for one in wanted])
        ids = [str(one.schedule.id) for one in wanted if one.schedule is not None]
        triggers = _triggers_of(target, ids) if Trigger in collection.tables else {}
        histories = _histories(target, ids) if self._is_beside_schedule(Run) and Run in collection.tables else {}
        common = self._usual_version(collection) if any(_is_born(one.schedule) for one in wanted) else None
        found = []
        for one in wanted:
            outcome = there.get(bson.encode({"": one.key}))
            schedule = one.schedule
            if schedule is None or (schedule.deleted_at is not None and not self._holds_deletion(collection, schedule)):
                found.append(DocumentWrite(collection.name, one.key, None))
                continue
            if schedule.source is None and schedule.schema_version is None:
                schedule = msgspec.structs.replace(schedule, schema_version=common)
            history = histories.get(str(schedule.id), RunHistory())
            several = triggers.get((schedule.tenant_id, schedule.id), [])
            rows: list[Record] = [schedule]
            before = () if outcome is None or outcome.decoded is None else outcome.decoded.rows
            trigger = stated_trigger(self._profile, self._context, collection, schedule, several, before)
            if trigger is not None:
                rows.append(trigger)
            if isinstance(history.last, Run):
                rows.append(history.last)
            found += self._written(collection, one, outcome, tuple(rows), history)
        return found

    def _of(self, wanted: Sequence[_Wanted]) -> list[DocumentWrite]:
        collection = wanted[0].collection
        there = current_outcomes(self._sessions, self._context, collection, [one.key for one in wanted])
        ids: dict[type[Record], set[str]] = {record: set() for record in collection.tables}
        owned: list[list[tuple[type[Record], str]]] = []
        for one in wanted:
            outcome = there.get(bson.encode({"": one.key}))
            found = {(RECORDS[table], row_id): None for table, row_id in one.rows}
            if outcome is not None and outcome.loadable is not None:
                found |= {(type(row.record), str(_id(row.record))): None for row in outcome.loadable.rows}
            owned.append(sorted(found, key=lambda pair: collection.tables.index(pair[0])))
            for record, row_id in found:
                ids[record].add(row_id)
        stored = {record: stored_rows(self._sessions.target, record, sorted(each)) for record, each in ids.items()}
        writes = []
        for one, pairs in zip(wanted, owned, strict=True):
            source_id = identity.source_id(one.key)
            every = [stored[record][row_id] for record, row_id in pairs if row_id in stored[record]]
            rows = tuple(row for row in every if getattr(row, "source_id", None) in (None, source_id))
            if not rows or type(rows[0]) is not collection.tables[0]:
                writes.append(DocumentWrite(collection.name, one.key, None))
                continue
            writes += self._written(collection, one, there.get(bson.encode({"": one.key})), rows, RunHistory())
        return writes

    def _holds_deletion(self, collection: Collection, schedule: Schedule) -> bool:
        rows = write_back.of_document(self._profile, collection, (schedule,))
        read = write_back.decoded(collection, self._context, collection.encode(rows))
        return bool(read) and getattr(read[0], "deleted_at", None) is not None

    def _usual_version(self, collection: Collection) -> str | None:
        """Return the version that most schedules of a collection state."""
        row = self._sessions.target.execute(
            "SELECT schema_version FROM scheduler.schedules WHERE source = %s AND schema_version IS NOT NULL"
            " GROUP BY schema_version ORDER BY count(*) DESC, schema_version LIMIT 1",
            (self._profile.source_of(collection.name),),
        ).fetchone()
        return None if row is None else str(row[0])

    def _written(
        self,
        collection: Collection,
        one: _Wanted,
        outcome: DocumentOutcome | None,
        stored: Rows,
        history: RunHistory,
    ) -> Iterator[DocumentWrite]:
        """Yield the document of rows; nothing if the document could not be decoded again to rows of the same tenant."""
        made: Mapping[type[Record], SerializedRow] = {}
        if outcome is not None:
            if outcome.decoded is None or outcome.loadable is None:
                raise ReverseSyncError(f"a document of {collection.name} has rows, and cannot be decoded any more")
            made = {type(row.record): row for row in outcome.loadable.rows}
        before = tuple(row.record for row in made.values())
        stored = self._as_of_document(collection, stored, before)
        fitted = write_back.fitted(collection, self._context, stored, before, history)
        if outcome is None or outcome.decoded is None:
            document = rebuild(collection, fitted)
        else:
            document, _ = patched(collection, outcome, fitted)
        self._refer(collection, document, stored, before)
        read = write_back.decoded(collection, self._context, document)
        if not read or read[0].tenant_id != stored[0].tenant_id:  # type: ignore[attr-defined] # every table has one
            yield DocumentWrite(collection.name, one.key, None, ((stored[0].table, "*"),), kept=True)
            return
        yield DocumentWrite(collection.name, one.key, document, _lost_columns(read, stored, made))

    def _as_of_document(self, collection: Collection, rows: Rows, before: Rows) -> Rows:
        """Return rows with the ids that the document's own rows have, and as rows of the document."""
        ids = {type(row): row.id for row in before}  # type: ignore[attr-defined] # every table has one
        owner = rows[0]
        assert isinstance(owner, SourcedRecord)  # noqa: S101 - told to the type checker
        named = write_back.of_document(self._profile, collection, (owner,))[0]
        origin = {"source": named.source, "source_id": named.source_id}  # type: ignore[attr-defined] # as above
        return (
            named,
            *(
                msgspec.structs.replace(row, **({"id": ids[type(row)]} if type(row) in ids else {}), **origin)
                for row in rows[1:]
            ),
        )

    def _refer(self, collection: Collection, document: Document, rows: Rows, before: Rows) -> None:
        """Write the references that were changed since, each as the ``_id`` of the document that is named."""
        for one in collection.references:
            row: Any = next((row for row in rows if type(row) is one.record), None)
            was: Any = next((row for row in before if type(row) is one.record), None)
            held = None if row is None else getattr(row, one.column)
            if not one.path or held == (None if was is None else getattr(was, one.column)):
                continue
            key = None if held is None else self._key_of_row(one.target, held, one.collection)
            if key is not None:
                write_back.place(document, one.path, key)
            elif held is None:
                _remove(document, one.path.split("."))

    def _key_of_row(self, record: type[Record], row_id: UUID, collection: str) -> Any:  # noqa: ANN401 - any BSON
        """Return the ``_id`` of the document of a row; None if it has none in the collection."""
        row = stored_rows(self._sessions.target, record, [str(row_id)]).get(str(row_id))
        if not isinstance(row, SourcedRecord):
            return None
        if row.source is not None:
            return identity.parse_source_id(row.source_id or "") if row.source.endswith(f"/{collection}") else None
        home = self._home(record)
        return write_back.key_of(home, row) if home is not None and home.name == collection else None


def encode_documents(sessions: Sessions, context: Context, noted: Sequence[ChangedRow]) -> list[DocumentWrite]:
    """Return what MongoDB must hold for the rows that were noted, as they are now; each document once.

    Raises ``ReverseSyncError`` for a row of another source, and for a document that changed under the fence.
    """
    found = Documents(sessions, context)
    found.name(noted)
    return found.writes()


def stated_trigger(
    profile: Profile,
    context: Context,
    collection: Collection,
    schedule: Schedule,
    triggers: Iterable[Trigger],
    before: Rows = (),
) -> Trigger | None:
    """Return the trigger of a schedule that its document states; None if it can state none.

    The trigger that the document states now (``before``) comes first.
    """
    was = next((row for row in before if isinstance(row, Trigger)), None)
    for one in sorted(triggers, key=lambda one: (one.source is None, not one.enabled, one.id)):
        if was is not None and was.id == one.id and all(getattr(was, name) == getattr(one, name) for name in _RULE):
            return one
        rows = write_back.of_document(profile, collection, (schedule, one))
        fitted = write_back.fitted(collection, context, rows)
        if write_back.says_trigger(write_back.decoded(collection, context, collection.encode(fitted)), one):
            return one
    return None


def rows_without_document(target: Connection, profile: Profile) -> dict[str, int]:
    """Return table → rows created in PostgreSQL that no document holds; of a schedule's runs, it holds the last one."""
    counts: dict[str, int] = {}
    for record in outbox.TRACKED_RECORDS:
        holder = write_back.holder(profile, record)
        is_own = holder is not None and holder.tables[0] is record
        if is_own or not issubclass(record, SourcedRecord) or record is RunSummary:
            continue
        beside = _HELD[record] if holder is not None else sql.SQL("0")
        row = target.execute(
            sql.SQL(
                "SELECT coalesce(sum(created - held), 0)::bigint FROM (SELECT created, {} AS held FROM"
                " (SELECT count(*) FILTER (WHERE source IS NULL) AS created, count(*) AS every,"
                " count(*) FILTER (WHERE source IS NULL AND {}) AS begun FROM {}"
                " WHERE NOT starts_with(tenant_id, %s) GROUP BY {}) AS counted WHERE created > 0) AS found"
            ).format(
                beside,
                sql.SQL("started_at IS NOT NULL" if record is Run else "true"),
                sql.Identifier("scheduler", record.table),
                sql.SQL("schedule_id") if holder is not None else sql.SQL("()"),
            ),
            (SCRATCH,),
        ).fetchone()
        if row is not None and row[0]:
            counts[record.table] = row[0]
    return counts


def _is_born(schedule: Schedule | None) -> bool:
    return schedule is not None and schedule.source is None


def _triggers_of(target: Connection, schedules: Sequence[str]) -> dict[tuple[str, UUID], list[Trigger]]:
    rows = target.execute(
        "SELECT id::text FROM scheduler.triggers WHERE schedule_id = ANY(%s::uuid[])", (list(schedules),)
    ).fetchall()
    return triggers_by_schedule(target, [row[0] for row in rows])


def _histories(target: Connection, schedules: Sequence[str]) -> dict[str, RunHistory]:
    rows = target.execute(_HISTORIES, (list(schedules),)).fetchall()
    runs = stored_rows(target, Run, sorted({one for row in rows for one in row[1:3] if one is not None}))
    return {
        row[0]: RunHistory(
            last=runs.get(row[1]),
            last_failed=runs.get(row[2]),
            waiting=row[3],
            begun=row[4],
            finished=row[5],
            failed=row[6],
            failed_since=row[7],
        )
        for row in rows
    }


def _lost_columns(read: Rows, stored: Rows, made: Mapping[type[Record], SerializedRow]) -> tuple[tuple[str, str], ...]:
    """Return the columns that were changed since, and that the document does not give back."""
    again = {type(row.record): row for row in serialize_rows(read)}
    lost: set[tuple[str, str]] = set()
    for row in stored:
        kind, there, then = codec(type(row)), again.get(type(row)), made.get(type(row))
        whole = b"".join(kind.serialize(row))
        differing = kind.columns if there is None else kind.differing((there.head, there.tail), whole)
        changed = _said(row) if then is None else kind.differing((then.head, then.tail), whole)
        if isinstance(row, Trigger) and row.kind == "one_time" and row.next_fire_at is None:
            continue  # it has fired: its document need not say when
        following = _FOLLOWING if row is stored[0] else _FOLLOWING | _OF_OWNER
        lost |= {(row.table, name) for name in {*differing} & {*changed} - PROVENANCE - following}
    return tuple(sorted(lost))


def _said(row: Record) -> Iterator[str]:
    """Yield the columns that hold something, other than their default."""
    for one in msgspec.structs.fields(row):
        held = getattr(row, one.name)
        if held is not None and (one.default is msgspec.NODEFAULT or held != one.default):
            yield one.name


def _remove(document: Document, names: Sequence[str]) -> None:
    for name in names[:-1]:
        document = document.get(name, {})
    document.pop(names[-1], None)


def _id(row: Record) -> UUID | int:
    identifier: UUID | int = row.id  # type: ignore[attr-defined] # every table has one
    return identifier
