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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar
from uuid import UUID

import bson
import msgspec
from bson.errors import InvalidId
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.cutover.outbox import ChangedRow, RowKey
from migrator.errors import MigratorError
from migrator.pipeline.load import fetch
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import SourceDocument, rebuild, serialize_rows, transform_documents
from migrator.records import ALL, Record, Schedule, SourcedRecord, Trigger
from migrator.sources import write_back
from migrator.sources.profile import Collection, Context, Document, Profile, Rejected, Rows, Skipped
from migrator.sources.store_documents import names
from migrator.sources.store_documents.own import COPY_OF
from migrator.sources.store_documents.schedules import TOOL_TRIGGER
from migrator.sources.store_documents.write_back import stated_trigger
from migrator.states import SCHEDULE_FIRING
from migrator.store.mongo.places import PLACES, StoreCollection
from migrator.store.validation import GLOBAL
from migrator.values import document as documents
from migrator.values import identity
from migrator.values.copy_format import codec

PROVENANCE: Final = frozenset({"source", "source_id", "extra"})
"""Columns that name the origin of a row."""
RECORDS: Final = {record.table: record for record in ALL}
_RECOMPUTED: Final = frozenset({"next_fire_at", "source_spec"})
"""Columns of a trigger that each side computes for itself from the schedule's rule."""

RecordT = TypeVar("RecordT", bound=Record)
DocumentKey: TypeAlias = tuple[str, bytes, str]
"""A document: its collection, its ``_id`` as BSON, and the tenant of the rows that want it."""
StoredKey: TypeAlias = tuple[str, str, str]
"""A row: its table, its id as text, and its tenant."""


ALL_COLUMNS: Final = "*"
"""In place of a column: all of the row."""


PLACE_TAKEN: Final = "would not fire: a document of another tenant has its _id"


BecomesOf: TypeAlias = Literal["stated", "disabled", "without a rule", "unchanged", "absent"]
"""What becomes of the document of a schedule: it states another trigger of it; it keeps its former rule, and is
disabled; it has no rule, as before; it stays as it was, and fires by its former rule; there is none."""


class LostRow(msgspec.Struct, frozen=True):
    """A stored row that its document does not give back."""

    table: str
    row_id: str
    tenant: str
    columns: tuple[str, ...]
    """What was written since and has no place in the document; ``*``: no document has the row."""


class UnstatedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that its document does not state as PostgreSQL fires it."""

    schedule_id: str
    tenant: str
    reasons: tuple[str, ...]
    """Predicates of the schedule (``write_back.unstated``)."""
    document: BecomesOf
    fires: bool
    """PostgreSQL fires it: it is neither paused nor over."""


class DocumentWrite(msgspec.Struct, frozen=True):
    """What MongoDB must hold under ``key`` in ``collection``: ``document``, or no document if it is None."""

    collection: str
    key: Any
    document: Document | None
    lost: tuple[LostRow, ...] = ()
    kept: bool = False
    """MongoDB stays as it is, with or without a document: what was written since has no place in one at all."""
    unstated: UnstatedSchedule | None = None
    held: tuple[RowKey, ...] = ()
    """Runs that were created in PostgreSQL and are in the document of their schedule."""
    tenant: str = ""
    """Of the rows."""
    whole: tuple[LostRow, ...] = ()
    """All of the rows, should another tenant's document take this place."""


class ReverseSyncError(MigratorError):
    """A row cannot become a document, so the rollback is not complete."""


class WantedDocument(msgspec.Struct):
    """A document to be encoded for the rows of one tenant."""

    collection: Collection
    key: Any
    tenant: str
    rows: dict[StoredKey, ChangedRow] = msgspec.field(default_factory=dict)
    """The rows that were noted for it."""
    schedule: Schedule | None = None
    """The schedule whose document it is, if the document may also hold a trigger and a run."""


class WantedDocuments:
    """The documents to be encoded for one batch of notes; each once for each tenant whose rows want it."""

    def __init__(self) -> None:
        self._by_key: dict[DocumentKey, WantedDocument] = {}

    def add(
        self,
        collection: Collection,
        key: Any,  # noqa: ANN401 - any BSON
        tenant: str,
        noted: ChangedRow | None = None,
    ) -> WantedDocument:
        """Add a document, and the row that was noted for it."""
        place = (collection.name, bson.encode({"": key}), tenant)
        wanted = self._by_key.setdefault(place, WantedDocument(collection, key, tenant))
        if noted is not None:
            wanted.rows[noted.table, *noted.key] = noted
        return wanted

    def by_collection(self) -> Iterator[list[WantedDocument]]:
        """Yield the documents of each collection."""
        for name in dict.fromkeys(name for name, _, _ in self._by_key):
            yield [one for one in self._by_key.values() if one.collection.name == name]


