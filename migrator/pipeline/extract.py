"""Extract: the seam through which the source is read, and its implementation for collections of MongoDB.

A reader yields documents as raw BSON: a collection by ranges of ``_id``, or documents by their ids. ``MongoReader``
reads collections; ``migrator.pipeline.tables`` reads tables of PostgreSQL, whose rows it gives as documents.

A range of MongoDB is a pair of index bounds (``hint`` with ``min`` and ``max``), never a ``$gt`` filter. MongoDB
compares within a type only, so a filter would omit, without an error, every document whose ``_id`` has another type
than the bound.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

import bson
import msgspec
from bson.max_key import MaxKey
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.client_session import ClientSession
from pymongo.collection import Collection as DriverCollection
from pymongo.cursor import Cursor

from migrator.connections import raw_batches
from migrator.connections.mongo import MongoDatabase, cluster_time, committed_time, server_time, translate_errors
from migrator.connections.server_product import require_change_stream
from migrator.errors import RefusedError
from migrator.pipeline.executors import ChunkJob
from migrator.sources import history
from migrator.sources.profile import Collection, Profile
from migrator.values import document as documents
from migrator.values.identity import bound_of, id_filter, parse_source_id, source_id, source_id_of

BATCH_BYTES = 2_097_152
"""Approximate bytes that a request to the server returns; it bounds the memory of a worker."""

MAX_BATCH_DOCUMENTS = 2_000

ID_INDEX = [("_id", 1)]

ORDINARY_COLLECTION = "collection"
"""MongoDB's name of the type of a collection that is neither a view nor a time series."""
SYSTEM_PREFIX = "system."
OWN_COLLECTION = "migrator_reverse_sync"
"""The tool's own collection in the source (`migrator.cutover.reverse_sync`), which is never copied."""

Item = TypeVar("Item")
AnyCursor = TypeVar("AnyCursor", bound=Cursor[Any])


class SourceCollection(msgspec.Struct, frozen=True, kw_only=True):
    """A collection of the profile that exists in the source."""

    collection: Collection
    name: str
    documents: int
    average_bytes: float


class CollectionReader(Protocol):
    """Reads one collection of a source."""

    def has_tenant(self, tenants: Sequence[str], default_tenant: str | None) -> bool:
        """Whether a document is of one of these tenants."""

    def next_bound(self, lower: bytes | None, steps: int) -> bytes | None:
        """Return the bound so many documents after ``lower``; None if there are not so many."""

    def batches(
        self,
        *,
        lower: bytes | None = None,
        upper: bytes | None = None,
        tenants: Sequence[str] = (),
        default_tenant: str | None = None,
        batch_size: int = MAX_BATCH_DOCUMENTS,
    ) -> Iterator[bytes]:
        """Yield the documents with ``lower <= _id < upper`` in ``_id`` order, as batches of concatenated BSON.

        ``tenants``: those of which documents are read; all if empty.
        """

    def by_ids(self, source_ids: Iterable[str]) -> Iterator[bytes]:
        """Yield those of these documents that exist, as batches of concatenated BSON of at most 16 MB."""

    def ids(self) -> Iterator[str]:
        """Yield the source ids of all documents."""

    def is_first(self, one: str, other: str) -> bool:
        """Whether a document comes before another one in the order of ``_id``; the server decides."""

    def sample(self, size: int) -> list[bytes]:
        """Return up to ``size`` documents, drawn at random by the server."""


class SourceReader(Protocol):
    """Reads one source. It raises the tool's errors for what its server refuses, or fails in."""

    database: str
    """Name of the database."""
    has_change_stream: bool
    """Whether a tail can follow what is written after the copy."""
    is_shared: bool
    """Whether several threads may read at the same time."""

    @property
    def session(self) -> ClientSession | None:
        """The causally consistent session in which documents are read; None: each read is of the latest state."""

    def close(self) -> None:
        """Close what is open."""

    def of(self, collection: Collection, history_before: datetime | None = None, /) -> CollectionReader:
        """Return the reader of a collection of the profile.

        ``history_before``: it does not see the documents that are left out as history (``sources.history``).
        """

    def name_of(self, collection: Collection) -> str:
        """Return the name of a collection of the profile in the source."""

    def consistent(self) -> "SourceReader":
        """Return this reader with a session of its own, where the source has such."""

    def snapshot(self) -> AbstractContextManager[str]:
        """Read in one snapshot within the block, where the server has one that several processes can read.

        Yields the name by which other processes read in it too; empty if there is none.
        """

    def join_snapshot(self, name: str) -> None:
        """Read from now on in a snapshot of another process, by the name that ``snapshot`` yielded there."""

    def survey(self, profile: Profile) -> tuple[list[SourceCollection], tuple[str, ...]]:
        """Return the profile's collections that exist, in load order, and the names of those that it does not read.

        Raises ``RefusedError`` for what cannot be read by its key.
        """

    def now(self) -> datetime:
        """Return the server's time (aware, UTC)."""

    def identity(self) -> str:
        """Return the identity of the source among others; after the last slash stands the database."""

    def position(self) -> bytes | None:
        """Return the position of the change stream; None if there is none."""


