"""The parity check of a range of documents: counts, and each difference with its cause.

The parity check walks the source in ranges as the copy does, computes the rows each document must have, fetches the
rows with those ids, and asks each document for its difference (``SourceDocument.difference``). A plain document of the
native codec is equal if its rows are stored byte for byte; any other goes through the Python codec. Extra rows are
found afterwards (``parity.extra_rows``). Derived rows, which belong to no document, are made again and compared column
by column.
"""

import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.parity.aggregates import AggregatesJob, BothSides, compute_aggregates, field_counter
from migrator.parity.causes import ABSENT, CauseCode, classify, describe_difference
from migrator.parity.changes import Changes, ComparedRow
from migrator.parity.equal import quarantine_difference, stored_rows
from migrator.parity.model import (
    DROPPED,
    KEYS_LISTED,
    CollectionComparison,
    ColumnCount,
    Side,
    in_order,
    merge,
    tally_of,
)
from migrator.parity.policies import policy_of
from migrator.parity.recheck import MOVING, Recheck
from migrator.parity.uniformity import FieldCounter
from migrator.pipeline import ledger, locks, references
from migrator.pipeline.completion import derived_rows
from migrator.pipeline.executors import ChunkJob, collector_paused
from migrator.pipeline.extract import BATCH_BYTES, chunk_batches
from migrator.pipeline.load import different_documents, fetch
from migrator.pipeline.sessions import JobSessions, Sessions, run_with_sessions
from migrator.pipeline.transform import DocumentDifference, PendingRow, ReadBatch, SerializedRow, SourceDocument
from migrator.records import Record
from migrator.result import NAMED_LOSS, Finding, Loss, Quarantined, Tally
from migrator.sources.profile import Collection, DeclaredLoss, DerivedRows
from migrator.store.postgres.rows import table_name
from migrator.values import jsonb, remainder
from migrator.values.copy_format import codec
from migrator.values.identity import source_id_of

FETCHED_DOCUMENTS = 250
"""Documents whose rows one query fetches, or fewer large ones (``BATCH_BYTES``); it bounds the memory of a worker.

Decoded, a document takes 30 KB.
"""
DESCRIBED = 20
"""Differences of a chunk that DeepDiff puts into words: it takes 0.5 ms for each."""


