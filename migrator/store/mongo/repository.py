"""What the repositories have in common: documents to records, and records to documents that lose nothing of others.

MongoDB ends a transaction at the first write it refuses, so that what may be refused is looked up before it is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

import msgspec
from bson.errors import BSONError

from migrator.errors import ConflictError, UnknownError, UsageError
from migrator.records.base import Record
from migrator.records.schedule import Schedule
from migrator.sources.profile import Context, Document, Rejected, Skipped
from migrator.store.mongo.places import PLACES, Place, document_of
from migrator.store.mongo.transaction import Transaction
from migrator.store.rules import GLOBAL
from migrator.values import document as documents
from migrator.values import jsonb
from migrator.values.identity import source_id

R = TypeVar("R", bound=Record)
_Other = TypeVar("_Other", bound=Record)
_LARGEST = 16 * 1024 * 1024
_ASIDE = frozenset({"source", "source_id", "extra"})

Sort = Sequence[tuple[str, int]]


class Stored(msgspec.Struct, Generic[R]):
    """A document, and the row it is read as."""

    row: R
    document: Document
    raw: bytes
    place: Place


def read_as(place: Place, raw: bytes, context: Context) -> Any:  # noqa: ANN401 - a ``Stored`` of the place's record
    """Return what a document is read as; none for one that the copy would set aside."""
    try:
        document = documents.decode(raw)
        row = place.collection.decode(document, context).rows[0]
    except (Rejected, Skipped, documents.Undecodable):
        return None
    return Stored(row, document, raw, place)


class Strangers:
    """Documents whose ``_id`` was made by another application, by the id of their row: looked up once per tenant.

    Who else writes such documents while this process runs is found after a restart only.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[UUID, Any]] = {}

    def key(self, transaction: Transaction, place: Place, tenant: str, identity: UUID) -> Any:  # noqa: ANN401 - any BSON
        """Return the ``_id`` of the document of a row, none where there is no such document."""
        known = self._known.get((place.name, tenant))
        if known is None:
            where = {"$and": [place.of_tenants(tenant), place.stranger()]}
            found = transaction.project(place.name, where, ["_id"])
            known = {place.row_id(tenant, one["_id"]): one["_id"] for one in found}
            self._known[place.name, tenant] = known
        return known.get(identity)


