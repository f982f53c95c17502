"""What a sample of a source says: a first mapping of it, and what a mapping makes of it.

The check says which documents would be clean, which quarantined and why, and shows three of them as rows. Reads the
source alone and writes nothing. Values of documents are returned only if they are asked for.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from migrator.config import Settings, nearest
from migrator.connections.mongo import committed, open_source, translate_errors
from migrator.errors import RefusedError, UsageError
from migrator.pipeline.census import ReasonCount, reason_counts
from migrator.pipeline.extract import SourceCollection, SourceReader, draw, no_collection_message
from migrator.pipeline.references import UncheckedResolver
from migrator.pipeline.sessions import SourceSessions
from migrator.pipeline.transform import SourceDocument, rebuild, transform_documents
from migrator.sources import COLLECTION_NAME, context_of, is_collection_name
from migrator.sources.drafting.draft import mapping_text
from migrator.sources.drafting.fields import fields_of
from migrator.sources.drafting.names import PLACES
from migrator.sources.mapping import tables
from migrator.sources.profile import Collection, Context
from migrator.values import document as documents
from migrator.values.document import type_name
from migrator.values.identity import dump_extended_json, source_id, source_id_of
from migrator.values.remainder import entries

EXAMPLES = 3
UNKNOWN_VALUE = "unknown-value"


class ExampleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an example, without the columns that the tool fills, and without those that hold their default."""

    table: str
    columns: dict[str, str]
    """Column to the type of its value, or to the value if values are shown."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A document of the sample as rows, and as the rows give it back."""

    rows: tuple[ExampleRow, ...]
    rebuilt: dict[str, str]
    """Member of the document that the rows give back, to the type of its value, or to the value."""
    remainder: tuple[str, ...]
    """Field paths that no column holds."""


class WordCount(msgspec.Struct, frozen=True, kw_only=True):
    """Documents with a word that the source does not map."""

    path: str
    word: str
    """Empty unless values are shown."""
    documents: int


class BrokenReference(msgspec.Struct, frozen=True, kw_only=True):
    """A reference of which values name no document of the collection that it leads to."""

    path: str
    collection: str
    """Where it leads."""
    documents: int
    """Documents of the sample that have the reference."""
    dangling: int
    """Of these, whose value is no ``_id`` there."""
    field: str
    """The field of the other collection that holds such values, which ``by`` names in a mapping. Empty: none was found
    in the sample of that collection."""


class CollectionSample(msgspec.Struct, frozen=True, kw_only=True):
    """The sample of one collection."""

    collection: str
    documents: int
    """Documents of the sample."""
    whole: bool
    """The sample is the whole collection."""
    clean: int
    """Documents whose columns carry all of them."""
    quarantine: tuple[ReasonCount, ...]
    remainder: tuple[ReasonCount, ...]
    findings: tuple[ReasonCount, ...]
    references: tuple[BrokenReference, ...]
    skipped: dict[str, int]
    words: tuple[WordCount, ...]
    examples: tuple[Example, ...]


class SourceSample(msgspec.Struct, frozen=True, kw_only=True):
    """What a source makes of a sample of a database."""

    profile: str
    database: str
    collections: tuple[CollectionSample, ...]
    missing: tuple[str, ...]
    """Collections of the source that the database does not have."""
    unknown: tuple[str, ...]
    """Collections of the database that the source does not read."""


def draft_mapping(
    settings: Settings, collections: Sequence[str], size: int, name: str, chosen: Mapping[str, str] | None = None
) -> str:
    """Return the text of a mapping file for these collections, drawn from up to ``size`` documents of each.

    ``chosen``: collection to the table that its documents feed first; that of any other is guessed. Raises
    ``UsageError`` for a name that no collection can have and for an unknown table, ``RefusedError`` for a collection
    without documents, ``UnreachableError`` if the server fails.
    """
    chosen = chosen or {}
    for wanted in (*collections, *chosen):
        if not is_collection_name(wanted):
            raise UsageError(f"collection {wanted!r}: expected {COLLECTION_NAME}")
    for wanted, table in chosen.items():
        if table not in PLACES:
            raise UsageError(f"--table {wanted}={table}: unknown table{nearest(table, list(PLACES))}")
    source = committed(open_source(settings))

    def known_ids(collection: str, values: Sequence[Any]) -> int:
        return source[collection].count_documents({"_id": {"$in": [*values]}})

    try:
        with translate_errors("the source"):
            samples = {one: draw(source, one, size) for one in dict.fromkeys((*collections, *chosen))}
            for wanted, raws in samples.items():
                if not raws:
                    raise RefusedError(f"collection {wanted} of database {source.name} has no documents")
            return mapping_text(name, samples, known_ids, chosen)
    finally:
        source.client.close()