class ChunkTotals(msgspec.Struct):
    """What a chunk has shown so far."""

    found: CollectionComparison
    listed: int
    as_of: datetime | None = None
    """When the latest copy began: a document that says it changed later is stale; None: no document is."""
    rows: Counter[str] = msgspec.field(default_factory=Counter)
    excluded: list[str] = msgspec.field(default_factory=list)
    rejected: list[str] = msgspec.field(default_factory=list)
    tallies: Counter[tuple[Side, str, str, CauseCode]] = msgspec.field(default_factory=Counter)
    findings: list[Finding] = msgspec.field(default_factory=list)
    notes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    losses: Counter[tuple[str, str, bool]] = msgspec.field(default_factory=Counter)
    quarantine: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    examples: dict[tuple[str, ...], list[str]] = msgspec.field(default_factory=dict)
    """The first few source ids of each note and of each reason for the quarantine."""
    fields: FieldCounter | None = None
    """Counts the documents that are not excluded, for the aggregates; None: nothing is aggregated."""
    lost: Mapping[str, DeclaredLoss] = {}
    """As ``Collection.lost``."""
    moving: int = 0
    """Documents that were touched whenever they were looked at."""

    def differ(
        self,
        side: Side,
        key: str,
        cause: CauseCode,
        *,
        table: str = "",
        path: str = "",
        details: tuple[str, ...] = (),
    ) -> None:
        """Count a difference; keep it while the list is short."""
        self.tallies[side, table, path, cause] += 1
        if len(self.findings) < self.listed:
            self.findings.append(
                Finding(
                    severity="difference",
                    collection=self.found.collection,
                    key=key,
                    side=side,
                    table=table,
                    path=path,
                    cause=cause,
                    details=details,
                )
            )

    def skip(self, rule: str, document: SourceDocument) -> None:
        """Count a document that is in no table, by a stated rule."""
        self.found.skipped[rule] = self.found.skipped.get(rule, 0) + 1
        self.exclude(document)

    def exclude(self, document: SourceDocument) -> None:
        """Let the aggregates leave a document out."""
        self.excluded.append(source_id_of(document.raw))
        if self.fields is not None:
            self.fields.leave_out(document.raw)

    def add_example(self, place: tuple[str, ...], source_id: str) -> None:
        """Keep the source id while the list of examples is short."""
        keys = self.examples.setdefault(place, [])
        if len(keys) < KEYS_LISTED:
            keys.append(source_id)

    def comparison(self, tables: Sequence[type[Record]]) -> CollectionComparison:
        """Return the counts and findings of the chunk in the types of a result."""
        counts, name = self.found, self.found.collection
        differing = Counter[tuple[str, str]]()
        for (side, table, path, cause), count in sorted(self.tallies.items()):
            counts.tallies[side] = (
                *counts.tallies.get(side, ()),
                tally_of(name, cause, count, table=table, path=path),
            )
            differing[table, path] += count * (side == "row")
        counts.findings = tuple(in_order(self.findings))
        counts.excluded, counts.rejected = tuple(self.excluded), tuple(self.rejected)
        counts.rows = self.rows.total()
        if self.fields is not None:
            counts.fields = self.fields.counts()
        counts.unverified = MOVING.format(self.moving) if self.moving else ""
        counts.notes = tuple(
            Tally(
                severity="explained",
                cause=kind,
                collection=name,
                path=path,
                title=policy_of(kind).title,
                fix=self.lost[path].reason if kind == NAMED_LOSS and path in self.lost else policy_of(kind).policy,
                count=count,
                keys=tuple(sorted(self.examples[kind, path])),
            )
            for (kind, path), count in sorted(self.notes.items())
        )
        counts.losses = tuple(
            Loss(collection=name, path=path, kind=kind, kept=kept, count=count)
            for (path, kind, kept), count in sorted(self.losses.items())
        )
        counts.quarantine = tuple(
            Quarantined(
                collection=name,
                reason=place[0],
                path=place[1],
                expected=place[2],
                count=count,
                keys=tuple(sorted(self.examples[place])),
            )
            for place, count in sorted(self.quarantine.items())
        )
        counts.columns = tuple(
            ColumnCount(
                table=record.table,
                column=column,
                compared=self.rows[record.table],
                differing=differing[record.table, column],
            )
            for record in tables
            for column in record.__struct_fields__
            if self.rows[record.table]
        )
        return counts


def _comparison_of(collection: str, tables: Sequence[type[Record]]) -> CollectionComparison:
    return CollectionComparison(collection=collection, tables=tuple(record.table for record in tables))


def run_job(job: AggregatesJob | ChunkJob) -> BothSides | CollectionComparison:
    """Return the comparison of a range, or the aggregates of a collection.

    A worker process that is called here imports this module, and not the rest of the parity check.
    """
    return compare_chunk(job) if isinstance(job, ChunkJob) else compute_aggregates(job)


def compare_chunk(job: ChunkJob) -> CollectionComparison:
    """Compare one range of a collection with what is stored; reads only."""
    with collector_paused():
        return run_with_sessions(job.settings, lambda sessions: _compare(job, sessions), JobSessions)


def _compare(job: ChunkJob, sessions: Sessions) -> CollectionComparison:
    chunk = job.chunk
    collection = sessions.profile.by_name()[chunk.collection]
    found = _comparison_of(chunk.collection, collection.tables)
    totals = ChunkTotals(found, job.settings.report.max_differences, job.plan.as_of, lost=collection.lost)
    excluded = sessions.quarantined.of(sessions.target, sessions.profile.name, chunk.collection, job.begun)
    if sessions.tables is None and not job.tenants:
        totals.fields = field_counter(sessions.profile, collection)
    changes = Changes(sessions.target, sessions.target_tables, sessions.profile)

    def not_plain() -> Iterator[list[SourceDocument]]:
        for batch in chunk_batches(sessions, job):
            if totals.fields is not None:
                totals.fields.add(batch)
            read = ReadBatch(collection, job.context, sessions.resolver, batch, excluded)
            _compare_plain(sessions.target, read, totals)
            yield from read.documents()

    for documents in _fetched_together(not_plain()):
        _compare_documents(job, sessions, collection, documents, excluded, totals, changes)
    return totals.comparison(collection.tables)


