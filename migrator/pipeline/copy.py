"""The copy of one chunk: the function that every executor runs, in one transaction."""

import hashlib
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec
import psycopg

from migrator import fault_points
from migrator.connections.postgres import Connection
from migrator.pipeline import ledger, orphans
from migrator.pipeline.decoding import aside, outcomes
from migrator.pipeline.executors import ChunkJob, collector_paused
from migrator.pipeline.extract import batch_documents, raw_batches, tenant_filter
from migrator.pipeline.load import Appended, lost, merge_rows
from migrator.pipeline.model import ChunkDone, Mode
from migrator.pipeline.references import FirstLoad, Unlooked
from migrator.pipeline.sessions import Sessions, retrying
from migrator.pipeline.transform import Link, Loadable, Lookup, SetAside
from migrator.sources.profile import Collection, Context
from migrator.values.rawid import source_id_of


class _Tally(msgspec.Struct):
    """What a chunk has done so far."""

    documents: int = 0
    bytes: int = 0
    clean: int = 0
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    rows: Counter[str] = msgspec.field(default_factory=Counter)
    written: Counter[str] = msgspec.field(default_factory=Counter)
    notes: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    aside: list[SetAside] = msgspec.field(default_factory=list)
    links: list[Link] = msgspec.field(default_factory=list)
    nowhere: list[orphans.Orphan] = msgspec.field(default_factory=list)
    """References that lead nowhere."""
    known_aside: set[str] = msgspec.field(default_factory=set)
    """Documents of the collection that were in quarantine before."""
    loaded_again: list[str] = msgspec.field(default_factory=list)

    def loaded(self, document: Loadable) -> None:
        """Count a document that is stored, but for its rows."""
        self.clean += document.clean
        if document.notes:
            self.notes.update(document.notes)
        if document.links:
            self.links.extend(document.links)
        if self.known_aside:
            key = source_id_of(document.raw)
            if key in self.known_aside:
                self.loaded_again.append(key)


def copy_chunk(job: ChunkJob) -> ChunkDone:
    """Copy one chunk; all of it or nothing. Transient failures of either server are waited out and tried again.

    A chunk that finds a row where it expected none starts again, comparing.
    """
    with collector_paused():
        return retrying(job.settings, lambda sessions: _copy(job, sessions))


def _copy(job: ChunkJob, sessions: Sessions) -> ChunkDone:
    try:
        return _copy_in(job, sessions, job.chunk.mode)
    except psycopg.errors.UniqueViolation:
        sessions.forget()  # rows that were stored a moment ago, and are not any more
        return _copy_in(job, sessions, "merge")


def _copy_in(job: ChunkJob, sessions: Sessions, mode: Mode) -> ChunkDone:
    began = datetime.now(UTC)
    chunk, target = job.chunk, sessions.target
    collection = sessions.profile.by_name()[chunk.collection]
    with target.transaction():
        if not job.dry_run and not ledger.take_chunk(target, job.plan.id, chunk.collection, chunk.ordinal):
            return ChunkDone(collection=chunk.collection, ordinal=chunk.ordinal, already=True)
        fault_points.reach(fault_points.AFTER_CHUNK_BEGUN)
        lookup = _lookup(job, sessions, collection, mode)
        tally, digest = _Tally(), hashlib.sha256()
        tally.known_aside = ledger.quarantined_ids(target, job.plan.profile, chunk.collection)
        store = _nothing if job.dry_run else _append if mode == "direct" else _merge
        for batch in raw_batches(
            sessions.source,
            sessions.name_of(chunk.collection),
            lower=chunk.lower,
            upper=chunk.upper,
            condition=tenant_filter(collection, job.tenants, job.context.default_tenant),
            batch_size=batch_documents(chunk.average_bytes),
        ):
            tally.bytes += len(batch)
            digest.update(batch)
            store(target, _decoded(collection, job.context, lookup, batch, tally), tally)
        done = ChunkDone(
            collection=chunk.collection,
            ordinal=chunk.ordinal,
            documents=tally.documents,
            bytes=tally.bytes,
            skipped=dict(tally.skipped),
            quarantined=len(tally.aside),
            rows=dict(tally.rows),
            written=dict(tally.written),
            clean=tally.clean,
        )
        if not job.dry_run:
            _record(job, target, tally, done, digest.digest(), began)
            fault_points.reach(fault_points.AFTER_LOAD_BEFORE_COMMIT)
    fault_points.reach(fault_points.AFTER_COMMIT)
    return done


def _lookup(job: ChunkJob, sessions: Sessions, collection: Collection, mode: Mode) -> Lookup:
    if job.dry_run:
        return Unlooked()
    return FirstLoad(sessions.resolver, collection) if mode == "direct" else sessions.resolver


def _decoded(
    collection: Collection, context: Context, lookup: Lookup, batch: bytes, tally: _Tally
) -> Iterator[Loadable]:
    """Yield the documents that have rows, and count the others."""
    for piece in outcomes(collection, context, lookup, batch):
        tally.documents += len(piece)
        for outcome in piece:
            if outcome.loadable is None or outcome.loadable.orphans:
                tally.nowhere.extend(orphans.of_outcome(outcome))
            if outcome.loadable is not None:
                yield outcome.loadable
            elif outcome.rejected is not None:
                tally.aside.append(aside(outcome.raw, outcome.rejected))
            else:
                tally.skipped[outcome.skipped] += 1


def _nothing(_target: Connection, documents: Iterable[Loadable], tally: _Tally) -> None:
    """Only count: a dry run."""
    for document in documents:
        tally.rows.update(row.record.table for row in document.rows)
        tally.loaded(document)


def _append(target: Connection, documents: Iterable[Loadable], tally: _Tally) -> None:
    """Store the rows of an empty range."""
    rows = Appended()
    global_: list[Loadable] = []
    for document in documents:
        if document.refers_to_global:
            global_.append(document)
        else:
            rows.add(document)
            tally.loaded(document)
    written = rows.write(target)
    tally.rows.update(written)
    tally.written.update(written)
    if global_:
        _merge(target, global_, tally)


def _merge(target: Connection, documents: Iterable[Loadable], tally: _Tally) -> None:
    """Store the rows that are new or different."""
    batch = list(documents)
    written, losers = merge_rows(target, batch)
    tally.written.update(written)
    tally.aside.extend(map(lost, losers))
    out = {id(loser.document) for loser in losers}
    for document in batch:
        if id(document) not in out:
            tally.rows.update(row.record.table for row in document.rows)
            tally.loaded(document)


def _record(job: ChunkJob, target: Connection, tally: _Tally, done: ChunkDone, digest: bytes, began: datetime) -> None:
    plan, name = job.plan, job.chunk.collection
    ledger.set_aside(target, plan, name, tally.aside)
    if tally.loaded_again:
        ledger.release(target, plan.profile, name, tally.loaded_again)
    if tally.nowhere:
        orphans.store(target, name, tally.nowhere)
    if tally.links:
        ledger.store_links(target, name, tally.links)
    tally.notes.update({("skip", reason, ""): count for reason, count in tally.skipped.items()})
    ledger.store_notes(target, plan.id, name, job.chunk.ordinal, tally.notes)
    ledger.finish_chunk(target, plan.id, done, digest, began, f"{socket.gethostname()}:{os.getpid()}")
