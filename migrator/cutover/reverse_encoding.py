"""Encoding rows of PostgreSQL as the documents that MongoDB must hold after the cutover.

A document that exists is changed, not rewritten. It is decoded by the code of the copy, and its rows are compared with
the stored rows. The columns that differ were written since, and only the fields that those columns make are replaced.
So what the columns never carried (spellings, unknown fields, the text of a reference) stays as the old application
wrote it. A row that was created on PostgreSQL becomes a document as our own store for MongoDB makes it. Its references
are spelled as the old application spells them.

A schedule is written in the fields of the old application, also when it fires: one of its triggers becomes its cron
text and zone, if these say when that trigger fires (``rule_of``). Triggers also have documents of their own, which only
our own store reads. The document of the trigger in the schedule's fields holds its next fire, and is marked as a copy,
so that it is not taken for a second rule.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import bson
import msgspec
from bson.errors import InvalidId
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.cutover.outbox import ChangedRow
from migrator.errors import MigratorError
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import DocumentOutcome, rebuild, serialize_rows, transform_documents
from migrator.records import ALL, Record, Schedule, SourcedRecord, Trigger
from migrator.sources.profile import Collection, Context, Document, Rejected, Rows, Skipped
from migrator.sources.stellaops import names
from migrator.sources.stellaops.own import COPY_OF
from migrator.sources.stellaops.schedules import TOOL_TRIGGER, is_carried
from migrator.store.mongo.places import PLACES, Place
from migrator.store.postgres.rows import fetch
from migrator.values import document as documents
from migrator.values import identity
from migrator.values.copy_format import codec

PROVENANCE: Final = frozenset({"source", "source_id", "extra"})
"""Columns that name the origin of a row."""
RECORDS: Final = {record.table: record for record in ALL}
_RECOMPUTED: Final = frozenset({"next_fire_at", "source_spec"})
"""Columns of a trigger that each side computes for itself from the schedule's rule."""

RecordT = TypeVar("RecordT", bound=Record)
DocumentKey: TypeAlias = tuple[str, bytes]
"""A document: its collection, and its ``_id`` as BSON."""


class DocumentWrite(msgspec.Struct, frozen=True):
    """What MongoDB must hold under ``key`` in ``collection``: ``document``, or no document if it is None."""

    collection: str
    key: Any
    document: Document | None
    lost: tuple[tuple[str, str], ...] = ()
    """(table, column) of what was written since and has no place in such a document."""
    kept: bool = False
    """The document stays as it is: what was written since has no place in it at all."""


class ReverseSyncError(MigratorError):
    """A row cannot become a document, so the rollback is not complete."""


class _ChangedDocument(msgspec.Struct):
    """A document to be encoded, and the rows that were noted for it."""

    collection: Collection
    key: Any
    rows: dict[tuple[str, str], ChangedRow] = msgspec.field(default_factory=dict)


def encode_changes(sessions: Sessions, context: Context, noted: Sequence[ChangedRow]) -> list[DocumentWrite]:
    """Return what MongoDB must hold for the rows that were noted, as they are now; each document once.

    Raises ``ReverseSyncError`` for a row that has no document in this profile.
    """
    rules = _StatedTriggers(sessions, noted)
    noted = rules.noted
    born = _rows_without_source(sessions, noted)
    wanted: dict[DocumentKey, _ChangedDocument] = {}
    for one in noted:
        for collection, key in _documents_of(sessions, one, born):
            place = wanted.setdefault((collection.name, bson.encode({"": key})), _ChangedDocument(collection, key))
            place.rows[one.table, one.row_id] = one
    writes: list[DocumentWrite] = []
    for name in dict.fromkeys(collection for collection, _ in wanted):
        writes += _collection_writes(
            sessions, context, [one for one in wanted.values() if one.collection.name == name], rules
        )
    return _with_source_references(sessions, writes)


def stated_trigger(triggers: Iterable[Trigger]) -> Trigger | None:
    """Return the one trigger of a schedule that its own document states; None if it can state none.

    The trigger that the document stated before comes first, then those created on PostgreSQL. A trigger that has a
    document of its own in the source stays there.
    """
    own = names.source(names.SCHEDULES)
    able = [one for one in triggers if one.source in (None, own) and is_carried(one)]
    return min(able, key=lambda one: (one.source is None, not one.enabled, one.id), default=None)