def _compare_plain(target: Connection, batch: ReadBatch, totals: ChunkTotals) -> None:
    """Count the plain documents whose rows are stored byte for byte; the Python codec reads the others, and judges."""
    pending = batch.pending()
    plain = list(batch.rows(pending))
    different = different_documents(target, plain)
    batch.read_in_python(different)
    if pending is not None:
        stored = [one for one in pending.rows if one.position not in different]
        taken = _with_record(target, batch, stored, totals.found.collection)
        batch.take_pending(taken)
        totals.rows[pending.record.table] -= len(stored) - len(taken)
    counts = batch.counts()
    totals.found.documents += counts.documents
    totals.found.matched += counts.documents
    totals.found.without_remainder += counts.clean
    totals.found.with_remainder += counts.documents - counts.clean
    for (_, kind, path), count in counts.notes.items():
        if kind in remainder.LOSSES:
            totals.losses[path, kind, True] += count
    for document in plain:
        totals.rows[document.record.table] += len(document.positions)
        if different:
            totals.rows[document.record.table] -= sum(position in different for position in document.positions)


def _with_record(
    target: Connection, batch: ReadBatch, stored: Sequence[PendingRow], collection: str
) -> list[PendingRow]:
    """Return those of these stored rows whose dangling reference is on record."""
    named = [(batch.source_id(one), one.link.target_table, one.link.target_id) for one in stored]
    recorded = references.recorded_dangling(target, collection, {one[0] for one in named})
    return [row for row, entry in zip(stored, named, strict=True) if entry in recorded]


def _fetched_together(small: Iterable[list[SourceDocument]]) -> Iterator[list[SourceDocument]]:
    """Yield small batches together whose rows one query fetches; when they are compared, their objects can be freed."""
    together: list[SourceDocument] = []
    size = 0
    for documents in small:
        together += documents
        size += sum(len(document.raw) for document in documents)
        if len(together) >= FETCHED_DOCUMENTS or size >= BATCH_BYTES:
            yield together
            together, size = [], 0
    if together:
        yield together


def _compare_documents(
    job: ChunkJob,
    sessions: Sessions,
    collection: Collection,
    documents: list[SourceDocument],
    excluded: frozenset[bytes],
    totals: ChunkTotals,
    changes: Changes,
) -> None:
    stored = stored_rows(sessions.target, documents)
    doubted = [source_id_of(one.raw) for one in documents if _may_be_quarantined(one, excluded)]
    quarantine = ledger.quarantine_entries(sessions.target, sessions.profile.name, collection.name, doubted)
    # of an active PostgreSQL the tail carries the other way
    tailed = changes.since is None and (job.tailed or locks.is_tail_running(sessions.target))
    if tailed:
        with closing(Recheck(sessions, collection, job.context)) as recheck:
            documents = recheck.confirmed_differences(documents, stored, quarantine)
        totals.moving += recheck.moving
    compared = [
        (document, document.difference(stored)) for document in _without_quarantined(documents, totals, quarantine)
    ]
    of_others = _written_by_others(sessions, [difference for _, difference in compared], changes)
    for document, difference in compared:
        if difference is not None and _is_changed(document, difference, changes):
            totals.found.changed += 1
        else:
            _count_rows(document, difference, totals, of_others)
    # a tail that follows may be about to record one
    if changes.since is None and not tailed and not locks.is_tail_running(sessions.target):
        _compare_references(sessions, documents, totals)


def _may_be_quarantined(document: SourceDocument, excluded: frozenset[bytes]) -> bool:
    if document.skipped or not document.serialized:
        return not document.skipped
    return bool(excluded) and source_id_of(document.raw).encode("utf-8", "surrogatepass") in excluded


def _without_quarantined(
    documents: Iterable[SourceDocument], totals: ChunkTotals, quarantine: Mapping[str, ledger.QuarantineEntry]
) -> Iterable[SourceDocument]:
    """Count what has no rows on purpose, and yield the documents that must have some."""
    for document in documents:
        totals.found.documents += 1
        if document.skipped:
            totals.skip(document.skipped, document)
        elif document.serialized and not quarantine:
            yield document
        else:
            key = source_id_of(document.raw)
            if key in quarantine:
                _count_quarantined(totals, document, key, quarantine[key])
            elif document.serialized:
                yield document
            else:
                # It could be decoded when it was copied, or it was never copied: either way it is not accounted for.
                totals.found.differing += 1
                totals.rejected.append(key)
                why = document.rejected
                assert why is not None  # noqa: S101 - a document without rows is skipped or rejected
                words = f"{why.reason} at {why.path or 'the document'}: expected {why.expected}"
                totals.differ("rejected", key, "unquarantined", details=(words,))


