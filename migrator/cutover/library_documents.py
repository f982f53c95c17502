"""Encoding rows of a library's tables as the documents that the same library reads in MongoDB.

Rows and documents are one to one. A row that came from a document changes that document: only the fields that its
changed columns make are replaced (``reverse_encoding.patched``), so that its remainder stays. A row that the library
made becomes a new document. Its origin is recorded before the document is written. A row that the library has
deleted changes nothing here: its document is removed by a rollback, after its content was exported.

The ``_id`` of a new document is the one with which its row has the same key, or, where the table makes the key, the
same unique column. Where there is none, as for a UUID of the library's where documents have ObjectIds, it is a new one:
after a rollback the row of the copy has the key that follows from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha1
from typing import Any, Final
from uuid import UUID

import bson
import msgspec
from bson.objectid import ObjectId
from pymongo.collection import Collection as MongoCollection

from migrator.cutover.library_tables import LibraryTables, NotedRow
from migrator.cutover.outbox import ChangedRow
from migrator.cutover.reverse_encoding import (
    ALL_COLUMNS,
    PROVENANCE,
    DocumentWrite,
    LostRow,
    ReverseSyncError,
    current_documents,
    patched,
    stored_rows,
)
from migrator.errors import ConfigurationError, RefusedError
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import SourceDocument, rebuild, serialize_rows
from migrator.records import Record, SourcedRecord
from migrator.sources import write_back
from migrator.sources.profile import Collection, Context, Document, Profile
from migrator.sources.tenants import NO_TENANT
from migrator.targets import load_target
from migrator.targets.model import Table
from migrator.values import identity
from migrator.values.copy_format import codec

_BEFORE_OBJECT_ID: Final = "00000000"
"""The first digits of a UUID that holds an ObjectId."""
_UUID_DIGITS: Final = 32
_UUID_BYTES: Final = 16
_OTHER_ID: Final = "0123456789abcdef01234567"
"""Any ``_id``, to find out which columns follow from one."""


def faults(profile: Profile) -> list[str]:
    """Return why rows of a library cannot be carried back to documents of a source, in words; none if they can."""
    reasons = [one for one in (profile.read_only, load_target(profile.target).one_way) if one]
    for collection in profile.collections:
        if len(collection.tables) > 1:
            reasons.append(f"a document of {collection.name} makes rows of several tables")
        if collection.references:
            reasons.append(f"rows of {collection.name} refer to those of other documents")
    reasons += ["some rows are made of many documents together"] * bool(profile.closing)
    return reasons


NOT_WRITTEN_BACK: Final = "rows of the library cannot be carried back to MongoDB"


def unlike_ids(sessions: Sessions, context: Context) -> list[str]:
    """Return, in words, the collections whose documents have ObjectIds, and new ones would get a text."""
    reasons = []
    for collection in sessions.profile.collections:
        place = sessions.source[sessions.name_of(collection.name)]
        document = None if collection.object_ids else place.find_one({"_id": {"$type": "objectId"}})
        if document is not None and write_back.decoded(collection, context, document):
            reasons.append(
                f"documents of {collection.name} have ObjectIds, and those of new rows would have texts: set object_ids"
                " = true in the mapping"
            )
    return reasons


def require_written_back(profile: Profile) -> None:
    """Raise ``RefusedError`` where ``faults`` names something: the mapping is not that of the cutover any more."""
    if reasons := faults(profile):
        raise RefusedError(
            f"{NOT_WRITTEN_BACK}: {'; '.join(reasons)}. No cutover is made with such a mapping: set [source] and"
            " [target] as they were for the cutover"
        )


def encode_library_rows(
    sessions: Sessions, context: Context, tables: LibraryTables, noted: Sequence[ChangedRow]
) -> list[DocumentWrite]:
    """Return the documents that MongoDB must hold for the noted rows, as the rows are now; each document once.

    Raises ``ReverseSyncError`` for a document that exists and cannot be decoded any more, ``RefusedError`` for a source
    whose documents make rows of several tables, and ``ConfigurationError`` if a library is missing that reads rows.
    """
    require_written_back(sessions.profile)
    writes: list[DocumentWrite] = []
    keys: dict[str, list[str]] = {}
    for row in noted:
        keys.setdefault(row.table, []).append(row.row_id)
    for name, collections in tables.collections.items():
        if name in keys:
            encoder = _Encoder(sessions, context, tables, collections)
            writes += encoder.encode(sorted(set(keys[name])))
    return writes


class _Encoder:
    """Encodes rows of one table."""

    def __init__(
        self, sessions: Sessions, context: Context, tables: LibraryTables, collections: Sequence[Collection]
    ) -> None:
        self._sessions, self._context, self._tables, self._collections = sessions, context, tables, collections
        self._record = collections[0].tables[0]
        self._table: Table = tables.table(self._record)
        self._key_members = frozenset(map(self._table.member_of, self._table.key))
        named = next(iter(self._table.unique), ()) if self._table.made else self._table.key
        self._naming_members = tuple(map(self._table.member_of, named))
        """By these a row and a document are the same: the key, or what is unique where the table makes the key."""
        self._writes: list[DocumentWrite] = []

    def encode(self, keys: Sequence[str]) -> list[DocumentWrite]:
        """Return the writes for the rows with these keys."""
        target = self._sessions.target
        rows = [row for row in self._tables.noted_rows(target, self._table, keys) if row.exists]
        new = [row.key for row in rows if row.row_id is None]
        if new:
            with target.transaction():
                self._adopt(new)
            rows = [row for row in self._tables.noted_rows(target, self._table, keys) if row.exists]
        named = [row for row in rows if row.source is not None]
        by_source = {self._sessions.profile.source_of(one.name): one for one in self._collections}
        if unknown := {row.source for row in named} - by_source.keys():
            raise ReverseSyncError(f"rows of {self._table.name} came from {', '.join(sorted(map(str, unknown)))}")
        for source, collection in by_source.items():
            self._encode_of(collection, [row for row in named if row.source == source])
        return self._writes

    def _encode_of(self, collection: Collection, rows: Sequence[NotedRow]) -> None:
        """Add the writes for rows that have a document, or will have."""
        if not rows:
            return
        ids = {row.row_id: row for row in rows}
        records = stored_rows(self._sessions.target, self._record, [(str(row_id), NO_TENANT) for row_id in ids])
        keys = [identity.parse_source_id(row.source_id or "") for row in rows]
        current = current_documents(self._sessions, self._context, collection, keys)
        for record in records.values():
            assert isinstance(record, SourcedRecord)  # noqa: S101 - every record of a native target is one
            key = identity.parse_source_id(record.source_id or "")
            document, lost = self._document(collection, current.get(bson.encode({"": key})), record)
            self._writes.append(
                DocumentWrite(
                    collection.name,
                    key,
                    document,
                    (LostRow(self._record.table, ids[record.id].key, NO_TENANT, lost),) if lost else (),
                    kept=document is None,
                    tenant=NO_TENANT,
                )
            )

    def _document(
        self, collection: Collection, current: SourceDocument | None, row: SourcedRecord
    ) -> tuple[Document | None, tuple[str, ...]]:
        """Return the document of a row, and the columns for which it has no place.

        None, and ``*``, for a row of which no document can be made that is read again.
        """
        if current is not None and not current.serialized:
            raise ReverseSyncError(f"a document of {collection.name} has a row, and cannot be decoded any more")
        try:
            if current is None:
                document = rebuild(collection, (row,))
            else:
                document, _ = patched(current, (_with_id_of(row, current),))
        except ConfigurationError:
            raise
        except Exception:  # noqa: BLE001 - functions of any profile; a row that they cannot take costs that row alone
            return None, (ALL_COLUMNS,)
        read = write_back.decoded(collection, self._context, document)
        if not read:
            return None, (ALL_COLUMNS,)
        return document, self._differing(collection, row, read[0], document)

    def _differing(self, collection: Collection, row: Record, read: Record, document: Document) -> tuple[str, ...]:
        """Return the columns that a document does not give back.

        What follows from its ``_id`` is none of them, such as the key and the time of creation: a new document has a
        new ``_id``, and after a rollback the row of the copy has what follows from that.
        """
        differing = {name for name in self._unlike(row, read) if not _says_the_same(collection, name, row, read)}
        if differing and collection.object_ids:
            other = write_back.decoded(collection, self._context, document | {"_id": ObjectId(_OTHER_ID)})
            differing -= self._unlike(read, other[0]) if other else set()
        return tuple(sorted(differing))

    def _unlike(self, row: Record, other: Record) -> set[str]:
        """Return the columns in which two rows differ, besides key and origin."""
        kind = codec(self._record)
        head, tail = kind.serialize(row)
        (again,) = serialize_rows((other,))
        return set(kind.differing((again.head, again.tail), head + tail)) - PROVENANCE - self._key_members - {"id"}

    def _adopt(self, keys: Sequence[str]) -> None:
        """Record, for rows that the library made, the documents that they become."""
        target = self._sessions.target
        collection = self._home()
        provisional = self._tables.adopt(target, self._table, keys)
        records = stored_rows(target, self._record, [(str(row_id), NO_TENANT) for row_id in provisional.values()])
        origins: dict[str, tuple[UUID, str, str]] = {}
        for key, row_id in provisional.items():
            record: Any = records[str(row_id), NO_TENANT]
            origin = self._origin(collection, record, key) if collection.new_documents else None
            if origin is not None:
                origins[key] = origin
        taken = self._taken(collection, origins)
        for key, row_id in provisional.items():
            if key in origins and origins[key][2] not in taken:
                self._tables.complete_origin(target, self._table, row_id, origins[key])
                continue
            self._tables.reject(target, self._table, row_id)
            lost = LostRow(self._record.table, key, NO_TENANT, (ALL_COLUMNS,))
            self._writes.append(DocumentWrite(collection.name, key, None, (lost,), kept=True, tenant=NO_TENANT))

    def _home(self) -> Collection:
        """Return the collection for new documents: the first that has documents, else the first."""
        source, name_of = self._sessions.source, self._sessions.name_of
        used = (one for one in self._collections[1:] and self._collections if _is_used(source[name_of(one.name)]))
        return next(used, self._collections[0])

    def _origin(self, collection: Collection, row: SourcedRecord, key: str) -> tuple[UUID, str, str] | None:
        """Return row id, source and source id of the document that a row becomes; None if it becomes none."""
        source = self._sessions.profile.source_of(collection.name)
        new = key if self._table.made == "row" and not collection.object_ids else _new_id(collection, row, key)
        for _id in [*self._ids_like(collection, row, key), new]:
            sourced = msgspec.structs.replace(row, source=source, source_id=identity.source_id(_id))
            document = write_back.encoded(collection, (sourced,))
            read: Any = () if document is None else write_back.decoded(collection, self._context, document)
            if read and (_id == new or self._is_named_as(row, read[0])):
                return read[0].id, source, identity.source_id(_id)
        return None

    def _ids_like(self, collection: Collection, row: Record, key: str) -> list[Any]:
        """Return the values that the ``_id`` of the document may have with which a row is the same."""
        if not self._table.made:
            return _same_ids(collection, key)
        if len(self._naming_members) != 1:
            return []
        return _same_ids(collection, str(getattr(row, self._naming_members[0])))

    def _is_named_as(self, row: Record, other: Record) -> bool:
        return all(getattr(row, name) == getattr(other, name, None) for name in self._naming_members)

    def _taken(self, collection: Collection, origins: Mapping[str, tuple[UUID, str, str]]) -> set[str]:
        """Return the source ids of those new documents whose place a document has that was never copied."""
        place = self._sessions.source[self._sessions.name_of(collection.name)]
        wanted = [identity.parse_source_id(source_id) for _, _, source_id in origins.values()]
        return set(map(identity.source_id, _ids(place.find({"_id": {"$in": wanted}}, {"_id": 1}))))


def _says_the_same(collection: Collection, column: str, row: Record, other: Record) -> bool:
    """Whether a column of two rows says the same in another spelling, such as a pickle with a memo and one without."""
    values = getattr(row, column), getattr(other, column)
    meaning = collection.meanings.get(column)
    if meaning is None or None in values:
        return False
    try:
        left, right = map(meaning, values)
    except Exception:  # noqa: BLE001 - of bytes of which nothing is known
        return False
    return bool(left == right)


def _with_id_of(row: SourcedRecord, current: SourceDocument) -> SourcedRecord:
    """Return a row with the id that its document gives it, so that both are compared."""
    made: Any = current.serialized[0].record
    return msgspec.structs.replace(row, id=made.id)


def _same_ids(collection: Collection, key: str) -> list[Any]:
    """Return the values that the ``_id`` of a document may have whose row has a key."""
    digits = key.replace("-", "").lower()
    if collection.object_ids:
        held = digits.removeprefix(_BEFORE_OBJECT_ID)
        return [ObjectId(held)] if len(digits) == _UUID_DIGITS and ObjectId.is_valid(held) else []
    return [key, *([int(key)] if key.isdecimal() else [])]


def _new_id(collection: Collection, row: Record, key: str) -> Any:  # noqa: ANN401 - any BSON
    """Return the ``_id`` of a new document: it follows from the key of the row, and from when the row was made."""
    digest = sha1(f"{row.table}\0{key}".encode(), usedforsecurity=False).digest()
    if not collection.object_ids:
        return digest.hex()
    return identity.object_id(UUID(bytes=digest[:_UUID_BYTES]), getattr(row, "created_at", None))


def _is_used(place: MongoCollection[Any]) -> bool:
    return place.find_one({}, {"_id": 1}) is not None


def _ids(found: Iterable[Mapping[str, Any]]) -> Iterable[Any]:
    return (document["_id"] for document in found)