def collection_of(profile: Profile, noted: ChangedRow) -> Collection:
    """Return the collection of a row that came from a document; ``ReverseSyncError`` if the profile lacks it."""
    source, _, name = (noted.source or "").partition("/")
    collections = profile.by_name()
    if source != profile.name or name not in collections:
        raise ReverseSyncError(f"a row of {noted.table} is of {noted.source}, which profile {profile.name} lacks")
    return collections[name]


def with_current_rows(
    sessions: Sessions, context: Context, wanted: Sequence[WantedDocument]
) -> Iterator[tuple[WantedDocument, SourceDocument | None, Rows]]:
    """Yield each document of one collection with what it is now (None: it does not exist), and with its stored rows.

    Those are the rows of its tenant that it would make now, and those that were noted for it, its owner first.
    """
    collection = wanted[0].collection
    sources = current_documents(sessions, context, collection, [one.key for one in wanted])
    pairs: list[tuple[WantedDocument, SourceDocument | None, list[tuple[type[Record], RowKey]]]] = []
    keys: dict[type[Record], set[RowKey]] = {record: set() for record in collection.tables}
    for document in wanted:
        current = sources.get(bson.encode({"": document.key}))
        named = {(RECORDS[noted.table], noted.key): None for noted in document.rows.values()}
        if current is not None:
            named |= {(type(row.record), row_key(row.record)): None for row in current.serialized}
        for record, key in named:
            keys[record].add(key)
        pairs.append((document, current, sorted(named, key=lambda pair: collection.tables.index(pair[0]))))
    stored = {record: stored_rows(sessions.target, record, sorted(each)) for record, each in keys.items()}
    for document, current, ordered in pairs:
        rows = (stored[record][key] for record, key in ordered if key in stored[record] and key[1] == document.tenant)
        yield document, current, tuple(rows)


def encode_changes(sessions: Sessions, context: Context, noted: Sequence[ChangedRow]) -> list[DocumentWrite]:
    """Return the documents that MongoDB must hold for the noted rows, as the rows are now; each document once.

    Raises ``ReverseSyncError`` for a row that has no document in this profile.
    """
    rules = _StatedTriggers(sessions, noted)
    noted = rules.noted
    created = _rows_without_source(sessions, noted)
    wanted = WantedDocuments()
    for one in noted:
        for collection, key in _documents_of(sessions, one, created):
            wanted.add(collection, key, one.tenant_id, one)
    writes: list[DocumentWrite] = []
    for some in wanted.by_collection():
        writes += _collection_writes(sessions, context, some, rules)
    return _with_source_references(sessions, of_one_tenant(writes))


def is_of_another(current: SourceDocument | None, tenant: str) -> bool:
    """Return whether a document exists and is not this tenant's: no row of the tenant changes or deletes it."""
    if current is None or not current.rows:
        return False
    return bool(current.rows[0].tenant_id != tenant)  # type: ignore[attr-defined] # every table has one


def refused(collection: Collection, key: Any, rows: Rows, triggers: Iterable[Trigger] = ()) -> DocumentWrite:  # noqa: ANN401 - any BSON
    """Return that a document stays as it is, although rows of another tenant want it: these have no place."""
    owner = rows[0]
    unstated = None
    if isinstance(owner, Schedule):
        unstated = UnstatedSchedule(
            schedule_id=str(owner.id),
            tenant=owner.tenant_id,
            reasons=(PLACE_TAKEN,),
            document="absent",
            fires=fires_now(owner, triggers),
        )
    tenant = row_key(owner)[1]
    return DocumentWrite(collection.name, key, None, whole(rows), kept=True, unstated=unstated, tenant=tenant)


def of_one_tenant(writes: Sequence[DocumentWrite]) -> list[DocumentWrite]:
    """Let one tenant write a document that does not exist yet; the others that want its ``_id`` have no place."""
    first: dict[tuple[str, bytes], DocumentWrite] = {}
    for write in sorted(writes, key=lambda one: one.document is None):
        if not write.kept:
            first.setdefault((write.collection, bson.encode({"": write.key})), write)
    return [
        write
        if write.kept or first[write.collection, bson.encode({"": write.key})] is write
        else msgspec.structs.replace(write, document=None, kept=True, lost=write.whole or write.lost)
        for write in writes
    ]


