"""What a mapping file can say beyond the plainest fields: each with the values of a hostile source, by both codecs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator.errors import ConfigurationError
from migrator.pipeline.transform import decode_document, rebuild
from migrator.sources.mapping.file import load_mapping
from migrator.sources.profile import Collection, Context, Document, Profile, Rejected
from migrator.values import document as documents
from migrator.values import remainder
from migrator.values.canonical import same
from tests.both_codecs import compare

NOON = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - as BSON dates are read
CONTEXT = Context(as_of=NOON.replace(tzinfo=UTC), default_tenant="house", zone="Europe/Vienna")
HEAD = '[source]\nname = "acme"\n'
RUNS = (
    HEAD
    + """
[collections.runs]
tables = ["runs"]
[collections.runs.constants]
runs.state = "queued"
[collections.runs.fields]
made = { to = "runs.created_at" }
"""
)


def profile(tmp_path: Path, text: str) -> Profile:
    path = tmp_path / "acme.toml"
    path.write_text(text, encoding="utf-8")
    return load_mapping(path)


def mistakes(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        profile(tmp_path, text)
    return str(caught.value)


def travel(collection: Collection, document: Document) -> tuple[Any, set[str]]:
    """Return the first row, and the fields that are in its remainder; the rows and the remainder give all back."""
    raw = bson.encode(document)
    decoded = decode_document(collection, CONTEXT, raw)
    decoded.serialize()
    rows = tuple(row.record for row in decoded.serialized)
    assert same(rebuild(collection, rows), documents.decode(raw))
    return rows, {entry.field for entry in remainder.entries(collection.remainder(rows))}


def reason(collection: Collection, document: Document) -> str:
    with pytest.raises(Rejected) as caught:
        travel(collection, document)
    return f"{caught.value.reason} {caught.value.path}"


NUMBER_AS_TEXT = RUNS + 'worker = { to = "runs.worker_id", type = "int" }\n'


@pytest.mark.parametrize(
    ("value", "text", "left"),
    [
        (7, "7", set()),
        (0, "0", set()),
        (-3, "-3", set()),
        (Int64(2**40), "1099511627776", set()),
        (Int64(2**63 - 1), "9223372036854775807", set()),
        (Int64(7), "7", {"worker"}),
        (7.0, "7", {"worker"}),
        (-0.0, "0", {"worker"}),
        (None, None, {"worker"}),
    ],
)
def test_a_number_fills_a_text_column_with_its_digits(
    tmp_path: Path, value: object, text: str | None, left: set[str]
) -> None:
    [collection] = profile(tmp_path, NUMBER_AS_TEXT).collections
    document = {"_id": "r", "made": NOON, "worker": value}
    [row], found = travel(collection, document)
    assert (row.worker_id, found) == (text, left)
    assert compare(collection, CONTEXT, [bson.encode(document)]).plain == ([] if left else [0])


NOT_WHOLE: tuple[object, ...] = (1.5, float("nan"), float("inf"), 2.0**63, "7", True, Decimal128("7"), [7], {}, NOON)


def test_what_is_no_whole_number_is_quarantined(tmp_path: Path) -> None:
    [collection] = profile(tmp_path, NUMBER_AS_TEXT).collections
    for value in (*NOT_WHOLE, Code("7")):
        document = {"_id": "r", "made": NOON, "worker": value}
        assert reason(collection, document) == "wrong-type worker"
        assert compare(collection, CONTEXT, [bson.encode(document)]).plain == []


@pytest.mark.parametrize("text", ["", "007", "+7", "7 ", "\u0667", "9223372036854775808", "w-1"])
def test_a_text_that_is_no_number_is_not_written(tmp_path: Path, text: str) -> None:
    """As a row that was created in PostgreSQL may hold it."""
    [collection] = profile(tmp_path, NUMBER_AS_TEXT).collections
    [row], _ = travel(collection, {"_id": "r", "made": NOON, "worker": 7})
    assert "worker" not in collection.encode((type(row)(**{**_columns(row), "worker_id": text}),))


def _columns(row: Any) -> dict[str, Any]:  # noqa: ANN401 - any record
    return {name: getattr(row, name) for name in row.__struct_fields__}


TYPED_JSON = (
    RUNS
    + """
