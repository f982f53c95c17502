"""The round-trip rule through real servers: what is rebuilt from jsonb is the document that MongoDB holds."""

import random
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import psycopg
import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from migrator.values import document, identity, jsonb, remainder, times
from migrator.values.canonical import canonical
from tests.strategies_bson import DEPRECATED, FOLDED, Document, documents, element, raw_document, raw_text

Connection = psycopg.Connection[tuple[Any, ...]]

IDENTIFIERS = [
    1.5,
    2,
    Int64(3),
    Decimal128("4.10"),
    float("nan"),
    float("inf"),
    "",
    "1",
    "null",
    "a\0b",
    '{"_id": null}',
    None,
    True,
    ObjectId("6b005afb90137d020b32ec6e"),
    datetime(2025, 11, 2, 8),  # noqa: DTZ001 - as decoded
    DatetimeMS(8_640_000_000_000_000),
    Timestamp(1, 2),
    Binary(b"x"),
    Binary(bytes(16), 4),
    Binary(bytes(16), 3),
    {},
    {"b": 1, "a": 2},
    {"a": 2, "b": 1},
    {"a": {"b": 1.0, "": None}},
    MinKey(),
    MaxKey(),
]
"""One ``_id`` of every BSON type that MongoDB takes, and some that are easily mistaken for each other."""


