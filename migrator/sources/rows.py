"""Schedulers that keep their jobs in tables of PostgreSQL: rows as dictionaries, and what their sources share.

The reader of tables gives a row as a document (``values.table_row``). ``collection_of`` makes a collection out of a
pure ``decode(row, context)`` and a pure ``encode(rows)`` over plain dictionaries, as a PostgreSQL driver has them.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from bson.int64 import Int64

from migrator import cron
from migrator.constraints import LONGEST_TENANT
from migrator.records import Record
from migrator.sources.profile import (
    INHERITED,
    Collection,
    Context,
    Decoded,
    Document,
    Measure,
    Note,
    Reference,
    Rejected,
    Rows,
)
from migrator.sources.shapes import Shape, indexed, rejection
from migrator.values import identity
from migrator.values.table_row import from_bson, to_bson

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


def collection_of(
    name: str,
    shape: type[RowShape],
    tables: tuple[type[Record], ...],
    decode: Callable[[Row, Context], Decoded],
    encode: Callable[[Rows], Row],
    *,
    references: tuple[Reference, ...] = (),
    after: tuple[str, ...] = (),
    inherited: Mapping[str, str] = MappingProxyType({}),
    tenant_sql: str = "",
    measures: tuple[Measure, ...] = (),
    unique: tuple[tuple[str, ...], ...] = (),
    longs: tuple[str, ...] = (),
) -> Collection:
    """Return the collection of a table whose primary key is its column ``id``.

    ``decode`` is given the declared columns, and what the row inherits in the member ``INHERITED``. ``longs``: columns
    of the type ``bigint``.
    """
    columns = frozenset(columns_of(shape))

    def decode_document(document: Document, context: Context) -> Decoded:
        return decode(row_of(document, columns), context)

    return Collection(
        name=name,
        tables=tables,
        decode=decode_document,
        encode=lambda rows: document_of(encode(rows), longs),
        references=references,
        after=after,
        inherited=inherited,
        tenant_sql=tenant_sql,
        measures=measures,
        unique=unique,
        reference_paths=frozenset(),
        known=columns - {"id"} | {"_id"},
    )


def row_of(document: Document, columns: Mapping[str, Any] | frozenset[str]) -> Row:
    """Return the declared columns of a row; raise ``Rejected`` for a time that Python does not have."""
    row: Row = {}
    for name, value in document.items():
        column = "id" if name == "_id" else name
        if column in columns or column == INHERITED:
            try:
                row[column] = from_bson(value)
            except (ValueError, ArithmeticError):
                raise Rejected("bad-date", column, "a time in the years 1 to 9999") from None
    return row


def document_of(row: Row, longs: tuple[str, ...] = ()) -> Document:
    """Return the document of a row."""
    return {
        "_id" if column == "id" else column: Int64(value)
        if column in longs and isinstance(value, int)
        else to_bson(value)
        for column, value in row.items()
    }


def inherits(row: Row, name: str, column: str, of: str) -> Any:  # noqa: ANN401 - any value of a row
    """Return what a row inherits from the one that ``column`` refers to; raise ``Rejected`` if it is not there."""
    found = row.get(INHERITED, {}).get(name)
    if found is None:
        raise Rejected("orphan", column, f"the key of a row of {of}")
    return found


def key_text(row: Row) -> str:
    """Return the source id of a row."""
    return identity.source_id(to_bson(row["id"]))


def uuid_of_key(record: Any) -> UUID:  # noqa: ANN401 - a record with a source id
    """Return the UUID that is the key of a record's row."""
    found = from_bson(identity.parse_source_id(str(record.source_id)))
    return found if isinstance(found, UUID) else UUID(str(found))


def text_of_key(record: Any) -> Any:  # noqa: ANN401 - a record with a source id; a text or a number
    """Return the key of a record's row."""
    return from_bson(identity.parse_source_id(str(record.source_id)))


def named_by(column: str) -> Callable[[Document], str | None]:
    """Return the function that gives the source id of the row that a column refers to."""

    def named(document: Document) -> str | None:
        value = document.get(column)
        return None if value is None else identity.source_id(value)

    return named


def counted(column: str, source: str) -> Measure:
    """Count rows by tenant and a word; ``source``: SQL over a row ``this``."""
    return Measure(name=column, kind="group", expression=None, sql=f"{column}::text", source_sql=source)


def summed(column: str, source: str, name: str = "") -> Measure:
    """Add up a number; ``column``: also an expression of it, which then needs a name."""
    return Measure(name=name or column, kind="sum", expression=None, sql=f"({column})::numeric", source_sql=source)


def spanned(column: str, source: str) -> Measure:
    """Find the first and the last of a time; ``source``: SQL of a timestamptz."""
    found, stored = (f"trunc(extract(epoch from {one}) * 1000)::bigint" for one in (source, column))
    return Measure(name=column, kind="time", expression=None, sql=stored, source_sql=found)


def respelled(column: str, spellings: Mapping[str, str]) -> str:
    """Return the SQL of a word, replaced by the target's."""
    branches = " ".join(f"WHEN '{old}' THEN '{new}'" for old, new in spellings.items())
    return f"CASE this.{column}::text {branches} END"


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


def tenant_of(context: Context) -> str:
    """Return the operator's tenant; raises ``Rejected`` where none is stated."""
    if not context.default_tenant:
        raise Rejected("no-tenant", "", "the setting default_tenant, since these rows name none")
    return indexed(context.default_tenant, "", LONGEST_TENANT)


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
    as_of: datetime,
    column: str,
    notes: list[Note],
) -> datetime | None:
    """Return the stated next fire, else the first one after ``as_of`` of a trigger that ``fires``.

    ``cause`` are the columns of an interval or a cron trigger; an interval counts from ``as_of``, which is what
    the sources do with one that they load. Noted: one that fires and has no next fire.
    """
    if stated is not None or not fires:
        return stated
    found = _first(cause, as_of)
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