a = { to = "runs.result.a", type = "%s" }
b = { to = "runs.result.b" }
whole = { to = "runs.metadata", type = "%s" }
"""
)


TYPED: dict[str, tuple[object, ...]] = {
    "long": tuple(map(Int64, (0, 5, -(2**63), 2**63 - 1))),
    "int": (0, -1, 2**31 - 1),
    "double": (0.0, 5.0, 2.5, 1e22, 1e300),
    "date": (NOON, NOON.replace(microsecond=123_000)),
    "objectId": (ObjectId("6b005affa4375445fe12232e"),),
    "decimal": tuple(map(Decimal128, ("1.10", "-5", "NaN"))),
}


@pytest.mark.parametrize("kind", sorted(TYPED))
def test_a_value_in_json_comes_back_in_its_type(tmp_path: Path, kind: str) -> None:
    [collection] = profile(tmp_path, TYPED_JSON % (kind, kind)).collections
    for value in TYPED[kind]:
        _, left = travel(collection, {"_id": "r", "made": NOON, "a": value, "b": "x", "whole": value})
        assert left == set(), value


HOSTILE = (None, True, "x", "", "2026-11-22T12:00:00Z", "9" * 400, 5, Int64(5), 5.0, -0.0, 1e300, float("nan"))
HOSTILE_TOO = (
    Decimal128("5"),
    NOON,
    ObjectId("6b005affa4375445fe12232e"),
    [Int64(1)],
    {"a": Int64(1)},
    Code("x"),
    b"x",
)


@pytest.mark.parametrize("kind", sorted(TYPED))
def test_a_value_of_another_type_is_kept_in_the_remainder(tmp_path: Path, kind: str) -> None:
    [collection] = profile(tmp_path, TYPED_JSON % (kind, kind)).collections
    for value in (*HOSTILE, *HOSTILE_TOO):
        travel(collection, {"_id": "r", "made": NOON, "a": value, "b": value, "whole": value})
        compare(collection, CONTEXT, [bson.encode({"_id": "r", "made": NOON, "whole": value})])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('x = { to = "runs.error", type = "date" }', "field x of runs: type: expected one of int, long, double"),
        (
            'x = { to = "runs.error", type = "byte" }',
            "field x of runs: type: expected one of int, long, double, ",
        ),
        ('x = { to = "runs.error", type = "int", trim = true }', "field x of runs: trim: the documents hold numbers"),
        (
            'x = { to = "runs.result", type = "long", holds = "text" }',
            "field x of runs: type: the value is",
        ),
        (
            'x = { to = "runs.error", type = "int", default = 7 }',
            "field x of runs: default: expected a value",
        ),
    ],
)
def test_a_type_that_does_not_fit_is_a_mistake(tmp_path: Path, line: str, expected: str) -> None:
    assert expected in mistakes(tmp_path, RUNS + line + "\n")


LEFT_OUT = (
    RUNS
    + """
[collections.audit_old]
left_out = "kept in the archive"
"""
)


def test_a_collection_is_left_out_with_its_reason(tmp_path: Path) -> None:
    found = profile(tmp_path, LEFT_OUT)
    assert [one.name for one in found.collections] == ["runs"]
    assert found.left_out == {"audit_old": "kept in the archive"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LEFT_OUT + 'tables = ["audit"]\n', "collection audit_old: tables: the collection is left out, and nothing"),
        (LEFT_OUT.replace('"kept in the archive"', "true"), "collection audit_old: left_out: expected the reason"),
        (LEFT_OUT.replace("kept in the archive", " "), "collection audit_old: left_out: expected the reason"),
        (LEFT_OUT.replace("kept in the archive", "a\\nb"), "collection audit_old: left_out: expected the reason"),
        (HEAD + "[collections.a]\nleft_out = 'x'\n", "expected at least one collection that is not left out"),
        (
            LEFT_OUT.replace("made =", 'job = { to = "runs.schedule_id", collection = "audit_old" }\nmade ='),
            "field job of runs: the collection audit_old is left out",
        ),
    ],
)
def test_a_collection_that_is_left_out_says_nothing_else(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in mistakes(tmp_path, text)
