"""JSON text of the native codec beside its definition, ``values.jsonb`` and ``sources.shapes``."""

import json
import math
import struct
from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from bson.int64 import Int64
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from migrator.sources import shapes
from migrator.sources.profile import Rejected
from migrator.sources.shape_description import IndescribableError, describe
from migrator.sources.shapes import Int32, Moment, Shape, ordered_reader
from migrator.sources.store_documents import names
from migrator.sources.store_documents.impact_snapshots import Image
from migrator.sources.store_documents.runs import Delta, Reason, Stats
from migrator.sources.store_documents.selector import Selector
from migrator.values import document, jsonb, times
from tests.strategies_bson import TIMES, Value, doubles, element, keys, late, made, raw_document, raw_text, values

native = pytest.importorskip("migrator_speedups.json_text", reason="the native codec is not built")

PROFILE = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])

TEXT, DOCUMENT, ARRAY = 0x02, 0x03, 0x04


class Inner(Shape):
    """Members that jsonb puts in another order."""

    zeta: str
    b: Literal["x", "y"] | None = None
    at: Moment = None


class Outer(Shape):
    """Every type that a shape may have."""

    items: list[Inner] | None = None
    labels: dict[str, str] | None = None
    anything: Any = None
    count: Int32 | None = None
    free: dict[str, Any] | None = None
    number: int | float | None = None
    is_set: bool | None = None
    inner: Inner | None = None
    size: float | None = None


SHAPES: tuple[type[Shape], ...] = (Stats, Reason, Delta, Image, Selector, Inner, Outer)
COMPILED: dict[type[Shape], Any] = {shape: native.compile_shape(describe(shape)) for shape in SHAPES}


def raw_of(value: Value) -> tuple[int, bytes]:
    """Return the BSON type and the bytes of a value."""
    raw = document.encode({"": value})
    return raw[4], raw[6:-1]


