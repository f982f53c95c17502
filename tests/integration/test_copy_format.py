"""Rendered rows against their plain form and against the server: what COPY takes, gives back, and compares."""

from datetime import UTC, datetime, timedelta
from struct import pack
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.constraints import bounds_of
from migrator.pipeline.load import copy_in, fetch
from migrator.records import ALL, Run
from migrator.store.postgres.rows import table_name
from migrator.values import jsonb
from migrator.values.copy_format import EPOCH, NulInTextError, codec, column_types

NULL = b"\xff\xff\xff\xff"
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, width=64) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "uuid": st.uuids(),
    "text": TEXTS,
    "text[]": st.lists(TEXTS, max_size=4).map(tuple),
    "bool": st.booleans(),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "timestamptz": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - Hypothesis adds the zone
    "jsonb": JSON.map(jsonb.encode),
}


def rows(record: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    """Return rows with any value of each column's type, also null; they need not obey the table's rules."""
    return st.builds(record, **{name: st.none() | VALUES[kind] for name, kind in column_types(record).items()})


def plainly(kind: str, value: Any) -> bytes:  # noqa: ANN401 - a value of that type
    """Render one cell straight from the documentation of PostgreSQL's binary format."""
    if value is None:
        return NULL
    cell: bytes
    if kind == "uuid":
        cell = value.bytes
    elif kind == "text":
        cell = value.encode()
    elif kind == "text[]":
        items = b"".join(pack("!i", len(item.encode())) + item.encode() for item in value)
        shape = pack("!iiI", 1, 0, 25) + pack("!ii", len(value), 1) if value else pack("!iiI", 0, 0, 25)
        cell = shape + items
    elif kind == "bool":
        cell = bytes([value])
    elif kind == "timestamptz":
        cell = pack("!q", (value - EPOCH) // timedelta(microseconds=1))
    elif kind == "jsonb":
        cell = b"\x01" + value
    else:
        cell = pack({"int2": "!h", "int4": "!i", "int8": "!q"}[kind], value)
    return pack("!i", len(cell)) + cell


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.table)
def test_the_compiled_renderer_writes_the_plain_form(record: type[msgspec.Struct]) -> None:
    found = codec(record)

    @given(rows(record))
    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def holds(row: msgspec.Struct) -> None:
        head, tail = found.serialize(row)
        cells = [plainly(found.types[name], getattr(row, name)) for name in found.columns]
        assert head + tail == pack("!h", len(cells)) + b"".join(cells)
        assert found.read(head + tail) == {
            name: jsonb.encode(jsonb.decode(value)) if found.types[name] == "jsonb" and value else value
            for name in found.columns
            for value in [getattr(row, name)]
        }

    holds()


@pytest.mark.parametrize("place", ["error", "tenant_id"])
def test_nul_in_a_text_is_refused_by_name(place: str) -> None:
    row = Run(id=UUID(int=1), tenant_id="t", state="queued", created_at=EPOCH)
    with pytest.raises(NulInTextError):
        codec(Run).serialize(msgspec.structs.replace(row, **{place: "a\0b"}))


RUNS = st.builds(
    Run,
    id=st.uuids(),
    tenant_id=TEXTS.filter(bool),
    source=st.none() | TEXTS,
    state=st.sampled_from(["planning", "queued", "running", "completed", "error"]),
    created_at=VALUES["timestamptz"],
    finished_at=st.none() | VALUES["timestamptz"],
    duration_ms=st.none() | st.integers(0, 2**63 - 1),
    fence=st.none() | st.integers(*bounds_of("runs.fence")),
    stats=st.none() | VALUES["jsonb"],
    result=st.none() | VALUES["jsonb"],
    error=st.none() | TEXTS,
    extra=VALUES["jsonb"],
)


def test_the_server_gives_back_equal_rows_and_any_change_shows(any_scheduler_dsn: str) -> None:
    """A stored row equals the serialized one: as bytes where it can, by canonical jsonb where it must, only then."""
    found = codec(Run)
    with psycopg.connect(any_scheduler_dsn) as connection:

        @given(st.lists(RUNS, min_size=1, max_size=6, unique_by=lambda run: run.id), st.data())
        @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def holds(runs: list[Run], data: st.DataObject) -> None:
            serialized = {run.id: found.serialize(run) for run in runs}
            with connection.transaction(force_rollback=True):
                copy_in(connection, table_name("runs"), Run, [head + tail for head, tail in serialized.values()])
                stored = fetch(connection, Run, list(serialized))
                assert len(stored) == len(runs)
                for head, tail in serialized.values():
                    assert found.equal((head, tail), stored[found.key(head)])
                    assert found.differing((head, tail), stored[found.key(head)]) == ()
                chosen = data.draw(st.sampled_from(runs))
                name = data.draw(st.sampled_from(["duration_ms", "stats", "error", "finished_at", "extra"]))
                other = data.draw(VALUES[found.types[name]])
                changed = msgspec.structs.replace(chosen, **{name: other})
                before = getattr(chosen, name)
                alike = before == other or (name in found.json and before is not None and jsonb.same(before, other))
                there = stored[found.key(serialized[chosen.id][0])]
                differing = found.differing(found.serialize(changed), there)
                assert differing == (() if alike else (name,))
                assert found.equal(found.serialize(changed), there) is alike

        holds()


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"1", b"1.0"), (b'{"a":1}', b'{"a":1,"b":null}'), (b"[1,2]", b"[2,1]"), (b"{}", b"[]"), (b'"a"', b'"\xc3\xa4"')],
)
def test_jsonb_that_postgres_calls_equal_or_similar_differs_here(
    before: bytes, after: bytes, scheduler_dsn: str
) -> None:
    found = codec(Run)
    run = Run(id=UUID(int=7), tenant_id="t", state="queued", created_at=EPOCH, stats=before)
    with psycopg.connect(scheduler_dsn) as connection:
        copy_in(connection, table_name("runs"), Run, [b"".join(found.serialize(run))])
        [stored] = fetch(connection, Run, [run.id]).values()
    assert found.equal(found.serialize(run), stored)
    assert found.differing(found.serialize(msgspec.structs.replace(run, stats=after)), stored) == ("stats",)
