"""Raw BSON: strict about bytes, and no type lost."""

import struct
from datetime import datetime

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from migrator.values import document
from tests.strategies_bson import DEPRECATED, FOLDED, element, raw_document, raw_text


def test_types_are_kept() -> None:
    far = raw_document(element(0x09, "t", struct.pack("<q", 8_640_000_000_000_000)))
    assert document.decode(far) == {"t": DatetimeMS(8_640_000_000_000_000)}
    value = {
        "small": 1,
        "long": Int64(1),
        "date": datetime(2025, 11, 2, 8, 0, 0, 123_000),  # noqa: DTZ001 - as decoded
        "uuid": Binary(bytes(16), 4),
        "legacy": Binary(bytes(16), 3),
        "bytes": b"x",
    }
    decoded = document.decode(document.encode(value))
    assert decoded == value
    assert [type(item) for item in decoded.values()] == [type(item) for item in value.values()]


def test_a_member_that_looks_like_a_reference_stays_a_document() -> None:
    value = {
        "first": {"$id": 1, "$ref": "c"},
        "second": [{"$ref": "c", "$id": {"$ref": "d", "$id": 2}, "x": [None, {"y": 1.5}]}],
        "third": Code("x", {"$ref": "c", "$id": 3}),
        "$ref": "top",
    }
    raw = document.encode(value)
    decoded = document.decode(raw)
    assert type(decoded["first"]) is dict
    assert type(decoded["second"][0]["$id"]) is dict
    assert decoded == value
    assert document.encode(decoded) == raw


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "malformed"),
        (b"\5\0\0\0", "malformed"),
        (b"\6\0\0\0\0", "malformed"),
        (bson.encode({"a": 1}) + b"\0", "malformed"),
        (raw_document(element(0x02, "a", raw_text(b"\xff"))), "bad-utf8"),
        (raw_document(element(0x02, "a", raw_text(b"\xed\xa0\x80"))), "bad-utf8"),
        (raw_document(b"\x0a\xff\0"), "bad-utf8"),
        (raw_document(element(0x20, "a")), "unknown-type"),
        (raw_document(element(0x02, "a", struct.pack("<i", 99) + b"x\0")), "malformed"),
        (raw_document(element(0x08, "a", b"\7")), "malformed"),
        (raw_document(element(0x03, "$ref", b"\x80\0\0\0\0")), "malformed"),
    ],
)
def test_what_is_no_document_is_undecodable_with_a_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(document.Undecodable) as caught:
        document.decode(raw)
    assert caught.value.reason == reason


@pytest.mark.parametrize("raw", [*DEPRECATED.values(), *FOLDED.values()], ids=[*DEPRECATED, *FOLDED])
def test_what_python_folds_is_told_by_writing_it_again(raw: bytes) -> None:
    assert document.encode(document.decode(raw)) != raw


def test_nesting_beyond_python_is_undecodable_alone() -> None:
    raw = raw_document()
    for _ in range(20_000):
        raw = raw_document(element(0x03, "a", raw))
    with pytest.raises(document.Undecodable) as caught:
        document.decode(raw)
    assert caught.value.reason == "too-deep"


def test_one_that_cannot_be_decoded_costs_the_others_nothing() -> None:
    good, bad = document.encode({"a": 1}), raw_document(element(0x20, "a"))
    reference = document.encode({"a": {"$ref": "c", "$id": 1}})
    first, second, third = document.decode_all([good, bad, reference])
    assert (first, third) == ({"a": 1}, {"a": {"$ref": "c", "$id": 1}})
    assert isinstance(third, dict)
    assert type(third["a"]) is dict
    assert isinstance(second, document.Undecodable)
    assert second.reason == "unknown-type"
    assert document.decode_all([reference]) == [third]
    assert document.decode_all([]) == []


@pytest.mark.parametrize("raw", [*DEPRECATED.values(), *FOLDED.values()], ids=[*DEPRECATED, *FOLDED])
def test_what_python_folds_is_told_among_others(raw: bytes) -> None:
    other = document.encode({"a": list(range(3))})
    raws = [other, raw, *[other] * 20]
    expected = [True, False, *[True] * 20]
    assert document.encode_to([document.decode(one) for one in raws], raws) == expected


@pytest.mark.parametrize("odd", [{"a": object()}, {"a": 2**63}, {1: 2}], ids=["no-bson", "too-large", "no-text"])
def test_what_is_not_bson_is_not_what_was_read(odd: dict[str, object]) -> None:
    raw = document.encode({"a": 1})
    assert document.encode_to([{"a": 1}, odd, {"a": 1}], [raw] * 3) == [True, False, True]
    assert document.encode_to([{"a": 2**63}], [document.encode({"a": 2.0**63})]) == [True]


def test_another_length_shifts_what_follows_and_no_more() -> None:
    values = [{"a": "x" * number} for number in range(12)]
    raws = [document.encode(value) for value in values]
    values[3], values[10] = {"a": "longer by far"}, {}
    assert document.encode_to(values, raws) == [number not in (3, 10) for number in range(12)]


def test_keys_take_the_order_of_another_document() -> None:
    like = {"_id": {"x": 1, "y": 2}, "a": {"m": 1, "n": [{"p": 1, "q": 2}, 3]}, "b": 2}
    turned = {"b": 2, "a": {"n": [{"q": 2, "p": 1}, 3], "m": 1}, "_id": {"y": 2, "x": 1}}
    ordered = document.in_order(turned, like)
    assert str(ordered) == str({**like, "_id": {"y": 2, "x": 1}})  # the order within an _id is part of it
    assert document.in_order({"a": {"m": 1}}, {"a": {"m": 1, "n": 2}}) == {"a": {"m": 1}}
    assert str(document.in_order(turned, {"a": 1})) == str(turned)


def test_a_batch_is_split() -> None:
    raws = [document.encode({"a": "x" * number}) for number in range(3)]
    assert document.split(b"".join(raws)) == raws
    assert document.split(b"") == []


@pytest.mark.parametrize("batch", [b"\5", b"\4\0\0\0\0", b"\xff\xff\xff\xff\0", b"\6\0\0\0\0", bson.encode({}) + b"\0"])
def test_a_batch_whose_lengths_do_not_add_up_is_refused(batch: bytes) -> None:
    with pytest.raises(document.Undecodable):
        document.split(batch)


def test_an_integer_that_bson_lacks_is_written_as_the_double_it_was() -> None:
    value = {"a": [{"b": 10**22}], "c": -(10**400), "d": 10**400, "e": -(2**63), "f": True}
    back = document.decode(document.encode(value))
    assert back == {"a": [{"b": 1e22}], "c": float("-inf"), "d": float("inf"), "e": -(2**63), "f": True}
    assert isinstance(back["e"], Int64)
