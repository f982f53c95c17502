"""What holds for every document of a collection, so that an aggregate need not ask it of each.

Looking for a field costs MongoDB about as much in an expression as comparing the whole document with a ``$jsonSchema``,
which looks at each field of a document once. So the rows say what is expected of all documents: columns that are empty
in every row, columns that are filled in every row, times that are dates, or texts of one form. A query looks for a
document that is otherwise. What it finds is computed document by document.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import msgspec

REGULAR_TIME: Final = r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9}\+00:00|\+00:00|\.\d{3}Z)\z"
"""Texts of which the first in the order of bytes is also the first in time, in whole milliseconds.

"+" is less than "." and than each digit, so a shorter fraction comes first; "Z" is greater, so it has one length.
MongoDB reads no text of this form as the time of another day or minute: it takes neither 30 February nor 24:00.
"""
FIRST: Final = 500
"""Number of documents whose fields are allowed in all others, besides those that are measured, and whose times say
whether those of the others should be dates or texts."""
_ABSENT: Final = ("null", "undefined")
"""Types of values that count as none, as they do in ``$ifNull``."""
_PRESENT: Final = (
    *("double", "string", "object", "array", "binData", "objectId", "bool", "date", "regex", "dbPointer", "javascript"),
    *("symbol", "javascriptWithScope", "int", "timestamp", "long", "decimal", "minKey", "maxKey"),
)
"""All others. MongoDB looks a type up in a set, which costs less than to negate a condition."""

Pipeline = Sequence[Mapping[str, Any]]
Search = Callable[[Pipeline], Sequence[Mapping[str, Any]]]
"""Calls ``aggregate`` on the collection; the documents that are left out are left out of each search."""


class Uniformity(msgspec.Struct, frozen=True):
    """Fields at the top of a document, by what all documents have in common."""

    empty: frozenset[str] = frozenset()
    """There is no value in any document."""
    filled: frozenset[str] = frozenset()
    """There is a value in every document."""
    times: frozenset[str] = frozenset()
    """Each value is a date, or each is a text of ``REGULAR_TIME``: the first is the first in time too."""
    dates: frozenset[str] = frozenset()
    """Those of the times that are dates."""


NOTHING: Final = Uniformity()


def confirmed(
    expected: Uniformity, measured: Iterable[str], search: Search, begin: Callable[[Uniformity], None]
) -> Uniformity:
    """Return the part of what is expected that holds for all documents.

    ``measured``: fields that a document may have. ``begin`` is called with what is expected, before all documents are
    searched: it nearly always holds. If one document is otherwise, fields and times are searched again,
    each by themselves: a time of another form costs the reading of the times, and nothing else.
    """
    if expected == NOTHING:
        return expected
    first = _first_fields(search) if expected.empty or expected.times else {}
    dates = expected.times.intersection(name for name, types in first.items() if "date" in types)
    expected = msgspec.structs.replace(expected, dates=dates)
    allowed = {*measured, *filter(_can_be_named, first)} - expected.empty if expected.empty else set[str]()
    begin(expected)
    if not search(_other_than(_schema(expected, allowed))):
        return expected
    fields = msgspec.structs.replace(expected, times=frozenset(), dates=frozenset())
    times = Uniformity(times=expected.times, dates=dates)
    if fields == NOTHING:
        return NOTHING
    if search(_other_values(fields)):
        fields = NOTHING
    if times == NOTHING or search(_other_than(_schema(times, ()))):
        return fields
    return msgspec.structs.replace(fields, times=times.times, dates=dates)


def _first_fields(search: Search) -> dict[str, set[str]]:
    """Return the fields of the first documents, each with the types of its values."""
    each = {"$map": {"input": {"$objectToArray": "$$ROOT"}, "in": ["$$this.k", {"$type": "$$this.v"}]}}
    types: dict[str, set[str]] = {}
    for document in search([{"$limit": FIRST}, {"$project": {"_id": 0, "fields": each}}]):
        for name, kind in document["fields"]:
            types.setdefault(name, set()).add(kind)
    return types


def _can_be_named(field: str) -> bool:
    """Whether a schema can name a field."""
    return bool(field) and "." not in field and field[0] != "$"


def _schema(expected: Uniformity, allowed: Iterable[str]) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = {name: {} for name in allowed}
    for name in expected.filled | expected.times:
        types = ("date",) if name in expected.dates else ("string",) if name in expected.times else _PRESENT
        properties[name] = {"bsonType": [*types, *(() if name in expected.filled else _ABSENT)]}
    for name in expected.times - expected.dates:
        properties[name]["pattern"] = REGULAR_TIME  # of texts; other values have no pattern to match
    schema: dict[str, Any] = {"properties": properties}
    if expected.filled:
        schema["required"] = sorted(expected.filled)
    if expected.empty:
        schema["additionalProperties"] = {"bsonType": [*_ABSENT]}
    return schema


def _other_than(schema: Mapping[str, Any]) -> Pipeline:
    return _any({"$nor": [{"$jsonSchema": schema}]})


def _other_values(expected: Uniformity) -> Pipeline:
    """Return the search for a document with a value where there is none, or without one where there is one."""
    first: Any = reduce(lambda rest, name: {"$ifNull": [f"${name}", rest]}, sorted(expected.empty), None)
    absent = [{"$eq": [{"$ifNull": [f"${name}", None]}, None]} for name in sorted(expected.filled)]
    return _any({"$expr": {"$or": [{"$ne": [first, None]}, *absent]}})


def _any(condition: Mapping[str, Any]) -> Pipeline:
    """Return the search for one document, of which no value is read."""
    return [{"$match": condition}, {"$limit": 1}, {"$project": {"_id": 0, "is_there": {"$literal": True}}}]
