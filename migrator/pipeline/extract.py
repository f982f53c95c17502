"""Reading a collection by ``_id`` range, as raw BSON.

A range is a pair of index bounds (``hint`` with ``min`` and ``max``), never a ``$gt`` filter: MongoDB compares within a
type only, so a filter loses every document whose ``_id`` has another type than the bound, without an error.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from bson.max_key import MaxKey
from pymongo.cursor import Cursor

from migrator.connections.mongo import MongoDatabase
from migrator.sources.profile import Collection
from migrator.values import document as documents

BATCH_BYTES = 2_097_152
"""Bytes asked of the server at a time, about; bounds the memory of a worker."""

MAX_BATCH_DOCUMENTS = 2_000

ID_INDEX = [("_id", 1)]

AnyCursor = TypeVar("AnyCursor", bound=Cursor[Any])


def batch_documents(average_bytes: float) -> int:
    """Return how many documents to ask for at a time."""
    return max(1, min(MAX_BATCH_DOCUMENTS, int(BATCH_BYTES / max(average_bytes, 1.0))))


def bounded(cursor: AnyCursor, lower: bytes | None, upper: bytes | None) -> AnyCursor:
    """Return a cursor that keeps to ``lower <= _id < upper``; none is no bound.

    Bounds are stored as the BSON document ``{"_id": value}``. They go through the cursor's methods: its constructor
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
    with bounded(source[name].find_raw_batches(condition, batch_size=batch_size), lower, upper) as cursor:
        yield from cursor
    if lower is not None and upper is None:
        # The server ends a range that names no end before MaxKey, which is a legal _id, and the last one.
        with source[name].find_raw_batches({"$and": [condition, {"_id": MaxKey()}]}) as cursor:
            yield from cursor
