"""Raw batches of documents, as the driver's ``find_raw_batches`` gives them, with one copy of their bytes.

The driver copies a batch five times before it hands it on: a fifth of what a copy costs the client. Its cursor is used
as it is, but for the method that takes a reply apart. Without the native codec, and for each reply that the native
codec does not take apart, the driver does it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import bson
from bson.codec_options import CodecOptions
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.cursor import RawBatchCursor

from migrator import native

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(unicode_decode_error_handler="replace")
"""Of the rest of a reply, as the driver reads it."""


def find_raw_batches(
    collection: Collection[dict[str, Any]],
    condition: Mapping[str, Any],
    projection: Mapping[str, Any] | None = None,
    *,
    skip: int = 0,
    batch_size: int = 0,
    session: ClientSession | None = None,
) -> RawBatchCursor[dict[str, Any]]:
    """Return a cursor whose items are bytes, documents one after the other; the method of the driver does the same."""
    options: dict[str, Any] = {"skip": skip, "batch_size": batch_size, "session": session}
    if native.module() is None:
        return collection.find_raw_batches(condition, projection, **options)
    return _RawBatchCursor(collection, condition, projection, **options)


class _RawBatchCursor(RawBatchCursor[dict[str, Any]]):
    """The driver's cursor, which lets the native codec take replies apart."""

    def _unpack_response(self, response: Any, *arguments: Any, **options: Any) -> list[Any]:  # noqa: ANN401 - the driver's own
        """Return the reply, with the documents of its batch one after the other."""
        payload = getattr(response, "payload_document", None)  # another version of the driver may name it otherwise
        replies: Any = import_module("migrator_speedups.replies")
        parts = None if payload is None else replies.without_documents(payload)
        if parts is None:
            return super()._unpack_response(response, *arguments, **options)
        reply = bson.decode(parts[0], _OPTIONS)
        cursor = reply["cursor"]
        cursor["firstBatch" if "firstBatch" in cursor else "nextBatch"] = [parts[1]] if parts[1] else []
        return [reply]