def _count_quarantined(totals: ChunkTotals, document: SourceDocument, key: str, entry: ledger.QuarantineEntry) -> None:
    if entry.dropped:
        totals.skip(DROPPED, document)
    else:
        totals.exclude(document)
        totals.found.quarantined += 1
    apart = quarantine_difference(document, entry)
    if apart is not None:
        totals.found.ledger += 1
        totals.differ("ledger", key, apart)
    if entry.dropped:
        return
    why = document.rejected
    place = (entry.reason, entry.path, entry.expected) if why is None else (why.reason, why.path, why.expected)
    totals.quarantine[place] += 1
    totals.add_example(place, key)


def _compare_references(sessions: Sessions, documents: Iterable[SourceDocument], totals: ChunkTotals) -> None:
    """Look whether the dangling references of these documents are on record."""
    dangling = [one for document in documents for one in references.dangling_references_of(document, own=True)]
    if not dangling:
        return
    recorded = references.recorded_dangling(sessions.target, totals.found.collection, {one[0] for one in dangling})
    for key in dict.fromkeys(one[0] for one in dangling if one not in recorded):
        totals.found.ledger += 1
        totals.differ("ledger", key, "reference-unrecorded")


def _is_changed(document: SourceDocument, difference: DocumentDifference, changes: Changes) -> bool:
    """Whether a document differs because PostgreSQL is active, and changed its rows."""
    if changes.since is None:
        return False
    different = {id(row): stored for row, stored in difference.rows}
    return changes.explain(document.collection, source_id_of(document.raw), _compared_rows(document, different))


def _written_by_others(
    sessions: Sessions, differences: Iterable[DocumentDifference | None], changes: Changes
) -> frozenset[int]:
    """Return the ``id()`` of the rows that differ because another program changed or deleted them."""
    if changes.since is not None:
        return frozenset()
    by_record: dict[type[Record], list[SerializedRow]] = {}
    for difference in differences:
        for row, _ in () if difference is None else difference.rows:
            by_record.setdefault(type(row.record), []).append(row)
    written = set[int]()
    for record, rows in by_record.items():
        ids = {row.record.id: id(row) for row in rows}  # type: ignore[attr-defined] # every record that is loaded has an id
        of_others = sessions.target_tables.written_by_others(sessions.target, record, list(ids))
        written.update(ids[row_id] for row_id in of_others)
    return frozenset(written)


def _count_rows(
    document: SourceDocument, difference: DocumentDifference | None, totals: ChunkTotals, of_others: Container[int]
) -> None:
    """Count a document; ``of_others``: the ``id()`` of rows that another program changed or deleted."""
    for row in document.serialized:
        totals.rows[row.record.table] += 1
    missing, equal = False, difference is None
    if difference is not None:
        for row, stored in difference.rows:
            if stored is None:
                missing = missing or row is document.serialized[0]
                totals.rows[row.record.table] -= 1
                cause: CauseCode = "deleted-row" if id(row) in of_others else "missing-row"
                totals.differ("missing", source_id_of(document.raw), cause, table=row.record.table)
            else:
                if not _names_its_source(row, stored):
                    # It is not among the rows that are counted by their source: another one would hide behind it.
                    totals.rows[row.record.table] -= 1
                known: CauseCode | None = "foreign-writer" if id(row) in of_others else None
                _add_differences(document.collection, row, stored, source_id_of(document.raw), totals, known)
        if not difference.encodes_back:
            owner = document.collection.tables[0]
            totals.differ("document", source_id_of(document.raw), "value", table=owner.table)
    count_notes(document, totals, equal=equal)
    if missing:
        totals.found.missing += 1
    elif not equal:
        totals.found.differing += 1
    else:
        totals.found.matched += 1
        if document.clean:
            totals.found.without_remainder += 1
        else:
            totals.found.with_remainder += 1


def _compared_rows(document: SourceDocument, different: Mapping[int, bytes | None]) -> Iterator[ComparedRow]:
    """Yield the rows of a document; ``different``: what is stored for those that are not equal, by identity."""
    for row in document.serialized:
        kind, expected = codec(type(row.record)), row.head + row.tail
        stored = different.get(id(row), expected)
        columns = () if stored is None else kind.differing((row.head, row.tail), stored)
        yield ComparedRow(type(row.record), None if stored is None else kind.read(stored), frozenset(columns))