def triggers_by_schedule(target: Connection, ids: Sequence[str]) -> dict[tuple[str, UUID], list[Trigger]]:
    """Return the stored triggers with these ids, by the tenant and the id of their schedule."""
    grouped: dict[tuple[str, UUID], list[Trigger]] = {}
    for row in stored_rows(target, Trigger, ids).values():
        grouped.setdefault((row.tenant_id, row.schedule_id), []).append(row)
    return grouped


class _StatedTriggers:
    """The trigger that each schedule states. A note of a trigger counts for the schedule and all its triggers."""

    def __init__(self, sessions: Sessions, noted: Sequence[ChangedRow]) -> None:
        self.noted = noted
        self._of: dict[tuple[str, UUID], Trigger] = {}
        """Tenant and schedule to its stated trigger."""
        collections = sessions.profile.by_name()
        if not (_place_of(collections, Schedule) and _place_of(collections, Trigger)):
            return
        triggers = [one for one in noted if one.table == Trigger.table]
        stored = stored_rows(sessions.target, Trigger, [one.row_id for one in triggers])
        former = _schedules_of_deleted(sessions, [one for one in triggers if one.row_id not in stored])
        ids = {UUID(one.row_id) for one in (*noted, *former) if one.table == Schedule.table}
        ids |= {row.schedule_id for row in stored.values()}
        found = {(one.table, one.row_id): one for one in noted}
        for one in (*_rows_where(sessions, Schedule, "id", ids), *_rows_where(sessions, Trigger, "schedule_id", ids)):
            found.setdefault((one.table, one.row_id), one)
        self.noted = list(found.values())
        named = [row_id for table, row_id in found if table == Trigger.table]
        for schedule, rows in triggers_by_schedule(sessions.target, named).items():
            if (stated := stated_trigger(rows)) is not None:
                self._of[schedule] = stated

    def of(self, rows: Rows) -> Rows:
        """Return the stated trigger of the schedule among these rows."""
        schedules = (row for row in rows if isinstance(row, Schedule))
        return tuple(one for row in schedules if (one := self._of.get((row.tenant_id, row.id))) is not None)

    def states(self, row: Record) -> bool:
        """Return whether a trigger is the one that its schedule's document states."""
        if not isinstance(row, Trigger):
            return False
        one = self._of.get((row.tenant_id, row.schedule_id))
        return one is not None and one.id == row.id


def _rows_where(sessions: Sessions, record: type[Record], column: str, ids: Iterable[UUID]) -> list[ChangedRow]:
    """Return the rows of a table with one of these values, as if they had been noted."""
    found = sessions.target.execute(
        sql.SQL("SELECT id::text, source, source_id FROM {} WHERE {} = ANY(%s) ORDER BY id").format(
            sql.Identifier("scheduler", record.table), sql.Identifier(column)
        ),
        (list(ids),),
    )
    return [ChangedRow(record.table, *row) for row in found]


def _schedules_of_deleted(sessions: Sessions, gone: Sequence[ChangedRow]) -> list[ChangedRow]:
    """Return the schedules whose documents still state triggers that do not exist any more."""
    if not gone:
        return []
    own = names.source(names.SCHEDULES)
    texts = [f"{names.TRIGGER_PREFIX}{UUID(one.row_id).hex}" for one in gone]
    there = sessions.source[sessions.name_of(names.SCHEDULES)].find({f"{TOOL_TRIGGER}.id": {"$in": texts}}, {"_id": 1})
    keys = [identity.source_id(one["_id"]) for one in there]
    keys += [one.source_id for one in gone if one.source == own and one.source_id is not None]
    found = sessions.target.execute(
        "SELECT id::text, source, source_id FROM scheduler.schedules WHERE source = %s AND source_id = ANY(%s)"
        " OR source IS NULL AND %s || replace(id::text, '-', '') = ANY(%s)",
        (own, keys, names.SCHEDULE_PREFIX, keys),
    )
    return [ChangedRow(Schedule.table, *row) for row in found]


def _rows_without_source(sessions: Sessions, noted: Iterable[ChangedRow]) -> dict[tuple[str, str], Record]:
    """Return the rows, as they are stored, without a source."""
    asked: dict[str, list[str]] = {}
    for one in noted:
        if one.source is None:
            asked.setdefault(one.table, []).append(one.row_id)
    return {
        (table, row_id): row
        for table, ids in asked.items()
        for row_id, row in stored_rows(sessions.target, RECORDS[table], ids).items()
    }