def batch_documents(average_bytes: float) -> int:
    """Return how many documents to request at a time."""
    return max(1, min(MAX_BATCH_DOCUMENTS, int(BATCH_BYTES / max(average_bytes, 1.0))))


def no_collection_message(database: str, profile: Profile, unknown: Sequence[str]) -> str:
    """Return the message for a database without any collection of the profile."""
    holds = f"it has: {', '.join(unknown[:10])}" if unknown else "it is empty, or does not exist"
    return f"database {database} has no collection of profile {profile.name}; {holds}"


class MongoReader:
    """Reads the collections of a database of MongoDB; ``names``: those that differ from the profile's."""

    has_change_stream = True
    is_shared = True

    def __init__(
        self,
        source: MongoDatabase,
        names: Mapping[str, str] = MappingProxyType({}),
        session: ClientSession | None = None,
    ) -> None:
        self.source, self.session, self._names = source, session, names
        self.database = source.name

    def close(self) -> None:
        """Close the client."""
        self.source.client.close()

    def of(self, collection: Collection, history_before: datetime | None = None, /) -> "MongoCollection":
        """Return the reader of a collection; it does not see what is left out as history."""
        return MongoCollection(collection, self.source[self.name_of(collection)], self.session, history_before)

    def name_of(self, collection: Collection) -> str:
        """Return the name of a collection of the profile in the source."""
        return self._names.get(collection.name, collection.name)

    def consistent(self) -> "MongoReader":
        """Return a reader with a session in which a new primary answers only when it has caught up."""
        session = self.source.client.start_session(causal_consistency=True)
        return MongoReader(self.source, self._names, session)

    def snapshot(self) -> AbstractContextManager[str]:
        """Return nothing: what changes during the copy is what the tail applies."""
        return nullcontext("")

    def join_snapshot(self, name: str) -> None:
        """Do nothing: there is none."""

    def survey(self, profile: Profile) -> tuple[list[SourceCollection], tuple[str, ...]]:
        """Return the profile's collections that exist, and the names of the others."""
        with translate_errors("the source"):
            listed = self.source.list_collections(nameOnly=True)
            kinds = {one["name"]: one.get("type", ORDINARY_COLLECTION) for one in listed}
            for collection in profile.collections:
                name = self.name_of(collection)
                if kinds.get(name, ORDINARY_COLLECTION) != ORDINARY_COLLECTION:
                    raise self._not_a_collection(collection.name, name, kinds[name])
            existing = [
                self._surveyed(collection, name)
                for collection in profile.collections
                if (name := self.name_of(collection)) in kinds
            ]
        unknown = kinds.keys() - {one.name for one in existing} - {OWN_COLLECTION}
        return existing, tuple(sorted(name for name in unknown if not name.startswith(SYSTEM_PREFIX)))

    def _not_a_collection(self, collection: str, name: str, kind: str) -> RefusedError:
        """Return the error for a view or a time series, which cannot be read by an index on ``_id``."""
        if kind == "view":
            (made,) = self.source.list_collections(filter={"name": name})
            base = made["options"]["viewOn"]
            return RefusedError(
                f"{name} of the source is a view of {base}, and a copy reads collections only: if {base} holds the"
                f' whole documents, set {collection} = "{base}" in [source] collections; else write what the view shows'
                " into a collection of its own ($out) and name that one there"
            )
        return RefusedError(
            f"{name} of the source is a {kind} collection, which has no index of _id to be read by: write it into an"
            f' ordinary collection ($out), and set {collection} = "THAT COLLECTION" in [source] collections'
        )

    def _surveyed(self, collection: Collection, name: str) -> SourceCollection:
        return sized(self.source, collection, name)

    def now(self) -> datetime:
        """Return the server's time (aware, UTC)."""
        return server_time(self.source)

    def identity(self) -> str:
        """Return the replica set and the database; raise ``RefusedError`` for a server that has no change stream."""
        return f"{require_change_stream(self.source)}/{self.database}"

    def position(self) -> bytes | None:
        """Return the time from which a change stream can be started."""
        return bson.encode({"operationTime": committed_time(self.source)})


