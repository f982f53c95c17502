"""Functions of a mapping that are about a declared part of a document: what they are given, and what is remembered."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest

from migrator.sources.mapping.codec import collection_of
from migrator.sources.mapping.excerpts import Held, UndeclaredError
from migrator.sources.mapping.language import Excerpt, Field, Mapped, Reading, SourceMapping
from migrator.sources.profile import Collection, Context, Document
from migrator.values import document as documents
from tests.both_codecs import compare, native_reader
from tests.stellaops_documents import CONTEXT

EXCERPT: Final = Excerpt(
    fields=frozenset({"every", "unit"}),
    columns=("triggers.interval_ms", "triggers.kind", "triggers.timezone", "schedules.status", "triggers.source_spec"),
)
MINUTES: Final = {"_id": "a", "tenant": "t", "name": "n", "every": 5, "unit": "minutes", "zone": "UTC"}
_MILLISECONDS: Final = {"minutes": 60_000, "hours": 3_600_000}


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Fill a trigger from two fields."""
    reading.columns["schedules"]["status"] = "scheduled" if "every" in document else "paused"
    if document.get("every") is not None:
        unit = _MILLISECONDS.get(document.get("unit") or "", 1)
        reading.columns["triggers"]["interval_ms"] = document["every"] * unit
        reading.columns["triggers"]["source_spec"] = b'{"b":"x","a":[1,2.5,null]}'


def _respell(held: Mapping[str, Held]) -> dict[str, Any]:
    trigger = held.get("triggers")
    if trigger is None:
        return {"every": None, "unit": None}
    return {"every": trigger.interval_ms // 60_000, "unit": "minutes"}


def made(
    derive: Callable[[Document, Reading, Context], None] = _derive,
    respell: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _respell,
    excerpt: Excerpt = EXCERPT,
) -> Collection:
    """Return a collection whose trigger follows from two fields."""
    fields = (
        Field(path="tenant", converter="tenant"),
        Field(path="name", columns=("schedules.name",), converter="text", required=True),
        Field(path="every", converter="number", shape=int),
        Field(path="unit", converter="text"),
        Field(path="zone", columns=("schedules.description",), converter="text"),
    )
    mapped = Mapped(
        name="kept",
        tables=("schedules", "triggers"),
        fields=fields,
        excerpt=excerpt,
        derive=derive,
        respell_held=respell,
        constants={"schedules.handler_type": "function"},
    )
    return collection_of(SourceMapping(name="own", collections=(mapped,)), mapped)


def read(collection: Collection, *changes: Document) -> list[int]:
    """Return which documents the native codec takes; both codecs must agree about them."""
    raws = [documents.encode({k: v for k, v in (MINUTES | one).items() if v is not None}) for one in changes]
    return compare(collection, CONTEXT, raws).plain


def test_documents_with_rows_in_two_tables_are_read_natively() -> None:
    assert read(made(), {}, {"every": 7}, {"name": "other"}, {"every": None, "unit": None}) == [0, 1, 2, 3]


def test_what_does_not_come_back_is_for_the_python_codec() -> None:
    assert read(made(), {"unit": "hours"}, {"every": None}, {"unit": None}, {"every": 7.0}, {}) == [4]


def test_a_function_is_asked_once_for_each_combination_of_values() -> None:
    asked: list[Document] = []

    def derive(document: Document, reading: Reading, context: Context) -> None:
        asked.append({**document})
        _derive(document, reading, context)

    reader = native_reader(made(derive), CONTEXT)
    changes: tuple[Document, ...] = ({}, {"name": "other"}, {"every": 6}, {}, {"zone": "CET"}, {"every": 6})
    batch = b"".join(documents.encode(MINUTES | one) for one in changes)
    assert [reader.codec.read(batch).plain for _ in range(3)] == [6, 6, 6]
    assert asked == [{"every": 5, "unit": "minutes"}, {"every": 6, "unit": "minutes"}]


def test_nothing_more_is_asked_where_nearly_every_answer_is_for_the_python_codec() -> None:
    asked: list[Document] = []

    def derive(document: Document, reading: Reading, context: Context) -> None:
        asked.append(document)
        _derive(document, reading, context)

    reader = native_reader(made(derive), CONTEXT)
    batch = b"".join(documents.encode(MINUTES | {"every": number, "unit": "hours"}) for number in range(1_000))
    assert reader.codec.read(batch).plain == 0
    assert len(asked) == 257
    assert reader.codec.read(documents.encode(MINUTES)).plain == 0, "one that is not known is not asked for either"


def test_a_field_that_is_not_declared_cannot_be_read() -> None:
    for ask in (lambda one: one["zone"], lambda one: one.get("zone"), lambda one: "zone" in one):

        def derive(
            document: Document, _reading: Reading, _context: Context, ask: Callable[[Document], Any] = ask
        ) -> None:
            ask(document)

        with pytest.raises(UndeclaredError, match="field zone"):
            made(derive).decode(MINUTES, CONTEXT)


def test_a_column_that_is_not_declared_is_neither_given_nor_taken() -> None:
    def derive(_document: Document, reading: Reading, _context: Context) -> None:
        assert "description" not in reading.columns["schedules"]
        reading.columns["schedules"]["description"] = "other"

    with pytest.raises(UndeclaredError, match=r"column schedules\.description"):
        made(derive).decode(MINUTES, CONTEXT)


def test_a_column_that_is_not_declared_cannot_be_written_from() -> None:
    collection = made(respell=lambda held: {"unit": held["schedules"].description})
    with pytest.raises(UndeclaredError, match=r"column schedules\.description"):
        collection.encode(collection.decode(MINUTES, CONTEXT).rows)


def test_a_field_that_is_not_declared_cannot_be_written() -> None:
    collection = made(respell=lambda _held: {"zone": "CET"})
    with pytest.raises(UndeclaredError, match="field zone"):
        collection.encode(collection.decode(MINUTES, CONTEXT).rows)


def test_a_function_that_asks_for_the_tenant_is_for_the_python_codec() -> None:
    def derive(document: Document, reading: Reading, context: Context) -> None:
        _derive(document, reading, context)
        reading.columns["triggers"]["timezone"] = "UTC" if reading.tenant == "t" else "CET"

    assert read(made(derive), {}, {"tenant": "u"}) == []


def test_a_field_of_which_the_function_says_nothing_is_for_the_python_codec() -> None:
    assert read(made(respell=lambda held: {"every": _respell(held)["every"]}), {}) == []


def test_an_id_of_its_own_is_for_the_python_codec() -> None:
    def derive(document: Document, reading: Reading, context: Context) -> None:
        _derive(document, reading, context)
        reading.columns["triggers"]["id"] = "0e5d7c1a-9b3f-4e6d-8c2b-1a0f9e8d7c6b"

    excerpt = msgspec.structs.replace(EXCERPT, columns=(*EXCERPT.columns, "triggers.id"))
    reader = native_reader(made(derive, excerpt=excerpt), CONTEXT)
    assert reader.codec.read(documents.encode(MINUTES)).plain == 0


def test_a_column_of_the_excerpt_that_a_field_fills_has_no_plan() -> None:
    excerpt = msgspec.structs.replace(EXCERPT, columns=(*EXCERPT.columns, "schedules.name"))
    collection = made(excerpt=excerpt)
    assert collection.native is not None
    assert collection.native(CONTEXT) is None
