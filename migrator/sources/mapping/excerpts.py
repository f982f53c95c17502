"""Functions of a mapping that are given a declared part of a document, and nothing else.

What such a function answers follows from this part alone, because it has seen nothing else: asking for a field that is
not declared raises ``UndeclaredError``. So the native codec may ask once for each combination of values. It remembers
the answer only if the Python codec shows for these values that the fields come back from the columns, byte for byte.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

import bson

from migrator.sources.mapping import native_plan, tables
from migrator.sources.mapping.language import Excerpt, Reading
from migrator.sources.profile import Context, Document, Rejected, Rows, Skipped
from migrator.sources.shapes import Shape, read
from migrator.values import copy_format
from migrator.values import document as documents

if TYPE_CHECKING:
    from migrator.sources.mapping.codec import Codec


class UndeclaredError(LookupError):
    """A function of a mapping asks for more than its ``Excerpt`` declares, or fills it: a mistake in the mapping."""


class Given(dict[str, Any]):
    """The declared fields of a document."""

    def __init__(self, document: Document, declared: AbstractSet[str]) -> None:
        super().__init__({name: document[name] for name in declared if name in document})
        self._declared = declared

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any BSON value
        """Return a field that is there."""
        return super().__getitem__(self._checked(name))

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as above
        """Return a field, or the default."""
        return super().get(self._checked(name), default)

    def __contains__(self, name: object) -> bool:
        """Whether a field is there."""
        return super().__contains__(self._checked(name))

    def _checked(self, name: Any) -> str:  # noqa: ANN401 - a name
        if name not in self._declared:
            raise UndeclaredError(f"the field {name} is not declared")
        return str(name)


class Held:
    """The declared columns of a row, as attributes."""

    def __init__(self, table: str, columns: Mapping[str, Any]) -> None:
        self.__dict__.update(columns)
        self._table = table

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the value of a column
        """Raise, because the column is not declared."""
        raise UndeclaredError(f"the column {self._table}.{name} is not declared")


class _TenantError(Exception):
    """A function asks for the tenant, which is no part of the excerpt."""


class _AloneReading(Reading):
    """What was read of the fields of an excerpt alone: whoever asks for the tenant has no answer."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any member
        """Return a member other than the tenant."""
        if name == "tenant":
            raise _TenantError
        return super().__getattribute__(name)


class ExcerptCodec:
    """Calls ``derive`` and ``respell_held`` of a mapping with the fields and columns that they declare."""

    def __init__(self, codec: "Codec", excerpt: Excerpt) -> None:
        mapped = codec.mapped
        if mapped.derive is None or mapped.respell_held is None or mapped.respell is not None:
            raise ValueError(f"{mapped.name}: an excerpt is for derive and respell_held")
        self._codec, self._fields = codec, excerpt.fields
        self._derive, self._respell = mapped.derive, mapped.respell_held
        self._declared = [tables.split(column) for column in excerpt.columns]
        self._columns = {
            table: frozenset(name for owner, name in self._declared if owner == table) for table in mapped.tables
        }

    def derive(self, document: Document, reading: Reading, context: Context, kind: type[Reading] = Reading) -> None:
        """Let the function fill its columns; raises ``UndeclaredError`` for another one."""
        own = {
            table: {name: held[name] for name in self._columns[table] if name in held}
            for table, held in reading.columns.items()
        }
        given = Given(document, self._fields)
        self._derive(given, kind(given, reading.tenant, context, own, reading.notes, reading.unusable), context)
        for table, columns in own.items():
            undeclared = columns.keys() - self._columns[table]
            if undeclared:
                raise UndeclaredError(f"the column {table}.{min(undeclared)} is not declared")
            reading.columns[table].update(columns)

    def respell(self, rows: Rows, document: Document) -> None:
        """Write into a document what the function says of its fields."""
        held: dict[str, Held] = {}
        for row in rows:
            columns = {name: getattr(row, name) for name in self._columns[row.table]}
            if "id" in columns and columns["id"] == self._codec.computed_id(row.table, row):
                columns["id"] = None
            held[row.table] = Held(row.table, columns)
        for name, value in self._respelled(held).items():
            if value is None:
                document.pop(name, None)
            else:
                document[name] = value

    def _respelled(self, held: Mapping[str, Held]) -> Mapping[str, Any]:
        fields = self._respell(held)
        undeclared = fields.keys() - self._fields
        if undeclared:
            raise UndeclaredError(f"the field {min(undeclared)} is not declared")
        return fields

    def memo_function(self, names: Sequence[str], context: Context) -> Callable[[bytes], native_plan.ExcerptEntry]:
        """Return the function that reads and writes these fields for the native codec (``NativeExcerpt.learn``).

        It goes the way of a document that has these fields alone.
        """
        return partial(self._entry, names, self._codec.shape_of_fields(names), context)

    def _entry(
        self, names: Sequence[str], shape: type[Shape], context: Context, key: bytes
    ) -> native_plan.ExcerptEntry:
        values = native_plan.excerpt_values(names, key)
        try:
            held = self._held({name: native_plan.value_in(value) for name, value in values.items()}, shape, context)
            if held is None or not self._is_written({*names}, values, held):
                return None
            cells = self._cells(held)
        except (documents.Undecodable, Rejected, Skipped, _TenantError):
            return None
        except (copy_format.NulInTextError, UnicodeEncodeError, OverflowError, bson.errors.BSONError):
            return None
        made = sum(1 << index for index, name in enumerate(self._codec.mapped.tables) if name in held)
        return None if cells is None else (cells, made)

    def _held(self, document: Document, shape: type[Shape], context: Context) -> dict[str, Held] | None:
        """Return the declared columns of the rows; None for a document with a finding, or an id of its own."""
        codec = self._codec
        reading = Reading(document, "", context, {name: {} for name in codec.mapped.tables}, [], {})
        fields = read(document, shape)
        self.derive(document, reading, context, _AloneReading)
        codec.evaluate(reading)
        if reading.notes or reading.unusable:
            return None
        rows = {table: codec.row_of(table, fields, reading) for table in codec.mapped.tables}
        if any(row is not None and row.get("id") is not None for row in rows.values()):
            return None
        return {
            table: Held(table, {name: row.get(name) for name in self._columns[table]})
            for table, row in rows.items()
            if row is not None
        }

    def _is_written(self, names: AbstractSet[str], values: Mapping[str, bytes], held: Mapping[str, Held]) -> bool:
        """Whether the function writes what was read, and says so of each field."""
        fields = self._respelled(held)
        written = {name: native_plan.value_of(value) for name, value in fields.items() if value is not None}
        return written == values and fields.keys() >= names

    def _cells(self, held: Mapping[str, Held]) -> tuple[bytes | None, ...] | None:
        cells: list[bytes | None] = []
        for table, name in self._declared:
            value = getattr(held[table], name) if table in held and name != "id" else None
            cells.append(None if value is None else native_plan.cell_of(f"{table}.{name}", value))
            if value is not None and cells[-1] is None:
                return None
        return tuple(cells)
