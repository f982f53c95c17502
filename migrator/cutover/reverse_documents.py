"""Encoding rows of PostgreSQL as documents of an application that keeps its own: Agenda's, or those of a mapping.

A row that came from a document changes that document: only the fields that its changed columns make. A row created in
PostgreSQL becomes a document of the collection that holds its table. The document of a schedule may also hold one
trigger and the last run; which of several these are, is decided here among the rows that are stored. What has no place
in any document is not written, and named with the document (``LostRow``): a rollback exports these rows.

No document is written that its library would not load, or that would fire by a rule which PostgreSQL does not have any
more: a document whose schedule it cannot state keeps its former rule and is disabled, and a schedule without a document
gets none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import bson
import msgspec

from migrator.connections.postgres import Connection
from migrator.cutover import parallel_rows
from migrator.cutover.outbox import ChangedRow, RowKey
from migrator.cutover.reverse_encoding import (
    ALL_COLUMNS,
    PROVENANCE,
    RECORDS,
    BecomesOf,
    DocumentWrite,
    LostRow,
    ReverseSyncError,
    UnstatedSchedule,
    WantedDocument,
    WantedDocuments,
    collection_of,
    current_documents,
    fires_now,
    is_of_another,
    lost_row,
    of_one_tenant,
    patched,
    refused,
    row_key,
    stored_rows,
    triggers_by_schedule,
    whole,
    with_current_rows,
)
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import SerializedRow, SourceDocument, rebuild, serialize_rows
from migrator.records import Record, Run, Schedule, SourcedRecord, Trigger
from migrator.sources import write_back
from migrator.sources.mapping.codec import NO_TRIGGER
from migrator.sources.mapping.converters.base import value_at
from migrator.sources.profile import Collection, Context, Document, Reference, Rows, RunHistory
from migrator.store.validation import GLOBAL
from migrator.values import identity
from migrator.values.copy_format import codec

_STOPS: Final[Sequence[Mapping[str, Any]]] = ({"enabled": False}, {"enabled": False, "status": "paused"})
"""Columns of a schedule that stop it, whichever of them a document has a field for."""
_FOLLOWING: Final = frozenset({"id", "source_spec", "duration_ms", "updated_at"})
"""Columns that are not lost: the store writes the time of the last change, the others follow from what is stated."""
_OF_OWNER: Final = frozenset({"schedule_id", "trigger_id"})
"""Columns of further rows that follow from the document in which they are."""

# Runs that came from a document have no updated_at until the scheduler changes them.
_HISTORIES: Final = f"""
SELECT schedule_id::text, schedule_tenant_id,
    (array_agg(ARRAY[id::text, tenant_id] ORDER BY started_at DESC, id) FILTER (WHERE started_at IS NOT NULL))[1:1],
    (array_agg(ARRAY[id::text, tenant_id] ORDER BY finished_at DESC, id) FILTER (WHERE state IN ('error', 'timeout')
        AND finished_at IS NOT NULL))[1:1],
    min(coalesce(available_at, scheduled_at, created_at)) FILTER (WHERE state IN ('planning', 'queued')),
    count(*) FILTER (WHERE started_at IS NOT NULL AND (source IS NULL OR updated_at IS NOT NULL)),
    count(*) FILTER (WHERE state = 'completed' AND (source IS NULL OR updated_at IS NOT NULL)),
    count(*) FILTER (WHERE state IN ('error', 'timeout') AND (source IS NULL OR updated_at IS NOT NULL)),
    count(*) FILTER (WHERE state IN ('error', 'timeout') AND (source IS NULL OR updated_at IS NOT NULL)
        AND finished_at > completed_at)
