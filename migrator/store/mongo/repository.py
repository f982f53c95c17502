"""What the repositories share: documents to records, and records to documents that keep what others wrote.

MongoDB ends a transaction at the first write that it refuses. So what may be refused is looked up before it is written.
"""

from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec
from bson.errors import BSONError
from pymongo import UpdateOne

from migrator.errors import ConflictError, NotFoundError, StoreError, UsageError
from migrator.records import EMPTY, Record, Schedule, SourcedRecord
from migrator.sources.profile import Context, Document, Rejected, Skipped
from migrator.sources.store_documents import names
from migrator.store.mongo.indexes import OF_STATE
from migrator.store.mongo.places import PLACES, StoreCollection, document_of
from migrator.store.mongo.transaction import Transaction
from migrator.store.validation import GLOBAL
from migrator.values import document as documents
from migrator.values import jsonb, remainder
from migrator.values.identity import source_id

R = TypeVar("R", bound=Record)
_Other = TypeVar("_Other", bound=Record)
_LARGEST = 16 * 1024 * 1024
_NOT_COMPARED = frozenset({"source", "source_id", "extra"})

Sort = Sequence[tuple[str, int]]
Wanted: TypeAlias = tuple[str, UUID]
"""The tenant that asks for a row, and the row's id."""


class StoredDocument(msgspec.Struct, Generic[R]):
    """A document, and the row it is read as."""

    row: R
    document: Document
    raw: bytes
    place: StoreCollection


def whole(stored: StoredDocument[R]) -> R:
    """Return the row as the copy would store it: with the fields that no column holds in its remainder.

    Raises ``StoreError`` for a document that does not survive BSON decoding (a duplicate key, a deprecated type).
    """
    if documents.encode(stored.document) != stored.raw:
        raise StoreError(
            f"{stored.place.name}: a document with a duplicate key or a deprecated type cannot be read whole"
        )
    collection, rows = stored.place.collection, (stored.row,)
    left = remainder.difference(collection.without_derived(stored.document), collection.encode(rows))
    return stored.row if left == EMPTY else cast("R", collection.attach(rows, left)[0])


_CONTEXT = Context(as_of=datetime.min.replace(tzinfo=UTC), of_store=True)
"""The time at which documents are read: only expired locks depend on it, which no repository holds."""


MOST_KEPT: Final = 100_000
"""So many ``_id``s of other applications are kept in a process; each takes some 200 bytes."""
_LEAST_PAUSE_S: Final = 1.0
_PAUSES: Final = 100
"""The ``_id``s of a tenant are read again after so many times the seconds that reading them took."""


class _KnownIds(msgspec.Struct, frozen=True, kw_only=True):
    """What one reading of a tenant's ``_id``s found."""

    keys: dict[UUID, Any]
    """By the id of the row."""
    is_complete: bool
    """False if there are more than are kept."""
    again_at: float
    """When others may have been added, by ``time.monotonic``."""


def _next_look(begun: float) -> float:
    """Return when to read again what was read since ``begun``."""
    ended = monotonic()
    return ended + max(_LEAST_PAUSE_S, _PAUSES * (ended - begun))


