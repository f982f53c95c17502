"""Columns of tables of PostgreSQL as fields of the mapping language, and what the sources in tables share.

The types stand in shapes for values that BSON lacks (``values.table_row``): a column of another type is rejected. A
column that may be null is written as null where the row holds nothing.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar, cast

import msgspec
from bson.binary import UUID_SUBTYPE, Binary

from migrator import cron
from migrator.constraints import LONGEST_KEY
from migrator.records import Record
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import INHERITED, Context, Document, Measure, Note, Rejected, Rows
from migrator.sources.shapes import AnyTime, Shape, read
from migrator.values import table_row

AnyRecord = TypeVar("AnyRecord", bound=Record)

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_KEY)]


class Timestamptz(metaclass=AnyTime):
    """A column ``timestamptz``."""

    @staticmethod
    def read(value: object) -> datetime:
        """Return the time (aware, UTC)."""
        return _time(value, naive=False)


class Timestamp(metaclass=AnyTime):
    """A column ``timestamp``, which is UTC."""

    @staticmethod
    def read(value: object) -> datetime:
        """Return the time (aware, UTC)."""
        return _time(value, naive=True)


def _time(value: object, *, naive: bool) -> datetime:
    expected = "a timestamp" if naive else "a timestamptz"
    if not isinstance(value, Binary) or value.subtype != table_row.TIME:
        raise Rejected("wrong-type", "", expected)
    try:
        moment: Any = table_row.from_bson(value)
        instant: datetime = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Rejected("bad-date", "", "a time in the years 1 to 9999") from None
    if (moment.tzinfo is None) != naive:
        raise Rejected("bad-date", "", expected)
    return instant


class _AnyBinary(type):
    __instancecheck__ = Binary.__instancecheck__


class Uuid(metaclass=_AnyBinary):
    """A column ``uuid``."""

    @staticmethod
    def read(value: object) -> Binary:
        """Return the value as it is."""
        if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE:
            return value
        raise Rejected("wrong-type", "", "uuid")


class _Anything(type):
    __instancecheck__ = object.__instancecheck__


class Json(metaclass=_Anything):
    """A column ``json`` or ``jsonb``, whose numbers may be longer than those of BSON."""

    @staticmethod
    def read(value: object) -> Any:  # noqa: ANN401 - any JSON
        """Return the value as Python has it."""
        try:
            return table_row.from_bson(value)
        except (ValueError, ArithmeticError):
            raise Rejected("bad-date", "", "a time in the years 1 to 9999") from None


class JsonObject(Json):
    """Such a column, which holds an object."""

    @staticmethod
    def read(value: object) -> dict[str, Any]:
        """Return the value as Python has it."""
        if not isinstance(value, dict):
            raise Rejected("wrong-type", "", "object")
        found: dict[str, Any] = Json.read(value)
        return found


def column(path: str, *columns: str, converter: str, shape: Any = None, **options: Any) -> Field:  # noqa: ANN401 - a type
    """Return the field of a column; null unless it is required."""
    write_null = options.pop("write_null", not options.get("required", False))
    return Field(path=path, columns=columns, converter=converter, shape=shape, write_null=write_null, **options)


def given(shape: Any, *, default: object) -> dict[str, Any]:  # noqa: ANN401 - a type
    """Return the options of a column that is not null, and has the default where it is not there yet."""
    return {"shape": shape, "required": True, "default": default, "write_default": True}


def flag(path: str, *columns: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a yes or no, which must be there."""
    return column(path, *columns, converter="flag", shape=bool, required=True, **options)


def seconds(path: str, column_: str, shape: Any, **options: Any) -> Field:  # noqa: ANN401 - a type; of ``Field``
    """Return the field of a number of seconds."""
    return column(path, column_, converter="duration", unit="seconds", shape=shape, **options)


def uuid(path: str, *columns: str) -> Field:
    """Return the field of a ``uuid`` that is stored as a text."""
    return column(path, *columns, converter="uuid")