def triggers_by_schedule(target: Connection, keys: Iterable[RowKey]) -> dict[tuple[str, UUID], list[Trigger]]:
    """Return the stored triggers with these keys, by the tenant and the id of their schedule."""
    grouped: dict[tuple[str, UUID], list[Trigger]] = {}
    for row in stored_rows(target, Trigger, keys).values():
        grouped.setdefault((row.tenant_id, row.schedule_id), []).append(row)
    return grouped


def fires_now(schedule: Schedule, triggers: Iterable[Trigger]) -> bool:
    """Whether PostgreSQL fires a schedule with these triggers."""
    if not schedule.enabled or schedule.status not in SCHEDULE_FIRING:
        return False
    return any(trigger.enabled and write_back.may_fire(trigger) for trigger in triggers)


def whole(rows: Iterable[Record]) -> tuple[LostRow, ...]:
    """Return stored rows as rows that no document has."""
    return tuple(lost_row(row, (ALL_COLUMNS,)) for row in rows)


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
        stored = stored_rows(sessions.target, Trigger, [one.key for one in triggers])
        former = _schedules_of_deleted(sessions, [one for one in triggers if one.key not in stored])
        keys = {(UUID(one.row_id), one.tenant_id) for one in (*noted, *former) if one.table == Schedule.table}
        keys |= {(row.schedule_id, row.tenant_id) for row in stored.values()}
        changed: dict[StoredKey, ChangedRow] = {(one.table, *one.key): one for one in noted}
        for one in (*_rows_where(sessions, Schedule, "id", keys), *_rows_where(sessions, Trigger, "schedule_id", keys)):
            changed.setdefault((one.table, *one.key), one)
        self.noted = list(changed.values())
        named = [(row_id, tenant) for table, row_id, tenant in changed if table == Trigger.table]
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


def _rows_where(
    sessions: Sessions, record: type[Record], column: str, keys: Iterable[tuple[UUID, str]]
) -> list[ChangedRow]:
    """Return the rows of a table with one of these values and tenants, as if they had been noted."""
    asked = list(keys)
    rows = sessions.target.execute(
        sql.SQL(
            "SELECT id::text, tenant_id, source, source_id FROM {} WHERE ({}, tenant_id) IN"
            " (SELECT * FROM unnest(%s::uuid[], %s::text[])) ORDER BY id, tenant_id"
        ).format(sql.Identifier("scheduler", record.table), sql.Identifier(column)),
        ([identifier for identifier, _ in asked], [tenant for _, tenant in asked]),
    )
    return [ChangedRow(record.table, *row) for row in rows]


def _schedules_of_deleted(sessions: Sessions, gone: Sequence[ChangedRow]) -> list[ChangedRow]:
    """Return the schedules whose documents still state triggers that do not exist any more."""
    if not gone:
        return []
    own = names.source(names.SCHEDULES)
    texts = [f"{names.TRIGGER_PREFIX}{UUID(one.row_id).hex}" for one in gone]
    stating = sessions.source[sessions.name_of(names.SCHEDULES)].find(
        {f"{TOOL_TRIGGER}.id": {"$in": texts}}, {"_id": 1}
    )
    keys = [identity.source_id(one["_id"]) for one in stating]
    keys += [one.source_id for one in gone if one.source == own and one.source_id is not None]
    rows = sessions.target.execute(
        "SELECT id::text, tenant_id, source, source_id FROM scheduler.schedules WHERE tenant_id = ANY(%s) AND ("
        "source = %s AND source_id = ANY(%s) OR source IS NULL AND %s || replace(id::text, '-', '') = ANY(%s))",
        ([one.tenant_id for one in gone], own, keys, names.SCHEDULE_PREFIX, keys),
    )
    return [ChangedRow(Schedule.table, *row) for row in rows]


def _rows_without_source(sessions: Sessions, noted: Iterable[ChangedRow]) -> dict[StoredKey, Record]:
    """Return the rows, as they are stored, without a source."""
    asked: dict[str, list[RowKey]] = {}
    for one in noted:
        if one.source is None:
            asked.setdefault(one.table, []).append(one.key)
    return {
        (table, *key): row
        for table, keys in asked.items()
        for key, row in stored_rows(sessions.target, RECORDS[table], keys).items()
    }


