"""The parity check of a range of documents: counts, and each difference with its cause.

The parity check walks the source in ranges as the copy does, computes the rows each document must have, fetches the
rows with those ids, and asks the predicate "equal" (``parity.equal``). Extra rows are found afterwards
(``parity.extra_rows``). Derived rows, which belong to no document, are made again and
compared column by column.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec
from psycopg import sql

from migrator.parity.causes import ABSENT, CauseCode, classify, describe_difference
from migrator.parity.equal import document_difference, quarantine_difference, stored_rows
from migrator.parity.model import (
    KEYS_LISTED,
    CauseCount,
    CollectionComparison,
    ColumnCount,
    Difference,
    LossCount,
    NoteCount,
    QuarantineCount,
)
from migrator.parity.recheck import MOVING, Recheck
from migrator.pipeline import ledger, locks, references
from migrator.pipeline.completion import derived_rows
from migrator.pipeline.executors import ChunkJob, collector_paused
from migrator.pipeline.extract import batch_documents, raw_batches, tenant_filter
from migrator.pipeline.sessions import Sessions, run_with_sessions
from migrator.pipeline.transform import DocumentOutcome, LoadableDocument, SerializedRow, transform_batch
from migrator.records import Record
from migrator.sources.profile import Closing, Collection, Rejected
from migrator.store.postgres.rows import fetch, row_key, table_name
from migrator.values import jsonb, remainder
from migrator.values.copy_format import codec
from migrator.values.identity import source_id_of

DESCRIBED = 20
"""Differences of a chunk that DeepDiff puts into words: it takes 0.5 ms for each."""


class _ChunkTotals(msgspec.Struct):
    """What a chunk has shown so far."""

    collection: str
    listed: int
    as_of: datetime
    """When the latest copy began: a document that says it changed later is stale."""
    documents: int = 0
    matched: int = 0
    differing: int = 0
    missing: int = 0
    quarantined: int = 0
    clean: int = 0
    remainder: int = 0
    rows: Counter[str] = msgspec.field(default_factory=Counter)
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    excluded: list[str] = msgspec.field(default_factory=list)
    causes: Counter[tuple[str, str, str, str]] = msgspec.field(default_factory=Counter)
    differences: list[Difference] = msgspec.field(default_factory=list)
    notes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    losses: Counter[tuple[str, str, bool]] = msgspec.field(default_factory=Counter)
    note_keys: dict[tuple[str, str], list[str]] = msgspec.field(default_factory=dict)
    quarantine: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    quarantine_keys: dict[tuple[str, str, str], list[str]] = msgspec.field(default_factory=dict)
    rejected: list[str] = msgspec.field(default_factory=list)
    ledger: int = 0
    moving: int = 0
    """Documents that were touched whenever they were looked at."""

    def differ(self, difference: Difference) -> None:
        """Count a difference; keep it while the list is short."""
        self.causes[difference.table, difference.path, difference.side, difference.cause] += 1
        if len(self.differences) < self.listed:
            self.differences.append(difference)


def compare_chunk(job: ChunkJob) -> CollectionComparison:
    """Compare one range of a collection with what is stored; reads only."""
    with collector_paused():
        return run_with_sessions(job.settings, lambda sessions: _compare(job, sessions))


def _compare(job: ChunkJob, sessions: Sessions) -> CollectionComparison:
    chunk = job.chunk
    collection = sessions.profile.by_name()[chunk.collection]
    totals = _ChunkTotals(chunk.collection, job.settings.report.max_differences, job.plan.as_of)
    quarantine = ledger.quarantine_entries(sessions.target, sessions.profile.name, chunk.collection)
    for batch in raw_batches(
        sessions.source,
        sessions.name_of(chunk.collection),
        lower=chunk.lower,
        upper=chunk.upper,
        condition=tenant_filter(collection, job.tenants, job.context.default_tenant),
        batch_size=batch_documents(chunk.average_bytes),
    ):
        found = [
            one for outcomes in transform_batch(collection, job.context, sessions.resolver, batch) for one in outcomes
        ]
        stored = stored_rows(sessions.target, found)
        if locks.is_tail_running(sessions.target):
            found, moving = _rechecked(sessions, collection, job, found, stored, quarantine)
            totals.moving += moving
        for outcome, loadable in _without_quarantined(found, totals, quarantine):
            _compare_rows(collection, outcome, loadable, stored, totals)
        if not locks.is_tail_running(sessions.target):  # a tail that follows may be about to record one
            _compare_references(sessions, found, totals)
    return _comparison(collection, totals)


def _rechecked(
    sessions: Sessions,
    collection: Collection,
    job: ChunkJob,
    found: list[DocumentOutcome],
    stored: dict[type, dict[bytes, bytes]],
    quarantine: dict[str, ledger.QuarantineEntry],
) -> tuple[list[DocumentOutcome], int]:
    recheck = Recheck(sessions, collection, job.context)
    try:
        return recheck.outlived(found, stored, quarantine), recheck.moving
    finally:
        recheck.close()


def _without_quarantined(
    outcomes: Iterable[DocumentOutcome], totals: _ChunkTotals, quarantine: Mapping[str, ledger.QuarantineEntry]
) -> Iterable[tuple[DocumentOutcome, LoadableDocument]]:
    """Count what has no rows on purpose, and yield the documents that must have some."""
    for outcome in outcomes:
        totals.documents += 1
        if outcome.skipped:
            totals.skipped[outcome.skipped] += 1
            totals.excluded.append(source_id_of(outcome.raw))
        elif outcome.loadable is not None and not quarantine:
            yield outcome, outcome.loadable
        else:
            key = source_id_of(outcome.raw)
            if key in quarantine:
                _count_quarantined(totals, outcome, key, quarantine[key])
            elif outcome.loadable is not None:
                yield outcome, outcome.loadable
            else:
                # It could be decoded when it was copied, or it was never copied: either way it is not accounted for.
                totals.differing += 1
                totals.rejected.append(key)
                totals.differ(_rejected(totals.collection, key, outcome.rejected))


def _rejected(collection: str, key: str, why: Rejected | None) -> Difference:
    words = () if why is None else (f"{why.reason} at {why.path or 'the document'}: expected {why.expected}",)
    return Difference(
        collection=collection, source_id=key, side="rejected", table="", cause="unquarantined", words=words
    )


def _count_quarantined(totals: _ChunkTotals, outcome: DocumentOutcome, key: str, entry: ledger.QuarantineEntry) -> None:
    totals.quarantined += 1
    totals.excluded.append(key)
    apart = quarantine_difference(outcome, entry)
    if apart is not None:
        totals.ledger += 1
        totals.differ(Difference(collection=totals.collection, source_id=key, side="ledger", table="", cause=apart))
    why = outcome.rejected
    place = (entry.reason, entry.path, entry.expected) if why is None else (why.reason, why.path, why.expected)
    totals.quarantine[place] += 1
    _add_example(totals.quarantine_keys.setdefault(place, []), key)


def _compare_references(sessions: Sessions, found: Iterable[DocumentOutcome], totals: _ChunkTotals) -> None:
    """Look whether the dangling references of these documents are on record."""
    dangling = [one for outcome in found for one in references.dangling_references_of(outcome, own=True)]
    if not dangling:
        return
    recorded = references.recorded_dangling(sessions.target, totals.collection, {one[0] for one in dangling})
    for key in dict.fromkeys(one[0] for one in dangling if one not in recorded):
        totals.ledger += 1
        totals.differ(
            Difference(
                collection=totals.collection, source_id=key, side="ledger", table="", cause="reference-unrecorded"
            )
        )


def _compare_rows(
    collection: Collection,
    outcome: DocumentOutcome,
    loadable: LoadableDocument,
    stored: dict[type, dict[bytes, bytes]],
    totals: _ChunkTotals,
) -> None:
    for row in loadable.rows:
        totals.rows[row.record.table] += 1
    found = document_difference(collection, outcome, loadable, stored)
    missing, equal = False, found is None
    if found is not None:
        for row, there in found.rows:
            if there is None:
                missing = missing or row is loadable.rows[0]
                totals.rows[row.record.table] -= 1
                totals.differ(_missing(totals.collection, source_id_of(outcome.raw), row.record.table))
            else:
                _add_differences(collection, row, there, source_id_of(outcome.raw), totals)
        if not found.encodes_back:
            totals.differ(_not_rebuilt(collection, outcome))
    _count_notes(loadable, totals, equal=equal)
    if missing:
        totals.missing += 1
    elif not equal:
        totals.differing += 1
    else:
        totals.matched += 1
        if loadable.clean:
            totals.clean += 1
        else:
            totals.remainder += 1


def _count_notes(loadable: LoadableDocument, totals: _ChunkTotals, *, equal: bool) -> None:
    for group, kind, path in loadable.notes:
        if group == "finding":
            totals.notes[kind, path] += 1
            _add_example(totals.note_keys.setdefault((kind, path), []), source_id_of(loadable.raw))
        elif kind in remainder.LOSSES:
            totals.losses[path, kind, equal] += 1


def _not_rebuilt(collection: Collection, outcome: DocumentOutcome) -> Difference:
    return Difference(
        collection=collection.name,
        source_id=source_id_of(outcome.raw),
        side="document",
        table=collection.tables[0].table,
        cause="value",
    )


def _missing(collection: str, key: str, table: str) -> Difference:
    return Difference(collection=collection, source_id=key, side="missing", table=table, cause="missing-row")


def _add_differences(collection: Collection, row: SerializedRow, found: bytes, key: str, totals: _ChunkTotals) -> None:
    kind = codec(type(row.record))
    references = {one.column for one in collection.references if one.record is type(row.record)}
    wanted, stored = kind.read(row.head + row.tail), kind.read(found)
    known = _cause_of_row(wanted, stored, totals.as_of)
    for name in kind.differing((row.head, row.tail), found):
        before, after = (_value(kind.types[name], side[name]) for side in (wanted, stored))
        worded = len(totals.differences) < DESCRIBED
        totals.differ(
            Difference(
                collection=totals.collection,
                source_id=key,
                side="row",
                table=row.record.table,
                path=name,
                cause=known or ("reference" if name in references else classify(before, after)),
                tenant=str(wanted["tenant_id"] or ""),
                words=describe_difference(before, after) if worded else (),
            )
        )


def _cause_of_row(wanted: Mapping[str, object], stored: Mapping[str, object], as_of: datetime) -> CauseCode | None:
    """Return the cause that the whole row shows: another program wrote it, or its document changed since."""
    if wanted.get("source") != stored.get("source"):
        return "foreign-writer"
    changed = wanted.get("updated_at")
    stale = isinstance(changed, datetime) and changed > as_of and changed != stored.get("updated_at")
    return "stale" if stale else None


def _value(kind: str, value: object) -> object:
    if value is None:
        return ABSENT
    return jsonb.decode(value) if kind == "jsonb" and isinstance(value, bytes) else value


def _add_example(keys: list[str], key: str) -> None:
    if len(keys) < KEYS_LISTED:
        keys.append(key)


def _comparison(collection: Collection, totals: _ChunkTotals) -> CollectionComparison:
    differing = Counter[tuple[str, str]]()
    for (table, path, side, _), count in totals.causes.items():
        if side == "row":
            differing[table, path] += count
    return CollectionComparison(
        collection=totals.collection,
        tables=tuple(record.table for record in collection.tables),
        documents=totals.documents,
        matched=totals.matched,
        differing=totals.differing,
        missing=totals.missing,
        quarantined=totals.quarantined,
        skipped=dict(totals.skipped),
        excluded=tuple(totals.excluded),
        rejected=tuple(totals.rejected),
        ledger=totals.ledger,
        unverified=MOVING.format(totals.moving) if totals.moving else "",
        rows=sum(totals.rows.values()),
        clean=totals.clean,
        remainder=totals.remainder,
        causes=tuple(
            CauseCount(table=key[0], path=key[1], side=key[2], cause=key[3], count=count)  # type: ignore[arg-type] # made from Differences
            for key, count in sorted(totals.causes.items())
        ),
        differences=tuple(sorted(totals.differences)),
        notes=tuple(
            NoteCount(kind=kind, path=path, count=count, keys=tuple(sorted(totals.note_keys.get((kind, path), ()))))
            for (kind, path), count in sorted(totals.notes.items())
        ),
        losses=tuple(
            LossCount(path=path, kind=kind, kept=kept, count=count)
            for (path, kind, kept), count in sorted(totals.losses.items())
        ),
        quarantine=tuple(
            QuarantineCount(
                reason=place[0],
                path=place[1],
                expected=place[2],
                count=count,
                keys=tuple(sorted(totals.quarantine_keys[place])),
            )
            for place, count in sorted(totals.quarantine.items())
        ),
        columns=tuple(
            ColumnCount(
                table=record.table,
                column=name,
                compared=totals.rows[record.table],
                differing=differing[record.table, name],
            )
            for record in collection.tables
            for name in record.__struct_fields__
            if totals.rows[record.table]
        ),
    )


def compare_derived(sessions: Sessions, closing: Closing, *, listed: int) -> CollectionComparison:
    """Compare one closing pass's rows, column by column; there is no document to encode back to."""
    record = closing.record
    kind = codec(record)
    rows = derived_rows(sessions, closing)
    stored = fetch(sessions.target, record.table, kind, [row.record.id for row in rows])  # type: ignore[attr-defined] # every loaded record has an id
    name = f"(derived) {record.table}"
    differences: list[Difference] = []
    matched = missing = 0
    for row in rows:
        found = stored.get(row_key(kind, row.head))
        key = str(row.record.source_id)  # type: ignore[attr-defined] # as above
        if found is None:
            missing += 1
            differences.append(
                Difference(collection=name, source_id=key, side="missing", table=record.table, cause="missing-row")
            )
        elif kind.equal((row.head, row.tail), found):
            matched += 1
        else:
            differences.extend(
                Difference(
                    collection=name, source_id=key, side="row", table=record.table, path=column, cause="foreign-writer"
                )
                for column in kind.differing((row.head, row.tail), found)
            )
    extra = _extra_derived(sessions, record, {str(row.record.source) for row in rows}, name, rows)  # type: ignore[attr-defined] # as above
    differences.extend(extra)
    counts: dict[tuple[str, str, str], int] = {}
    for one in differences:
        counts[one.path, one.side, one.cause] = counts.get((one.path, one.side, one.cause), 0) + 1
    return CollectionComparison(
        collection=name,
        tables=(record.table,),
        documents=len(rows),
        matched=matched,
        differing=len(rows) - matched - missing,
        missing=missing,
        rows=len(stored),
        extra=len(extra),
        clean=matched,
        causes=tuple(
            CauseCount(table=record.table, path=key[0], side=key[1], cause=key[2], count=count)  # type: ignore[arg-type] # made from Differences
            for key, count in sorted(counts.items())
        ),
        differences=tuple(sorted(differences)[:listed]),
        columns=tuple(
            ColumnCount(
                table=record.table,
                column=column,
                compared=len(stored),
                differing=sum(one.side == "row" and one.path == column for one in differences),
            )
            for column in kind.columns
            if stored
        ),
    )


def _extra_derived(
    sessions: Sessions, record: type[Record], sources: set[str], name: str, rows: list[SerializedRow]
) -> list[Difference]:
    ids = [row.record.id for row in rows]  # type: ignore[attr-defined] # as above
    found = sessions.target.execute(
        sql.SQL("SELECT coalesce(source_id, id::text) FROM {} WHERE source = ANY(%s) AND NOT id = ANY(%s)").format(
            table_name(record.table)
        ),
        (sorted(sources), ids),
    )
    return [
        Difference(collection=name, source_id=row[0], side="extra", table=record.table, cause="extra-row")
        for row in found
    ]
