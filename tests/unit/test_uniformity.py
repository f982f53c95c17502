"""What the fields of documents hold, counted by the native codec's package and in Python."""

import random
import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from migrator import native
from migrator.parity import uniformity
from migrator.parity.uniformity import NOTHING, FieldCounter, FieldCounts, Uniformity, confirmed
from tests import native_codec

TIME = "2026-05-01T00:00:00"
NAMES = {"a": False, "at": True, "createdAt": True, "": True, "inner.at": True, "name": False}
REGULAR = [
    *(f"{TIME}+00:00", f"{TIME}.000Z", f"{TIME}.999Z", f"{TIME}.1+00:00", f"{TIME}.123456789+00:00"),
    "9999-99-99T99:99:99+00:00",
]
OTHER_TEXTS = [
    *("", "x", TIME, f"{TIME}Z", f"{TIME}.00Z", f"{TIME}.0000Z", f"{TIME}.Z", f"{TIME}.+00:00", f"{TIME}+01:00"),
    *(f"{TIME}.1234567890+00:00", f"{TIME}.000Z\n", f" {TIME}.000Z", f"{TIME}.000z", f"{TIME}.000Z\0", f"{TIME}+00:0"),
    *(f"{TIME}.", f"{TIME}.1", f"{TIME}.1234", f"2026-05-01 {TIME[11:]}.000Z", f"{TIME}.00\N{ARABIC-INDIC DIGIT ONE}Z"),
    f"{TIME}.000+00:00 and more",
]
VALUES: list[Any] = [
    *REGULAR,
    *OTHER_TEXTS,
    *(None, True, False, 1, 0, Int64(5), 1.5, Decimal128("1"), b"x", Binary(b"x", 2), ObjectId(), MinKey(), MaxKey()),
    *([], [1], {}, {"at": TIME}, Regex("a", "im"), Code("x"), Code("x", {"a": 1}), Timestamp(1, 1)),
    *(DBRef("a", ObjectId()), datetime(2026, 5, 1), datetime(1, 1, 1)),  # noqa: DTZ001 - as BSON has it
]


@pytest.fixture(params=["native", "python"])
def _codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "native":
        native_codec.needed()
    else:
        monkeypatch.setattr(native, "module", lambda: None)


def counts_of(raws: Sequence[bytes], left_out: Sequence[bytes] = ()) -> FieldCounts:
    counter = FieldCounter(NAMES)
    counter.add(b"".join(raws))
    for raw in left_out:
        counter.leave_out(raw)
    return counter.counts()


def random_document(stream: random.Random) -> bytes:
    names = stream.sample([*NAMES, "other", "createdat", "nam", "names"], stream.randrange(8))
    return bson.encode({name: stream.choice(VALUES) for name in names})


@pytest.mark.usefixtures("_codec")
@pytest.mark.parametrize("text", REGULAR)
def test_a_text_of_the_form_counts_as_a_time_where_a_time_is_expected(text: str) -> None:
    counts = counts_of([bson.encode({"at": text, "a": text})])
    assert (counts.fields["at"], counts.fields["a"]) == ((1, 0, 1), (1, 0, 0))


@pytest.mark.usefixtures("_codec")
@pytest.mark.parametrize("text", OTHER_TEXTS)
def test_any_other_text_counts_as_a_value(text: str) -> None:
    assert counts_of([bson.encode({"at": text})]).fields["at"] == (1, 0, 0)


@pytest.mark.usefixtures("_codec")
def test_null_and_undefined_are_no_values_and_any_other_is_one() -> None:
    undefined = b"\x06at\0"
    raw = struct.pack("<i", 4 + len(undefined) + 1) + undefined + b"\0"
    counts = counts_of([bson.encode({"at": None}), raw, bson.encode({}), *(bson.encode({"at": one}) for one in VALUES)])
    assert counts.fields["at"][0] == len(VALUES) - 1
    assert (counts.documents, counts.irregular) == (3 + len(VALUES), 0)