def _documents_of(
    sessions: Sessions, noted: ChangedRow, created: Mapping[StoredKey, Record]
) -> Iterable[tuple[Collection, Any]]:
    """Yield the collection and the ``_id`` of each document to which a row belongs.

    The trigger that a schedule's document states has two: the document of the schedule, whose rule it is, and a
    document of its own, which holds its next fire.
    """
    collections = sessions.profile.by_name()
    record = RECORDS[noted.table]
    if noted.source is not None:
        collection = collection_of(sessions.profile, noted)
        yield collection, identity.parse_source_id(noted.source_id or "")
        if record is Trigger and collection.tables[0] is not Trigger and _place_of(collections, Trigger):
            yield collections[names.TRIGGERS], f"{names.TRIGGER_PREFIX}{UUID(noted.row_id).hex}"
        return
    place = _place_of(collections, record)
    if place is None:
        raise ReverseSyncError(f"profile {sessions.profile.name} has no collection for new rows of {noted.table}")
    collection = collections[place.name]
    row = created.get((noted.table, *noted.key))
    if issubclass(record, SourcedRecord):
        yield collection, f"{place.prefixes[0]}{UUID(noted.row_id).hex}"
    elif row is not None:
        yield collection, rebuild(collection, (row,))["_id"]
    else:
        yield collection, _deleted_key(sessions, collection, noted)


def _place_of(collections: Mapping[str, Collection], record: type[Record]) -> StoreCollection | None:
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
    sessions: Sessions, context: Context, wanted: Sequence[WantedDocument], rules: _StatedTriggers
) -> list[DocumentWrite]:
    collection = wanted[0].collection
    if collection.tables[0] is Trigger:
        context = msgspec.structs.replace(context, of_store=True)  # also those that are copies
    writes = []
    for changed, current, owned in with_current_rows(sessions, context, wanted):
        if is_of_another(current, changed.tenant):
            writes += [refused(collection, changed.key, owned)] if owned else []
            continue
        own = tuple(row for row in owned if _belongs(collection, changed, row))
        rows = tuple(_with_source(collection, changed.key, row) for row in (*own, *rules.of(own)))
        document, lost = _encode_document(collection, context, current, rows)
        if document is not None and collection.tables[0] is Trigger:
            stated = any(map(rules.states, rows))
            if stated and current is None and rows[0].next_fire_at is None:  # type: ignore[attr-defined] # a trigger
                continue  # there is nothing else to state
            document = _with_copy_mark(document, copy=stated)
        write = DocumentWrite(collection.name, changed.key, document, lost, tenant=changed.tenant, whole=whole(owned))
        writes.append(write)
    return writes


def _with_copy_mark(document: Document, *, copy: bool) -> Document:
    """Return the document of a trigger, marked if it is a copy of its schedule's rule."""
    plain = {name: value for name, value in document.items() if name != COPY_OF}
    return plain | {COPY_OF: names.SCHEDULES} if copy else plain


def _belongs(collection: Collection, wanted: WantedDocument, row: Record) -> bool:
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


def current_documents(
    sessions: Sessions, context: Context, collection: Collection, keys: Sequence[Any]
) -> dict[bytes, SourceDocument]:
    """Return the rows that the existing documents decode to now, by their ``_id``."""
    batches: Iterable[Any] = sessions.source[sessions.name_of(collection.name)].find_raw_batches(
        {"_id": {"$in": list(keys)}}
    )
    return {
        bson.encode({"": documents.decode(current.raw)["_id"]}): current
        for current in transform_documents(collection, context, sessions.resolver, b"".join(batches))
    }


def stored_rows(target: Connection, record: type[RecordT], keys: Iterable[RowKey]) -> dict[RowKey, RecordT]:
    """Return the stored rows with these keys, as records; not those of other tenants that have the same ids."""
    kind, asked = codec(record), set(keys)
    ids: list[UUID | int] = [
        int(one) if one.isdigit() and len(one) < 20 else UUID(one)  # noqa: PLR2004 - digits of a bigint
        for one in sorted({identifier for identifier, _ in asked})
    ]
    rows = (record(**kind.read(row)) for row in fetch(target, record, ids).values())
    return {key: row for row in rows if (key := row_key(row)) in asked}


def _with_source(collection: Collection, key: object, row: Record) -> Record:
    """Return a row created on PostgreSQL as a row of its document, which is how the profile encodes it."""
    own = names.source(collection.name)
    if isinstance(row, SourcedRecord) and (row.source is None or (isinstance(row, Trigger) and row.source != own)):
        return msgspec.structs.replace(row, source=names.source(collection.name), source_id=identity.source_id(key))
    return row


