"""Strict reading: what is taken, what is refused, and how the refusal reads."""

from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import bson
import msgspec
import pytest
from bson.datetime_ms import DatetimeMS

from migrator.config import SourceSettings
from migrator.errors import ConfigurationError
from migrator.sources import NAMES, load_profile, profile_of
from migrator.sources.profile import Rejected
from migrator.sources.shapes import (
    Int16,
    Moment,
    Shape,
    arranger,
    choice,
    indexed,
    instant,
    keys,
    known_paths,
    ordered_reader,
    plain,
    read,
    required,
    text,
)
from migrator.values import jsonb


class Leaf(Shape):
    """A leaf."""

    at: Moment = None
    kind: Literal["b", "a"] | None = None
    value: int | None = None


class Tree(Shape, kw_only=True):
    """A tree."""

    aliases: ClassVar = frozenset({"oldName"})

    key: Any = msgspec.field(name="_id")
    new_name: str
    old_name: str | None = None
    leaf: Leaf | None = None
    leaves: list[Leaf] | None = None
    labels: dict[str, str] | None = None
    size: Int16 | None = None
    at: Moment = None


GOOD: dict[str, Any] = {"_id": 1, "newName": "n"}


def test_times_are_read_wherever_they_stand() -> None:
    made = {"at": "2025-11-01T10:00:00Z", "leaf": {"at": datetime(2025, 11, 1, 10)}}  # noqa: DTZ001 - as BSON gives it
    found = read(GOOD | made, Tree)
    assert found.at == datetime(2025, 11, 1, 10, tzinfo=UTC)
    assert found.leaf == Leaf(at=found.at)
    assert found.leaves is None


@pytest.mark.parametrize(
    ("made", "reason", "path", "expected"),
    [
        ({"newName": 1}, "wrong-type", "newName", "string"),
        ({"newName": None}, "wrong-type", "newName", "string"),
        ({"leaf": {"value": "1"}}, "wrong-type", "leaf.value", "int or null"),
        ({"leaves": [{}, {"value": 1.0}]}, "wrong-type", "leaves[].value", "int or null"),
        ({"leaves": {"0": {}}}, "wrong-type", "leaves", "array or null"),
        ({"leaf": []}, "wrong-type", "leaf", "object or null"),
        ({"labels": {"a.b": 1}}, "wrong-type", "labels[]", "string"),
        ({"size": 1 << 15}, "out-of-range", "size", "int <= 32767"),
        ({"size": -(1 << 15) - 1}, "out-of-range", "size", "int >= -32768"),
        ({"leaf": {"kind": "c"}}, "unknown-value", "leaf.kind", "one of a, b"),
        ({"leaves": [{"kind": "c"}]}, "unknown-value", "leaves[].kind", "one of a, b"),
        ({"at": "2025-11-01T10:00:00"}, "bad-date", "at", "an ISO 8601 time that names its offset"),
        ({"leaves": [{"at": "x"}]}, "bad-date", "leaves[].at", "an ISO 8601 time that names its offset"),
        ({"leaf": {"at": DatetimeMS(1 << 50)}}, "bad-date", "leaf.at", "a time in the years 1 to 9999"),
        ({"leaf": {"at": 5}}, "wrong-type", "leaf.at", "a date or an ISO 8601 text"),
    ],
)
def test_the_first_fault_is_named_by_its_path(made: dict[str, Any], reason: str, path: str, expected: str) -> None:
    with pytest.raises(Rejected) as caught:
        read(GOOD | made, Tree)
    assert (caught.value.reason, caught.value.path, caught.value.expected) == (reason, path, expected)


def test_a_missing_field_is_named_with_its_document() -> None:
    with pytest.raises(Rejected) as caught:
        read({"_id": 1}, Tree)
    assert (caught.value.reason, caught.value.path) == ("missing-field", "newName")


def test_no_refusal_holds_a_value_even_one_that_imitates_the_sentence() -> None:
    odd = "secret` - at `$.leaf"
    for made in ({"leaf": {"kind": odd}}, {"newName": {odd: 1}}, {"labels": {odd: 1}}, {"at": odd}):
        with pytest.raises(Rejected) as caught:
            read(GOOD | made, Tree)
        assert "secret" not in str(caught.value)


def test_an_int64_is_a_number_and_a_code_is_no_text() -> None:
    assert type(read(GOOD | {"size": bson.Int64(3)}, Tree).size) is int
    for refuse in (plain, text, indexed):
        with pytest.raises(Rejected):
            refuse(bson.Code("x"), "p")
    with pytest.raises(Rejected):
        choice(bson.Code("a"), {"a": 1}, "p")


def test_optional_texts_are_trimmed() -> None:
    assert [text(value, "p") for value in (None, "", " \n", " a ")] == [None, None, None, "a"]