@pytest.mark.usefixtures("_codec")
def test_fields_within_others_are_not_counted() -> None:
    counts = counts_of([bson.encode({"x": {"at": TIME, "a": 1}, "inner": {"at": TIME}, "y": [{"a": 1}]})])
    assert set(counts.fields.values()) == {(0, 0, 0)}


def test_both_count_the_same_and_what_is_left_out_counts_no_more() -> None:
    native_codec.needed()
    stream = random.Random(7)
    for _ in range(300):
        raws = [random_document(stream) for _ in range(stream.randrange(20))]
        left_out = stream.sample(raws, stream.randrange(len(raws) + 1))
        counts = counts_of(raws, left_out)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "module", lambda: None)
            assert counts_of(raws, left_out) == counts
        stay = list(raws)
        for raw in left_out:
            stay.remove(raw)
        assert counts_of(stay) == counts


def test_a_field_that_stands_twice_and_bytes_that_are_no_document_are_irregular() -> None:
    native_codec.needed()
    twice = b"\x10a\0" + bytes(4) + b"\x10b\0" + bytes(4) + b"\x10a\0" + bytes(4)
    twice = struct.pack("<i", 4 + len(twice) + 1) + twice + b"\0"
    damaged = bytearray(bson.encode({"a": "text"}))
    damaged[7:11] = struct.pack("<i", 99)
    counts = counts_of([bson.encode({"a": 1}), twice, bytes(damaged), bson.encode({"a": 1})])
    assert (counts.documents, counts.irregular) == (4, 2)
    assert confirmed(Uniformity(filled=frozenset({"a"})), counts) == NOTHING
    counts = counts_of([twice, bytes(damaged), bson.encode({"a": 1})], [twice, bytes(damaged)])
    assert (counts.documents, counts.irregular, counts.fields["a"]) == (1, 0, (1, 0, 0))
    assert counts_of([b"\4\0\0\0"]).irregular == 1


def test_what_holds_for_all_is_confirmed_field_by_field() -> None:
    fields = {"none": (0, 0, 0), "all": (9, 0, 0), "some": (4, 0, 0)}
    fields |= {"dates": (4, 4, 0), "texts": (9, 0, 9), "mixed": (9, 4, 5), "odd": (9, 0, 8), "never": (0, 0, 0)}
    each = frozenset(fields)
    assert confirmed(Uniformity(each, each, each), FieldCounts(9, 0, fields)) == Uniformity(
        empty=frozenset({"none", "never"}),
        filled=frozenset({"all", "texts", "mixed", "odd"}),
        times=frozenset({"none", "never", "dates", "texts"}),
    )
    assert confirmed(Uniformity(each, each, each), FieldCounts()) == NOTHING, "nothing is known"


def test_counts_of_chunks_are_added_up() -> None:
    parts = [FieldCounts(2, 1, {"a": (2, 0, 1)}), FieldCounts(3, 0, {"a": (1, 1, 0)})]
    assert sum(parts, FieldCounts()) == FieldCounts(5, 1, {"a": (3, 1, 1)})


@pytest.mark.usefixtures("_codec")
def test_the_form_is_that_of_the_module() -> None:
    """A text is counted just if the pattern takes it, also one that differs from a time in one byte."""
    stream = random.Random(3)
    for _ in range(5_000):
        text = list(stream.choice(REGULAR))
        match stream.randrange(4):
            case 0:
                text[stream.randrange(len(text))] = stream.choice("019.:+-TZz /")
            case 1:
                text.insert(stream.randrange(len(text) + 1), stream.choice("01.:+Z"))
            case 2:
                del text[stream.randrange(len(text))]
            case _:
                pass
        counted = counts_of([bson.encode({"at": "".join(text)})]).fields["at"][2]
        assert counted == bool(uniformity.REGULAR_TIME.fullmatch("".join(text))), text