class MongoCollection:
    """Reads one collection of MongoDB."""

    def __init__(
        self,
        collection: Collection,
        source: DriverCollection[dict[str, Any]],
        session: ClientSession | None = None,
        history_before: datetime | None = None,
    ) -> None:
        self._collection, self._source, self._session = collection, source, session
        self._in_scope = history.in_scope(collection, history_before)

    def has_tenant(self, tenants: Sequence[str], default_tenant: str | None) -> bool:
        """Whether a document is of one of these tenants."""
        wanted = tenant_filter(self._collection, tenants, default_tenant)
        with translate_errors("the source"):
            return self._source.find_one(wanted, {"_id": 1}) is not None

    def next_bound(self, lower: bytes | None, steps: int) -> bytes | None:
        """Return the next bound; if no BSON value can state an ``_id``, the one after it."""
        cursor = raw_batches.find_raw_batches(self._source, {}, {"_id": 1}, skip=steps, batch_size=1)
        with translate_errors("the source"), bound_cursor(cursor, lower, None):
            for batch in cursor:
                for raw in documents.split(cast("bytes", batch)):
                    if (bound := bound_of(raw)) is not None:
                        return bound
        return None

    def batches(
        self,
        *,
        lower: bytes | None = None,
        upper: bytes | None = None,
        tenants: Sequence[str] = (),
        default_tenant: str | None = None,
        batch_size: int = MAX_BATCH_DOCUMENTS,
    ) -> Iterator[bytes]:
        """Yield the documents of a range."""
        condition = tenant_filter(self._collection, tenants, default_tenant) | self._in_scope
        with bound_cursor(
            raw_batches.find_raw_batches(self._source, condition, batch_size=batch_size), lower, upper
        ) as cursor:
            yield from cast("Iterator[bytes]", cursor)
        if lower is not None and upper is None:
            # The server ends a range without an upper bound before MaxKey, which is a legal _id, and the last one.
            with raw_batches.find_raw_batches(self._source, {"$and": [condition, {"_id": MaxKey()}]}) as cursor:
                yield from cast("Iterator[bytes]", cursor)

    def by_ids(self, source_ids: Iterable[str]) -> Iterator[bytes]:
        """Yield those of these documents that exist."""
        for some in id_batches(source_ids):
            with raw_batches.find_raw_batches(
                self._source,
                {"_id": id_filter(some), **self._in_scope},
                batch_size=IDS_PER_QUERY,
                session=self._session,
            ) as cursor:
                yield from cast("Iterator[bytes]", cursor)

    def ids(self) -> Iterator[str]:
        """Yield the source ids of all documents."""
        with raw_batches.find_raw_batches(self._source, self._in_scope, {"_id": 1}, session=self._session) as cursor:
            for batch in cursor:
                yield from map(source_id_of, documents.split(cast("bytes", batch)))

    def is_first(self, one: str, other: str) -> bool:
        """Whether the first of two documents comes before the other in the order of their ids."""
        keys = [parse_source_id(one), parse_source_id(other)]
        found = self._source.find({"_id": {"$in": keys}}, {"_id": 1}).sort("_id", 1).limit(1)
        return [source_id(document["_id"]) for document in found] == [one]

    def sample(self, size: int) -> list[bytes]:
        """Return up to ``size`` documents, drawn at random by the server."""
        return draw(self._source.database, self._source.name, size, among=self._in_scope)


def sized(source: MongoDatabase, collection: Collection, name: str) -> SourceCollection:
    """Return a collection of the database with its size, as the server's statistics say it."""
    stats = next(iter(source[name].aggregate([{"$collStats": {"storageStats": {}}}])))["storageStats"]
    return SourceCollection(
        collection=collection,
        name=name,
        documents=int(stats.get("count", 0)),
        average_bytes=float(stats.get("avgObjSize", 0) or 0),
    )


def draw(
    source: MongoDatabase,
    name: str,
    size: int,
    limit_ms: int | None = None,
    among: Mapping[str, Any] = MappingProxyType({}),
) -> list[bytes]:
    """Return up to ``size`` documents of a collection as raw BSON, drawn at random by the server.

    ``limit_ms``: how long the server may work on it; it raises ``ExecutionTimeout``. ``among``: a filter.
    """
    options: Any = documents.OPTIONS.with_options(document_class=RawBSONDocument)
    limit: dict[str, Any] = {} if limit_ms is None else {"maxTimeMS": limit_ms}
    drawn: Any = source.get_collection(name, codec_options=options).aggregate(
        [*([{"$match": among}] if among else []), {"$sample": {"size": size}}], allowDiskUse=True, **limit
    )
    return [one.raw for one in drawn]


