"""The remainder as a reader of the report meets it: small, typed, by path."""

import struct
from datetime import datetime
from typing import Any

import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.son import SON
from bson.timestamp import Timestamp

from migrator.values import remainder
from migrator.values.canonical import same

CASES: list[tuple[Any, Any, str, list[tuple[str, str]]]] = [
    ({"a": 1}, {"a": 1}, "{}", []),
    ({"a": 1, "note": "x"}, {"a": 1}, '{"+note":"x"}', [("note", "added")]),
    ({}, {"a": 1}, '{"a":{"$absent":true}}', [("a", "absent")]),
    ({"a": None}, {}, '{"+a":null}', [("a", "null")]),
    ({"a": None}, {"a": 1}, '{"a":null}', [("a", "null")]),
    ({"a": "x\0y"}, {"a": "x\ufffdy"}, '{"a":{"$text":["x","y"]}}', [("a", "nul")]),
    ({"a": float("nan")}, {"a": None}, '{"a":{"$double":"nan"}}', [("a", "nan")]),
    ({"a": float("-inf")}, {"a": None}, '{"a":{"$double":"-inf"}}', [("a", "nan")]),
    ({"a": -0.0}, {"a": 0.0}, '{"a":{"$double":"-0.0"}}', [("a", "type")]),
    ({"a": Int64(5)}, {"a": 5}, '{"a":{"$long":5}}', [("a", "type")]),
    ({"a": 1.0}, {"a": 1}, '{"a":1.0}', [("a", "type")]),
    ({"a": 1}, {"a": 1.0}, '{"a":1}', [("a", "type")]),
    ({"a": 1e16}, {"a": 10**16}, '{"a":{"$double":"1e+16"}}', [("a", "type")]),
    ({"a": 1e22}, {"a": 10**22}, "{}", []),
    ({"a": Decimal128("1.10")}, {"a": "1.10"}, '{"a":{"$decimal":"1.10"}}', [("a", "type")]),
    ({"t": "2025-11-02T08:00:00.1234567Z"}, {"t": "x"}, '{"t":"2025-11-02T08:00:00.1234567Z"}', [("t", "precision")]),
    ({"t": "2025-11-02T08:00:00.1234560Z"}, {"t": "x"}, '{"t":"2025-11-02T08:00:00.1234560Z"}', [("t", "spelling")]),
    ({"t": "2025-11-02T08:00:00Z"}, {"t": "x"}, '{"t":"2025-11-02T08:00:00Z"}', [("t", "spelling")]),
    (
        {"t": datetime(2025, 11, 2, 8, 0, 0, 123_000)},  # noqa: DTZ001 - as decoded
        {"t": "2025-11-02T08:00:00.123+00:00"},
        '{"t":{"$date":"2025-11-02T08:00:00.123+00:00"}}',
        [("t", "type")],
    ),
    ({"s": {"q": Int64(1), "r": 2}}, {"s": {"q": 1, "r": 2}}, '{"s.q":{"$long":1}}', [("s.q", "type")]),
    ({"l": [{"d": "a"}, {"d": "b"}]}, {"l": [{"d": "a"}, {"d": "c"}]}, '{"l[1].d":"b"}', [("l[1].d", "spelling")]),
    ({"l": [1, 2]}, {"l": [1]}, '{"l":[1,2]}', [("l", "value")]),
    ({"l": []}, {"l": {}}, '{"l":[]}', [("l", "value")]),
    ({"a": True}, {"a": 1}, '{"a":true}', [("a", "value")]),
    ({"p": {"$oid": "x"}}, {}, '{"+p":{"$object":[["$oid","x"]]}}', [("p", "added")]),
    ({"p": {"$oid": "x"}}, {"p": 1}, '{"p":{"$object":[["$oid","x"]]}}', [("p", "value")]),
    ({"p": {"$oid": 1}}, {"p": {"$oid": 2}}, '{"p.$oid":1}', [("p.$oid", "type")]),
    ({"a.b": 1, "": 2, "+c": 3, "[0]": 4}, {}, '{"+a~1b":1,"+~3":2,"+~40]":4,"+~5c":3}', []),
    ({"_id": {"b": 1, "a": 2}}, {"_id": {"a": 2, "b": 1}}, '{"_id":{"$object":[["b",1],["a",2]]}}', [("_id", "value")]),
    ({"_id": ObjectId(b"x" * 12)}, {}, '{"+_id":{"$oid":"787878787878787878787878"}}', [("_id", "added")]),
    (
        {"_id": {"c": Code("x", {"b": 1, "a": 2})}},
        {},
        '{"+_id":{"$object":[["c",{"$code":["x",{"$object":[["b",1],["a",2]]}]}]]}}',
        [("_id", "added")],
    ),
    ({"n": {"_id": {"b": 1, "a": 2}}}, {"n": {"_id": {"a": 2, "b": 1}}}, "{}", []),
    (1, 2, '{"":1}', [("", "type")]),
    ({"_id": SON(b=1, a=2)}, 1, '{"":{"$object":[["_id",{"$object":[["b",1],["a",2]]}]]}}', [("", "value")]),
]


