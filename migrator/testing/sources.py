"""The tests of a source, made from its profile and its documents.

One line in a module that pytest collects is the whole of it::

    TestAcme = source_tests("acme.toml", read_documents(FOLDER), read_hostile(FOLDER / "hostile.jsonl"))

A folder of documents has a file ``<collection>.jsonl`` for each collection, with a document of MongoDB's extended JSON
on each line. A line of hostile documents is ``{"collection", "reason", "path"}`` with what is wrong: ``document``, a
whole one, or ``of``, the number of a document of that collection, with ``set`` (path → value) and ``drop`` (paths).
``reason`` null: the document is odd, and accepted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import bson
import msgspec
from bson import json_util
from bson.codec_options import DatetimeConversion

from migrator.records import Record
from migrator.sources import load_profile
from migrator.sources.profile import Collection, Context, Document, Note, Profile, Rejected, Rows, Skipped
from migrator.values import canonical, jsonb, remainder
from migrator.values import document as documents
from migrator.values.copy_format import codec, column_types

Documents = Mapping[str, Sequence[bytes]]
"""Collection → its documents as BSON."""

JSON: Final = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, tz_aware=False, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
CONTEXT: Final = Context(as_of=datetime(2026, 11, 20, 12, tzinfo=UTC), default_tenant="house", zone="Europe/Vienna")
WRONG: Final = (b"bytes", 1.5, True, 7, "text", [1], {"a": 1}, bson.ObjectId(), bson.Code("x"))
"""A value of each type that a field may wrongly have."""
REASONS: Final = frozenset(
    {
        *("bad-date", "bad-pickle", "missing-field", "no-tenant", "no-zone", "nul-in-tenant", "out-of-range"),
        *("too-long", "unknown-value", "wrong-kind", "wrong-type"),
    }
)
"""Reasons for which a document with one field changed may be quarantined."""


class Trip(msgspec.Struct, frozen=True):
    """A document, the rows that it became as PostgreSQL would give them back, and what they lack."""

    document: Document
    rows: Rows
    notes: tuple[Note, ...]
    remainder: bytes
    encoded: Document
    """What the rows encode to, without the remainder."""

    @property
    def fields(self) -> set[str]:
        """Names of the fields in the remainder."""
        return {entry.field for entry in remainder.entries(self.remainder)}


def travel(collection: Collection, made: Document, context: Context) -> Trip:
    """Take a document through the columns; ``AssertionError`` where the rows with the remainder are not the document.

    Raises ``Rejected`` and ``Skipped`` as decoding does.
    """
    read = documents.decode(bson.encode(made))
    decoded = collection.decode(read, context)
    encoded = collection.encode(decoded.rows)
    kept = remainder.difference(read, encoded)
    rows = tuple(map(_stored, collection.attach(decoded.rows, kept)))
    rebuilt = remainder.apply(collection.encode(rows), collection.remainder(rows))
    if not canonical.same(rebuilt, collection.without_derived(read)) or collection.remainder(rows) != kept:
        raise AssertionError(f"the rows of a document of {collection.name} do not give it back")
    return Trip(read, rows, decoded.notes, kept, encoded)


def _stored(row: Record) -> Record:
    """Return the row with its JSON as PostgreSQL gives it back; its columns must be serializable."""
    if all("\0" not in value for value in (getattr(row, name) for name in row.__struct_fields__) if type(value) is str):
        codec(type(row)).serialize(row)
    changes = {
        column: jsonb.canonicalise(value)
        for column, kind in column_types(type(row)).items()
        if kind == "jsonb" and (value := getattr(row, column)) is not None
    }
    return msgspec.structs.replace(row, **changes)


def read_documents(folder: Path) -> Documents:
    """Return the documents of a folder."""
    return {
        file.stem: [bson.encode(json_util.loads(line, json_options=JSON)) for line in _lines(file)]
        for file in sorted(folder.glob("*.jsonl"))
        if file.stem != "hostile"
    }


class Hostile(msgspec.Struct, frozen=True, kw_only=True):
    """A document that is quarantined, or, without a reason, accepted although it is odd."""

    collection: str
    path: str
    reason: str | None
    document: Document | None = None
    of: int = 0
    set: Mapping[str, Any] = {}
    drop: Sequence[str] = ()

    def made(self, among: Documents) -> Document:
        """Return the document."""
        if self.document is not None:
            return dict(self.document)
        made = documents.decode(among[self.collection][self.of])
        for path in (*self.set, *self.drop):
            *steps, last = path.split(".")
            place: Any = made
            for step in steps:
                place = place[int(step)] if isinstance(place, list) else place[step]
            if path in self.set:
                place[last] = self.set[path]
            else:
                del place[last]
        return made


def read_hostile(file: Path) -> list[Hostile]:
    """Return the hostile documents of a file."""
    return [Hostile(**json_util.loads(line, json_options=JSON)) for line in _lines(file)]


def _lines(file: Path) -> Iterator[str]:
    return filter(None, file.read_text(encoding="utf-8").split("\n"))


class SourceTests:
    """What holds for every source: nothing of a document is lost, and what has no column is quarantined or kept."""

    profile: ClassVar[Profile]
    context: ClassVar[Context]
    documents: ClassVar[Documents]
    hostile: ClassVar[Sequence[Hostile]] = ()
    quarantined: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    """(reason, path) of the documents among ``documents`` that are quarantined."""
    ordered: ClassVar[bool] = False
    """The order of the fields of a document says something."""

    def pytest_generate_tests(self, metafunc: Any) -> None:  # noqa: ANN401 - pytest, which the tool does not need
        """Make a test of each document, and of each hostile one."""
        cases = [(name, raw) for name, raws in self.documents.items() for raw in raws]
        if "raw" in metafunc.fixturenames:
            names = [f"{name}-{number}" for name, raws in self.documents.items() for number in range(len(raws))]
            metafunc.parametrize(("name", "raw"), cases, ids=names)
        if "collection" in metafunc.fixturenames:
            metafunc.parametrize("collection", self.documents)
        if "wrong" in metafunc.fixturenames:
            numbered = [f"{one.collection}-{one.path}-{number}" for number, one in enumerate(self.hostile)]
            metafunc.parametrize("wrong", self.hostile, ids=numbered)

    def _fields(self, collection: str) -> Iterable[tuple[str, bytes]]:
        """Return each field with the first document of those where it has a value of that type."""
        first: dict[tuple[str, type], tuple[str, bytes]] = {}
        for raw in self.documents[collection]:
            for field, value in documents.decode(raw).items():
                first.setdefault((field, type(value)), (field, raw))
        return first.values()

    def attempt(self, name: str, made: Document) -> Trip | Rejected | Skipped:
        """Return the way of a document, or why it has no rows."""
        try:
            return travel(self.profile.by_name()[name], made, self.context)
        except (Rejected, Skipped) as ended:
            return ended

    def loaded(self, name: str, raw: bytes) -> Trip | None:
        """Return the way of a document of the source; None: it is rightly quarantined or skipped."""
        ended = self.attempt(name, documents.decode(raw))
        if isinstance(ended, Rejected):
            assert (ended.reason, ended.path) in self.quarantined
        return ended if isinstance(ended, Trip) else None

    def test_there_are_documents_of_every_collection(self) -> None:
        """Documents that no collection of the profile has would be tested by nothing."""
        assert {name for name, raws in self.documents.items() if raws} == set(self.profile.by_name())

    def test_a_document_comes_back(self, name: str, raw: bytes) -> None:
        """``travel`` says so; without a remainder its rows alone give it back."""
        trip = self.loaded(name, raw)
        if trip is not None and trip.remainder == b"{}":
            assert canonical.same(trip.encoded, self.profile.by_name()[name].without_derived(trip.document))

    def test_the_order_of_fields_is_no_matter(self, name: str, raw: bytes) -> None:
        """Unless the source is ``ordered``, the same document makes the same rows in whatever order its fields are."""
        trip = self.loaded(name, raw)
        if trip is not None:
            other = self.attempt(name, dict(reversed(documents.decode(raw).items())))
            assert isinstance(other, Trip)
            assert other.rows == trip.rows or self.ordered
            assert jsonb.canonicalise(other.remainder) == jsonb.canonicalise(trip.remainder)

    def test_an_unknown_field_is_kept(self, name: str, raw: bytes) -> None:
        """It is in the remainder, and changes no column."""
        trip = self.loaded(name, raw)
        if trip is not None:
            other = self.attempt(name, documents.decode(raw) | {"unheardOf": {"a": [1, None]}})
            assert isinstance(other, Trip)
            assert other.fields - trip.fields in ({"unheardOf"}, set())
            assert canonical.same(other.document["unheardOf"], {"a": [1, None]})

    def test_a_field_that_is_absent_null_or_of_another_type(self, collection: str) -> None:
        """The document is quarantined for a known reason, or no value of it is lost or converted."""
        for field, raw in self._fields(collection):
            read = documents.decode(raw)
            changed = [{**read, field: value} for value in (None, *WRONG)]
            for made in (*changed, {key: value for key, value in read.items() if key != field}):
                ended = self.attempt(collection, made)
                assert not isinstance(ended, Rejected) or ended.reason in REASONS, (field, ended)

    def test_a_hostile_document_is_quarantined(self, wrong: Hostile) -> None:
        """For its reason, at its path, and without its value in the words."""
        ended = self.attempt(wrong.collection, wrong.made(self.documents))
        if wrong.reason is None:
            assert isinstance(ended, Trip), ended
        else:
            assert isinstance(ended, Rejected), ended
            assert (ended.reason, ended.path) == (wrong.reason, wrong.path)
            assert not any(repr(value) in str(ended) for value in wrong.set.values() if isinstance(value, str))


def source_tests(
    profile: str,
    samples: Documents,
    hostile: Sequence[Hostile] = (),
    *,
    context: Context = CONTEXT,
    quarantined: Iterable[tuple[str, str]] = (),
    ordered: bool = False,
) -> type[SourceTests]:
    """Return the tests of a source: a name that the settings accept, or the path of a mapping.

    ``quarantined``: (reason, path) of those among the documents that are quarantined. ``ordered``: the
    order of the fields of a document says something.
    """
    members: dict[str, Any] = {"quarantined": frozenset(quarantined), "ordered": ordered}
    if not hostile:
        members["test_a_hostile_document_is_quarantined"] = None
    members |= {"profile": load_profile(profile), "documents": samples, "hostile": hostile, "context": context}
    return type("SourceTests", (SourceTests,), members)