class ForeignIds:
    """Documents whose ``_id`` was made by another application, by the id of their row.

    The id of a row follows from the ``_id``, and not the other way round. So the ``_id``s of such documents of a tenant
    are read whole, and ``MOST_KEPT`` of all are kept. An id that is not among those that were read is looked for again
    after a pause: one second, or longer where reading takes long. So a document that the other application adds is
    found then. Where more exist than are kept, each id that is not kept is looked for at once.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _KnownIds] = {}
        self._empty: dict[tuple[str, str], tuple[bool, float]] = {}
        """Whether a tenant has no such documents, and when to look again, by ``time.monotonic``."""

    def keys(
        self, transaction: Transaction, place: StoreCollection, tenant: str, identities: Collection[UUID]
    ) -> list[Any]:
        """Return the ``_id``s of the documents of rows; a row without such a document is left out."""
        known = self._known.get((place.name, tenant))
        keys = {} if known is None else {one: known.keys[one] for one in identities if one in known.keys}
        missing = {*identities} - keys.keys()
        if missing and (known is None or not known.is_complete or monotonic() >= known.again_at):
            keys |= self._read(transaction, place, tenant, missing)
        return [*keys.values()]

    def is_empty(self, transaction: Transaction, place: StoreCollection, tenant: str) -> bool:
        """Return whether a tenant has no such documents, or had none a pause ago."""
        known = self._empty.get((place.name, tenant))
        if known is not None and monotonic() < known[1]:
            return known[0]
        begun = monotonic()
        where = {"$and": [place.of_tenants(tenant), place.foreign_filter()]}
        is_empty = next(transaction.project(place.name, where, ["_id"], limit=1), None) is None
        self._empty[place.name, tenant] = is_empty, _next_look(begun)
        return is_empty

    def _read(
        self, transaction: Transaction, place: StoreCollection, tenant: str, wanted: Collection[UUID]
    ) -> dict[UUID, Any]:
        """Read the ``_id``s of a tenant; return those of the wanted rows."""
        begun = monotonic()
        kept: dict[UUID, Any] = {}
        keys: dict[UUID, Any] = {}
        is_complete = True
        where = {"$and": [place.of_tenants(tenant), place.foreign_filter()]}
        for raw in transaction.project(place.name, where, ["_id"]):
            identity = place.row_id(tenant, raw["_id"])
            if identity in wanted:
                keys[identity] = raw["_id"]
            if len(kept) < MOST_KEPT:
                kept[identity] = raw["_id"]
            else:
                is_complete = False
        again_at = _next_look(begun)
        self._known.pop((place.name, tenant), None)
        others = sum(len(one.keys) for one in [*self._known.values()])
        for key in [*self._known]:  # the one that was read longest ago first
            if others + len(kept) <= MOST_KEPT:
                break
            dropped = self._known.pop(key, None)
            others -= 0 if dropped is None else len(dropped.keys)
        self._known[place.name, tenant] = _KnownIds(keys=kept, is_complete=is_complete, again_at=again_at)
        return keys


class Repository(Generic[R]):
    """The rows of one record, in one session."""

    def __init__(
        self, record: type[R], transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime
    ) -> None:
        self._transaction, self._foreign_ids, self._tenant, self._now = transaction, foreign_ids, tenant, now
        self._record = record
        self._places = PLACES[record]
        self.name = self._places[0].name
        """The collection to which new rows go."""

    def _of(self, record: type[_Other]) -> "Repository[_Other]":
        return Repository(record, self._transaction, self._foreign_ids, self._tenant, self._now)

    def stored(self, raw: bytes, place: StoreCollection | None = None) -> StoredDocument[R] | None:
        """Return the row of a document; None for one that the copy would quarantine."""
        place = place or self._places[0]
        # Schedules are read again and again, and rarely change.
        found = _read_schedule(raw) if self._record is Schedule else _read(place, raw)
        return cast("StoredDocument[R] | None", found)

    def _each(
        self,
        where: Mapping[str, Any],
        *,
        sort: Sort = (),
        shared: bool = False,
        place: StoreCollection | None = None,
        batch: int | None = None,
    ) -> Generator[StoredDocument[R], None, None]:
        """Yield the tenant's documents that match; with ``shared`` those of ``*`` too, all in one place.

        ``batch``: how many the server sends at once.
        """
        place = place or self._places[0]
        tenants = (self._tenant, GLOBAL) if shared else (self._tenant,)
        own = place.of_tenants(*tenants)
        condition = {**own, **where} if not own.keys() & where.keys() else {"$and": [own, where]}
        for raw in self._transaction.find(place.name, condition, sort=sort, batch=batch):
            stored = self.stored(raw, place)
            if stored is not None and stored.row.tenant_id in tenants:  # type: ignore[attr-defined] # every table has it
                yield stored

    def _rows(self, where: Mapping[str, Any], limit: int, *, sort: Sort) -> list[R]:
        rows: list[R] = []
        for stored in self._each(where, sort=sort):
            rows.append(stored.row)
            if len(rows) == limit:
                break
        return rows

    def found(
        self, wanted: Collection[Wanted], *, shared: bool, hints: Iterable[Any] = ()
    ) -> dict[Wanted, StoredDocument[R]]:
        """Return the rows that exist, for each tenant its own, with ``shared`` also those of ``*``.

        ``hints`` are ``_id``s under which they may be stored besides those that their ids give.
        """
        answers: dict[Wanted, StoredDocument[R]] = {}
        for place in self._places:
            missing = [one for one in wanted if one not in answers]
            keys = [key for identity in {identity for _, identity in missing} for key in place.keys(identity)]
            self._match(answers, place, missing, [*keys, *hints], shared=shared)
            unanswered: dict[str, set[UUID]] = defaultdict(set)
            for tenant, identity in missing:
                if (tenant, identity) not in answers:
                    for owner in (tenant, GLOBAL) if shared else (tenant,):
                        unanswered[owner].add(identity)
            foreign = [
                key
                for owner, identities in unanswered.items()
                for key in self._foreign_ids.keys(self._transaction, place, owner, identities)
            ]
            self._match(answers, place, missing, foreign, shared=shared)
        return answers

    def _match(
        self,
        answers: dict[Wanted, StoredDocument[R]],
        place: StoreCollection,
        wanted: Collection[Wanted],
        keys: Sequence[Any],
        *,
        shared: bool,
    ) -> None:
        """Add those of the wanted rows that the documents of these ``_id``s hold; a tenant's own row comes first."""
        if not wanted or not keys:
            return
        by_id: dict[UUID, list[StoredDocument[R]]] = defaultdict(list)
        for raw in self._transaction.find(place.name, {"_id": {"$in": [*keys]}}):
            stored = self.stored(raw, place)
            if stored is not None:
                by_id[stored.row.id].append(stored)  # type: ignore[attr-defined] # every table that comes here has it
        for tenant, identity in wanted:
            for stored in by_id.get(identity, ()):
                owner: str = stored.row.tenant_id  # type: ignore[attr-defined] # as above
                if owner == tenant or (shared and owner == GLOBAL and (tenant, identity) not in answers):
                    answers[tenant, identity] = stored

    def _find(self, identity: UUID, *, shared: bool = False) -> StoredDocument[R] | None:
        """Return the document of a row of the tenant, with ``shared`` also of ``*``."""
        wanted = (self._tenant, identity)
        return self.found([wanted], shared=shared).get(wanted)

    def _visible(self, identity: UUID) -> R | None:
        found = self._find(identity, shared=True)
        return None if found is None else found.row

    def _texts(self, record: type[Record], identity: UUID) -> list[str]:
        """Return how documents may spell a reference to a row."""
        return self._spellings(record, [identity])[identity]

    def _spellings(self, record: type[Record], identities: Collection[UUID]) -> dict[UUID, list[str]]:
        """Return how documents may spell references to rows, by the rows' ids."""
        place = PLACES[record][0]
        texts = {one: {f"{prefix}{one.hex}" for prefix in place.prefixes} for one in identities}
        stored = self._of(record).found([(self._tenant, one) for one in texts], shared=True)
        for (_, identity), found in stored.items():
            if isinstance(found.document["_id"], str):
                texts[identity].add(found.document["_id"])
        return {identity: sorted(several) for identity, several in texts.items()}

    def _refers(self, record: type[Record], identity: UUID) -> dict[str, Any]:
        """Return the condition on a field that refers to a row."""
        return {"$in": self._texts(record, identity)}

    def _require(self, record: type[Record], identity: UUID | None, *, shared: bool = False) -> str | None:
        """Return the tenant of the referenced row; raises ``NotFoundError`` if the session's tenant cannot see it."""
        if identity is None:
            return None
        stored = self._of(record)._find(identity, shared=shared)  # noqa: SLF001 - of the same class
        if stored is None or (isinstance(stored.row, Schedule) and stored.row.deleted_at is not None):
            raise NotFoundError(f"a reference to {record.table} names no row")
        tenant: str = stored.row.tenant_id  # type: ignore[attr-defined] # every table has it
        return tenant

    def _taken(self, identity: UUID) -> bool:
        """Return whether any tenant has a row of this id whose document the id finds."""
        return any(
            next(self._transaction.find(place.name, {"_id": {"$in": place.keys(identity)}}), None) is not None
            for place in self._places
        )

    def _checked(self, record: R, key: str | None = None) -> tuple[Document, R]:
        """Return the same; raises ``ConflictError`` if the id is taken."""
        document, row = self.new(record, key)
        if self._taken(record.id):  # type: ignore[attr-defined] # every record that comes here has one
            raise ConflictError(f"the id is taken ({self.name})")
        return document, row

    def new(self, record: R, key: str | None = None) -> tuple[Document, R]:
        """Return the document of a new row, and the row as it will be read; whether its id is taken is not checked."""
        document = documents.writable(document_of(record, key))
        return document, self._proved(self._places[0], document, record)

    def _insert(self, record: R, key: str | None = None) -> R:
        document, row = self._checked(record, key)
        self._transaction.insert(self.name, [document])
        return row

    def replace(self, stored: StoredDocument[R], record: R) -> R:
        """Write a row over a document: only the fields that the row changes."""
        document, row = self._changed(stored, record)
        self._transaction.replace(stored.place.name, document)
        return row

    def _changed(self, stored: StoredDocument[R], record: R) -> tuple[Document, R]:
        record, before, after = _encoded(stored, record)
        is_as_written = documents.encode(before) == stored.raw
        document = documents.writable(after if is_as_written else rewritten(stored.document, before, after))
        return document, self._proved(stored.place, document, record)

    def _proved(
        self, place: StoreCollection, document: Document, record: R, ignored: frozenset[str] = _NOT_COMPARED
    ) -> R:
        """Return the row as it will be read; raises ``UsageError`` if that differs from what was given."""
        try:
            raw = documents.encode(document)
            row: Any = place.collection.decode(documents.decode(raw), _CONTEXT).rows[0]
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
            if name not in ignored and given != found and not _same_json(given, found):
                raise UsageError(f"{record.table}.{name} would not be read back unchanged")
        return cast("R", row)


