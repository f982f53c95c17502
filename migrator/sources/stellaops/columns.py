"""Fields in our own documented shape: camelCase of the columns, BSON dates, references as the text of an ``_id``.

No public source describes MongoDB collections ``triggers``, ``workers``, ``execution_logs`` or ``handlers``, nor what
our own store adds to schedules, runs and work items; so the shape is ours, and reading and writing follow from the
record's declaration alone.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

from bson.code import Code

from migrator.records import Record
from migrator.sources.profile import Document, Rejected
from migrator.sources.shapes import choice, indexed, instant
from migrator.sources.stellaops import ids
from migrator.values import jsonb
from migrator.values.times import to_bson

_WHOLE: Final = {"int2": 15, "int4": 31, "int8": 63}

_INDEXED: Final = frozenset({"trace_id", "dedupe_key", "name"})
"""Texts that the target indexes, besides those in lists."""

_REFERENCES: Final[Mapping[str, Callable[[str, str], UUID]]] = {
    "schedule_id": ids.schedule_id,
    "run_id": ids.run_id,
    "trigger_id": ids.trigger_id,
}


def camel(column: str) -> str:
    """Return the field name of a column."""
    head, *rest = column.split("_")
    return head + "".join(word.capitalize() for word in rest)


def column_type(record: type[Record], column: str) -> str:
    """Return the PostgreSQL type that the record declares for a column."""
    hint = get_type_hints(record, include_extras=True)[column]
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Annotated:
            return str(get_args(part)[1])
    raise TypeError(f"no column type for {record.__name__}.{column}")


class OwnFields:
    """Some columns of a record as fields of a document."""

    def __init__(
        self,
        record: type[Record],
        columns: Iterable[str],
        *,
        words: Mapping[str, Mapping[str, str]] | None = None,
        least: Mapping[str, int] | None = None,
        most: Mapping[str, int] | None = None,
    ) -> None:
        """Take the columns in the order in which they are written.

        ``words`` are the spellings of columns with a closed list, ``least`` and ``most`` the bounds that the table
        checks.
        """
        self._words = words or {}
        self._least, self._most = least or {}, most or {}
        self._fields = tuple((column, camel(column), column_type(record, column)) for column in columns)
        self._columns = tuple(column for column, _, _ in self._fields)
        self._values = attrgetter(*self._columns)
        self._none = (None,) * len(self._columns)
        self.keys = frozenset(key for _, key, _ in self._fields)
        """The field names."""

    def decode(self, document: Document, tenant: str) -> dict[str, Any]:
        """Return column → value for the fields that are there; raises ``Rejected`` for a wrong one."""
        found: dict[str, Any] = {}
        for column, key, kind in self._fields:
            value = document.get(key)
            if value is not None:
                found[column] = self._column(column, key, kind, value, tenant)
        return found

    def encode(self, row: Record) -> Document:
        """Return the fields of a row, without those that are null."""
        values = self._values(row)
        if values == self._none:
            return {}
        return {
            key: _field(column, kind, value)
            for (column, key, kind), value in zip(self._fields, values, strict=True)
            if value is not None
        }

    def _column(self, column: str, key: str, kind: str, value: Any, tenant: str) -> Any:  # noqa: ANN401 - by kind
        match kind:
            case "jsonb":
                found: Any = jsonb.encode(value)
            case "timestamptz":
                found = instant(value, key)
            case "int2" | "int4" | "int8":
                found = self._whole(column, key, value, _WHOLE[kind])
            case "bool":
                found = _typed(value, bool, key, "bool")
            case "text[]":
                items = _typed(value, list, key, "array")
                found = tuple(indexed(_text(item, f"{key}[]"), f"{key}[]") for item in items)
            case "uuid":
                found = _reference(column, tenant, _text(value, key), key)
            case _:
                found = _text(value, key)
                if column in self._words:
                    found = choice(found, self._words[column], key)
                elif column in _INDEXED:
                    found = indexed(found, key)
        return found

    def _whole(self, column: str, key: str, value: object, bits: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Rejected("wrong-type", key, "int")
        least, most = self._least.get(column, -(2**bits)), self._most.get(column, 2**bits - 1)
        if not least <= value <= most:
            raise Rejected("out-of-range", key, f"int from {least} to {most}")
        return int(value)


def _typed(value: Any, kind: type, key: str, expected: str) -> Any:  # noqa: ANN401 - a value of that type
    if type(value) is not kind:
        raise Rejected("wrong-type", key, expected)
    return value


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or isinstance(value, Code):
        raise Rejected("wrong-type", key, "string")
    return value


def _reference(column: str, tenant: str, value: str, key: str) -> UUID:
    if column in _REFERENCES:
        return _REFERENCES[column](tenant, value)
    try:
        return UUID(value)
    except ValueError:
        raise Rejected("wrong-type", key, "the text of a UUID") from None


def _field(column: str, kind: str, value: Any) -> Any:  # noqa: ANN401 - by kind
    if kind == "jsonb":
        return jsonb.decode(value)
    if isinstance(value, datetime):
        return to_bson(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, UUID):
        return _reference_text(column, value)
    return value


_TEXTS: Final[Mapping[str, Callable[[UUID], str | None]]] = {
    "schedule_id": ids.schedule_text,
    "run_id": ids.run_text,
    "trigger_id": ids.trigger_text,
}


def _reference_text(column: str, value: UUID) -> str | None:
    return _TEXTS[column](value) if column in _TEXTS else str(value)