def _encode_document(
    collection: Collection, context: Context, current: SourceDocument | None, stored: Rows
) -> tuple[Document | None, tuple[LostRow, ...]]:
    """Return the document of the stored rows, None if its owner is deleted, and the rows that it cannot carry."""
    if not any(type(row) is collection.tables[0] for row in stored):
        return None, ()
    if current is None:
        document = rebuild(collection, stored)
        every = {(type(row), str(_id(row))): set(codec(type(row)).columns) - PROVENANCE for row in stored}
        return document, _lost_columns(collection, context, document, stored, every)
    if not current.serialized:
        raise ReverseSyncError(f"a document of {collection.name} has rows, and cannot be decoded any more")
    document, changed = patched(current, stored)
    return document, _lost_columns(collection, context, document, stored, changed)


def patched(current: SourceDocument, stored: Rows) -> tuple[Document, Mapping[tuple[type[Record], str], set[str]]]:
    """Return a document with the fields replaced that follow from changed columns, and the columns of each row."""
    made = {(type(row.record), str(_id(row.record))): row for row in current.serialized}
    read = {(type(row), str(_id(row))): row for row in current.rows}
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
    document, encode = dict(current.content), current.collection.encode
    _patch(document, encode(current.rows), encode(tuple(now)))
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
) -> tuple[LostRow, ...]:
    """Return the changed rows that the document does not give back when it is decoded again."""
    if not any(changed.values()):
        return ()
    try:
        read = collection.decode(documents.decode(documents.encode(document)), context).rows
    except (Rejected, Skipped):
        return tuple(lost_row(row, (ALL_COLUMNS,)) for row in stored if (type(row), str(_id(row))) in changed)
    read_rows = {(type(row), str(_id(row))): row for row in read}
    lost = []
    for row in stored:
        place = (type(row), str(_id(row)))
        if place not in read_rows:
            continue
        stated = isinstance(row, Trigger) and _states_triggers(collection)
        compared = row
        if stated and row.timezone is None:  # type: ignore[attr-defined] # a trigger
            compared = msgspec.structs.replace(row, timezone=read_rows[place].timezone)  # type: ignore[attr-defined] # none is UTC
        kind = codec(type(row))
        head, tail = kind.serialize(compared)
        (again,) = serialize_rows((read_rows[place],))
        differing = kind.differing((again.head, again.tail), head + tail)
        columns = [
            name for name in differing if name in changed.get(place, ()) and not (stated and name in _RECOMPUTED)
        ]
        if columns:
            lost.append(lost_row(row, columns))
    return tuple(lost)


def lost_row(row: Record, columns: Iterable[str]) -> LostRow:
    """Return a stored row as one that its document does not give back."""
    return LostRow(row.table, *row_key(row), tuple(sorted(columns)))


def _with_source_references(sessions: Sessions, writes: Sequence[DocumentWrite]) -> list[DocumentWrite]:
    """Spell references to documents of the old application as it does: by their ``_id``, not by our own form of it."""
    spelled: dict[tuple[str, str], Any] = {}
    """Text and tenant of a reference to what the old application calls it."""
    for record, places in PLACES.items():
        if not issubclass(record, SourcedRecord):
            continue
        source_ids = {
            (text, write.tenant): UUID(text[len(prefix) :])
            for write in writes
            for text in _texts(write.document)
            for prefix in places[0].prefixes
            if prefix and re.fullmatch(f"{re.escape(prefix)}[0-9a-f]{{32}}", text)
        }
        keys = {(str(one), owner) for (_, tenant), one in source_ids.items() for owner in (tenant, GLOBAL)}
        rows = stored_rows(sessions.target, record, sorted(keys)) if keys else {}
        for (text, tenant), identifier in source_ids.items():
            row = rows.get((str(identifier), tenant)) or rows.get((str(identifier), GLOBAL))
            if isinstance(row, SourcedRecord) and row.source == names.source(places[0].name) and row.source_id:
                # otherwise its document is of another collection, and none has that text as its `_id`
                spelled[text, tenant] = identity.parse_source_id(row.source_id)
    if not spelled:
        return list(writes)
    return [
        msgspec.structs.replace(
            write, document=_replaced(write.document, spelled, write.tenant) if write.document else None
        )
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


def _replaced(value: Any, spelled: Mapping[tuple[str, str], Any], tenant: str) -> Any:  # noqa: ANN401 - any BSON
    if isinstance(value, str):
        return spelled.get((value, tenant), value)
    if isinstance(value, dict):
        return {
            name: inner if name in ("_id", "id") else _replaced(inner, spelled, tenant) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_replaced(inner, spelled, tenant) for inner in value]
    return value


def row_key(row: Record) -> RowKey:
    """Return the key of a row."""
    return str(_id(row)), row.tenant_id  # type: ignore[attr-defined] # every table has one


def _id(row: Record) -> UUID | int:
    identifier: UUID | int = row.id  # type: ignore[attr-defined] # every table has one
    return identifier