def _encoded(stored: StoredDocument[R], row: R) -> tuple[R, Document, Document]:
    """Return a row as that of the stored document, and what the document states before and after it is written."""
    if isinstance(row, SourcedRecord):
        key = source_id(stored.document["_id"])
        row = msgspec.structs.replace(row, source=stored.row.source, source_id=key)  # type: ignore[attr-defined] # the same record
    encode = stored.place.collection.encode
    return row, encode((stored.row,)), encode((row,))


def _difference(before: Document, after: Document) -> tuple[Document, list[str]]:
    """Return the fields that a document gets, and the names of those that it loses."""
    given = {name: value for name, value in after.items() if name not in before or before[name] != value}
    return given, [name for name in before if name not in after]


def rewritten(document: Document, before: Document, after: Document) -> Document:
    """Return a document that stated ``before``, and more, as it states ``after`` and still the rest."""
    given, gone = _difference(before, after)
    return {name: value for name, value in document.items() if name not in gone} | given


def _same_json(given: object, found: object) -> bool:
    return isinstance(given, bytes) and isinstance(found, bytes) and jsonb.same(given, found)


class CrossTenantRepository(Repository[R]):
    """The rows of one record, of any tenant."""

    def __init__(self, record: type[R], transaction: Transaction, foreign_ids: ForeignIds) -> None:
        super().__init__(record, transaction, foreign_ids, GLOBAL, datetime.min.replace(tzinfo=UTC))

    def raw(self, key: object) -> bytes | None:
        """Return the document of an ``_id``."""
        return next(self._transaction.find(self.name, {"_id": key}), None)

    def at(self, keys: Collection[Any], where: Mapping[str, Any]) -> dict[Any, StoredDocument[R]]:
        """Return the rows of the documents with these ``_id``s (texts or any other BSON) that match, by source id."""
        found = self._transaction.find(self.name, {**where, "_id": {"$in": [*keys]}}) if keys else ()
        stored = (self.stored(raw) for raw in found)
        return {one.row.source_id: one for one in stored if one is not None}  # type: ignore[attr-defined] # every table has it

    def matching(
        self, where: Mapping[str, Any], sort: Sort = (("_id", 1),), hint: str | None = None
    ) -> Iterator[StoredDocument[R]]:
        """Yield the rows of the documents that match, in order; ``hint`` names the index to be used."""
        for raw in self._transaction.find(self.name, where, sort=sort, hint=hint):
            stored = self.stored(raw)
            if stored is not None:
                yield stored

    def any_taken(self, identities: Iterable[UUID]) -> bool:
        """Whether one of these ids finds a document."""
        keys = [key for identity in identities for key in self._places[0].keys(identity)]
        return any(True for _ in self._transaction.project(self.name, {"_id": {"$in": keys}}, ["_id"], limit=1))

    def update(self, stored: StoredDocument[R], row: R, *, proved: bool = True) -> UpdateOne:
        """Return the write of what a row changes; whole documents would change every index.

        ``proved``: it is verified that the row will be read as it is given; words of the store's own need no proof.
        """
        update = self.changes(stored, row, proved=proved)
        return UpdateOne({"_id": stored.document["_id"]}, update or {"$set": {"_id": stored.document["_id"]}})

    def changes(self, stored: StoredDocument[R], row: R, *, proved: bool = True) -> dict[str, Any]:
        """Return the update that makes a document state a row; empty if it does already."""
        row, before, after = _encoded(stored, row)
        given, gone = _difference(before, after)
        if proved:
            self._proved(stored.place, rewritten(stored.document, before, after), row)
        given = documents.writable(given)
        return ({"$set": given} if given else {}) | ({"$unset": dict.fromkeys(gone, "")} if gone else {})

    def take(
        self, where: Mapping[str, Any], update: Sequence[Mapping[str, Any]], sort: Sort
    ) -> StoredDocument[R] | None:
        """Update the first document that matches, by itself; return it as it is then, None if no document matches."""
        raw = self._transaction.take_alone(self.name, where, update, sort)
        return None if raw is None else self.stored(raw)


