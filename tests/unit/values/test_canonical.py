"""Equality: the pairs that JSON, Python or MongoDB take for the same, and the ones they do not."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.son import SON

from migrator.values import document
from migrator.values.canonical import canonical, same

NAN = float("nan")

DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, Int64(1)),
    (1, True),
    (0, False),
    (0.0, -0.0),
    (None, {}),
    ({}, []),
    ({"a": None}, {}),
    ("", None),
    ("1", 1),
    (Decimal128("1.0"), Decimal128("1.00")),
    (b"x", Binary(b"x", 128)),
    (b"x", "x"),
    (Code("x"), "x"),
    (Code("x"), Code("x", {})),
    ([1, 2], [2, 1]),
    ({"a": [1]}, {"a": [1.0]}),
    ({"_id": {"a": 1, "b": 2}}, {"_id": {"b": 2, "a": 1}}),
    ({"_id": {"n": {"a": 1, "b": 2}}}, {"_id": {"n": {"b": 2, "a": 1}}}),
    (datetime(2025, 1, 1), "2025-01-01T00:00:00+00:00"),  # noqa: DTZ001 - as decoded
    (NAN, None),
]

SAME: list[tuple[Any, Any]] = [
    (NAN, NAN),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"n": {"_id": {"a": 1, "b": 2}}}, {"n": {"_id": {"b": 2, "a": 1}}}),
    ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
    (Code("x", {"a": 1, "b": 2}), Code("x", {"b": 2, "a": 1})),
    (Int64(2**40), 2**40),
    (b"x", Binary(b"x", 0)),
    (datetime(2025, 1, 1), datetime(2025, 1, 1, tzinfo=UTC)),  # noqa: DTZ001 - as decoded
    (datetime(2025, 1, 1), datetime(2025, 1, 1, 0, 0, 0, 999)),  # noqa: DTZ001 - as decoded
    (datetime(1970, 1, 1), DatetimeMS(0)),  # noqa: DTZ001 - as decoded
    (DBRef("c", 1), {"$id": 1, "$ref": "c"}),
    (SON(b=1, a=2), {"a": 2, "b": 1}),
    (RawBSONDocument(document.encode({"b": {"d": 1, "c": 2}})), {"b": {"c": 2, "d": 1}}),
    ((1, 2), [1, 2]),
    (10**22, 1e22),
    ({"a": [10**400]}, {"a": [float("inf")]}),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=repr)
def test_different(left: Any, right: Any) -> None:  # noqa: ANN401 - any BSON value
    assert not same(left, right)
    within_a_member = isinstance(left, dict) and "_id" in left  # where key order no longer counts
    assert same({"v": left}, {"v": right}) is within_a_member


@pytest.mark.parametrize(("left", "right"), SAME, ids=repr)
def test_same(left: Any, right: Any) -> None:  # noqa: ANN401 - any BSON value
    assert same(left, right)
    assert same([left], [right])
    assert canonical(left) == canonical(right)


def test_keys_are_sorted_by_their_utf8_bytes() -> None:
    keys = ["\U0001f600", "\uffff", "z", "Z", "é", ""]
    ordered = canonical(dict.fromkeys(keys))
    places = [ordered.index(b"\n" + key.encode() + b"\0") for key in sorted(keys, key=str.encode)]
    assert places == sorted(places)


def test_the_key_order_of_an_identifier_is_kept_in_bytes_and_the_rest_is_sorted() -> None:
    left = canonical({"b": 1, "_id": {"z": 1, "a": 2}, "a": 1})
    assert left == canonical({"a": 1, "_id": {"z": 1, "a": 2}, "b": 1})
    assert left.index(b"z\0") < left.index(b"a\0")


def test_what_bson_lacks_has_no_canonical_form() -> None:
    with pytest.raises(Exception, match="cannot encode"):
        canonical(object())
