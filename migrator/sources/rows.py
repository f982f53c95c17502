"""The seam for schedulers that keep their jobs in SQL tables: what ``profile`` is for collections, for rows.

A table gives a pure ``decode(row, context)`` and a pure ``encode(rows)`` over plain dictionaries, as a PostgreSQL
driver hands them out. ``load`` and ``restore`` close the circle: what the records cannot carry is kept as their
residue, so that ``restore(load(row))`` is the row, column by column, or the row was set aside with the reason.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from migrator.records import Record, attach_extra, remainder_of
from migrator.sources.profile import Decoded, Reference, Rejected, Rows
from migrator.sources.rowvalues import to_document, to_row
from migrator.sources.shapes import LONGEST_TENANT, Shape, indexed, rejection
from migrator.values import identity, remainder

Row: TypeAlias = dict[str, Any]
"""Column to value: None, bool, int, float, str, Decimal, UUID, datetime, list, dict."""

AnyRow = TypeVar("AnyRow", bound="RowShape")
AnyRecord = TypeVar("AnyRecord", bound=Record)

Naive = Annotated[datetime, msgspec.Meta(tz=False)]
"""TIMESTAMP: UTC by the source's convention."""
Aware = Annotated[datetime, msgspec.Meta(tz=True)]
"""TIMESTAMPTZ: a naive time is nobody's guess."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Number = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_NATIVE = (datetime, UUID, Decimal)
"""Types that must come as they are: a text is none of them."""


class RowShape(Shape, rename=str):
    """The columns of a table, in its order, under its names.

    A default of None means that the column may be null or not there yet; other columns must hold something.
    """


class RowContext(msgspec.Struct, frozen=True, kw_only=True):
    """What decode may know besides the row; stated by the operator, so that nothing is guessed."""

    tenant: str | None = None
    """Of systems that know no tenants."""
    cron_zone: str | None = None
    """Zone in which a source evaluated cron lines that name none: its servers' local time. IANA or Windows name."""
    constant_cron_as_interval: bool = False
    """Turn a cron line whose fires are evenly spaced into an interval; the minute at which it fires is lost."""
    as_of: datetime | None = None
    """Triggers whose source stores no usable next run get their first fire after this (aware); None: none."""
    parents: Mapping[str, Mapping[Any, Mapping[str, Any]]] = {}
    """Table → primary key → row, for what a row inherits from the one it refers to."""
    repeated: frozenset[UUID] = frozenset()
    """Executions whose number another one of the same job has already."""

    def parent(self, table: str, key: object, column: str) -> Mapping[str, Any]:
        """Return the row that ``column`` refers to; raises ``Rejected`` where it is not there."""
        found = self.parents.get(table, {}).get(key)
        if found is None:
            raise Rejected("orphan", column, f"the key of a row of {table}")
        return found


class TableSource(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a system."""

    name: str
    shape: type[RowShape]
    tables: tuple[type[Record], ...] = ()
    """Records its rows feed; the first holds exactly one per loaded row, and the residue. None: only notes are made."""
    decode: Callable[[Row, RowContext], Decoded]
    encode: Callable[[Rows], Row] | None = None
    references: tuple[Reference, ...] = ()
    after: tuple[str, ...] = ()
    """Tables that must be loaded before this one, and be given as ``RowContext.parents`` where it inherits."""


class RowSource(msgspec.Struct, frozen=True, kw_only=True):
    """How one system spells its tables, in load order."""

    name: str
    tables: tuple[TableSource, ...]

    def by_name(self) -> Mapping[str, TableSource]:
        """Return the tables by name."""
        return {table.name: table for table in self.tables}


class Origin(msgspec.Struct, frozen=True):
    """Where a row came from, and the ids that follow from it."""

    system: str
    table: str
    tenant_id: str
    source_id: str
    keep_uuid: bool = True
    """The table is the first that feeds its records, so its UUIDs are kept (schema.md, rules for every table)."""

    def columns(self, record: type[Record]) -> dict[str, Any]:
        """Return the columns that every record begins with."""
        return {
            "id": self.key(record),
            "tenant_id": self.tenant_id,
            "source": f"{self.system}/{self.table}",
            "source_id": self.source_id,
        }

    def key(self, record: type[Record]) -> UUID:
        """Return the id of the record of this row."""
        return identity.row_id(record.table, self.tenant_id, self.table, self.source_id, keep_uuid=self.keep_uuid)


def read_row(row: Row, shape: type[AnyRow]) -> AnyRow:
    """Return the known columns, or raise ``Rejected`` for the first one that holds what it may not."""
    try:
        return msgspec.convert(row, shape, builtin_types=_NATIVE)
    except msgspec.ValidationError as error:
        rejected = rejection(error, shape)
        if "timezone component" in rejected.expected:
            raise Rejected("bad-date", rejected.path, rejected.expected.replace("datetime", "a time")) from None
        raise rejected from None


def columns_of(shape: type[RowShape]) -> tuple[str, ...]:
    """Return the declared columns in their order."""
    return shape.__struct_encode_fields__


def load(table: TableSource, row: Row, context: RowContext) -> Decoded:
    """Return the records of a row, with the residue of what they cannot carry, and findings.

    Raises ``Rejected`` for a row that must be set aside.
    """
    decoded = table.decode(row, context)
    if not decoded.rows or table.encode is None:
        return decoded
    left = remainder.difference(to_document(row), to_document(table.encode(decoded.rows)))
    return Decoded(attach_extra(decoded.rows, left), decoded.notes)


def restore(table: TableSource, rows: Rows) -> Row:
    """Return the row that records made by ``load`` stand for; raises ``TypeError`` for a table that makes none."""
    if table.encode is None:
        raise TypeError(f"rows of {table.name} are not rebuilt")
    return to_row(remainder.apply(to_document(table.encode(rows)), remainder_of(rows)))


def tenant_of(context: RowContext) -> str:
    """Return the operator's tenant; raises ``Rejected`` where none is stated."""
    if not context.tenant:
        raise Rejected("no-tenant", "", "the setting tenant, since these rows name none")
    return indexed(context.tenant, "", LONGEST_TENANT)


def utc(moment: datetime | None, column: str) -> datetime | None:
    """Return the instant (aware, UTC) of a column's time; a naive one is UTC, as its shape says."""
    return None if moment is None else instant(moment, column)


def instant(moment: datetime, column: str) -> datetime:
    """Return as ``utc`` does, for a time that is there."""
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise Rejected("bad-date", column, "a time in the years 1 to 9999") from None


def naive(moment: datetime | None) -> datetime | None:
    """Return the time as a TIMESTAMP column holds it."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def find(rows: Rows, record: type[AnyRecord]) -> AnyRecord | None:
    """Return the record of this type among those of one row."""
    return next((row for row in rows if isinstance(row, record)), None)


def the(rows: Rows, record: type[AnyRecord]) -> AnyRecord:
    """Return as ``find`` does the record that every row of its table has."""
    return next(row for row in rows if isinstance(row, record))


def text_id(value: UUID | None) -> str | None:
    """Return an id as text."""
    return None if value is None else str(value)