def text(path: str, *columns: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a text."""
    return column(path, *columns, converter="text", **options)


def number(path: str, *columns: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a whole number; ``shape`` has its bounds."""
    return column(path, *columns, converter="number", **options)


def time(path: str, *columns: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a ``timestamptz``."""
    return column(path, *columns, converter="time", **{"encoding": "timestamptz", "shape": Timestamptz} | options)


def utc(path: str, *columns: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a ``timestamp``, which is UTC."""
    return time(path, *columns, encoding="timestamp", shape=Timestamp, **options)


def json(path: str, *columns: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a ``json`` or ``jsonb``."""
    return column(path, *columns, converter="json", **{"shape": Json} | options)


def words(
    path: str,
    column_: str,
    words_: Mapping[str, object],
    back: Mapping[str, str] | None = None,
    default: object = None,
) -> Field:
    """Return the field of a word that must be there; ``back``: what is written for the target's words."""
    others = {target: word for target, word in (back or {}).items() if target not in words_.values()}
    options = {"words": words_, "write_as": others, "finding": "", **given(str, default=default)}
    return column(path, column_, converter="words", **options)


def reference(path: str, column_: str, collection: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a reference to a row whose key is a UUID; ``id_type`` text: the text of one."""
    shape = Key if options.get("id_type") == "text" else Uuid
    options = {"id_type": "uuid", "shape": shape, **options}
    return column(path, column_, converter="reference", collection=collection, **options)


def key(kind: Any) -> Callable[[Document, Context], None]:  # noqa: ANN401 - a type
    """Return the function that rejects a row whose primary key, the column ``id``, is of another type."""
    shape = cast("type[Shape]", msgspec.defstruct("Key", [("id", kind)], bases=(Shape,), kw_only=True))

    def admit(document: Document, _context: Context) -> None:
        read({"id": document["_id"]}, shape)

    return admit


def inherits(document: Document, name: str, path: str, of: str) -> Any:  # noqa: ANN401 - any value of a row
    """Return the value that a row inherits from the row at ``path``; raise ``Rejected`` if it is not there."""
    value = document.get(INHERITED, {}).get(name)
    if value is None:
        raise Rejected("orphan", path, f"the key of a row of {of}")
    return value


def row_of(rows: Rows, record: type[AnyRecord]) -> AnyRecord | None:
    """Return the row of this record among those of one document."""
    return next((row for row in rows if isinstance(row, record)), None)


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


def state_next_fire(reading: Reading, path: str, *, fires: bool) -> None:
    """Give a trigger that fires and states no next fire the first one after ``as_of``.

    An interval counts from ``as_of``, which is what the sources do with one that they load. Noted: one that fires and
    has no next fire.
    """
    trigger, as_of = reading.columns["triggers"], reading.context.as_of
    if not fires or trigger.get("next_fire_at") is not None:
        return
    if "cron_expression" in trigger:
        fire = cron.next_fire(trigger["cron_dialect"], trigger["cron_expression"], trigger["timezone"], as_of)
    else:
        with suppress(OverflowError):
            trigger["next_fire_at"] = as_of + timedelta(milliseconds=trigger["interval_ms"])
            return
        fire = None
    trigger["next_fire_at"] = fire
    if fire is None:
        reading.notes.append(Note("no-next-fire", path))


def state_duration(reading: Reading, path: str, tolerance: int, *, started: datetime | None = None) -> None:
    """Hold the stated duration of a run (``duration_ms``) to its times; compute it where none is stated.

    ``started``: the beginning, if that is not ``started_at``. Noted at ``path``: a duration that is further than
    ``tolerance`` (milliseconds) from the times, one that is negative, one that had to be computed, and an end before
    the beginning. The last and a negative one give none.
    """
    run = reading.columns["runs"]
    stated, finished = run.get("duration_ms"), run.get("finished_at")
    begun = run.get("started_at") if started is None else started
    elapsed = None if begun is None or finished is None else (finished - begun) // timedelta(milliseconds=1)
    note = ""
    if elapsed is not None and elapsed < 0:
        note, run["duration_ms"] = "finished-before-started", None
    elif stated is None:
        note, run["duration_ms"] = "" if elapsed is None else "duration-computed", elapsed
    elif stated < 0:
        note, run["duration_ms"] = "negative-duration", None
    elif elapsed is not None and abs(stated - elapsed) > tolerance:
        note = "duration-mismatch"
    if note:
        reading.notes.append(Note(note, path))