@pytest.fixture
def postgres(any_postgres_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(any_postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, body jsonb NOT NULL, extra jsonb NOT NULL)")
        yield connection


def stored_raw(database: Database[Document], raws: list[bytes]) -> list[bytes]:
    """Return the documents that MongoDB gives back for raw documents, in the order of their ``_id``."""
    database.t.drop()
    database.t.insert_many([RawBSONDocument(raw) for raw in raws])
    batches: Iterable[Any] = database.t.find_raw_batches(sort={"_id": 1})
    return [raw for batch in batches for raw in document.split(batch)]


def stored_text(connection: Connection, rows: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Return the text that PostgreSQL gives back for pairs of jsonb."""
    connection.execute("TRUNCATE t")
    with connection.cursor().copy("COPY t FROM STDIN") as copy:
        for number, (body, extra) in enumerate(rows):
            copy.write_row((number, body.decode(), extra.decode()))
    found = connection.execute("SELECT body::text, extra::text FROM t ORDER BY id").fetchall()
    return [(body, extra) for body, extra in found]


def test_any_document_is_rebuilt_from_what_is_stored(mongo_database: Database[Document], postgres: Connection) -> None:
    @settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])  # other tests run beside
    @given(st.lists(documents(), min_size=1, max_size=8))
    @example([{"a": {"$id": 1, "$ref": "c"}, "b": [{"$ref": "c", "$id": 1, "x": "\0"}]}])
    def law(bodies: list[Document]) -> None:
        raws = [document.encode({"_id": number, "body": body}) for number, body in enumerate(bodies)]
        back = stored_raw(mongo_database, raws)
        assert back == raws
        originals = [document.decode(raw) for raw in back]
        assert [document.encode(original) for original in originals] == raws

        rows = []
        for original in originals:
            body = jsonb.encode(original["body"])
            expected = {"_id": original["_id"], "body": jsonb.decode(body)}
            rows.append((body, remainder.difference(original, expected)))
        for original, row, (text, extra) in zip(originals, rows, stored_text(postgres, rows), strict=True):
            assert jsonb.same(text, row[0])
            assert jsonb.canonicalise(text) == jsonb.canonicalise(row[0])
            assert jsonb.canonicalise(extra) == row[1]
            rebuilt = remainder.apply({"_id": original["_id"], "body": jsonb.decode(text)}, extra.encode())
            assert canonical(rebuilt) == canonical(original)

    law()


def test_doubles_come_back_from_jsonb_as_decode_foretells(postgres: Connection) -> None:
    source = random.Random(20251102)
    doubles = [struct.unpack(">d", source.randbytes(8))[0] for _ in range(3000)]
    doubles += [source.choice([-1, 1]) * source.random() * 10.0**exponent for exponent in range(-330, 309)]
    doubles += [float(number) for number in (0.0, -0.0, 2**53, 2**63, -(2**63), 1e15, 1e16, 1e22, 5e-324)]
    doubles += [1.7976931348623157e308, 1e-5, 1e-4, 0.1, 100.0, 1.5]
    texts = [jsonb.encode(double) for double in doubles]
    stored = [body for body, _ in stored_text(postgres, [(text, b"{}") for text in texts])]
    for double, text, body in zip(doubles, texts, stored, strict=True):
        foretold, found = jsonb.decode(text), jsonb.decode(body)
        assert (foretold, type(foretold)) == (found, type(found)), double
        assert jsonb.canonicalise(text) == jsonb.canonicalise(body), double
        if double == double and abs(double) != float("inf"):  # noqa: PLR0124 - NaN
            assert float(found) == double
            is_canonical = abs(double) < 1e16 and str(double) != "-0.0"
            assert (jsonb.canonicalise(body) == text) == is_canonical, double
        else:
            assert found is None


@pytest.mark.parametrize(
    "text", ["1", "1.0", "1.00", "1.10", "-0", "0", "1e2", "1e-2", "1.5e1", "1.50e1", "0e-3", "-0.0"]
)
def test_numbers_of_other_writers_are_read_as_jsonb_shows_them(postgres: Connection, text: str) -> None:
    [(body, _)] = stored_text(postgres, [(text.encode(), b"{}")])
    foretold, found = jsonb.decode(text), jsonb.decode(body)
    assert (str(foretold), type(foretold)) == (str(found), type(found))
    assert jsonb.same(text, body)


def test_a_number_beside_a_double_is_seen(postgres: Connection) -> None:
    near = b"0.1000000000000000055511151231257827"
    [(found, _)] = stored_text(postgres, [(near, b"{}")])
    assert jsonb.decode(found) == 0.1
    assert not jsonb.same(found, b"0.1")
    assert jsonb.same(found, near)


def test_seven_digits_are_cut_where_postgresql_would_round(postgres: Connection) -> None:
    text = "2025-11-02T08:00:00.9999999Z"
    instant = times.parse_iso(text)
    found = postgres.execute("SELECT %s::timestamptz, %s::timestamptz", (instant, text)).fetchone()
    assert found == (
        datetime(2025, 11, 2, 8, 0, 0, 999_999, tzinfo=UTC),
        datetime(2025, 11, 2, 8, 0, 1, tzinfo=UTC),
    )


def test_every_legal_id_is_found_again_by_its_source_id(mongo_database: Database[Document]) -> None:
    numbers = count()
    raws = [document.encode({"_id": identifier, "n": next(numbers)}) for identifier in IDENTIFIERS]
    found = [document.decode(raw) for raw in stored_raw(mongo_database, raws)]
    texts = {identity.source_id(each["_id"]): each["n"] for each in found}
    assert len(texts) == len(IDENTIFIERS)
    assert not any("\0" in text for text in texts)
    collection = mongo_database.t.with_options(codec_options=document.OPTIONS)
    for text, number in texts.items():
        again = collection.find_one({"_id": {"$eq": identity.parse_source_id(text)}})
        assert again is not None
        assert again["n"] == number
    keys = {identity.row_id("runs", "tenant-a", "runs", text) for text in texts}
    assert len(keys) == len(IDENTIFIERS)


@pytest.mark.parametrize("name", [*DEPRECATED, *FOLDED])
def test_what_python_folds_is_told_by_writing_it_again(mongo_database: Database[Document], name: str) -> None:
    inner = (DEPRECATED | FOLDED)[name]
    raw = raw_document(element(0x10, "_id", bytes(4)), element(0x03, "body", inner))
    [back] = stored_raw(mongo_database, [raw])
    assert back == raw
    assert document.encode(document.decode(back)) != back


def test_bad_utf8_is_stored_by_mongodb_and_undecodable_alone(mongo_database: Database[Document]) -> None:
    bad = raw_document(element(0x10, "_id", bytes(4)), element(0x02, "a", raw_text(b"\xff\xfe")))
    good = document.encode({"_id": 2, "a": "x"})
    first, second = stored_raw(mongo_database, [bad, good])
    with pytest.raises(document.Undecodable, match="bad-utf8"):
        document.decode(first)
    assert document.decode(second) == {"_id": 2, "a": "x"}
