"""The copy of one chunk: extract, transform and load in one transaction. Every executor runs this function."""

import hashlib
import os
import socket
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import msgspec
import psycopg

from migrator import fault_points
from migrator.connections.postgres import Connection
from migrator.errors import RefusedError
from migrator.pipeline import ledger, references
from migrator.pipeline.bulk_load import BulkLoad
from migrator.pipeline.executors import ChunkJob, collector_paused
from migrator.pipeline.extract import chunk_batches
from migrator.pipeline.ledger import ChunkResult, LoadMode
from migrator.pipeline.load import different_documents, merge_rows
from migrator.pipeline.references import FirstLoadResolver, UncheckedResolver
from migrator.pipeline.sessions import JobSessions, Sessions, run_with_sessions
from migrator.pipeline.transform import (
    PendingLink,
    ReadBatch,
    ReferenceResolver,
    SourceDocument,
)
from migrator.sources.profile import Collection
from migrator.values.identity import source_id_of


class _ChunkTotals(msgspec.Struct):
    """What a chunk has counted so far, and what it will record."""

    result: ChunkResult
    notes: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    quarantined: list[SourceDocument] = msgspec.field(default_factory=list)
    links: list[PendingLink] = msgspec.field(default_factory=list)
    dangling: list[references.DanglingReference] = msgspec.field(default_factory=list)
    known_quarantined: frozenset[bytes] = frozenset()
    """Documents of the collection that were in quarantine before."""
    loaded_again: list[str] = msgspec.field(default_factory=list)

    def quarantine(self, document: SourceDocument) -> None:
        """Keep a rejected document for the quarantine."""
        document.release()
        self.quarantined.append(document)

    def plain(self, batch: ReadBatch) -> None:
        """Count the plain documents of a batch, except their rows."""
        counts = batch.counts()
        self.result.documents += counts.documents
        self.result.clean += counts.clean
        self.notes.update(counts.notes)

    def loaded(self, document: SourceDocument) -> None:
        """Count a document that is stored, except its rows."""
        self.result.clean += document.clean
        if document.counted:
            self.notes.update(document.counted)
        if document.links:
            self.links.extend(document.links_to_store())
        if self.known_quarantined:
            key = source_id_of(document.raw)
            if key.encode("utf-8", "surrogatepass") in self.known_quarantined:
                self.loaded_again.append(key)


def copy_chunk(job: ChunkJob) -> ChunkResult:
    """Copy one chunk, in one transaction. Retry transient failures of either server.

    A direct chunk that meets a stored row starts again as a merge.
    """
    with collector_paused():
        return run_with_sessions(job.settings, lambda sessions: _copy(job, sessions), JobSessions)


def _copy(job: ChunkJob, sessions: Sessions) -> ChunkResult:
    if sessions.profile.version != job.plan.profile_version:
        raise RefusedError("the mapping file was changed while it was used; call backfill again")
    try:
        return _copy_in_mode(job, sessions, job.chunk.mode)
    except psycopg.errors.UniqueViolation:
        sessions.forget()  # rows that were stored a moment ago, and no longer are
        return _copy_in_mode(job, sessions, "merge")


def _copy_in_mode(job: ChunkJob, sessions: Sessions, mode: LoadMode) -> ChunkResult:
    began = datetime.now(UTC)
    chunk, target = job.chunk, sessions.target
    collection = sessions.profile.by_name()[chunk.collection]
    with target.transaction():
        done = ChunkResult(collection=chunk.collection, ordinal=chunk.ordinal)
        if not job.dry_run and not ledger.take_chunk(target, job.plan.id, chunk.collection, chunk.ordinal):
            done.already = True
            return done
        # Whoever closes the plan writes all of them to the disk with it, and finds those that a crash took away.
        target.execute("SET LOCAL synchronous_commit = off")
        fault_points.reach(fault_points.AFTER_CHUNK_BEGUN)
        resolver = _resolver(job, sessions, collection, mode)
        totals, digest = _ChunkTotals(done), hashlib.sha256()
        excluded = sessions.quarantined.of(target, job.plan.profile, chunk.collection, job.begun)
        totals.known_quarantined = excluded
        append = partial(_append, BulkLoad(target, sessions.target_tables))
        store = _count_only if job.dry_run else append if mode == "direct" else _merge
        for batch in chunk_batches(sessions, job):
            done.bytes += len(batch)
            digest.update(batch)
            store(target, ReadBatch(collection, job.context, resolver, batch, excluded), totals)
        done.quarantined = len(totals.quarantined)
        if not job.dry_run:
            _record(job, target, totals, digest.digest(), began)
            fault_points.reach(fault_points.AFTER_LOAD_BEFORE_COMMIT)
    fault_points.reach(fault_points.AFTER_COMMIT)
    return done