def plain_values() -> st.SearchStrategy[Value]:
    """Return values of which most are taken."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(2**31), 2**31 - 1)
        | st.integers(2**31, 2**63 - 1).map(Int64)
        | st.floats(1e-4, 1e15, exclude_max=True)
        | st.text(max_size=40)
    )
    return st.recursive(
        scalars, lambda part: st.lists(part, max_size=14) | st.dictionaries(keys(), part), max_leaves=20
    )


@PROFILE
@given(plain_values() | values())
@example({str(number): number for number in range(300)})
@example(list(range(1200)))
@example({"b": 1, "a": {"cc": 1, "b": [{}, [], {"z": 1, "y": 2}]}})
@example("".join(map(chr, range(1, 300))))
@example({"é": 1, "ab": 2, "b": 3})
def test_what_is_taken_means_the_same_and_leads_back(value: Value) -> None:
    kind, raw = raw_of(value)
    text = native.json_of(kind, raw)
    if text is None:
        return
    decoded = document.decode(document.encode({"": value}))[""]
    assert jsonb.canonicalise(text) == jsonb.canonicalise(jsonb.encode(decoded))
    assert native.bson_of(text, kind, raw) == (kind, raw)


def damaged(raw: bytes, data: st.DataObject) -> bytes:
    """Return bytes of which up to three are others, and the end may be missing."""
    changed = bytearray(raw)
    for place in data.draw(st.lists(st.integers(0, max(len(raw) - 1, 0)), min_size=1, max_size=3)):
        if changed:
            changed[place] = data.draw(st.integers(0, 255))
    return bytes(changed[: data.draw(st.integers(0, len(changed)))]) if data.draw(st.booleans()) else bytes(changed)


@PROFILE
@given(plain_values(), st.data())
def test_changed_bytes_are_handed_over_or_mean_what_python_reads(value: Value, data: st.DataObject) -> None:
    kind, raw = raw_of(value)
    cut = damaged(raw, data)
    text = native.json_of(kind, cut)
    if text is not None:
        decoded = document.decode(raw_document(bytes([kind]) + b"\0" + cut))[""]
        assert jsonb.canonicalise(text) == jsonb.canonicalise(jsonb.encode(decoded))
        assert native.bson_of(text, kind, cut) == (kind, cut)
    native.bson_of(cut, kind, raw)  # a text that nobody wrote


def is_utf8(text: bytearray) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@PROFILE
@given(plain_values(), st.data())
def test_a_changed_text_gives_what_it_says_or_nothing(value: Value, data: st.DataObject) -> None:
    kind, raw = raw_of(value)
    text = native.json_of(kind, raw)
    if not text:
        return
    changed = bytearray(text)
    changed[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    found = native.bson_of(bytes(changed), kind, raw)
    if found is not None and bytes(changed) != text:
        if not is_utf8(changed):  # a row holds no such text: it is not taken for the source's
            assert found != (kind, raw)
            return
        # A number has spellings that jsonb has not: the bytes differ from the source's, or mean the same.
        again = document.decode(raw_document(bytes([found[0]]) + b"\0" + found[1]))[""]
        assert found != (kind, raw) or jsonb.canonicalise(jsonb.encode(again)) == jsonb.canonicalise(text)


_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    shapes.Instant: st.sampled_from(TIMES) | st.datetimes(timezones=st.just(UTC)).map(times.format_iso),
    Any: plain_values(),
    bool: st.booleans(),
    float: doubles(),
    str: st.text(max_size=10),
}
_NUMBERS = st.integers(-(2**31), 2**31 - 1) | late(Int64, st.integers(-(2**63), 2**63 - 1))


def _of_hint(hint: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - an annotation
    return st.one_of([_of_part(part) for part in shapes.parts(hint)])


def _of_part(part: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - an annotation
    if get_origin(part) is Literal:
        return st.sampled_from(get_args(part))
    if get_origin(part) is list:
        return st.lists(_of_hint(get_args(part)[0]), max_size=3)
    if get_origin(part) is dict:
        return st.dictionaries(keys(), _of_hint(get_args(part)[1]), max_size=3)
    if isinstance(part, type) and issubclass(part, Shape):
        return _of_shape(part)
    return _SIMPLE.get(part, _NUMBERS)


@st.composite
def _of_shape(draw: st.DrawFn, shape: type[Shape]) -> dict[str, Any]:
    """Return a document near to a shape: now and then a member is of another type, unknown, or in another place."""
    hints = get_type_hints(shape, include_extras=True)
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(shape):
        if draw(st.booleans()) or (field.required and draw(st.integers(0, 9))):
            odd = draw(st.integers(0, 40)) == 0
            found[field.encode_name] = draw(values() if odd else _of_hint(hints[field.name]))
    if draw(st.integers(0, 20)) == 0:
        found[draw(keys())] = 1
    if draw(st.integers(0, 20)) == 0:
        found = dict(draw(st.permutations(list(found.items()))))
    return found


@pytest.mark.parametrize("shape", SHAPES)
@settings(PROFILE, max_examples=40)
@given(st.data())
def test_a_shape_takes_what_the_python_codec_takes_without_a_remainder(shape: type[Shape], data: st.DataObject) -> None:
    value = made(data.draw(_of_shape(shape)))
    kind, raw = raw_of(value)
    text = native.json_of(kind, raw, COMPILED[shape])
    decoded = document.decode(raw)
    if text is None:
        return
    shapes.read(decoded, shape)
    assert jsonb.canonicalise(text) == jsonb.canonicalise(jsonb.encode(decoded))
    assert native.bson_of(text, kind, raw, COMPILED[shape]) == (kind, raw)
    rebuilt = ordered_reader(shape)(text)
    assert rebuilt == decoded or jsonb.canonicalise(jsonb.encode(rebuilt)) == jsonb.canonicalise(text)


TAKEN = [
    (Stats, {"candidates": 1, "newLow": -3}),
    (Stats, {}),
    (Stats, {"deltas": None}),
    (Reason, {"manualReason": "x", "impactWindowFrom": "2025-11-02T08:00:00.5+01:00"}),
    (Delta, {"imageDigest": "d", "kevHits": [], "topFindings": [{"purl": "p", "severity": "high"}]}),
    (Delta, {"kevHits": ["a", "b"], "attestation": {"uuid": "u", "verified": True}, "detectedAt": TIMES[1]}),
    (Image, {"tags": ["latest"], "labels": {"b": "1", "a": "2"}}),
    (Outer, {"free": {"z": [{"b": 1, "a": None}], "a": 1.5}, "number": 5.0, "inner": {"zeta": "z", "b": "y"}}),
    (Outer, {"anything": [1, {"zz": 1, "a": 2}], "count": 2**31 - 1, "size": 0.0}),
]


@pytest.mark.parametrize(("shape", "value"), TAKEN)
def test_what_is_plain_is_taken(shape: type[Shape], value: dict[str, Any]) -> None:
    kind, raw = raw_of(value)
    text = native.json_of(kind, raw, COMPILED[shape])
    assert text is not None
    assert native.bson_of(text, kind, raw, COMPILED[shape]) == (kind, raw)


HANDED = [
    (Stats, {"candidates": 1.0}),
    (Stats, {"candidates": Int64(1)}),
    (Stats, {"newLow": 1, "candidates": 1}),
    (Stats, {"unknown": 1}),
    (Reason, {"impactWindowFrom": "2025-11-02T08:00:00"}),
    (Reason, {"impactWindowFrom": datetime(2025, 11, 2)}),  # noqa: DTZ001 - as decoded
    (Reason, {"cursor": "a\0b"}),
    (Delta, {"topFindings": [{"severity": "High"}]}),
    (Delta, {"kevHits": [None]}),
    (Inner, {"b": "x"}),
    (Outer, {"count": Int64(2**31)}),
    (Outer, {"size": -0.0}),
    (Outer, {"size": 1e15}),
    (Outer, {"size": math.nan}),
    (Outer, {"free": {"$ref": "a"}}),
]


@pytest.mark.parametrize(("shape", "value"), HANDED)
def test_what_is_not_plain_is_handed_over(shape: type[Shape], value: dict[str, Any]) -> None:
    assert native.json_of(*raw_of(value), COMPILED[shape]) is None


def nested(kind: int, depth: int) -> bytes:
    found = raw_document()
    for _ in range(depth):
        found = raw_document(element(kind, "0", found))
    return found


BROKEN = {
    "length beyond the end": (TEXT, struct.pack("<i", 1000) + b"a\0"),
    "length below nothing": (TEXT, struct.pack("<i", -1) + b"a\0"),
    "no end": (TEXT, struct.pack("<i", 2) + b"ab"),
    "surrogate": (TEXT, raw_text(b"\xed\xa0\x80")),
    "overlong": (TEXT, raw_text(b"\xc0\xaf")),
    "overlong of three bytes": (TEXT, raw_text(b"\xe0\x80\xaf")),
    "beyond Unicode": (TEXT, raw_text(b"\xf4\x90\x80\x80")),
    "half a character": (TEXT, raw_text(b"abcdefgh\xc3")),
    "duplicate key": (DOCUMENT, raw_document(element(0x0A, "a"), element(0x08, "a", b"\1"))),
    "key that is not UTF-8": (DOCUMENT, raw_document(b"\x0a\xff\0")),
    "array keys": (ARRAY, raw_document(element(0x0A, "1"))),
    "array keys with zeros": (ARRAY, raw_document(element(0x0A, "00"))),
    "flag of two": (DOCUMENT, raw_document(element(0x08, "a", b"\2"))),
    "text of a document": (DOCUMENT, raw_document(element(0x02, "a", raw_text(b"x"))[:-2])),
    "inner length": (DOCUMENT, raw_document(element(0x03, "a", struct.pack("<i", 6) + b"\0"))),
    "symbol": (DOCUMENT, raw_document(element(0x0E, "a", raw_text(b"x")))),
    "depth": (ARRAY, nested(ARRAY, 61)),
    "depth of documents": (DOCUMENT, nested(DOCUMENT, 100)),
}


@pytest.mark.parametrize(("kind", "raw"), BROKEN.values(), ids=BROKEN)
def test_broken_bytes_are_handed_over(kind: int, raw: bytes) -> None:
    assert native.json_of(kind, raw) is None
    assert native.bson_of(b"[]" if kind == ARRAY else b"{}", kind, raw) in (None, (kind, raw_document()))


MOMENTS = [
    *TIMES,
    "2025-11-02T08:00:00.123456789+14:00",
    "2024-02-29T23:59:59-23:59",
    "2023-02-29T00:00:00Z",
    "2025-13-01T00:00:00Z",
    "2025-00-01T00:00:00Z",
    "2025-04-31T00:00:00Z",
    "2025-11-02T24:00:00Z",
    "2025-11-02T08:60:00Z",
    "2025-11-02T08:00:60Z",
    "2025-11-02T08:00:00.Z",
    "2025-11-02T08:00:00.1234567890Z",
    "2025-11-02T08:00:00+0100",
    "2025-11-02T08:00:00+01",
    "2025-11-02T08:00:00+24:00",
    "2025-11-02T08:00:00+01:60",
    "2025-11-02 08:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "0000-01-01T00:00:00Z",
    "٢٠٢٥-11-02T08:00:00Z",
    "",
]


@pytest.mark.parametrize("text", MOMENTS)
def test_a_moment_that_is_taken_is_one(text: str) -> None:
    shape = native.compile_shape(describe(Moment))
    if native.json_of(*raw_of(text), shape) is not None:
        assert times.parse_iso(text)


@PROFILE
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001 - bounds
def test_each_time_as_sources_write_it_is_taken(moment: datetime) -> None:
    shape = native.compile_shape(describe(Moment))
    for text in (times.format_iso(moment), times.format_javascript(moment)):
        assert native.json_of(*raw_of(text), shape) is not None


def test_a_respelled_word_is_handed_over() -> None:
    shape = native.compile_shape(describe(Selector, {"scope": names.SCOPES}))
    assert native.json_of(*raw_of({"scope": "by-repository"}), shape) == b'{"scope": "by-repository"}'
    assert native.json_of(*raw_of({"scope": "by-repo"}), shape) is None


def test_types_that_a_description_cannot_say() -> None:
    for annotation in (bytes, set[str], Literal[1], dict[int, str]):
        with pytest.raises(IndescribableError):
            describe(annotation)


def test_a_value_that_a_shape_rejects_is_not_taken() -> None:
    for value in ({"candidates": "1"}, {"candidates": True}):
        with pytest.raises(Rejected):
            shapes.read(value, Stats)
        assert native.json_of(*raw_of(value), COMPILED[Stats]) is None


@PROFILE
@given(plain_values() | values())
@example("".join(map(chr, [*range(300), 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF])))
@example([0.0, -0.0, 1e16, 1e22, 1e-5, 5e-324, 1.7976931348623157e308, float("nan"), float("inf")])
@example({"b": 1, "a": {"cc": 1, "b": [{}, [], {"z": 1, "y": 2}]}})
@example({"__type__": 1})
def test_python_reads_back_what_is_written_as_python_writes_it(value: Value) -> None:
    kind, raw = raw_of(value)
    text = native.python_json_of(kind, raw)
    if text is None:
        return
    decoded = document.decode(document.encode({"": value}))[""]
    assert text == json.dumps(decoded).encode()
    assert raw_of(json.loads(text)) == (kind, raw)


@PROFILE
@given(plain_values(), st.data())
def test_changed_bytes_are_handed_over_or_written_as_python_does(value: Value, data: st.DataObject) -> None:
    kind, raw = raw_of(value)
    cut = damaged(raw, data)
    text = native.python_json_of(kind, cut)
    if text is not None:
        decoded = document.decode(raw_document(bytes([kind]) + b"\0" + cut))[""]
        assert text == json.dumps(decoded).encode()
        assert raw_of(json.loads(text)) == (kind, cut)


def test_a_key_that_repeats_is_for_the_python_codec() -> None:
    twice = raw_document(b"\x10a\0\1\0\0\0\x10b\0\1\0\0\0\x10a\0\2\0\0\0")
    assert native.python_json_of(DOCUMENT, twice) is None