class Repository(Generic[R]):
    """The rows of one record, in one session."""

    def __init__(
        self, record: type[R], transaction: Transaction, strangers: Strangers, tenant: str, now: datetime
    ) -> None:
        self._transaction, self._strangers, self._tenant, self._now = transaction, strangers, tenant, now
        self._record = record
        self._places = PLACES[record]
        self._name = self._places[0].name
        self._context = Context(as_of=now, of_store=True)

    def _of(self, record: type[_Other]) -> "Repository[_Other]":
        return Repository(record, self._transaction, self._strangers, self._tenant, self._now)

    def _read(self, place: Place, raw: bytes) -> Stored[R] | None:
        """Return what a document is read as; none for one that the copy would set aside."""
        return cast("Stored[R] | None", read_as(place, raw, self._context))

    def _each(
        self,
        where: Mapping[str, Any],
        *,
        sort: Sort = (),
        shared: bool = False,
        place: Place | None = None,
    ) -> Iterator[Stored[R]]:
        """Yield the tenant's documents that match; with ``shared`` those of ``*`` too, all in one place."""
        place = place or self._places[0]
        tenants = (self._tenant, GLOBAL) if shared else (self._tenant,)
        own = place.of_tenants(*tenants)
        condition = {**own, **where} if not own.keys() & where.keys() else {"$and": [own, where]}
        for raw in self._transaction.find(place.name, condition, sort=sort):
            stored = self._read(place, raw)
            if stored is not None and stored.row.tenant_id in tenants:  # type: ignore[attr-defined] # every table has it
                yield stored

    def _rows(self, where: Mapping[str, Any], limit: int, *, sort: Sort) -> list[R]:
        found: list[R] = []
        for stored in self._each(where, sort=sort):
            found.append(stored.row)
            if len(found) == limit:
                break
        return found

    def _find(self, identity: UUID, *, shared: bool = False) -> Stored[R] | None:
        """Return the document of a row of the tenant, with ``shared`` also of ``*``."""
        tenants = (self._tenant, GLOBAL) if shared else (self._tenant,)
        for place in self._places:
            found = self._among(place, place.keys(identity), identity, tenants)
            if found is not None:
                return found
            for tenant in tenants:
                key = self._strangers.key(self._transaction, place, tenant, identity)
                if key is not None and (found := self._among(place, [key], identity, tenants)) is not None:
                    return found
        return None

    def _among(self, place: Place, keys: Sequence[Any], identity: UUID, tenants: Sequence[str]) -> Stored[R] | None:
        for raw in self._transaction.find(place.name, {"_id": {"$in": list(keys)}}):
            stored = self._read(place, raw)
            row: Any = None if stored is None else stored.row
            if row is not None and row.id == identity and row.tenant_id in tenants:
                return stored
        return None

    def _visible(self, identity: UUID) -> R | None:
        found = self._find(identity, shared=True)
        return None if found is None else found.row

    def _texts(self, record: type[Record], identity: UUID) -> list[str]:
        """Return how documents may spell a reference to a row."""
        place = PLACES[record][0]
        found = self._of(record)._find(identity, shared=True)  # noqa: SLF001 - of the same class
        texts = {f"{prefix}{identity.hex}" for prefix in place.prefixes}
        if found is not None and isinstance(found.document["_id"], str):
            texts.add(found.document["_id"])
        return sorted(texts)

    def _refers(self, record: type[Record], identity: UUID) -> dict[str, Any]:
        """Return the condition on a field that refers to a row."""
        texts = self._texts(record, identity)
        return {"$in": texts}

    def _require(self, record: type[Record], identity: UUID | None, *, shared: bool = False) -> str | None:
        """Return whose row a reference leads to; raises ``UnknownError`` where the tenant cannot see it."""
        if identity is None:
            return None
        found = self._of(record)._find(identity, shared=shared)  # noqa: SLF001 - of the same class
        if found is None or (isinstance(found.row, Schedule) and found.row.deleted_at is not None):
            raise UnknownError(f"a reference to {record.table} leads nowhere")
        tenant: str = found.row.tenant_id  # type: ignore[attr-defined] # every table has it
        return tenant

    def _taken(self, identity: UUID) -> bool:
        """Tell whether any tenant has a row of this id whose document the id finds."""
        return any(
            next(self._transaction.find(place.name, {"_id": {"$in": place.keys(identity)}}), None) is not None
            for place in self._places
        )

    def _new(self, record: R, key: str | None = None) -> tuple[Document, R]:
        """Return the document of a new row, and the row as it will be read; raises ``ConflictError`` for its id."""
        document, row = self._fresh(record, key)
        if self._taken(record.id):  # type: ignore[attr-defined] # every record that comes here has one
            raise ConflictError(f"the id is taken ({self._name})")
        return document, row

    def _fresh(self, record: R, key: str | None = None) -> tuple[Document, R]:
        """Return the same without asking whether the id is taken."""
        document = document_of(record, key)
        return document, self._proved(self._places[0], document, record)

    def _insert(self, record: R, key: str | None = None) -> R:
        document, row = self._new(record, key)
        self._transaction.insert(self._name, [document])
        return row

    def _replace(self, stored: Stored[R], record: R) -> R:
        """Write a row over a document: what the row changes, and nothing else of the document."""
        document, row = self._changed(stored, record)
        self._transaction.replace(stored.place.name, document)
        return row

    def _changed(self, stored: Stored[R], record: R) -> tuple[Document, R]:
        encode = stored.place.collection.encode
        if "source_id" in record.__struct_fields__:
            key = source_id(stored.document["_id"])
            record = msgspec.structs.replace(record, source=stored.row.source, source_id=key)  # type: ignore[attr-defined] # just asked
        before, after = encode((stored.row,)), encode((record,))
        if documents.encode(before) == stored.raw:
            document = after
        else:
            document = dict(stored.document)
            for name in before.keys() | after.keys():
                if name not in after:
                    document.pop(name, None)
                elif name not in before or before[name] != after[name]:
                    document[name] = after[name]
        return document, self._proved(stored.place, document, record)

    def _proved(self, place: Place, document: Document, record: R, aside: frozenset[str] = _ASIDE) -> R:
        """Return the row as it will be read; raises ``UsageError`` where that is not what was given."""
        try:
            raw = documents.encode(document)
            row: Any = place.collection.decode(documents.decode(raw), self._context).rows[0]
        except Rejected as refused:
            raise UsageError(
                f"{record.table}: the document would hold what its profile refuses at {refused.path}: {refused.reason}"
            ) from None
        except (BSONError, OverflowError) as error:
            raise UsageError(f"{record.table}: a value has no place in a document: {type(error).__name__}") from None
        if len(raw) > _LARGEST:
            raise UsageError(f"{record.table}: the document would be larger than 16 MiB")
        for name in record.__struct_fields__:
            given, found = getattr(record, name), getattr(row, name)
            if name not in aside and given != found and not _same_json(given, found):
                raise UsageError(f"{record.table}.{name} would not be read back as it is given")
        return cast("R", row)


def _same_json(given: object, found: object) -> bool:
    return isinstance(given, bytes) and isinstance(found, bytes) and jsonb.same(given, found)