def bound_cursor(cursor: AnyCursor, lower: bytes | None, upper: bytes | None) -> AnyCursor:
    """Return a cursor for ``lower <= _id < upper``; None is no bound.

    Bounds are stored as the BSON document ``{"_id": value}``. They are passed by the cursor's methods: its constructor
    takes a list and sends it as an array, which the server refuses.
    """
    cursor.hint(ID_INDEX)
    if lower is not None:
        cursor.min([("_id", documents.decode(lower)["_id"])])
    if upper is not None:
        cursor.max([("_id", documents.decode(upper)["_id"])])
    return cursor


def tenant_filter(collection: Collection, tenants: Sequence[str], default_tenant: str | None) -> dict[str, Any]:
    """Return the filter for documents of ``tenants``; empty for all."""
    if not tenants:
        return {}
    tenant = collection.tenant_expression
    if tenant is None:
        tenant = default_tenant
    elif default_tenant is not None:
        tenant = {"$ifNull": [tenant, default_tenant]}
    return {"$expr": {"$in": [tenant, list(tenants)]}}


IDS_PER_QUERY = 1_000
ID_CHARACTERS_PER_QUERY = 1_000_000
"""Ids in one request: most documents, and approximate length of all ids together."""


class ReadableSource(Protocol):
    """What a reader of documents needs of a process's sessions."""

    reader: SourceReader
    profile: Profile

    @property
    def source(self) -> MongoDatabase:
        """Return the database of MongoDB."""


def chunk_batches(sessions: ReadableSource, job: ChunkJob) -> Iterator[bytes]:
    """Yield the documents of a chunk, as ``CollectionReader.batches`` does."""
    chunk = job.chunk
    sessions.reader.join_snapshot(job.snapshot)
    collection = sessions.profile.by_name()[chunk.collection]
    batches = sessions.reader.of(collection, job.context.history_before).batches(
        lower=chunk.lower,
        upper=chunk.upper,
        tenants=job.tenants,
        default_tenant=job.context.default_tenant,
        batch_size=batch_documents(chunk.average_bytes),
    )
    return prefetched(batches) if sessions.reader.is_shared else batches


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items; a thread reads the next one while the last one is processed.

    One item more than the caller has is in memory. What reading raises is raised where its item is asked for. A caller
    that ends early does not wait for the item that is being read: its server may not answer.
    """
    following: SimpleQueue[tuple[Item] | BaseException | None] = SimpleQueue()

    def fetch() -> None:
        try:
            following.put(next(((item,) for item in items), None))
        except BaseException as error:  # noqa: BLE001 - raised where the item is asked for
            following.put(error)

    def start() -> threading.Thread:
        thread = threading.Thread(target=fetch, name="read ahead", daemon=True)
        thread.start()
        return thread

    thread = start()
    while (read := following.get()) is not None:
        if isinstance(read, BaseException):
            raise read
        thread = start()
        yield read[0]
    thread.join()


class DocumentReader:
    """Reads documents again, in one causally consistent session where the source has such.

    A document that is left out as history does not exist for it.
    """

    def __init__(self, sessions: ReadableSource, history_before: datetime | None) -> None:
        self._sessions, self._collections = sessions, sessions.profile.by_name()
        self._before = history_before
        self._reader = sessions.reader.consistent()
        self._session = self._reader.session

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.end_session()

    def not_before(self, time: Timestamp) -> None:
        """Ensure that no later answer is older than this cluster time."""
        if self._session is not None:
            self._session.advance_operation_time(time)

    def not_before_now(self) -> None:
        """Ensure that no later answer is older than what is committed now."""
        if self._session is not None and (now := cluster_time(self._sessions.source)) is not None:
            self.not_before(now)

    def documents(self, collection: str, source_ids: Iterable[str]) -> Iterator[bytes]:
        """Yield those of these documents that exist, as batches of concatenated BSON of at most 16 MB."""
        return self._reader.of(self._collections[collection], self._before).by_ids(source_ids)

    def by_id(self, collection: str, source_ids: Iterable[str]) -> dict[str, bytes]:
        """Return those of these documents that exist, by source id."""
        batches = self.documents(collection, source_ids)
        return {source_id_of(raw): raw for batch in batches for raw in documents.split(batch)}

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the source ids of all documents of a collection."""
        return self._reader.of(self._collections[collection], self._before).ids()


def id_batches(source_ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield the ids in lists that one request takes."""
    some: list[str] = []
    size = 0
    for one in source_ids:
        some.append(one)
        size += len(one)
        if len(some) == IDS_PER_QUERY or size > ID_CHARACTERS_PER_QUERY:
            yield some
            some, size = [], 0
    if some:
        yield some
