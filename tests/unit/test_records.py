"""Records are rows: the structs, the tables and the remainder's place agree."""

import types
import typing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from migrator.records import (
    ALL,
    EMPTY,
    REMAINDER_KEY,
    GraphJob,
    GraphJobEvent,
    Record,
    Run,
    SourcedRecord,
    attach_extra,
    attach_payload,
    remainder_of,
    remainder_of_payload,
)
from migrator.records import (
    columns_of as written_columns,
)
from tests.schema_dump import Column, Table, read_tables

TYPES = {
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "text": "text",
    "text[]": "text[]",
    "boolean": "bool",
    "timestamp with time zone": "timestamptz",
    "uuid": "uuid",
    "jsonb": "jsonb",
}
TABLES = read_tables("scheduler")
WITHOUT_RECORD = {"parallel_triggers"}
"""Tables that hold no data of a source, and nothing that is kept."""
SPELLED = {"True": "true", "False": "false", repr(EMPTY): "'{}'::jsonb"}
WITHOUT_EXTRA = {GraphJob, GraphJobEvent}
NOON = datetime(2025, 11, 2, 12, tzinfo=UTC)
JOB = GraphJob(id=UUID(int=1), tenant_id="a", type=0, status=5, payload=b"{}", created_at=NOON, updated_at=NOON)


def table_of(record: type[Record]) -> Table:
    return TABLES[record.table]


KEPT_BY_THE_STORE = {
    ("runs", "global_schedule"),
    ("runs", "schedule_tenant_id"),
    ("runs", "priority"),
    ("triggers", "priority"),
}
"""Columns that follow from another row, the schedule: no record has them."""


def columns_of(record: type[Record]) -> list[Column]:
    columns = table_of(record).columns.values()
    return [column for column in columns if (record.table, column.name) not in KEPT_BY_THE_STORE]


def column_type(annotation: Any) -> tuple[str, bool]:  # noqa: ANN401 - what a type hint may be
    """Return the column type that an annotation names, and whether it takes None."""
    optional = False
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        (annotation,) = (part for part in typing.get_args(annotation) if part is not type(None))
        optional = True
    return annotation.__metadata__[0], optional


def test_a_table_stands_after_those_that_its_foreign_keys_refer_to() -> None:
    """The copy writes tables in this order."""
    places = {f"scheduler.{record.table}": place for place, record in enumerate(ALL)}
    for record in ALL:
        for _, referred, _ in table_of(record).foreign_keys().values():
            assert places[referred] <= places[f"scheduler.{record.table}"], (record.table, referred)


def test_every_table_has_one_record() -> None:
    assert len(ALL) == 13
    assert {record.table for record in ALL} == TABLES.keys() - WITHOUT_RECORD


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.table)
def test_fields_are_the_columns_in_order(record: type[Record]) -> None:
    assert record.__struct_fields__ == tuple(column.name for column in columns_of(record))


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.table)
def test_columns_that_are_written_are_those_that_the_server_does_not_compute(record: type[Record]) -> None:
    declared = {column.name for column in table_of(record).columns.values() if not column.computed}
    assert set(written_columns(record)) == declared


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.table)
def test_annotations_name_the_types_of_the_columns(record: type[Record]) -> None:
    hints = typing.get_type_hints(record, include_extras=True)
    declared = {column.name: (TYPES[column.type], column.nullable) for column in columns_of(record)}
    assert {name: column_type(hints[name]) for name in record.__struct_fields__} == declared


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.table)
def test_a_field_without_default_is_a_column_that_must_be_given(record: type[Record]) -> None:
    for field in msgspec.structs.fields(record):
        column = table_of(record).columns[field.name]
        if column.nullable:
            assert field.default is None, field.name
        elif field.default is msgspec.NODEFAULT:
            assert column.default is None, field.name
        else:
            spelled = SPELLED.get(repr(field.default), str(field.default))
            assert column.default == spelled, field.name


@pytest.mark.parametrize("record", [record for record in ALL if record not in WITHOUT_EXTRA], ids=lambda r: r.table)
def test_sourced_records_begin_with_their_origin_and_end_with_their_remainder(record: type[Record]) -> None:
    assert issubclass(record, SourcedRecord)
    assert record.__struct_fields__[:4] == ("id", "tenant_id", "source", "source_id")
    assert record.__struct_fields__[-1] == "extra"


def test_graph_records_have_exactly_the_columns_of_their_plan() -> None:
    """1-S1 to 1-S8 and 1-S11 to 1-S16: names."""
    assert GraphJob.__struct_fields__ == (
        *("id", "tenant_id", "type", "status", "payload", "created_at", "updated_at", "correlation_id"),
    )
    assert GraphJobEvent.__struct_fields__ == ("id", "job_id", "tenant_id", "status", "payload", "created_at")


def test_parents_come_before_the_rows_that_refer_to_them() -> None:
    order = [record.table for record in ALL]
    for table in TABLES.values():
        for _, referred, _ in table.foreign_keys().values():
            parent = referred.removeprefix("scheduler.")
            assert parent == table.name or order.index(parent) < order.index(table.name)


def test_a_remainder_goes_into_extra_of_the_first_row_only() -> None:
    first, second = (Run(id=UUID(int=n), tenant_id="a", state="queued", created_at=NOON) for n in (1, 2))
    rows = attach_extra((first, second), b'{"a":1}')
    assert remainder_of(rows) == b'{"a":1}'
    assert rows[1] is second
    assert remainder_of((first, second)) == EMPTY


def test_a_remainder_goes_under_the_reserved_key_and_leaves_the_other_members_as_they_are() -> None:
    payload = b'{"_id":"x","big":1e22,"nested":{"z":1.0,"a":2},"ratio":0.10}'
    rows = attach_payload((msgspec.structs.replace(JOB, payload=payload),), b'{"k":{"b":1,"a":2}}')
    stored: GraphJob = rows[0]  # type: ignore[assignment]
    assert stored.payload == (
        b'{"$remainder":{"k":{"b":1,"a":2}},"_id":"x","big":1e22,"nested":{"z":1.0,"a":2},"ratio":0.10}'
    )
    assert remainder_of_payload(rows) == b'{"k":{"b":1,"a":2}}'


def test_an_empty_remainder_leaves_no_key() -> None:
    rows = attach_payload((msgspec.structs.replace(JOB, payload=b'{"$remainder":{"k":1},"a":1}'),), EMPTY)
    assert rows[0].payload == b'{"a":1}'  # type: ignore[attr-defined]
    assert remainder_of_payload(rows) == EMPTY
    assert REMAINDER_KEY == "$remainder"


@pytest.mark.proves("6-U12")
def test_each_duration_of_a_record_is_a_timedelta_too() -> None:
    durations = [(record, column) for record in ALL for column in record.__struct_fields__ if column.endswith("_ms")]
    assert len(durations) == 7
    for record, column in durations:
        kind, name = typing.cast("Any", record), column.removesuffix("_ms")
        for stored, length in ((1_500, timedelta(seconds=1.5)), (0, timedelta(0)), (None, None), (2**62, None)):
            required = {field.name: None for field in msgspec.structs.fields(kind) if field.required}
            assert getattr(kind(**required | {column: stored}), name) == length
