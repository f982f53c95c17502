"""The canonical documents of the profile ``stellaops``, from the page that shows them, and the way there and back."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import bson
import msgspec
from bson import json_util

from migrator.records import Record
from migrator.sources.profile import Context, Decoded, Document, Note, Rejected, Rows
from migrator.sources.stellaops import PROFILE
from migrator.values import canonical, document, jsonb, remainder
from migrator.values.copy_format import column_types

PAGE = Path(__file__).parent.parent / "docs" / "sources-stellaops.md"
CONTEXT = Context(as_of=datetime(2026, 11, 20, 12, tzinfo=UTC), default_tenant="fallback")
COLLECTIONS = PROFILE.by_name()
_BLOCK = re.compile(r"^## (?P<name>[a-z_]+)$|^```json\n(?P<json>.*?)\n```$", re.MULTILINE | re.DOTALL)
_OPTIONS = json_util.JSONOptions(tz_aware=False, json_mode=json_util.JSONMode.RELAXED)
_EXACT = {"text": str, "int2": int, "int4": int, "int8": int, "bool": bool, "timestamptz": datetime, "jsonb": bytes}


def _documents() -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    name = ""
    for match in _BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if match["json"] is None:
            name = match["name"]
        else:
            loaded = json_util.loads(match["json"], json_options=_OPTIONS)
            found.setdefault(name, []).append(bson.encode(loaded))
    return found


CANONICAL = _documents()
"""Collection to its canonical documents, as raw BSON."""


def fresh(collection: str, number: int = 0, /, **changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """Return a canonical document, some fields changed; ``...`` takes a field away, ``a__b`` is b inside a."""
    made: Document = document.decode(CANONICAL[collection][number])
    for path, value in changes.items():
        *steps, last = path.split("__")
        place: Any = made
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return made


class Trip(NamedTuple):
    """A document, its rows as they would come back from PostgreSQL, and what they lack."""

    document: Document
    decoded: Decoded
    rows: Rows
    remainder: bytes

    @property
    def row(self) -> Any:  # noqa: ANN401 - a record of some table
        """The owner row."""
        return self.decoded.rows[0]

    @property
    def notes(self) -> tuple[Note, ...]:
        return self.decoded.notes

    @property
    def fields(self) -> set[str]:
        """The fields in the remainder."""
        return {entry.field for entry in remainder.entries(self.remainder)}

    def rebuilt(self, collection: str) -> Document:
        found = COLLECTIONS[collection]
        rebuilt: Document = remainder.apply(found.encode(self.rows), found.remainder(self.rows))
        return rebuilt


def stored(row: Record) -> Record:
    """Return the row with its JSON as PostgreSQL gives it back; its other columns must be of the column's very type."""
    changes: dict[str, Any] = {}
    for column, kind in column_types(type(row)).items():
        value = getattr(row, column)
        if value is None:
            continue
        assert kind not in _EXACT or type(value) is _EXACT[kind], (column, type(value))
        if kind == "text[]":
            assert all(type(item) is str for item in value)
        if kind == "jsonb":
            changes[column] = jsonb.canonicalise(value)
    return msgspec.structs.replace(row, **changes)


def travel(collection: str, made: Document, context: Context = CONTEXT) -> Trip:
    """Take a document through the columns and prove that it can be rebuilt."""
    found = COLLECTIONS[collection]
    raw = bson.encode(made)
    read = document.decode(raw)
    decoded = found.decode(read, context)
    kept = remainder.difference(read, found.encode(decoded.rows))
    rows = tuple(stored(row) for row in found.attach(decoded.rows, kept))
    trip = Trip(read, decoded, rows, kept)
    assert found.remainder(rows) == kept
    assert canonical.same(trip.rebuilt(collection), read)
    return trip


def attempt(collection: str, made: Document, context: Context = CONTEXT) -> Trip | Rejected:
    """Return the trip, or why the document was refused."""
    try:
        return travel(collection, made, context)
    except Rejected as rejected:
        return rejected
