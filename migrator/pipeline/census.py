"""The census of the source: every field path with its BSON types, what no column holds, what would be quarantined.

All documents are read, because the field that breaks a migration is rare and a sample would miss it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any

import msgspec

from migrator.config import Settings
from migrator.connections.mongo import translate_errors
from migrator.errors import RefusedError, UsageError
from migrator.pipeline import history
from migrator.pipeline import plan as plans
from migrator.pipeline.executors import ChunkJob, collector_paused, documents_of, executor
from migrator.pipeline.extract import SourceCollection, chunk_batches, no_collection_message
from migrator.pipeline.job_feeder import JobFeeder
from migrator.pipeline.plan import Scope
from migrator.pipeline.references import UncheckedResolver
from migrator.pipeline.sessions import SourceSessions, run_with_source
from migrator.pipeline.throttle import Throttle, throttle_without_target
from migrator.pipeline.transform import SourceDocument, transform_documents
from migrator.progress import Progress
from migrator.sources.history import rule
from migrator.sources.profile import Collection, Context
from migrator.values.document import type_name

MAX_PATHS = 5_000
"""Field paths listed per collection: without a limit, keys made from data (such as ids) would make endless lists."""
MORE_PATHS = "(more paths)"


class FieldCount(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A field path and how often it has each BSON type. Array elements are written as ``images[].labels.*``."""

    path: str
    types: dict[str, int]
    known: bool
    """A column or a declared member holds it."""


class ReasonCount(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """Documents that would be quarantined, or that need a remainder, for one reason at one path."""

    kind: str
    path: str
    documents: int


class CollectionCensus(msgspec.Struct, frozen=True, kw_only=True):
    """One collection, or a part of it."""

    collection: str
    documents: int = 0
    bytes: int = 0
    largest: int = 0
    clean: int = 0
    """Documents whose columns carry all of them."""
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    fields: tuple[FieldCount, ...] = ()
    unknown: tuple[FieldCount, ...] = ()
    """Fields that no column and no declared member holds; they go into the remainder, with their types."""
    quarantine: tuple[ReasonCount, ...] = ()
    remainder: tuple[ReasonCount, ...] = ()
    findings: tuple[ReasonCount, ...] = ()


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """The whole source."""

    profile: str
    database: str
    as_of: datetime
    collections: tuple[CollectionCensus, ...]
    unknown_collections: tuple[str, ...]


def census(settings: Settings, scope: Scope) -> Census:
    """Read and count every document of the source; needs no target, and writes nothing."""
    with (
        closing(SourceSessions(settings)) as sessions,
        translate_errors("the source"),
        sessions.reader.snapshot() as snapshot,
    ):
        plans.check_scope(sessions.profile, scope)
        collections, unknown = sessions.survey()
        if not collections:
            raise RefusedError(no_collection_message(sessions.reader.database, sessions.profile, unknown))
        chosen = scope.chosen(collections)
        throttle = throttle_without_target(sessions)
        plan = plans.new_plan(sessions.reader, sessions.profile, settings, scope, collections, position=False)
        if not chosen:
            raise UsageError("no collection of the source is in this scope")
        jobs = (
            ChunkJob(
                settings=settings, plan=plan, context=plans.plan_context(plan), chunk=chunk, snapshot=snapshot, begun=""
            )
            for one in chosen
            for chunk in plans.cut(sessions.reader, one, settings, "merge", patient=sessions.tables is None)
        )
        parts = _run(settings, jobs, {one.collection.name: one.documents for one in chosen}, throttle)
        context = plans.plan_context(plan)
        left = {one.collection.name: history.left_out(sessions, one.collection, context) for one in chosen}
    return Census(
        profile=f"{plan.profile}/{plan.profile_version}",
        database=sessions.reader.database,
        as_of=plan.as_of,
        collections=tuple(
            _with_history(merged(one, parts.get(one.collection.name, ())), left[one.collection.name], context)
            for one in chosen
        ),
        unknown_collections=unknown,
    )


def _with_history(counted: CollectionCensus, left_out: int, context: Context) -> CollectionCensus:
    """Return the counts of a collection with those of its documents that were not read, because they are left out."""
    if not left_out or context.history_before is None:
        return counted
    return msgspec.structs.replace(counted, skipped=counted.skipped | {rule(context.history_before): left_out})


def _run(
    settings: Settings, jobs: Iterable[ChunkJob], estimated: Mapping[str, int], throttle: Throttle
) -> dict[str, list["ChunkCensus"]]:
    parts: dict[str, list[ChunkCensus]] = {}
    with Progress("inspect", estimated) as progress, executor(settings.copy) as pool:
        for _, part in JobFeeder(pool, census_chunk, jobs, settings.copy, throttle, documents_of):
            parts.setdefault(part.collection, []).append(part)
            progress.add(part.collection, part.documents, 0, part.bytes, sum(part.quarantine.values()))
    return parts


class ChunkCensus(msgspec.Struct, kw_only=True):
    """The counts of one chunk."""

    collection: str
    documents: int = 0
    bytes: int = 0
    largest: int = 0
    clean: int = 0
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    types: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    quarantine: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    remainder: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    findings: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)


