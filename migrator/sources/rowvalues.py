"""A row of an SQL driver as a BSON document, and back: the one place that knows both kinds of values.

In this form a row is compared with what its records give back, and what they cannot becomes a residue. Types that BSON
lacks are binary values of the subtypes that BSON leaves to its users; no JSON column can hold one, so that nothing a
row may hold is mistaken for another. No time passes through a BSON date, which would cut it to milliseconds.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64

from migrator.sources.profile import Document, Rejected

_TIME: Final = 128
_NUMERIC: Final = 129
_INTEGER: Final = 130
_INT64: Final = 2**63

_READERS: Final[dict[int, Callable[[bytes], object]]] = {
    UUID_SUBTYPE: lambda content: UUID(bytes=content),
    _TIME: lambda content: datetime.fromisoformat(content.decode()),
    _NUMERIC: lambda content: Decimal(content.decode()),
    _INTEGER: int,
}


def to_document(row: dict[str, Any]) -> Document:
    """Return the row in BSON's types; raises ``Rejected`` for a value of a type that no known column has."""
    return {column: _write(value, column) for column, value in row.items()}


def to_row(document: Document) -> dict[str, Any]:
    """Return the row of such a document."""
    return {column: _read(value) for column, value in document.items()}


def _write(value: Any, column: str) -> Any:  # noqa: ANN401 - any value of a row
    match value:
        case None | bool() | str() | float():
            written: Any = value
        case int():
            written = value if -_INT64 <= value < _INT64 else Binary(str(value).encode(), _INTEGER)
        case UUID():
            written = Binary(value.bytes, UUID_SUBTYPE)
        case Decimal():
            written = Binary(str(value).encode(), _NUMERIC)
        case datetime():
            written = _write_time(value, column)
        case bytes() | memoryview():
            written = bytes(value)
        case list() | tuple():
            written = [_write(item, column) for item in value]
        case dict():
            written = {str(key): _write(item, column) for key, item in value.items()}
        case _:
            raise Rejected("unknown-type", column, "a type of the known columns")
    return written


def _write_time(value: datetime, column: str) -> Binary:
    """Return the text of a time; an aware one names UTC, a naive one no offset."""
    try:
        written = value if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise Rejected("bad-date", column, "a time in the years 1 to 9999") from None
    return Binary(written.isoformat().encode(), _TIME)


def _read(value: Any) -> Any:  # noqa: ANN401 - any BSON value
    if isinstance(value, Binary):
        return _READERS[value.subtype](bytes(value))
    if isinstance(value, Int64):
        return int(value)
    if isinstance(value, dict):
        return {key: _read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_read(item) for item in value]
    return value
