"""The mapping language: what one collection's documents mean, as data.

A mapping names, for each collection, the tables that its documents feed and, for each field, the columns that the
field fills and the converter between the two. Reading and writing, the known fields, the references and the aggregates
all follow from it (``codec``). A mapping is written in TOML (``file``) or built from these classes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec

Converter: TypeAlias = Literal[
    "text", "words", "time", "number", "flag", "duration", "texts", "json", "reference", "cron", "zone", "tenant"
]
"""How the value of a field and the value of a column follow from each other.

``text``, ``flag``, ``json``: the value as it is. ``texts``: a list of texts. ``words``: a word that stands for another,
or for a number. ``time``: an instant in one of the encodings of ``Encoding``. ``number``: a whole number. ``duration``:
a number in some unit, stored in milliseconds. ``cron``: a cron line, which makes a trigger if its dialect can evaluate
it. ``zone``: the name of a time zone. ``reference``: the ``_id`` of a document of another collection. ``tenant``: the
tenant.
"""

Encoding: TypeAlias = Literal["date", "iso", "seconds", "milliseconds", "microseconds"]
"""How a time is written: a BSON date, an ISO 8601 text with an offset, or a number since 1970 in UTC."""

Unit: TypeAlias = Literal["microseconds", "milliseconds", "seconds", "minutes", "hours", "days"]

NumberType: TypeAlias = Literal["int", "long", "double"]

MILLISECONDS: Mapping[str, float] = MappingProxyType(
    {"microseconds": 0.001, "milliseconds": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
    | {"days": 86_400_000}
)
"""Unit to its milliseconds."""


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One field of a document, and what it fills."""

    path: str
    """Names of the members down to the field, with dots between them: ``options.retries``. Arrays are not entered."""
    columns: tuple[str, ...] = ()
    """``table.column``, one or more; the first is the one that the field is written from. Only the tenant has none."""
    converter: Converter
    words: Mapping[str, Any] = {}
    """``words``: the source's word to the target's, or to a number. Of several for one, the first is written."""
    encoding: Encoding = "date"
    """``time`` alone."""
    unit: Unit = "milliseconds"
    """``duration`` alone."""
    type: NumberType | None = None
    """The BSON type in which a number is written; each is accepted. ``words``: the documents hold numbers, written as
    texts in ``words``; omitted: they hold texts. Else, omitted: double for seconds, long for smaller units
    of a time, int for all else."""
    default: Any = None
    """What the column holds if the field is absent or null; of the column's own type. Omitted: null. A column that
    holds the default is not written."""
    dialect: str = ""
    """``cron`` alone: the dialect in which the line is evaluated."""
    collection: str = ""
    """``reference`` alone: the collection whose document is named."""


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of a mapping."""

    name: str
    tables: tuple[str, ...]
    """The tables that its documents feed. The first holds one row for each document, and the remainder."""
    fields: tuple[Field, ...]
    """In the order in which the source writes them."""
    constants: Mapping[str, Any] = {}
    """``table.column`` to a value that every row has."""
    present: Mapping[str, tuple[str, ...]] = {}
    """Further table to the fields of which one must hold something, or there is no row. Omitted: any of its fields."""


class SourceMapping(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one scheduler's collections."""

    name: str
    collections: tuple[Mapped, ...]