def census_chunk(job: ChunkJob) -> ChunkCensus:
    """Count one range of a collection."""
    with collector_paused():
        return run_with_source(job.settings, lambda sessions: _count(job, sessions))


def _count(job: ChunkJob, sessions: SourceSessions) -> ChunkCensus:
    collection = sessions.profile.by_name()[job.chunk.collection]
    part = ChunkCensus(collection=collection.name)
    for batch in chunk_batches(sessions, job):
        for _ in count_documents(collection, job.context, batch, part):
            pass
    return part


def count_documents(
    collection: Collection, context: Context, batch: bytes, part: ChunkCensus
) -> Iterator[SourceDocument]:
    """Yield the documents of a batch as they are transformed, each after it was added to the counts."""
    for document in transform_documents(collection, context, UncheckedResolver(), batch):
        part.documents += 1
        part.bytes += len(document.raw)
        part.largest = max(part.largest, len(document.raw))
        if document.skipped:
            part.skipped[document.skipped] += 1
        elif document.rejected is not None:
            part.quarantine[document.rejected.reason, document.rejected.path] += 1
        if document.serialized:
            part.clean += document.clean
            for group, kind, path in document.counted:
                (part.findings if group == "finding" else part.remainder)[kind, path] += 1
        if document.rows:
            _walk(document.content, "", collection.known, part.types)
        yield document


def _walk(value: dict[str, Any], path: str, known: frozenset[str], types: Counter[tuple[str, str]]) -> None:
    """Count the type at every path of a document, for each element of an array; keys of a map are one path, ``*``."""
    prefix = f"{path}." if path else ""
    any_key = f"{prefix}*" if f"{prefix}*" in known else None
    for key, member in value.items():
        _visit(member, any_key or prefix + key, known, types)


def _visit(value: Any, path: str, known: frozenset[str], types: Counter[tuple[str, str]]) -> None:  # noqa: ANN401 - any BSON value
    key = (path, type_name(value))
    if key not in types and len(types) >= MAX_PATHS:
        types[MORE_PATHS, ""] += 1
        return
    types[key] += 1
    if isinstance(value, dict):
        _walk(value, path, known, types)
    elif isinstance(value, list):
        for item in value:
            _visit(item, f"{path}[]", known, types)


def merged(source: SourceCollection, parts: Iterable[ChunkCensus]) -> CollectionCensus:
    """Return the counts of the chunks of a collection, added up."""
    total = ChunkCensus(collection=source.collection.name)
    for part in parts:
        total.documents += part.documents
        total.bytes += part.bytes
        total.largest = max(total.largest, part.largest)
        total.clean += part.clean
        for name in ("skipped", "types", "quarantine", "remainder", "findings"):
            getattr(total, name).update(getattr(part, name))
    by_path: dict[str, dict[str, int]] = {}
    for (path, kind), count in sorted(total.types.items()):
        by_path.setdefault(path, {})[kind] = count
    carried = source.collection.known
    fields = tuple(FieldCount(path=path, types=types, known=is_known(path, carried)) for path, types in by_path.items())
    return CollectionCensus(
        collection=source.collection.name,
        documents=total.documents,
        bytes=total.bytes,
        largest=total.largest,
        clean=total.clean,
        skipped=dict(sorted(total.skipped.items())),
        fields=fields,
        unknown=tuple(one for one in fields if not one.known),
        quarantine=reason_counts(total.quarantine),
        remainder=reason_counts(total.remainder),
        findings=reason_counts(total.findings),
    )


def is_known(path: str, known: frozenset[str]) -> bool:
    """Return whether a profile knows a field path: by name, or inside a member of free form."""
    if path in known or path == MORE_PATHS:
        return True
    parent = path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]
    if not parent or not is_known(parent, known):
        return False
    return not any(other.startswith((f"{parent}.", f"{parent}[]")) for other in known)


def reason_counts(counts: Counter[tuple[str, str]]) -> tuple[ReasonCount, ...]:
    """Return the counts by (kind, path) in their order."""
    return tuple(ReasonCount(kind=key[0], path=key[1], documents=count) for key, count in sorted(counts.items()))