def count_notes(document: SourceDocument, totals: ChunkTotals, *, equal: bool) -> None:
    """Count the findings of a document, and its losses; ``equal``: what is stored keeps them."""
    for group, kind, path in document.counted:
        if group == "finding":
            totals.notes[kind, path] += 1
            totals.add_example((kind, path), source_id_of(document.raw))
        elif kind in remainder.LOSSES:
            totals.losses[path, kind, equal] += 1


def _names_its_source(row: SerializedRow, found: bytes) -> bool:
    """Return whether a stored row names the source of the row that is expected; true of tables without the column."""
    kind = codec(type(row.record))
    return "source" not in kind.columns or kind.read(row.head + row.tail)["source"] == kind.read(found)["source"]


def _add_differences(
    collection: Collection,
    row: SerializedRow,
    stored_bytes: bytes,
    key: str,
    totals: ChunkTotals,
    known: CauseCode | None,
) -> None:
    """Count the columns that differ; ``known``: the cause, if it is known of the whole row."""
    kind = codec(type(row.record))
    references = {one.column for one in collection.references if one.record is type(row.record)}
    wanted, stored = kind.read(row.head + row.tail), kind.read(stored_bytes)
    known = known or _cause_of_row(wanted, stored, totals.as_of)
    for name in kind.differing((row.head, row.tail), stored_bytes):
        before, after = (compared_value(kind.types[name], side[name]) for side in (wanted, stored))
        worded = len(totals.findings) < DESCRIBED
        totals.differ(
            "row",
            key,
            known or ("reference" if name in references else classify(before, after)),
            table=row.record.table,
            path=name,
            details=describe_difference(before, after) if worded else (),
        )


def _cause_of_row(
    wanted: Mapping[str, object], stored: Mapping[str, object], as_of: datetime | None
) -> CauseCode | None:
    """Return the cause that the whole row shows: another program wrote it, or its document changed since."""
    if wanted.get("source") != stored.get("source"):
        return "foreign-writer"
    changed = wanted.get("updated_at")
    later = isinstance(changed, datetime) and as_of is not None and changed > as_of
    return "stale" if later and changed != stored.get("updated_at") else None


def compared_value(kind: str, value: object) -> object:
    """Return a value of a column of some type as differences are described: absent for null, jsonb decoded."""
    if value is None:
        return ABSENT
    return jsonb.decode(value) if kind == "jsonb" and isinstance(value, bytes) else value


def compare_derived(sessions: Sessions, derived: DerivedRows, *, listed: int) -> CollectionComparison:
    """Compare one closing pass's rows, column by column; there is no document to encode back to."""
    record, kind = derived.record, codec(derived.record)
    rows = derived_rows(sessions, derived)
    ids = [row.record.id for row in rows]  # type: ignore[attr-defined] # every loaded record has an id
    stored = fetch(sessions.target, record, ids)
    compared = _comparison_of(f"(derived) {record.table}", (record,))
    compared.documents = len(rows)
    totals = ChunkTotals(compared, sys.maxsize)
    totals.rows[record.table] = len(stored)
    for row in rows:
        row_stored = stored.get(kind.key(row.head))
        key = str(row.record.source_id)  # type: ignore[attr-defined] # as above
        if row_stored is None:
            totals.found.missing += 1
            totals.differ("missing", key, "missing-row", table=record.table)
        elif kind.equal((row.head, row.tail), row_stored):
            totals.found.matched += 1
        else:
            totals.found.differing += 1
            for column in kind.differing((row.head, row.tail), row_stored):
                totals.differ("row", key, "foreign-writer", table=record.table, path=column)
    compared.without_remainder = compared.matched
    extra = sessions.target.execute(
        sql.SQL(
            "SELECT coalesce(source_id, id::text) FROM {} WHERE source = ANY(%s)"
            " AND (id, tenant_id) NOT IN (SELECT * FROM unnest(%s::uuid[], %s::text[]))"
        ).format(table_name(record.table)),
        (
            sorted({str(row.record.source) for row in rows}),  # type: ignore[attr-defined] # as above
            ids,
            [row.record.tenant_id for row in rows],  # type: ignore[attr-defined] # as above
        ),
    ).fetchall()
    for (key,) in extra:
        totals.differ("extra", key, "extra-row", table=record.table)
    return msgspec.structs.replace(merge([totals.comparison((record,))], listed=listed), extra=len(extra))