def _resolver(job: ChunkJob, sessions: Sessions, collection: Collection, mode: LoadMode) -> ReferenceResolver:
    if job.dry_run:
        return UncheckedResolver()
    return FirstLoadResolver(sessions.resolver, collection) if mode == "direct" else sessions.resolver


def _loadable_documents(batch: ReadBatch, totals: _ChunkTotals) -> Iterator[SourceDocument]:
    """Yield the documents that the Python codec reads and that have rows, and count the others."""
    for documents in batch.documents():
        totals.result.documents += len(documents)
        for document in documents:
            if not document.serialized or document.dangling:
                totals.dangling.extend(references.dangling_references_of(document))
            if document.serialized:
                yield document
            elif document.rejected is not None:
                totals.quarantine(document)
            else:
                totals.result.skipped[document.skipped] += 1


def _count_only(_target: Connection, batch: ReadBatch, totals: _ChunkTotals) -> None:
    """Only count: a dry run."""
    totals.plain(batch)
    totals.result.rows.update({one.record.table: len(one.positions) for one in batch.rows()})
    for document in _loadable_documents(batch, totals):
        totals.result.rows.update(row.record.table for row in document.serialized)
        totals.loaded(document)


def _append(load: BulkLoad, target: Connection, batch: ReadBatch, totals: _ChunkTotals) -> None:
    """Store the rows of an empty range."""
    global_: list[SourceDocument] = []

    def of_their_tenant() -> Iterator[SourceDocument]:
        for document in _loadable_documents(batch, totals):
            if document.refers_to_global:
                global_.append(document)
            else:
                totals.loaded(document)
                yield document

    pending = batch.pending()
    plain = list(batch.rows(pending))
    if pending is not None:
        batch.take_pending(pending.rows)
        totals.links.extend(one.link for one in pending.rows)
    written = load.append(of_their_tenant(), plain)
    totals.plain(batch)
    totals.result.rows.update(written)
    totals.result.written.update(written)
    if global_:
        _merge_documents(target, global_, totals)


def _merge(target: Connection, batch: ReadBatch, totals: _ChunkTotals) -> None:
    """Store the rows that are new or different; the Python codec reads the documents that are not stored as they are.

    A document that is stored as it is takes no key of another one, so that those which are left meet the same rows in
    the same order as if all were read.
    """
    pending = batch.pending()
    plain = list(batch.rows(pending))
    different = different_documents(target, plain)
    batch.read_in_python(different)
    if pending is not None:
        stored_rows = [one for one in pending.rows if one.position not in different]
        batch.take_pending(stored_rows)
        totals.links.extend(one.link for one in stored_rows)
    totals.plain(batch)
    for one in plain:
        if stored := sum(position not in different for position in one.positions):
            totals.result.rows[one.record.table] += stored
    _merge_documents(target, list(_loadable_documents(batch, totals)), totals)


def _merge_documents(target: Connection, batch: list[SourceDocument], totals: _ChunkTotals) -> None:
    totals.result.written.update(merge_rows(target, batch))
    for document in batch:
        if document.rejected is not None:
            totals.quarantine(document)
        else:
            totals.result.rows.update(row.record.table for row in document.serialized)
            totals.loaded(document)


def _record(job: ChunkJob, target: Connection, totals: _ChunkTotals, digest: bytes, began: datetime) -> None:
    plan, name = job.plan, job.chunk.collection
    ledger.quarantine(target, plan, name, totals.quarantined)
    if totals.loaded_again:
        ledger.close_entries(target, plan.profile, name, totals.loaded_again, "resolved")
    if totals.dangling:
        references.store_dangling(target, name, totals.dangling)
    if totals.links:
        ledger.store_links(target, name, totals.links)
    totals.notes.update({("skip", reason, ""): count for reason, count in totals.result.skipped.items()})
    ledger.store_notes(target, plan.id, name, job.chunk.ordinal, totals.notes)
    ledger.finish_chunk(target, plan.id, totals.result, digest, began, f"{socket.gethostname()}:{os.getpid()}")
