"""Extract: read a collection by ranges of ``_id``, or documents by their ids, as raw BSON.

A range is a pair of index bounds (``hint`` with ``min`` and ``max``), never a ``$gt`` filter. MongoDB compares within a
type only, so a filter would omit, without an error, every document whose ``_id`` has another type than the bound.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from bson.max_key import MaxKey
from bson.timestamp import Timestamp
from pymongo.cursor import Cursor

from migrator.connections.mongo import MongoDatabase
from migrator.pipeline.executors import ChunkJob
from migrator.pipeline.sessions import SourceSessions
from migrator.sources.profile import Collection
from migrator.values import document as documents
from migrator.values.identity import id_filter, source_id_of

BATCH_BYTES = 2_097_152
"""Approximate bytes that a request to the server returns; it bounds the memory of a worker."""

MAX_BATCH_DOCUMENTS = 2_000

ID_INDEX = [("_id", 1)]

AnyCursor = TypeVar("AnyCursor", bound=Cursor[Any])


def batch_documents(average_bytes: float) -> int:
    """Return how many documents to request at a time."""
    return max(1, min(MAX_BATCH_DOCUMENTS, int(BATCH_BYTES / max(average_bytes, 1.0))))


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


def raw_batches(
    source: MongoDatabase,
    name: str,
    *,
    lower: bytes | None,
    upper: bytes | None,
    condition: dict[str, Any],
    batch_size: int,
) -> Iterator[bytes]:
    """Yield the documents with ``lower <= _id < upper`` in ``_id`` order, as batches of concatenated BSON."""
    with bound_cursor(source[name].find_raw_batches(condition, batch_size=batch_size), lower, upper) as cursor:
        yield from cursor
    if lower is not None and upper is None:
        # The server ends a range without an upper bound before MaxKey, which is a legal _id, and the last one.
        with source[name].find_raw_batches({"$and": [condition, {"_id": MaxKey()}]}) as cursor:
            yield from cursor


def chunk_batches(sessions: SourceSessions, job: ChunkJob) -> Iterator[bytes]:
    """Yield the documents of a chunk, as ``raw_batches`` does."""
    chunk = job.chunk
    collection = sessions.profile.by_name()[chunk.collection]
    return raw_batches(
        sessions.source,
        sessions.name_of(chunk.collection),
        lower=chunk.lower,
        upper=chunk.upper,
        condition=tenant_filter(collection, job.tenants, job.context.default_tenant),
        batch_size=batch_documents(chunk.average_bytes),
    )


IDS_PER_QUERY = 1_000
ID_CHARACTERS_PER_QUERY = 1_000_000
"""Ids in one request: most documents, and approximate length of all ids together."""


class DocumentReader:
    """Reads documents again, in one causally consistent session: a new primary answers only when it has caught up."""

    def __init__(self, sessions: SourceSessions) -> None:
        self._sessions = sessions
        self._session = sessions.source.client.start_session(causal_consistency=True)

    def close(self) -> None:
        """End the session."""
        self._session.end_session()

    def not_before(self, time: Timestamp) -> None:
        """Ensure that no later answer is older than this cluster time."""
        self._session.advance_operation_time(time)

    def documents(self, collection: str, source_ids: Iterable[str]) -> Iterator[bytes]:
        """Yield those of these documents that exist, as batches of concatenated BSON of at most 16 MB."""
        place = self._sessions.source[self._sessions.name_of(collection)]
        for some in _id_batches(source_ids):
            with place.find_raw_batches(
                {"_id": id_filter(some)}, batch_size=IDS_PER_QUERY, session=self._session
            ) as cursor:
                for batch in cursor:
                    yield cast("bytes", batch)

    def by_id(self, collection: str, source_ids: Iterable[str]) -> dict[str, bytes]:
        """Return those of these documents that exist, by source id."""
        batches = self.documents(collection, source_ids)
        return {source_id_of(raw): raw for batch in batches for raw in documents.split(batch)}

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the source ids of all documents of a collection."""
        place = self._sessions.source[self._sessions.name_of(collection)]
        with place.find_raw_batches({}, {"_id": 1}, session=self._session) as cursor:
            for batch in cursor:
                yield from map(source_id_of, documents.split(cast("bytes", batch)))


def _id_batches(source_ids: Iterable[str]) -> Iterator[list[str]]:
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
