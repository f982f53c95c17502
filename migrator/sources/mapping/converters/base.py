"""What a converter is: how the value of a field and the value of a column follow from each other.

A class without one of the members of ``Converter`` cannot be instantiated, and so is none of ``CONVERTERS``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from migrator.sources.mapping import tables
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Document
from migrator.sources.shapes import indexed, plain

UNEVALUABLE: Final = "unevaluable-cron"
"""The finding for a rule that no cron line says, or that its dialect cannot evaluate."""

Reader: TypeAlias = Callable[[Any, Reading], Any]
"""From the value of a field, and what was read of the document so far, to which it may add findings."""
Writer: TypeAlias = Callable[[Any], Any]


class Unplannable(Exception):  # noqa: N818 - an answer, not a failure
    """The native codec cannot do what a field, or a collection, needs."""


class Target(msgspec.Struct, frozen=True):
    """A column that a field fills."""

    field: Field
    column: str
    """``table.column``, or ``table.column.member``; empty: none."""
    keeps_uuid: bool = False
    """Of a reference: the rows that it leads to keep the UUIDs of their documents' ``_id``."""

    @property
    def checked(self) -> Callable[[str, str], str]:
        """From a text and its path to the text that the column holds."""
        if tables.native_column(self.column) is not None:
            return partial(tables.checked_text, self.column)
        return indexed if self.column in tables.INDEXED else plain


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What the native codec does with a field."""

    name: str
    """``memo``: it asks the Python codec once for each value, and so suits a field with few values."""
    options: frozenset[str] = frozenset()
    """The members of ``Field`` that it heeds, besides those that every operation does. A field with another one goes
    to the Python codec."""
    shapes: tuple[Any, ...] = ()
    """The shapes that the field may have, besides none."""
    step: Mapping[str, Any] = {}
    """Members of ``native_plan.Step``."""


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides compute of a field without any code of the codec."""

    kind: Literal["group", "sum", "time"]
    expression: Any
    """Of MongoDB."""
    sql: str
    """Over a row of the target."""
    source_sql: str
    """Over a row of a source in PostgreSQL; empty: it is not computed there."""
    reading: str = "{}"
    """As ``Measure.reading``."""
    has_default: bool = False
    """The expressions say what holds where the field is absent; else the column's default does."""


class Converter(ABC):
    """How the value of a field and the value of a column follow from each other.

    A reader raises ``Rejected`` for a value that the column cannot hold. What a writer does not give back exactly is
    remainder.
    """

    place: ClassVar[Literal["anywhere", "_id", "fields"]] = "anywhere"
    """Where it may stand: ``_id``: at the ``_id`` alone; ``fields``: anywhere else."""
    needed: ClassVar[tuple[str, ...]] = ()
    """Options that a mapping file must give."""
    in_files: ClassVar[bool] = True
    """A mapping file may name it."""
    may_unmake: ClassVar[bool] = False
    """It depends on the value whether there is a row of the table."""

    @property
    @abstractmethod
    def name(self) -> str:
        """How mappings name it."""

    @property
    @abstractmethod
    def column_types(self) -> frozenset[str]:
        """Types of the columns that it fills; empty: it fills none."""

    @property
    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The keys that it takes in a mapping file besides ``to`` and ``as``."""

    @abstractmethod
    def shape(self, field: Field, /) -> Any:
        """Return the type of a field, as ``shapes.read`` checks it, unless the field has a shape of its own."""

    @abstractmethod
    def reader(self, target: Target, /) -> Reader | None:
        """Return the function from the value of a field to that of a column; None: the value as it is.

        The function returns None for a value that stands for none.
        """

    @abstractmethod
    def writer(self, field: Field, /) -> Writer | None:
        """Return the function from the value of the first column to that of the field; None: the value as it is.

        The function returns None for what is not written.
        """

    def meaning(self, _field: Field, /) -> Callable[[Any], Any] | None:
        """Return the function from the value of the first column to what it says; None: the value itself says it.

        A library may spell one value in several ways. Where rows were written back, equal meanings are no loss. The
        function raises for a value of which nothing is known.
        """
        return None

    @abstractmethod
    def aggregate(self, field: Field, value: Any, sql: str, default: Any, /) -> Aggregate | None:
        """Return the aggregate of a field; None: nothing is counted.

        ``value``, ``sql``: the field in MongoDB, and in a row of PostgreSQL. ``default``: what the column holds where
        the field holds nothing.
        """

    @abstractmethod
    def operation(self, field: Field, /) -> Operation:
        """Return the operation of the native codec for a field; raises ``Unplannable`` if it cannot."""


class Uncounted(Converter):
    """A converter of values that no aggregate counts."""

    def aggregate(self, _field: Field, _value: Any, _sql: str, _default: Any, /) -> Aggregate | None:
        return None


class Same(Uncounted):
    """A converter that writes the value of the column as it is."""

    def writer(self, _field: Field, /) -> Writer | None:
        return None


def always(shape: Any) -> Callable[[Converter, Field], Any]:
    """Return the method ``shape`` of a converter whose fields all have this type."""
    return lambda _self, _field: shape


class OfAnyId(Converter):
    """A converter of the ``_id``, of any type, that takes no options."""

    options: tuple[str, ...] = ()
    place = "_id"
    shape = always(Any)


def memo(*options: str) -> Callable[[Converter, Field], Operation]:
    """Return the method ``operation`` of a converter of few values, which heeds these options and the shape."""
    return lambda _self, _field: Operation(name="memo", options=frozenset({"shape", *options}))


def no_operation(_self: Converter, field: Field) -> Operation:
    """Refuse, as the method ``operation``: the native codec has none."""
    raise Unplannable(f"no operation for {field.converter}")


def value_at(document: Document, names: Sequence[str]) -> Any:
    """Return the value of a document at a path; None if there is none."""
    value: Any = document
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def written_words(words: Mapping[str, Any]) -> dict[Any, str]:
    """Return each value of a column with the word that it is written as: the first that stands for it."""
    written: dict[Any, str] = {}
    for source, target in words.items():
        written.setdefault(target, source)
    return written


def column_name(field: Field) -> str:
    """Return the name of the first column of a field, without its table."""
    name = tables.split(field.columns[0])[1]
    return name if tables.native_column(field.columns[0]) is None else f'"{name}"'
