"""The copy of one chunk: the function that every executor runs, in one transaction."""

import gc
import hashlib
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec
import psycopg

from migrator import signals
from migrator.pipeline import ledger
from migrator.pipeline.decoding import Link, Outcome, aside, count_notes, is_clean, outcomes
from migrator.pipeline.extract import batch_documents, raw_batches, tenant_filter
from migrator.pipeline.load import Loadable, copy_rows, expected_of, merge_rows
from migrator.pipeline.model import ChunkDone, ChunkJob, Mode, SetAside
from migrator.pipeline.references import FirstLoad, Lookup, Unlooked
from migrator.pipeline.sessions import Sessions, retrying
from migrator.sources.profile import Collection
from migrator.store.postgres.connection import Connection


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
    loaded_again: list[str] = msgspec.field(default_factory=list)


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
        return _copy_in(job, sessions, "merge")


def _copy_in(job: ChunkJob, sessions: Sessions, mode: Mode) -> ChunkDone:
    began = datetime.now(UTC)
    chunk, target = job.chunk, sessions.target
    collection = sessions.profile.by_name()[chunk.collection]
    with target.transaction():
        if not job.dry_run and not ledger.take_chunk(target, job.plan.id, chunk.collection, chunk.ordinal):
            return ChunkDone(collection=chunk.collection, ordinal=chunk.ordinal, already=True)
        signals.passed(signals.AFTER_CHUNK_BEGUN)
        lookup = _lookup(job, sessions, collection, mode)
        tally, digest = _Tally(), hashlib.blake2b(digest_size=32)
        known_aside = ledger.quarantined_ids(target, job.plan.profile, chunk.collection)
        for batch in raw_batches(
            sessions.source,
            sessions.name_of(chunk.collection),
            lower=chunk.lower,
            upper=chunk.upper,
            condition=tenant_filter(collection, job.tenants, job.context.default_tenant),
            batch_size=batch_documents(chunk.average_bytes),
        ):
            tally.bytes += len(batch)
            loadable = list(_decoded(job, collection, lookup, batch, tally, known_aside))
            for document in loadable:
                for row in document.rows:
                    digest.update(row.head)
                    digest.update(row.tail)
            if not job.dry_run:
                _store(target, mode, loadable, tally)
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
            signals.passed(signals.AFTER_LOAD_BEFORE_COMMIT)
    signals.passed(signals.AFTER_COMMIT)
    return done


def _lookup(job: ChunkJob, sessions: Sessions, collection: Collection, mode: Mode) -> Lookup:
    if job.dry_run:
        return Unlooked()
    return FirstLoad(sessions.resolver, collection) if mode == "direct" else sessions.resolver


def _decoded(
    job: ChunkJob,
    collection: Collection,
    resolver: Lookup,
    batch: bytes,
    tally: _Tally,
    known_aside: set[str],
) -> Iterator[Loadable]:
    for piece in outcomes(collection, job.context, resolver, batch):
        tally.documents += len(piece)
        for outcome in piece:
            if outcome.loadable is not None:
                yield outcome.loadable
                _tally_loaded(collection, outcome, outcome.loadable, tally, known_aside)
            elif outcome.rejected is not None:
                why = outcome.rejected
                tally.aside.append(aside(outcome, why.reason, why.path, why.expected))
            else:
                tally.skipped[outcome.skipped] += 1


def _tally_loaded(
    collection: Collection, outcome: Outcome, loadable: Loadable, tally: _Tally, known_aside: set[str]
) -> None:
    for row in loadable.rows:
        tally.rows[row.record.table] += 1
    tally.clean += is_clean(collection, outcome)
    if outcome.notes:
        count_notes(tally.notes, outcome)
    tally.links.extend(outcome.links)
    if known_aside:
        identity = aside(outcome, "", "", "").source_id
        if identity in known_aside:
            tally.loaded_again.append(identity)


def _store(target: Connection, mode: Mode, loadable: list[Loadable], tally: _Tally) -> None:
    if not loadable:
        return
    if mode == "direct":
        tally.written.update(copy_rows(target, loadable))
        return
    written, losers = merge_rows(target, loadable)
    tally.written.update(written)
    for loser in losers:
        lost = aside(Outcome(loser.document.raw, loadable=loser.document), loser.reason, "", expected_of(loser))
        tally.aside.append(lost)
        for row in loser.document.rows:
            tally.rows[row.record.table] -= 1


def _record(job: ChunkJob, target: Connection, tally: _Tally, done: ChunkDone, digest: bytes, began: datetime) -> None:
    plan, name = job.plan, job.chunk.collection
    ledger.set_aside(target, plan, name, tally.aside)
    lost = {one.source_id for one in tally.aside}
    again = [one for one in tally.loaded_again if one not in lost]
    if again:
        ledger.release(target, plan.profile, name, again)
    if tally.links:
        ledger.store_links(target, name, tally.links)
    tally.notes.update({("skip", reason, ""): count for reason, count in tally.skipped.items()})
    ledger.store_notes(target, plan.id, name, job.chunk.ordinal, tally.notes)
    ledger.finish_chunk(target, plan.id, done, digest, began, f"{socket.gethostname()}:{os.getpid()}")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cyclic collector out of a chunk: it would walk every decoded document again and again."""
    was_on = gc.isenabled()
    gc.disable()
    if not gc.get_freeze_count():
        gc.freeze()  # modules and the like live as long as the process: no need to walk them after every chunk
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.collect()