def _documents_of(
    sessions: Sessions, noted: ChangedRow, born: Mapping[tuple[str, str], Record]
) -> Iterable[tuple[Collection, Any]]:
    """Yield the collection and the ``_id`` of each document to which a row belongs.

    The trigger that a schedule's document states has two: the document of the schedule, whose rule it is, and a
    document of its own, which holds its next fire.
    """
    collections = sessions.profile.by_name()
    record = RECORDS[noted.table]
    if noted.source is not None:
        profile, _, name = noted.source.partition("/")
        if profile != sessions.profile.name or name not in collections:
            raise ReverseSyncError(
                f"a row of {noted.table} is of {noted.source}, which profile {sessions.profile.name} lacks"
            )
        yield collections[name], identity.parse_source_id(noted.source_id or "")
        if record is Trigger and collections[name].tables[0] is not Trigger and _place_of(collections, Trigger):
            yield collections[names.TRIGGERS], f"{names.TRIGGER_PREFIX}{UUID(noted.row_id).hex}"
        return
    place = _place_of(collections, record)
    if place is None:
        raise ReverseSyncError(f"profile {sessions.profile.name} has no collection for rows of {noted.table} born here")
    collection = collections[place.name]
    row = born.get((noted.table, noted.row_id))
    if issubclass(record, SourcedRecord):
        yield collection, f"{place.prefixes[0]}{UUID(noted.row_id).hex}"
    elif row is not None:
        yield collection, rebuild(collection, (row,))["_id"]
    else:
        yield collection, _deleted_key(sessions, collection, noted)


def _place_of(collections: Mapping[str, Collection], record: type[Record]) -> Place | None:
    """Return where our own store keeps rows of a record, if the profile has that collection."""
    place = PLACES[record][0] if record in PLACES else None
    return place if place is not None and collections.get(place.name) is place.collection else None


def _deleted_key(sessions: Sessions, collection: Collection, noted: ChangedRow) -> Any:  # noqa: ANN401 - any BSON
    """Return the ``_id`` of the document of a deleted row whose table has no column ``source``.

    Its payload named it as text; an ObjectId's text is its digits.
    """
    text = noted.source_id or ""
    if not text:
        place = PLACES[RECORDS[noted.table]][0]
        number = noted.row_id if noted.row_id.isdigit() else UUID(noted.row_id).hex
        candidates: list[Any] = [f"{prefix}{number}" for prefix in place.prefixes]
    else:
        candidates = [text]
        with contextlib.suppress(InvalidId):
            candidates.append(bson.ObjectId(text))
    found = sessions.source[sessions.name_of(collection.name)].find_one({"_id": {"$in": candidates}}, {"_id": 1})
    return candidates[0] if found is None else found["_id"]


def _collection_writes(
    sessions: Sessions, context: Context, wanted: Sequence[_ChangedDocument], rules: _StatedTriggers
) -> list[DocumentWrite]:
    collection = wanted[0].collection
    if collection.tables[0] is Trigger:
        context = msgspec.structs.replace(context, of_store=True)  # also those that are copies
    there = current_outcomes(sessions, context, collection, [one.key for one in wanted])
    writes = []
    ids: dict[type[Record], set[str]] = {record: set() for record in collection.tables}
    for one in wanted:
        for record, row_id in _row_ids(one, there.get(bson.encode({"": one.key}))):
            ids[record].add(row_id)
    stored = {record: stored_rows(sessions.target, record, sorted(each)) for record, each in ids.items()}
    for one in wanted:
        outcome = there.get(bson.encode({"": one.key}))
        owned = [
            stored[record][row_id]
            for record, row_id in sorted(_row_ids(one, outcome), key=lambda pair: collection.tables.index(pair[0]))
            if row_id in stored[record]
        ]
        own = tuple(row for row in owned if _belongs(collection, one, row))
        rows = tuple(_with_source(collection, one.key, row) for row in (*own, *rules.of(own)))
        document, lost = _encode_document(collection, context, outcome, rows)
        if document is not None and collection.tables[0] is Trigger:
            stated = any(map(rules.states, rows))
            if stated and outcome is None and rows[0].next_fire_at is None:  # type: ignore[attr-defined] # a trigger
                continue  # there is nothing else to state
            document = _with_copy_mark(document, copy=stated)
        writes.append(DocumentWrite(collection.name, one.key, document, lost))
    return writes


def _with_copy_mark(document: Document, *, copy: bool) -> Document:
    """Return the document of a trigger, marked if it is a copy of its schedule's rule."""
    plain = {name: value for name, value in document.items() if name != COPY_OF}
    return plain | {COPY_OF: names.SCHEDULES} if copy else plain