def _read(place: StoreCollection, raw: bytes) -> StoredDocument[Any] | None:
    try:
        document = documents.decode(raw)
        row = place.collection.decode(document, _CONTEXT).rows[0]
    except (Rejected, Skipped, documents.Undecodable):
        return None
    return StoredDocument(row, document, raw, place)


@lru_cache(maxsize=4_096)
def _read_schedule(raw: bytes) -> StoredDocument[Any] | None:
    """Return the row of a schedule document; the caller must not change it."""
    return _read(PLACES[Schedule][0], raw)


def spelled(schedule: StoredDocument[Schedule]) -> list[str]:
    """Return how documents may spell a reference to a schedule."""
    key = schedule.document["_id"]
    text = f"{names.SCHEDULE_PREFIX}{schedule.row.id.hex}"
    return [text, key] if isinstance(key, str) and key != text else [text]


def counted(
    transaction: Transaction, schedules: Iterable[StoredDocument[Schedule]], among: Collection[str]
) -> dict[UUID, int]:
    """Return how many runs of each schedule, of any tenant, are in one of these states (which have one spelling).

    A schedule of ``*`` may have runs of every tenant.
    """
    of = {one.row.id: one for one in schedules}
    owners = defaultdict(list)
    for one in of.values():
        for text in spelled(one):
            owners[text].append(one.row)
    counts = dict.fromkeys(of, 0)
    if not owners:
        return counts
    by = {"_id": {"tenant": "$tenantId", "text": "$scheduleId"}, "runs": {"$sum": 1}}
    for state in among:  # one by one: each state has an index of its own
        where = {"state": state, "scheduleId": {"$in": [*owners]}}
        for group in transaction.aggregate(names.RUNS, [{"$match": where}, {"$group": by}], hint=OF_STATE[state]):
            for row in owners[group["_id"]["text"]]:
                if row.tenant_id in (GLOBAL, group["_id"].get("tenant")):
                    counts[row.id] += group["runs"]
    return counts