def check_source(settings: Settings, size: int, *, values: bool) -> SourceSample:
    """Transform up to ``size`` documents of each collection, drawn at random by the server.

    ``values``: whether the result holds values of documents. Raises ``RefusedError`` if the database has none of the
    source's collections, ``UnreachableError`` if the server fails.
    """
    sessions = SourceSessions(settings)
    try:
        with translate_errors("the source"):
            existing, unknown = sessions.survey()
            if not existing:
                raise RefusedError(no_collection_message(sessions.reader.database, sessions.profile, unknown))
            context = context_of(settings.source, datetime.now(UTC))
            present = [one.collection for one in existing]
            samples = {one.collection.name: (one, sessions.reader.of(one.collection).sample(size)) for one in existing}
            return SourceSample(
                profile=sessions.profile.name,
                database=sessions.reader.database,
                collections=tuple(
                    _check(
                        one.collection,
                        context,
                        raws,
                        size,
                        references=tuple(_broken_references(one.collection, raws, samples, sessions.reader)),
                        values=values,
                    )
                    for one, raws in samples.values()
                ),
                missing=tuple(one.name for one in sessions.profile.collections if one not in present),
                unknown=unknown,
            )
    finally:
        sessions.close()


Samples = Mapping[str, tuple[SourceCollection, Sequence[bytes]]]
"""Name of a collection to where it is in the database, and to its sample."""


def _broken_references(
    collection: Collection, raws: Sequence[bytes], samples: Samples, reader: SourceReader
) -> Iterator[BrokenReference]:
    """Yield the references of a collection of which documents of the sample name no document."""
    sampled = [documents.decode(raw) for raw in raws]
    for reference in collection.references:
        if reference.named is None or reference.collection not in samples:
            continue
        named = Counter(name for one in sampled if (name := reference.named(one)) is not None)
        other, others = samples[reference.collection]
        batches = reader.of(other.collection).by_ids(named)
        existing = {source_id_of(raw) for batch in batches for raw in documents.split(batch)}
        dangling = {name: count for name, count in named.items() if name not in existing}
        if dangling:
            yield BrokenReference(
                path=reference.path or reference.column,
                collection=reference.collection,
                documents=named.total(),
                dangling=sum(dangling.values()),
                field=_field_with(dangling, others),
            )


def _field_with(names: Container[str], raws: Sequence[bytes]) -> str:
    """Return the field that holds values which are named as if they were the ``_id``; empty if none does."""
    held: Counter[str] = Counter()
    for path, field in fields_of(raws).items():
        held[path] = sum(source_id(value) in names for value in field.ids if path != "_id")
    path, count = max(held.items(), key=lambda one: one[1], default=("", 0))
    return path if count else ""


def _check(
    collection: Collection,
    context: Context,
    raws: Sequence[bytes],
    size: int,
    *,
    references: tuple[BrokenReference, ...],
    values: bool,
) -> CollectionSample:
    quarantine: Counter[tuple[str, str]] = Counter()
    remainder: Counter[tuple[str, str]] = Counter()
    findings: Counter[tuple[str, str]] = Counter()
    undocumented: Counter[tuple[str, str]] = Counter()
    skipped: Counter[str] = Counter()
    clean = 0
    examples: list[Example] = []
    for document in transform_documents(collection, context, UncheckedResolver(), b"".join(raws)):
        if document.skipped:
            skipped[document.skipped] += 1
        elif document.rejected is not None:
            quarantine[document.rejected.reason, document.rejected.path] += 1
            if document.rejected.reason == UNKNOWN_VALUE:
                undocumented[document.rejected.path, _word(document.raw, document.rejected.path) if values else ""] += 1
        if document.serialized:
            clean += document.clean
            for group, kind, path in document.counted:
                (findings if group == "finding" else remainder)[kind, path] += 1
            if len(examples) < EXAMPLES:
                examples.append(_example(document, values=values))
    return CollectionSample(
        collection=collection.name,
        documents=len(raws),
        whole=len(raws) < size,
        clean=clean,
        quarantine=reason_counts(quarantine),
        remainder=reason_counts(remainder),
        findings=reason_counts(findings),
        references=references,
        skipped=dict(sorted(skipped.items())),
        words=tuple(
            WordCount(path=path, word=word, documents=count) for (path, word), count in sorted(undocumented.items())
        ),
        examples=tuple(examples),
    )


def _word(raw: bytes, path: str) -> str:
    value: Any = documents.decode(raw)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _example(document: SourceDocument, *, values: bool) -> Example:
    rows = tuple(row.record for row in document.serialized)
    return Example(
        rows=tuple(
            ExampleRow(
                table=row.table,
                columns={
                    one.name: _column(value) if values else _type(value)
                    for one in msgspec.structs.fields(row)
                    if (value := getattr(row, one.name)) != one.default and one.name not in tables.FILLED_BY_THE_TOOL
                },
            )
            for row in rows
        ),
        rebuilt={
            name: dump_extended_json(value) if values else type_name(value)
            for name, value in rebuild(document.collection, rows).items()
        },
        remainder=tuple(entry.path for entry in entries(document.remainder)),
    )


def _type(value: object) -> str:
    return "json" if isinstance(value, bytes) else type_name(value)


def _column(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