FROM (
    SELECT *, max(finished_at) FILTER (WHERE state = 'completed' AND (source IS NULL OR updated_at IS NOT NULL))
        OVER (PARTITION BY schedule_id, schedule_tenant_id) AS completed_at
    FROM scheduler.runs AS r WHERE (schedule_id, schedule_tenant_id) IN (SELECT * FROM unnest(%s::uuid[], %s::text[]))
        AND NOT {parallel_rows.of_parallel_run("r")}
) AS runs GROUP BY schedule_id, schedule_tenant_id
"""  # noqa: S608 - our own text


class Documents:
    """The documents of one batch of notes."""

    def __init__(self, sessions: Sessions, context: Context) -> None:
        self._sessions, self._context = sessions, context
        self._profile = sessions.profile
        self._collections = self._profile.by_name()
        self._homes: dict[type[Record], Collection | None] = {}
        self._wanted = WantedDocuments()

    def name(self, noted: Sequence[ChangedRow]) -> None:
        """Find the documents of rows that were noted; raise ``ReverseSyncError`` for a row of another source."""
        created: dict[type[Record], list[ChangedRow]] = {}
        shared: set[RowKey] = set()
        schedules: dict[RowKey, None] = {}
        sourced: dict[str, set[tuple[str, str]]] = {}
        for row in self._without_parallel_run(noted):
            record = RECORDS[row.table]
            if row.source is not None:
                collection = collection_of(self._profile, row)
                if collection.tables[0] is Schedule:
                    sourced.setdefault(collection.name, set()).add((row.source_id or "", row.tenant_id))
                else:
                    self._wanted.add(collection, identity.parse_source_id(row.source_id or ""), row.tenant_id, row)
            elif record is Schedule:
                schedules[row.key] = None
            elif self._is_beside_schedule(record) and row.source_id:
                schedules[row.source_id, row.tenant_id] = None
                if record is Run:  # a run may also be of a global schedule, which the note does not say
                    shared.add((row.source_id, GLOBAL))
            elif write_back.homes(self._profile, record):
                created.setdefault(record, []).append(row)
        self._name_schedules(schedules, shared, sourced)
        for record, several in created.items():
            self._name_created(record, several)

    def _without_parallel_run(self, noted: Sequence[ChangedRow]) -> Iterator[ChangedRow]:
        """Yield the rows that a document may show: none of a parallel run."""
        created: dict[str, list[RowKey]] = {}
        for one in noted:
            if one.source is None:
                created.setdefault(one.table, []).append(one.key)
        left_out = {
            (table, *key)
            for table, keys in created.items()
            for key in parallel_rows.keys_of(self._sessions.target, RECORDS[table], keys)
        }
        return (one for one in noted if (one.table, *one.key) not in left_out)

    def named(self) -> Mapping[str, set[str]]:
        """Return collection → source ids of the documents."""
        named: dict[str, set[str]] = {}
        for some in self._wanted.by_collection():
            named[some[0].collection.name] = {identity.source_id(one.key) for one in some}
        return named

    def writes(self) -> list[DocumentWrite]:
        """Return the writes after which MongoDB holds these documents as the rows are now."""
        writes: list[DocumentWrite] = []
        for some in self._wanted.by_collection():
            writes += self._of_schedules(some) if some[0].collection.tables[0] is Schedule else self._of(some)
        return of_one_tenant(writes)

    def _is_beside_schedule(self, record: type[Record]) -> bool:
        holder = write_back.holder(self._profile, record)
        return record in (Trigger, Run) and holder is not None and holder.tables[0] is Schedule

    def _home(self, record: type[Record]) -> Collection | None:
        """Return the collection for rows created in PostgreSQL: the first of its table that has documents."""
        if record not in self._homes:
            homes = write_back.homes(self._profile, record)
            source, named = self._sessions.source, self._sessions.name_of
            used = (one for one in homes[1:] and homes if source[named(one.name)].find_one({}, {"_id": 1}))
            self._homes[record] = next(used, next(iter(homes), None))
        return self._homes[record]

    def _name_schedules(
        self, created: Iterable[RowKey], shared: set[RowKey], sourced: Mapping[str, set[tuple[str, str]]]
    ) -> None:
        """Find the documents of schedules by key, and by document and tenant; a schedule that is gone leaves none.

        ``shared``: keys of schedules that may never have existed.
        """
        asked = {*created, *shared}
        for name, pairs in sourced.items():
            rows = self._sessions.target.execute(
                "SELECT id::text, tenant_id, source_id FROM scheduler.schedules WHERE source = %s"
                " AND (source_id, tenant_id) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
                (self._profile.source_of(name), [key for key, _ in pairs], [tenant for _, tenant in pairs]),
            ).fetchall()
            asked |= {(row[0], row[1]) for row in rows}
            for gone, tenant in sorted(pairs - {(row[2], row[1]) for row in rows}):
                self._wanted.add(self._collections[name], identity.parse_source_id(gone), tenant)
        if not asked:
            return
        home, stored = self._home(Schedule), stored_rows(self._sessions.target, Schedule, sorted(asked))
        global_rows = shared & stored.keys()
        missing = [key for key in sorted(created) if key not in stored and (key[0], GLOBAL) not in global_rows]
        for key, tenant in () if home is None else self._keys_of_deleted(home, missing):
            self._wanted.add(home, key, tenant)  # type: ignore[arg-type] # there are none without it
        for row in stored.values():
            if row.source is not None:
                origin = ChangedRow(Schedule.table, str(row.id), row.tenant_id, row.source, row.source_id)
                collection = collection_of(self._profile, origin)
                if collection.tables[0] is not Schedule:
                    continue
            elif home is not None:
                collection = home
            else:
                continue
            self._wanted.add(collection, write_back.key_of(collection, row), row.tenant_id).schedule = row

    def _name_created(self, record: type[Record], noted: Sequence[ChangedRow]) -> None:
        """Find the documents of rows created in PostgreSQL, in a collection of their own."""
        collection = self._home(record)
        if collection is None:
            return
        stored = stored_rows(self._sessions.target, record, [one.key for one in noted])
        for changed in noted:
            row = stored.get(changed.key)
            if isinstance(row, SourcedRecord):
                self._wanted.add(collection, write_back.key_of(collection, row), changed.tenant_id, changed)
        for key, tenant in self._keys_of_deleted(collection, [one.key for one in noted if one.key not in stored]):
            self._wanted.add(collection, key, tenant)

    def _keys_of_deleted(self, collection: Collection, rows: Sequence[RowKey]) -> Iterator[tuple[Any, str]]:
        """Yield ``_id`` and tenant of documents for rows that do not exist any more.

        Half of such an ObjectId is known, so that a document of another row, or of another tenant, may have it.
        """
        if not collection.object_ids:
            yield from ((str(UUID(one)), tenant) for one, tenant in rows)
        elif rows:
            text = {"$convert": {"input": "$_id", "to": "string", "onError": "", "onNull": ""}}
            halves: dict[str, set[str]] = {}
            for one, tenant in rows:
                halves.setdefault(UUID(one).hex[16:], set()).add(tenant)
            where = {"$expr": {"$in": [{"$substrCP": [text, 8, 16]}, list(halves)]}}
            for found in self._sessions.source[self._sessions.name_of(collection.name)].find(where, {"_id": 1}):
                yield from ((found["_id"], tenant) for tenant in halves[str(found["_id"])[8:24]])

    def _of_schedules(self, wanted: Sequence[WantedDocument]) -> list[DocumentWrite]:
        collection, target = wanted[0].collection, self._sessions.target
        stored = current_documents(self._sessions, self._context, collection, [one.key for one in wanted])
        keys = [row_key(one.schedule) for one in wanted if one.schedule is not None]
        triggers = _triggers_of(target, keys) if Trigger in collection.tables else {}
        has_runs = self._is_beside_schedule(Run) and Run in collection.tables
        histories = _histories(target, keys) if has_runs else {}
        copied = self._copied_runs(collection, wanted) if has_runs else {}
        common = self._usual_version(collection) if any(_is_created(one.schedule) for one in wanted) else None
        writes = []
        for document in wanted:
            runs = copied.get((identity.source_id(document.key), document.tenant), ())
            current = stored.get(bson.encode({"": document.key}))
            schedule = document.schedule
            several = () if schedule is None else tuple(triggers.get((schedule.tenant_id, schedule.id), ()))
            owned = (*(() if schedule is None else (schedule,)), *several, *runs)
            if is_of_another(current, document.tenant):
                writes += [] if schedule is None else [refused(collection, document.key, owned, several)]
                continue
            if schedule is None or (schedule.deleted_at is not None and not self._holds_deletion(collection, schedule)):
                writes.append(DocumentWrite(collection.name, document.key, None, whole(owned), tenant=document.tenant))
                continue
            if schedule.source is None and schedule.schema_version is None:
                schedule = msgspec.structs.replace(schedule, schema_version=common)
            beside = _Beside(triggers=several, copied=runs, history=histories.get(row_key(schedule), RunHistory()))
            writes.append(self._of_schedule(collection, document.key, current, schedule, beside))
        return writes

    def _of_schedule(
        self,
        collection: Collection,
        key: Any,  # noqa: ANN401 - any BSON
        current: SourceDocument | None,
        schedule: Schedule,
        beside: "_Beside",
    ) -> DocumentWrite:
        """Return the document of a schedule.

        It states one trigger of the schedule. If it can state none, it keeps its former rule and is disabled; where the
        source has no field that stops it, it stays as it was. A schedule without a document gets none then.
        """
        made = self._made(collection, current)
        before = tuple(row.record for row in made.values())
        profile, context, triggers = self._profile, self._context, beside.triggers
        reasons = write_back.unstated(profile, context, schedule, triggers, before)
        stated = write_back.stated_trigger(profile, context, collection, schedule, triggers, before)
        former = None if stated is not None else _former_trigger(triggers, before)
        last = beside.history.last if isinstance(beside.history.last, Run) else None
        rest = tuple(row for row in (stated or former, last) if row is not None)
        document: Document | None = None
        if current is not None or stated is not None or not any(map(write_back.may_fire, triggers)):
            for stop in ({},) if former is None else _STOPS:
                rows = (msgspec.structs.replace(schedule, **stop), *rest)
                document = self._document(collection, current, made, rows, beside.history)
                if former is None or document is None:
                    break
                if not write_back.fires(write_back.decoded(collection, context, document)):
                    break
                document = None
        read = before if document is None else write_back.decoded(collection, context, document)
        pairs = beside.pairs(schedule, stated or former, last, read, written=document is not None)
        return DocumentWrite(
            collection.name,
            key,
            document,
            tuple(_lost_rows(collection, pairs, made)),
            kept=document is None,
            unstated=UnstatedSchedule(
                schedule_id=str(schedule.id),
                tenant=schedule.tenant_id,
                reasons=reasons or (write_back.NO_DOCUMENT,),
                document=_becomes(document, current, stated, former),
                fires=fires_now(schedule, triggers),
            )
            if reasons or document is None
            else None,
            held=(row_key(last),) if document is not None and last is not None and last.source is None else (),
            tenant=schedule.tenant_id,
            whole=whole((schedule, *triggers, *beside.copied)),
        )

    def _copied_runs(
        self, collection: Collection, wanted: Sequence[WantedDocument]
    ) -> dict[tuple[str, str], tuple[Run, ...]]:
        """Return source id and tenant → runs that the copy has made of documents of schedules."""
        rows = self._sessions.target.execute(
            "SELECT id::text, tenant_id FROM scheduler.runs WHERE source = %s AND source_id = ANY(%s)",
            (self._profile.source_of(collection.name), [identity.source_id(one.key) for one in wanted]),
        ).fetchall()
        runs: dict[tuple[str, str], tuple[Run, ...]] = {}
        for run in stored_rows(self._sessions.target, Run, rows).values():
            place = (run.source_id or "", run.tenant_id)
            runs[place] = (*runs.get(place, ()), run)
        return runs

    def _of(self, wanted: Sequence[WantedDocument]) -> list[DocumentWrite]:
        collection = wanted[0].collection
        writes = []
        for changed, current, owned in with_current_rows(self._sessions, self._context, wanted):
            source_id = identity.source_id(changed.key)
            rows = tuple(row for row in owned if getattr(row, "source_id", None) in (None, source_id))
            if is_of_another(current, changed.tenant):
                writes += [refused(collection, changed.key, rows)] if rows else []
                continue
            if not rows or type(rows[0]) is not collection.tables[0]:
                writes.append(DocumentWrite(collection.name, changed.key, None, whole(rows), tenant=changed.tenant))
                continue
            made = self._made(collection, current)
            document = self._document(collection, current, made, rows, RunHistory())
            if document is None:
                lost = whole(rows)
                writes.append(DocumentWrite(collection.name, changed.key, None, lost, kept=True, tenant=changed.tenant))
                continue
            read = write_back.decoded(collection, self._context, document)
            lost = tuple(_lost_rows(collection, [(row, _of_type(read, type(row))) for row in rows], made))
            writes.append(
                DocumentWrite(collection.name, changed.key, document, lost, tenant=changed.tenant, whole=whole(rows))
            )
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

    def _made(self, collection: Collection, current: SourceDocument | None) -> dict[type[Record], SerializedRow]:
        """Return the rows that a document makes as it is now; raise ``ReverseSyncError`` if it makes none any more."""
        if current is None:
            return {}
        if not current.serialized:
            raise ReverseSyncError(f"a document of {collection.name} has rows, and cannot be decoded any more")
        return {type(row.record): row for row in current.serialized}

    def _document(
        self,
        collection: Collection,
        current: SourceDocument | None,
        made: Mapping[type[Record], SerializedRow],
        rows: Rows,
        history: RunHistory,
    ) -> Document | None:
        """Return the document of rows; None if they make none that is read again as one of their tenant.

        Nor does a library load a document without a rule that its documents must have.
        """
        before = tuple(row.record for row in made.values())
        stored = self._as_of_document(collection, rows, before)
        try:
            fitted = write_back.fitted(collection, self._context, stored, before, history)
            if current is None:
                document = rebuild(collection, fitted)
            else:
                document, _ = patched(current, fitted)
        except Exception:  # noqa: BLE001 - functions of any profile; rows that they cannot take cost these rows alone
            return None
        self._refer(collection, document, stored, before)
        read = write_back.read_back(collection, self._context, document)
        if read is None or not write_back.is_of_tenant(read.rows, stored[0]):
            return None
        known = () if current is None else current.notes
        if NO_TRIGGER in {note.kind for note in read.notes} - {note.kind for note in known}:
            return None
        return document

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
        for reference in collection.references:
            row: Any = next((row for row in rows if type(row) is reference.record), None)
            was: Any = next((row for row in before if type(row) is reference.record), None)
            held = None if row is None else getattr(row, reference.column)
            if not reference.path or held == (None if was is None else getattr(was, reference.column)):
                continue
            key = None if held is None else self._key_of_row(reference, held, row.tenant_id)
            if key is not None:
                write_back.place(document, reference.path, key)
            elif held is None:
                _remove(document, reference.path.split("."))

    def _key_of_row(self, reference: Reference, row_id: UUID, tenant: str) -> Any:  # noqa: ANN401 - any BSON
        """Return the id of the document of the tenant's row, or of a global one; None if it has none there."""
        record, collection = reference.target, reference.collection
        keys = ((str(row_id), tenant), (str(row_id), GLOBAL))
        stored = stored_rows(self._sessions.target, record, keys)
        row = next((stored[key] for key in keys if key in stored), None)
        if not isinstance(row, SourcedRecord):
            return None
        if reference.by:
            other = self._profile.by_name()[collection]
            if type(row) is not other.tables[0] or not (row.source is None or row.source.endswith(f"/{collection}")):
                return None
            return value_at(rebuild(other, (row,)), reference.by.split("."))
        if row.source is not None:
            return identity.parse_source_id(row.source_id or "") if row.source.endswith(f"/{collection}") else None
        home = self._home(record)
        return write_back.key_of(home, row) if home is not None and home.name == collection else None