def _row_ids(wanted: _ChangedDocument, outcome: DocumentOutcome | None) -> list[tuple[type[Record], str]]:
    """Return the rows that a document has or had: those that it would make now, and those that were noted."""
    found = {(RECORDS[table], row_id): None for table, row_id in wanted.rows}
    if outcome is not None and outcome.loadable is not None:
        found |= {(type(row.record), str(_id(row.record))): None for row in outcome.loadable.rows}
    return list(found)


def _belongs(collection: Collection, wanted: _ChangedDocument, row: Record) -> bool:
    """Return whether a stored row belongs to this document: it was created on PostgreSQL, or is of its source.

    Which trigger a schedule states is decided among all of its triggers.
    """
    source = getattr(row, "source", None)
    if isinstance(row, Trigger) and _states_triggers(collection):
        return False
    if source is None or (isinstance(row, Trigger) and collection.tables[0] is Trigger):
        return True  # found by its id alone; a trigger that a schedule makes has a document of its own, too
    return bool(
        source.rpartition("/")[2] == collection.name and row.source_id == identity.source_id(wanted.key)  # type: ignore[attr-defined] # it has a source
    )


def _states_triggers(collection: Collection) -> bool:
    """Return whether documents of a collection state a trigger besides their own row."""
    return collection is PLACES[Schedule][0].collection


def current_outcomes(
    sessions: Sessions, context: Context, collection: Collection, keys: Sequence[Any]
) -> dict[bytes, DocumentOutcome]:
    """Return the rows that the existing documents decode to now, by their ``_id``."""
    batches: Iterable[Any] = sessions.source[sessions.name_of(collection.name)].find_raw_batches(
        {"_id": {"$in": list(keys)}}
    )
    return {
        bson.encode({"": documents.decode(outcome.raw)["_id"]}): outcome
        for outcome in transform_documents(collection, context, sessions.resolver, b"".join(batches))
    }


def stored_rows(target: Connection, record: type[RecordT], ids: Sequence[str]) -> dict[str, RecordT]:
    """Return the stored rows with these ids, as records, by the text of their id."""
    kind = codec(record)
    keys: list[UUID | int] = [int(one) if one.isdigit() and len(one) < 20 else UUID(one) for one in ids]  # noqa: PLR2004 - digits of a bigint
    rows = (record(**kind.read(row)) for row in fetch(target, record.table, kind, keys).values())
    # If rows of several tenants have one id, the row of a document wins: no row created here replaces that document.
    return {str(_id(row)): row for row in sorted(rows, key=lambda row: getattr(row, "source", None) is not None)}


def _with_source(collection: Collection, key: object, row: Record) -> Record:
    """Return a row created on PostgreSQL as a row of its document, which is how the profile encodes it."""
    own = names.source(collection.name)
    if isinstance(row, SourcedRecord) and (row.source is None or (isinstance(row, Trigger) and row.source != own)):
        return msgspec.structs.replace(row, source=names.source(collection.name), source_id=identity.source_id(key))
    return row


def _encode_document(
    collection: Collection, context: Context, outcome: DocumentOutcome | None, stored: Rows
) -> tuple[Document | None, tuple[tuple[str, str], ...]]:
    """Return the document of the stored rows, None if its owner is deleted, and the columns that it cannot carry."""
    if not any(type(row) is collection.tables[0] for row in stored):
        return None, ()
    if outcome is None:
        document = rebuild(collection, stored)
        every = {(type(row), str(_id(row))): set(codec(type(row)).columns) - PROVENANCE for row in stored}
        return document, _lost_columns(collection, context, document, stored, every)
    if outcome.decoded is None or outcome.loadable is None:
        raise ReverseSyncError(f"a document of {collection.name} has rows, and cannot be decoded any more")
    document, changed = patched(collection, outcome, stored)
    return document, _lost_columns(collection, context, document, stored, changed)