def test_an_indexed_text_is_measured_in_bytes() -> None:
    assert indexed("a" * 2000, "p") == "a" * 2000
    assert indexed("ä" * 1000, "p") == "ä" * 1000
    for long in ("a" * 2001, "ä" * 1001, "𝄞" * 501):
        with pytest.raises(Rejected, match="too-long"):
            indexed(long, "p")


def test_small_readers() -> None:
    aware = datetime(2025, 1, 1, tzinfo=UTC)
    assert instant(aware, "p") is aware
    assert required(0, "p") == 0
    assert choice("a", {"a": 1}, "p") == 1
    with pytest.raises(Rejected, match="missing-field"):
        required(None, "p")
    with pytest.raises(Rejected, match="missing-field"):
        instant(None, "p")
    with pytest.raises(Rejected, match="expected one of a, b"):
        choice("c", {"b": 1, "a": 2}, "p")


def test_names_and_paths_come_from_the_declaration() -> None:
    assert keys(Tree) == ("_id", "newName", "leaf", "leaves", "labels", "size", "at")
    inner = {"at", "kind", "value"}
    assert known_paths(Tree) == {
        *keys(Tree),
        "oldName",
        *(f"leaf.{name}" for name in inner),
        "leaves[]",
        *(f"leaves[].{name}" for name in inner),
        "labels.*",
    }


@pytest.mark.parametrize(
    "value",
    [
        {"value": 1, "kind": "a", "at": "x"},
        {"value": 1, "zzz": {"b": 1, "a": 2}, "at": None},
        {"value": 1.5, "kind": 7},
        {"value": 10**30, "at": 5},
        {},
        [],
        "text",
        None,
        {"kind": ["deep"], "value": {}},
    ],
)
def test_jsonb_is_read_back_as_it_was_in_the_order_of_the_source(value: Any) -> None:  # noqa: ANN401 - any JSON
    found = ordered_reader(Leaf)(jsonb.encode(value))
    assert found == jsonb.decode(jsonb.encode(value))
    if isinstance(value, dict):
        assert [name for name in found if name in keys(Leaf)] == [name for name in keys(Leaf) if name in value]


def test_lists_and_inner_documents_are_ordered_too() -> None:
    items = [{"value": 1, "at": "x"}, {"kind": "a", "at": "y", "other": 1}]
    assert [list(item) for item in ordered_reader(Leaf, many=True)(jsonb.encode(items))] == [
        ["at", "value"],
        ["at", "kind", "other"],
    ]
    tree = arranger(Tree)({"leaves": items, "leaf": items[0], "newName": "n", "odd": 1})
    assert list(tree) == ["newName", "leaf", "leaves", "odd"]
    assert list(tree["leaf"]) == list(tree["leaves"][0]) == ["at", "value"]
    assert arranger(Tree)({"leaves": "odd"}) == {"leaves": "odd"}


def test_what_types_alone_cannot_tell_goes_the_long_way() -> None:
    class Doubles(Shape):
        much: float | None = None
        free: dict[str, Any] | None = None

    found = ordered_reader(Doubles)(jsonb.encode({"free": {"n": 1}, "much": 2}))
    assert list(found) == ["much", "free"]
    assert type(found["much"]) is int


def test_profiles_are_found_by_name() -> None:
    assert [load_profile(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(ConfigurationError, match="did you mean stellaops"):
        load_profile("stelaops")
    with pytest.raises(ConfigurationError, match="known: stellaops, agenda"):
        load_profile("xyzzy")


@pytest.mark.parametrize(
    ("collections", "sentence"),
    [
        ({"rnus": "x"}, "source.collections.rnus: profile stellaops has no collection of this name; did you mean runs"),
        ({"quartz": "x"}, "source.collections.quartz: profile stellaops has no collection of this name; known: sched"),
        ({"runs": ""}, "source.collections.runs: expected the name of a collection of MongoDB: not empty"),
        ({"runs": "$x"}, "source.collections.runs: expected the name of a collection of MongoDB"),
        ({"runs": "a\0b"}, "source.collections.runs: expected the name of a collection of MongoDB"),
        ({"runs": "system.users"}, "source.collections.runs: expected the name of a collection of MongoDB"),
        ({"runs": ".x"}, "source.collections.runs: expected the name of a collection of MongoDB"),
        ({"runs": "schedules"}, "source.collections.runs: schedules and runs would both be read from one collection"),
        ({"schedules": "runs"}, "source.collections.schedules: schedules and runs would both be read from one"),
        ({"schedules": "x", "runs": "x"}, "source.collections.runs: schedules and runs would both be read from one"),
    ],
)
def test_names_of_collections_are_checked(collections: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        profile_of(SourceSettings(collections=collections))
    assert str(refused.value).startswith(sentence)


def test_collections_may_change_their_names() -> None:
    assert profile_of(SourceSettings(collections={"runs": "schedules", "schedules": "a/b"})).name == "stellaops"
