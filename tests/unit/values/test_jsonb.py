"""JSON text for jsonb: what an application would write, and what PostgreSQL would give back."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from migrator.values import jsonb

PLAIN: list[tuple[Any, str]] = [
    ({"b": 1, "a": {"d": [1, {}], "c": None}}, '{"a":{"c":null,"d":[1,{}]},"b":1}'),
    ({"é": 1, "z": 2, "Z": 3, "\U0001f600": 4, "\uffff": 5}, '{"Z":3,"z":2,"é":1,"\uffff":5,"\U0001f600":4}'),
    ([], "[]"),
    (True, "true"),
    (Int64(5), "5"),
    (Int64(2**63 - 1), "9223372036854775807"),
    (1.0, "1.0"),
    (float("nan"), "null"),
    ([float("inf"), float("-inf")], "[null,null]"),
    ("a\0b", '"a\ufffdb"'),
    ({"a\0": "\0"}, '{"a\ufffd":"\ufffd"}'),
    ("\\u0000", '"\\\\u0000"'),
    (datetime(2025, 11, 2, 8), '"2025-11-02T08:00:00+00:00"'),  # noqa: DTZ001 - as decoded
    (datetime(2025, 11, 2, 8, 0, 0, 500_000), '"2025-11-02T08:00:00.5+00:00"'),  # noqa: DTZ001 - as decoded
    (datetime(2025, 11, 2, 8, tzinfo=UTC), '"2025-11-02T08:00:00+00:00"'),
    (datetime(2025, 11, 2, 8, tzinfo=timezone(timedelta(hours=2))), '"2025-11-02T06:00:00+00:00"'),
    ({"a": [{"t": datetime(1, 1, 1)}]}, '{"a":[{"t":"0001-01-01T00:00:00+00:00"}]}'),  # noqa: DTZ001 - as decoded
    ("2025-11-02T08:00:00Z", '"2025-11-02T08:00:00Z"'),
    ("2025-11-02T08:00:00.123456", '"2025-11-02T08:00:00.123456"'),
    (DatetimeMS(8_640_000_000_000_000), '"8640000000000000"'),
    (ObjectId("6b005afb90137d020b32ec6e"), '"6b005afb90137d020b32ec6e"'),
    (Decimal128("1.10"), '"1.10"'),
    (b"ab", '"YWI="'),
    (Binary(b"ab", 128), '"YWI="'),
    (Binary(bytes(range(16)), 4), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
    (Binary(bytes(range(15)), 4), '"AAECAwQFBgcICQoLDA0O"'),
    (Binary(bytes(16), 3), '"AAAAAAAAAAAAAAAAAAAAAA=="'),
    (Regex("a+", "im"), '"/a+/im"'),
    (Timestamp(7, 2), '"7:2"'),
    (Code("x\0"), '"x\ufffd"'),
    (Code("x", {"a": 1}), '"x"'),
    (MinKey(), '"MinKey"'),
    (MaxKey(), '"MaxKey"'),
    (DBRef("c", ObjectId("6b005afb90137d020b32ec6e")), '{"$id":"6b005afb90137d020b32ec6e","$ref":"c"}'),
]


@pytest.mark.parametrize(("value", "text"), PLAIN, ids=[f"{number}-{text}" for number, (_, text) in enumerate(PLAIN)])
def test_values_are_written_as_an_application_would(value: Any, text: str) -> None:  # noqa: ANN401 - any BSON value
    assert jsonb.encode(value) == text.encode()
    # Beside a date every value takes the slow way.
    assert jsonb.encode([value, datetime(2025, 1, 1)]) == f'[{text},"2025-01-01T00:00:00+00:00"]'.encode()  # noqa: DTZ001 - as decoded


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.0", 1.0),
        ("1.50", 1.5),
        ("-0.0", 0.0),
        ("-0", 0),
        ("1e22", 10**22),
        ("1E2", 100),
        ("1.5e3", 1500),
        ("1.50e1", 15.0),
        ("1.5e-7", 1.5e-7),
        ("-1.7976931348623157e308", -int("17976931348623157" + "0" * 292)),
        ("10000000000000000000000", 10**22),
        ('{"a":[1e16,{}]}', {"a": [10**16, {}]}),
    ],
)
def test_numbers_are_read_as_jsonb_gives_them_back(text: str, value: object) -> None:
    found = jsonb.decode(text.encode())
    assert (repr(found), type(found)) == (repr(value), type(value))


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        jsonb.decode(b"{'a': 1}")


@pytest.mark.parametrize(
    ("stored", "written", "same"),
    [
        ('{"a": 1, "bb": 2}', '{"bb":2,"a":1}', True),
        ("[1, 2]", "[1,2]", True),
        ("[1, 2]", "[2,1]", False),
        ("1", "1.0", False),
        ("1.50", "1.5", True),
        ("0.0", "-0.0", True),
        ("10000000000000000000000", "1e22", True),
        ("10000000000000001", "1e16", False),
        ('"\\u00e9"', '"é"', True),
        ("0.1000000000000000055511151231257827", "0.1", False),
        ("0.10000000000000000", "0.1", True),
        ("null", "{}", False),
    ],
)
def test_texts_are_compared_by_value_and_type(stored: str, written: str, same: bool) -> None:  # noqa: FBT001 - a case
    assert jsonb.same(stored.encode(), written.encode()) is same
    assert (jsonb.canonicalise(stored) == jsonb.canonicalise(written)) is same