def encode_documents(sessions: Sessions, context: Context, noted: Sequence[ChangedRow]) -> list[DocumentWrite]:
    """Return the documents that MongoDB must hold for the noted rows, as the rows are now; each document once.

    Raises ``ReverseSyncError`` for a row of another source, and for a document that changed under the fence.
    """
    found = Documents(sessions, context)
    found.name(noted)
    return found.writes()


class _Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored beside a schedule, and may be in its document."""

    triggers: tuple[Trigger, ...]
    copied: tuple[Run, ...]
    """Runs that the copy has made of the document."""
    history: RunHistory

    def pairs(
        self, schedule: Schedule, trigger: Trigger | None, last: Run | None, read: Rows, *, written: bool
    ) -> Iterator[tuple[Record, Record | None]]:
        """Yield each stored row, and the row of the document that stands for it after a rollback; None if none does.

        ``trigger``, ``last``: the rows that were encoded. ``read``: the rows of the document; if it was not written
        (``written``), those that it makes as it is.
        """
        runs = self.copied if last is None or last in self.copied or not written else (last, *self.copied)
        for row in (schedule, *self.triggers, *runs):
            again = _of_type(read, type(row))
            if row is schedule or again is None:
                yield row, again
            elif not written or (isinstance(row, Run) and last is None):
                yield row, again if row_key(row) == row_key(again) else None
            else:
                encoded = trigger if isinstance(row, Trigger) else last
                yield row, again if encoded is not None and row_key(row) == row_key(encoded) else None


def _becomes(
    document: Document | None, current: SourceDocument | None, stated: Trigger | None, former: Trigger | None
) -> BecomesOf:
    if document is None:
        return "absent" if current is None else "unchanged"
    if stated is not None:
        return "stated"
    return "without a rule" if former is None else "disabled"


def _former_trigger(triggers: Sequence[Trigger], before: Rows) -> Trigger | None:
    """Return the trigger that a document states now, disabled, for a schedule none of whose triggers it can state.

    Its counts and bounds are those that are stored. None if there is no such trigger, and if all that the schedule has
    is over, so that the document need not say when it fires.
    """
    was = _of_type(before, Trigger)
    if not isinstance(was, Trigger) or (triggers and not any(map(write_back.may_fire, triggers))):
        return None
    now = next((trigger for trigger in triggers if trigger.id == was.id), was)
    rule = {name: getattr(was, name) for name in (*write_back.RULE, "anchor", "source_spec", "next_fire_at")}
    return msgspec.structs.replace(now, **rule, enabled=False)


def _of_type(rows: Rows, record: type[Record]) -> Record | None:
    return next((row for row in rows if type(row) is record), None)


def _is_created(schedule: Schedule | None) -> bool:
    return schedule is not None and schedule.source is None


def _triggers_of(target: Connection, schedules: Sequence[RowKey]) -> dict[tuple[str, UUID], list[Trigger]]:
    rows = target.execute(
        "SELECT id::text, tenant_id FROM scheduler.triggers"
        " WHERE (schedule_id, tenant_id) IN (SELECT * FROM unnest(%s::uuid[], %s::text[]))",
        ([identifier for identifier, _ in schedules], [tenant for _, tenant in schedules]),
    ).fetchall()
    return triggers_by_schedule(target, rows)


def _histories(target: Connection, schedules: Sequence[RowKey]) -> dict[RowKey, RunHistory]:
    rows = target.execute(
        _HISTORIES, ([identifier for identifier, _ in schedules], [tenant for _, tenant in schedules])
    ).fetchall()
    # The last run, and the last that failed: each an array of one key, or null.
    named = [[(identifier, tenant) for identifier, tenant in one or ()] for row in rows for one in row[2:4]]
    runs = stored_rows(target, Run, sorted({key for keys in named for key in keys}))
    newest = [next((runs.get(key) for key in keys), None) for keys in named]
    return {
        (row[0], row[1]): RunHistory(
            last=last,
            last_failed=last_failed,
            waiting=row[4],
            begun=row[5],
            finished=row[6],
            failed=row[7],
            failed_since=row[8],
        )
        for row, last, last_failed in zip(rows, newest[::2], newest[1::2], strict=True)
    }


def _lost_rows(
    collection: Collection,
    pairs: Iterable[tuple[Record, Record | None]],
    made: Mapping[type[Record], SerializedRow],
) -> Iterator[LostRow]:
    """Yield the rows that their document does not give back: with what was changed since, or what it says otherwise."""
    references = {(one.record, one.column) for one in collection.references}
    for row, again in pairs:
        if again is None:
            yield lost_row(row, (ALL_COLUMNS,))
            continue
        kind, then = codec(type(row)), made.get(type(row))
        (read,) = serialize_rows((again,))
        whole = b"".join(kind.serialize(row))
        is_created = getattr(row, "source", None) is None
        changed = set(_said(row) if then is None or is_created else kind.differing((then.head, then.tail), whole))
        if then is not None and not is_created:
            altered = kind.differing((then.head, then.tail), read.head + read.tail)
            changed |= {name for name in altered if (type(row), name) not in references}
        following = _FOLLOWING if type(row) is collection.tables[0] else _FOLLOWING | _OF_OWNER
        columns = {*kind.differing((read.head, read.tail), whole)} & changed - PROVENANCE - following
        if columns:
            yield lost_row(row, columns)


def _said(row: Record) -> Iterator[str]:
    """Yield the columns that hold something, other than their default."""
    for field in msgspec.structs.fields(row):
        held = getattr(row, field.name)
        if held is not None and (field.default is msgspec.NODEFAULT or held != field.default):
            yield field.name


def _remove(document: Document, names: Sequence[str]) -> None:
    for name in names[:-1]:
        document = document.get(name, {})
    document.pop(names[-1], None)
