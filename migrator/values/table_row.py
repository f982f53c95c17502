"""Rows of PostgreSQL tables as BSON documents, types kept, so that what works for documents works for rows.

Types that BSON lacks are binary values of the subtypes that BSON leaves to its users. No column of JSON can hold one,
so nothing that a row may hold is mistaken for another. No time passes through a BSON date, which would cut it to
milliseconds. A time is its ISO 8601 text: with ``+00:00`` if the column has a zone, without an offset if it has none.
What Python has no value for (``infinity``, years before 1 and after 9999) is the server's own text.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64

TIME: Final = 128
NUMERIC: Final = 129
INTEGER: Final = 130
"""An integer in JSON that int64 does not hold."""
DATE: Final = 131
JSON: Final = 132
"""A JSON text that no document stands for: a name twice, a name with NUL, or nested too deep."""

DEEPEST: Final = 100
"""Levels of JSON that become documents; the driver refuses to write about twice as many."""

_INT64 = 2**63

_READERS: Final[dict[int, Callable[[bytes], object]]] = {
    UUID_SUBTYPE: lambda content: UUID(bytes=content),
    TIME: lambda content: datetime.fromisoformat(content.decode()),
    NUMERIC: lambda content: Decimal(content.decode()),
    INTEGER: int,
    DATE: lambda content: date.fromisoformat(content.decode()),
}


def to_bson(value: Any) -> Any:  # noqa: ANN401, PLR0911 - any value of a row; one return for each type
    """Return a value of a row in a type of BSON; raises ``TypeError`` for one that no column has."""
    match value:
        case None | bool() | str() | float() | Binary() | Int64():
            return value
        case int():
            return value if -_INT64 <= value < _INT64 else Binary(str(value).encode(), INTEGER)
        case UUID():
            return Binary(value.bytes, UUID_SUBTYPE)
        case Decimal():
            return Binary(str(value).encode(), NUMERIC)
        case datetime():
            return time(value)
        case date():
            return Binary(value.isoformat().encode(), DATE)
        case bytes() | memoryview():
            return bytes(value)
        case list() | tuple():
            return [to_bson(item) for item in value]
        case dict():
            return {str(key): to_bson(item) for key, item in value.items()}
        case _:
            raise TypeError(f"no column holds {type(value).__name__}")


def time(value: datetime) -> Binary:
    """Return the value of a time; an aware one names UTC, a naive one no offset; raises ``OverflowError``."""
    written = value if value.tzinfo is None else value.astimezone(UTC)
    return Binary(written.isoformat().encode(), TIME)


def from_bson(value: Any) -> Any:  # noqa: ANN401 - any BSON value
    """Return the value of a row that a BSON value stands for; raises ``ValueError`` and the like if there is none."""
    if isinstance(value, Binary):
        read = _READERS.get(value.subtype)
        return value if read is None else read(bytes(value))
    if isinstance(value, Int64):
        return int(value)
    if isinstance(value, dict):
        return {key: from_bson(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_bson(item) for item in value]
    return value


def time_from_text(text: str) -> Binary:
    """Return the value of a time as the server writes it (``DateStyle`` ISO, ``TimeZone`` UTC)."""
    with suppress(ValueError):
        text = datetime.fromisoformat(text).isoformat()
    return Binary(text.encode(), TIME)


def json_from_text(text: str) -> Any:  # noqa: ANN401 - any BSON value
    """Return the value of a JSON text: numbers keep their digits, and a text without a document stays a text."""
    try:
        value = json.loads(text, parse_float=_number, object_pairs_hook=_members)
        return to_bson(value) if _depth(value) <= DEEPEST else Binary(text.encode(), JSON)
    except (ValueError, RecursionError):
        return Binary(text.encode(), JSON)


def _number(text: str) -> float | Decimal:
    number = float(text)
    exact = Decimal(text)
    return number if exact == Decimal(repr(number)) else exact


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs) or any("\0" in name for name in members):
        raise ValueError("no document has these names")
    return members


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def sql_text(value: Any) -> str:  # noqa: ANN401 - a BSON value of a key
    """Return a value as PostgreSQL reads it as text."""
    if isinstance(value, Binary):
        return str(UUID(bytes=bytes(value))) if value.subtype == UUID_SUBTYPE else bytes(value).decode()
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
