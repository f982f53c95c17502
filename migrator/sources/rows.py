"""The seam for schedulers that keep their jobs in SQL tables: what ``profile`` is for collections, for rows.

A table gives a pure ``decode(row, context)`` and a pure ``encode(rows)`` over plain dictionaries, as a PostgreSQL
driver hands them out. ``load`` and ``restore`` close the circle: what the records cannot carry is kept as their
remainder, so that ``restore(load(row))`` is the row, column by column, or the row was quarantined with the reason.

To be compared, a row is written as a BSON document (``values.table_row``).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from migrator import cron
from migrator.records import Record, attach_extra, remainder_of
from migrator.sources.profile import Decoded, Document, Note, Reference, Rejected, Rows
from migrator.sources.shapes import LONGEST_TENANT, Shape, indexed, rejection
from migrator.values import identity, remainder
from migrator.values.table_row import to_bson, to_row


def to_document(row: dict[str, Any]) -> Document:
    """Return the row in BSON's types; raises ``Rejected`` for a value of a type that no known column has."""
    return {column: _written(value, column) for column, value in row.items()}


def _written(value: object, column: str) -> Any:  # noqa: ANN401 - any BSON value
    try:
        return to_bson(value)
    except TypeError:
        raise Rejected("unknown-type", column, "a type of the known columns") from None
    except OverflowError:
        raise Rejected("bad-date", column, "a time in the years 1 to 9999") from None


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
    """Records its rows feed; the first holds exactly one per loaded row, and the remainder. Empty: only notes."""
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
    """The table is the first that feeds its records, so its UUIDs are kept."""

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
    """Return the records of a row, with the remainder of what they cannot carry, and findings.

    Raises ``Rejected`` for a row that must be quarantined.
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


def next_fire_of(
    cause: Mapping[str, Any],
    stated: datetime | None,
    *,
    fires: bool,
    as_of: datetime | None,
    column: str,
    notes: list[Note],
) -> datetime | None:
    """Return the stated next fire, else the first one after ``as_of`` of a trigger that ``fires``.

    ``cause`` are the columns of an interval or a cron trigger; an interval counts from ``as_of``, which is what
    the sources do with one that they load. Noted: one that fires and has no next fire.
    """
    if stated is not None or not fires:
        return stated
    found = None if as_of is None else _first(cause, as_of)
    if found is None:
        notes.append(Note("no-next-fire", column))
    return found


def _first(cause: Mapping[str, Any], as_of: datetime) -> datetime | None:
    if cause["kind"] == "cron":
        return cron.next_fire(cause["cron_dialect"], cause["cron_expression"], cause["timezone"], as_of)
    try:
        return as_of + timedelta(milliseconds=cause["interval_ms"])
    except OverflowError:
        return None


_MILLISECOND: Final = timedelta(milliseconds=1)


def duration_of(
    stated: int | None,
    started: datetime | None,
    finished: datetime | None,
    *,
    column: str,
    tolerance: int,
    notes: list[Note],
) -> int | None:
    """Return the duration in milliseconds: the stated one, else what the times say.

    Noted: a stated one that is further than ``tolerance`` (milliseconds) from the times, one that is negative, one that
    had to be computed, and an end before the beginning. The last and a negative one give none.
    """
    elapsed = None if started is None or finished is None else (finished - started) // _MILLISECOND
    if elapsed is not None and elapsed < 0:
        notes.append(Note("finished-before-started", column))
        return None
    if stated is None:
        if elapsed is not None:
            notes.append(Note("duration-computed", column))
        return elapsed
    if stated < 0:
        notes.append(Note("negative-duration", column))
        return None
    if elapsed is not None and abs(stated - elapsed) > tolerance:
        notes.append(Note("duration-mismatch", column))
    return stated