@pytest.mark.parametrize(
    ("document", "rebuilt", "text", "entries"), CASES, ids=[f"{number}-{case[2]}" for number, case in enumerate(CASES)]
)
def test_remainder(document: Any, rebuilt: Any, text: str, entries: list[tuple[str, str]]) -> None:  # noqa: ANN401 - any
    found = remainder.difference(document, rebuilt)
    assert found.decode() == text
    assert same(remainder.apply(rebuilt, found), document)
    if entries:
        assert [(entry.path, entry.kind) for entry in remainder.entries(found)] == entries


def test_entries_are_sorted_by_path_and_count_arrays_as_one_field() -> None:
    text = remainder.difference({"b": 1, "a": [{"x": 1}, {"x": "y"}]}, {"a": [{"x": 2}, {"x": 2}]})
    found = remainder.entries(text)
    assert [(entry.path, entry.field) for entry in found] == [("a[0].x", "a[].x"), ("a[1].x", "a[].x"), ("b", "b")]
    assert remainder.entries(remainder.EMPTY) == []


def test_applying_leaves_the_rebuilt_document_alone() -> None:
    rebuilt = {"a": {"b": [{"c": 1}, {"c": 1}]}, "d": {}}
    whole = {"a": {"b": [{"c": 2}, {"c": 3}]}, "d": {}}
    applied = remainder.apply(rebuilt, remainder.difference(whole, rebuilt))
    assert applied == whole
    assert rebuilt == {"a": {"b": [{"c": 1}, {"c": 1}]}, "d": {}}
    assert applied["d"] is rebuilt["d"]
    assert remainder.apply(rebuilt, remainder.EMPTY) is rebuilt


@pytest.mark.parametrize("text", [b'{"a.b":1}', b'{"a":{"$absent":true}}', b'{"l[3]":1}', b'{"l.x":1}', b'{"s.x":1}'])
def test_a_remainder_of_other_rows_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        remainder.apply({"l": [1], "s": "text"}, text)


UNUSUAL_NAN = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
UNUSUAL_DECIMAL = Decimal128.from_bid(bytes.fromhex("ff" * 12 + "ffffff6f"))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Int64(2**40), 2**40),
        (-(2**31), -(2**31)),
        (Int64(-(2**31)), {"$long": -(2**31)}),
        (UNUSUAL_NAN, {"$nan": "fff8000000000123"}),
        (Decimal128("1E+3"), {"$decimal": "1E+3"}),
        (UNUSUAL_DECIMAL, {"$bid": "ff" * 12 + "ffffff6f"}),
        (b"x", {"$binary": "eA=="}),
        (Binary(b"x", 128), {"$binary": ["eA==", 128]}),
        (Code("a\0"), {"$code": {"$text": ["a", ""]}}),
        (Regex("a", "i"), {"$regex": ["a", 2]}),
        (Timestamp(7, 2), {"$timestamp": [7, 2]}),
        (DatetimeMS(8_640_000_000_000_000), {"$date": 8_640_000_000_000_000}),
        (MinKey(), {"$minKey": True}),
        (MaxKey(), {"$maxKey": True}),
    ],
    ids=repr,
)
def test_typed_forms(value: Any, form: object) -> None:  # noqa: ANN401 - any BSON value
    assert remainder.write_typed(value) == form
    back = remainder.read_typed(form)
    assert type(back) is type(value)
    assert same(back, value)


@pytest.mark.parametrize("form", [{"$unknown": 1}, {"$": 1}])
def test_an_unknown_typed_form_is_refused(form: object) -> None:
    with pytest.raises(ValueError, match="unknown type"):
        remainder.read_typed(form)


def test_what_bson_lacks_has_no_typed_form() -> None:
    with pytest.raises(TypeError, match="not a BSON type: object"):
        remainder.write_typed(object())


@pytest.mark.parametrize("kind", sorted(remainder.LOSSES))
def test_losses_are_kinds_of_entries(kind: str) -> None:
    assert kind in {entry for case in CASES for _, entry in case[3]}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("", []),
        ("a", ["a"]),
        ("stats.queued", ["stats", "queued"]),
        ("images[3].digest", ["images", 3, "digest"]),
        ("[3][0]", [3, 0]),
        ("~3", [""]),
        ("~03", ["~3"]),
        ("~3.~3", ["", ""]),
        ("a~1b.~40]", ["a.b", "[0]"]),
    ],
)
def test_paths(path: str, steps: list[str | int]) -> None:
    assert remainder.parse_path(path) == steps