def patched(
    collection: Collection, outcome: DocumentOutcome, stored: Rows
) -> tuple[Document, Mapping[tuple[type[Record], str], set[str]]]:
    """Return a document with the fields replaced that follow from changed columns, and the columns of each row."""
    assert outcome.decoded is not None  # noqa: S101 - the caller has seen to it
    assert outcome.loadable is not None  # noqa: S101 - as above
    made = {(type(row.record), str(_id(row.record))): row for row in outcome.loadable.rows}
    read = {(type(row), str(_id(row))): row for row in outcome.decoded.rows}
    now: list[Record] = []
    changed: dict[tuple[type[Record], str], set[str]] = {}
    for row in stored:
        place = (type(row), str(_id(row)))
        if place not in made:
            now.append(row)
            changed[place] = set(codec(type(row)).columns) - PROVENANCE
            continue
        kind = codec(type(row))
        head, tail = kind.serialize(row)
        changed[place] = set(kind.differing((made[place].head, made[place].tail), head + tail)) - PROVENANCE
        now.append(msgspec.structs.replace(read[place], **{name: getattr(row, name) for name in changed[place]}))
    document = dict(outcome.decoded.document)
    _patch(document, collection.encode(outcome.decoded.rows), collection.encode(tuple(now)))
    return document, changed


def _patch(document: Document, before: Document, after: Document) -> None:
    """Replace the fields that differ; of documents inside the document, only the members that differ."""
    for name in dict.fromkeys([*before, *after]):
        old, new, held = before.get(name), after.get(name), document.get(name)
        if isinstance(old, dict) and isinstance(held, dict) and (isinstance(new, dict) or name not in after):
            document[name] = inner = dict(held)
            _patch(inner, old, new or {})
            if not inner and name not in after:
                del document[name]
        elif name not in after:
            document.pop(name, None)
        elif name not in before or documents.encode({"": old}) != documents.encode({"": new}):
            document[name] = new


def _lost_columns(
    collection: Collection,
    context: Context,
    document: Document,
    stored: Rows,
    changed: Mapping[tuple[type[Record], str], set[str]],
) -> tuple[tuple[str, str], ...]:
    """Return the changed columns that the document does not give back when it is decoded again."""
    if not any(changed.values()):
        return ()
    try:
        read = collection.decode(documents.decode(documents.encode(document)), context).rows
    except (Rejected, Skipped):
        return tuple(sorted({(record.table, "*") for record, _ in changed}))
    there = {(type(row), str(_id(row))): row for row in read}
    lost = set()
    for row in stored:
        place = (type(row), str(_id(row)))
        if place not in there:
            continue
        stated = isinstance(row, Trigger) and _states_triggers(collection)
        if stated and row.timezone is None:  # type: ignore[attr-defined] # a trigger
            row = msgspec.structs.replace(row, timezone=there[place].timezone)  # type: ignore[attr-defined] # noqa: PLW2901 - none is UTC
        kind = codec(type(row))
        head, tail = kind.serialize(row)
        (again,) = serialize_rows((there[place],))
        differing = kind.differing((again.head, again.tail), head + tail)
        lost |= {
            (row.table, name)
            for name in differing
            if name in changed.get(place, ()) and not (stated and name in _RECOMPUTED)
        }
    return tuple(sorted(lost))


def _with_source_references(sessions: Sessions, writes: Sequence[DocumentWrite]) -> list[DocumentWrite]:
    """Spell references to documents of the old application as it does: by their ``_id``, not by our own form of it."""
    spelled: dict[str, Any] = {}
    for record, places in PLACES.items():
        if not issubclass(record, SourcedRecord):
            continue
        found = {
            text: UUID(text[len(prefix) :])
            for write in writes
            for text in _texts(write.document)
            for prefix in places[0].prefixes
            if prefix and re.fullmatch(f"{re.escape(prefix)}[0-9a-f]{{32}}", text)
        }
        rows = stored_rows(sessions.target, record, [str(one) for one in found.values()]) if found else {}
        for text, identifier in found.items():
            row = rows.get(str(identifier))
            if isinstance(row, SourcedRecord) and row.source == names.source(places[0].name) and row.source_id:
                # otherwise its document is of another collection, and none has that text as its `_id`
                spelled[text] = identity.parse_source_id(row.source_id)
    if not spelled:
        return list(writes)
    return [
        msgspec.structs.replace(write, document=_replaced(write.document, spelled) if write.document else None)
        for write in writes
    ]


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name != "_id":
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _replaced(value: Any, spelled: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any BSON
    if isinstance(value, str):
        return spelled.get(value, value)
    if isinstance(value, dict):
        return {name: inner if name in ("_id", "id") else _replaced(inner, spelled) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, spelled) for inner in value]
    return value


def _id(row: Record) -> UUID | int:
    identifier: UUID | int = row.id  # type: ignore[attr-defined] # every table has one
    return identifier
