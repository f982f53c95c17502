"""Reading a collection by ``_id`` range, as raw BSON.

A range is a pair of index bounds (``hint`` with ``min`` and ``max``), never a ``$gt`` filter: MongoDB compares within a
type only, so a filter loses every document whose ``_id`` has another type than the bound, without an error.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import bson

from migrator.sources.profile import Collection
from migrator.store.mongo.client import Source
from migrator.values import document as documents

PIECE_DOCUMENTS = 50
"""Documents decoded together: few enough to stay in the processor's cache (facts/performance, decode and JSON)."""

BATCH_BYTES = 2_097_152
"""Bytes asked of the server at a time, about; bounds the memory of a worker."""

MAX_BATCH_DOCUMENTS = 2_000

ID_INDEX = [("_id", 1)]


def batch_documents(average_bytes: float) -> int:
    """Return how many documents to ask for at a time."""
    return max(1, min(MAX_BATCH_DOCUMENTS, int(BATCH_BYTES / max(average_bytes, 1.0))))


def bound(key: bytes | None) -> list[tuple[str, Any]] | None:
    """Return an index bound from its stored form, the BSON document ``{"_id": value}``; none stays none."""
    return None if key is None else [("_id", documents.decode(key)["_id"])]


def key_of(value: object) -> bytes:
    """Return the stored form of an index bound."""
    return bson.encode({"_id": value})


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
    source: Source,
    name: str,
    *,
    lower: bytes | None,
    upper: bytes | None,
    condition: dict[str, Any],
    batch_size: int,
) -> Iterator[bytes]:
    """Yield the documents with ``lower <= _id < upper`` in ``_id`` order, as batches of concatenated BSON."""
    cursor = source[name].find_raw_batches(
        condition,
        hint=ID_INDEX,
        min=bound(lower),
        max=bound(upper),
        batch_size=batch_size,
    )
    with cursor:
        yield from cursor


def pieces(batch: bytes) -> Iterator[list[bytes]]:
    """Cut a batch into lists of raw documents, ``PIECE_DOCUMENTS`` at a time."""
    raws = list(documents.split(batch))
    for begin in range(0, len(raws), PIECE_DOCUMENTS):
        yield raws[begin : begin + PIECE_DOCUMENTS]
