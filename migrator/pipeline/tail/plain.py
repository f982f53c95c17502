"""Plain changes: they concern one document alone, so that several processes may apply them at the same time.

A change of a document is plain if the document exists and becomes rows, every reference in these rows leads to a stored
row, every row that is stored for the document stays, no other document waits for a new row, no other document holds one
of its keys, and the ledger has no entry of the document (quarantine, dangling references). A change that is not plain
is left to the applier of the tail's own process. To leave a change to it is always correct.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec
import psycopg

from migrator.connections.postgres import Connection
from migrator.pipeline import ledger, references
from migrator.pipeline.extract import DocumentReader, prefetched
from migrator.pipeline.ledger import Plan
from migrator.pipeline.load import merge_rows, parents_first, upsert
from migrator.pipeline.plan import plan_context
from migrator.pipeline.references import RowKey
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.lookups import RowLookups, has_source_column, references_of_profile
from migrator.pipeline.transform import ReadBatch, SourceDocument
from migrator.records import Record
from migrator.sources.profile import Collection
from migrator.values import document as documents
from migrator.values.identity import source_id_of, uuid_of

MERGE_DOCUMENTS = 500
"""Documents whose rows are merged at a time."""

StoredRows = dict[str, set[tuple[type[Record], RowKey]]]
"""Source id → the rows that are stored for the document."""


RowsByKey = dict[tuple[type[Record], RowKey], bytes]


class WrittenDocuments(msgspec.Struct, frozen=True):
    """Documents of a batch whose rows are stored."""

    rows: dict[str, list[tuple[type[Record], RowKey]]]
    """Source id → rows."""
    written: int = 0
    """Rows that were different."""


def write_native_rows(
    target: Connection, batch: ReadBatch, raws: Sequence[bytes], stored: StoredRows, referred: Container[type[Record]]
) -> WrittenDocuments:
    """Write the rows of documents that the native codec has read, if their changes are plain; hand over the others.

    A document is handed over if only some of its rows are stored, or others than it makes. If one of the rows cannot be
    stored, because another document holds a key, all are.
    """
    made: dict[int, RowsByKey] = {}
    for record, position, row in batch.each_row():
        made.setdefault(position, {})[record, _key_of(row)] = row
    ids = {position: source_id_of(raws[position]) for position in made}
    known = [position for position, rows in made.items() if stored.get(ids[position]) == rows.keys()]
    new = {position: rows for position, rows in made.items() if not stored.get(ids[position])}
    alone = _without_awaited(target, new, referred)
    written = _store_rows(target, _by_table(made, known), _by_table(made, alone))
    chosen = [] if written is None else known + alone
    batch.read_in_python(made.keys() - set(chosen))
    return WrittenDocuments({ids[position]: list(made[position]) for position in chosen}, written or 0)


def _by_table(made: Mapping[int, RowsByKey], positions: Iterable[int]) -> dict[type[Record], list[bytes]]:
    rows: dict[type[Record], list[bytes]] = {}
    for position in positions:
        for (record, _), row in made[position].items():
            rows.setdefault(record, []).append(row)
    return rows


def _store_rows(
    target: Connection, known: Mapping[type[Record], list[bytes]], new: Mapping[type[Record], list[bytes]]
) -> int | None:
    """Write rows; return how many were different, or None, and nothing is written, if another document holds a key."""
    written = 0
    try:
        with target.transaction() as savepoint:
            for record in parents_first({*known, *new}):
                if record in known:
                    written += upsert(target, record, known[record], different=True)
                if record in new:
                    stored = upsert(target, record, new[record])
                    if stored != len(new[record]):  # another document holds an id
                        raise psycopg.Rollback(savepoint)
                    written += stored
            return written
    except psycopg.errors.UniqueViolation:
        return None
    return None


def _without_awaited(
    target: Connection,
    new: Mapping[int, RowsByKey],
    referred: Container[type[Record]],
) -> list[int]:
    """Return the positions of new documents that have their ids alone, and for whose rows no document waits."""
    makers: dict[tuple[type[Record], RowKey], list[int]] = {}
    for position, rows in new.items():
        for one in rows:
            makers.setdefault(one, []).append(position)
    out = {position for several in makers.values() if len(several) > 1 for position in several}
    for record in {record for record, _ in makers if record in referred}:
        by_id: dict[UUID | int, list[int]] = {}
        for (of, key), positions in makers.items():
            if of is record:
                by_id.setdefault(key[0], []).extend(positions)
        for awaited in references.awaited_rows(target, record.table, by_id):
            out.update(by_id[awaited])
    return [position for position in new if position not in out]


def _key_of(row: bytes) -> RowKey:
    """Return id and tenant, the first two columns of every table that names the documents of its rows."""
    length = int.from_bytes(row[22:26], "big")
    return uuid_of(int.from_bytes(row[6:22], "big")), row[26 : 26 + length].decode()


class PlainResult(msgspec.Struct, kw_only=True):
    """What became of some documents of a collection."""

    left: list[str]
    """Those whose change is not plain; nothing of them was written."""
    applied: int = 0
    """Those whose change was applied."""
    written: int = 0
    """Rows that were different."""
    failure: str = ""
    """Why all of them are left, as a sentence; empty: nothing failed."""


def can_be_plain(collection: Collection) -> bool:
    """Return whether changes of a collection can be applied by several processes.

    The tables must name the documents of their rows. A reference into the collection's own tables must not have a
    choice between two rows: another process may be about to store the one that has precedence.
    """
    return all(has_source_column(record) for record in collection.tables) and not any(
        one.shared and one.target in collection.tables for one in collection.references
    )


class PlainApplier:
    """Applies plain changes, within transactions of its caller. Not to be used after a transaction failed."""

    def __init__(self, sessions: Sessions, plan: Plan) -> None:
        self.plan = plan
        self._context = plan_context(plan)
        self.reader = DocumentReader(sessions, self._context.history_before)
        self._sessions = sessions
        self._target = sessions.target
        self._lookups = RowLookups(sessions)
        self._referred = {one.target for one in references_of_profile(sessions.profile)}

    def apply(self, collection: Collection, source_ids: Sequence[str]) -> PlainResult:
        """Update the rows of the documents whose change is plain to what a majority read returns now."""
        self._sessions.forget()  # ids of rows that others have deleted meanwhile would be taken as stored
        name, done = collection.name, PlainResult(left=[])
        recorded = {
            one
            for table in ("quarantine", "dangling_references")
            for one in ledger.documents_with_entries(self._target, table, name, source_ids)
        }
        wanted = [one for one in source_ids if one not in recorded]
        stored: StoredRows = {}
        for record in collection.tables:
            for key, source_id in self._lookups.rows_of(collection, record, wanted).items():
                stored.setdefault(source_id, set()).add((record, key))
        gone = dict.fromkeys(wanted)
        applied: set[str] = set()
        for batch in prefetched(self.reader.documents(name, wanted)):
            read = ReadBatch(collection, self._context, self._sessions.resolver, batch)
            if read.plain:
                native = write_native_rows(self._target, read, documents.split(batch), stored, self._referred)
                done.written += native.written
                applied.update(native.rows)
                for source_id in native.rows:
                    gone.pop(source_id, None)
            for documents_read in read.documents(MERGE_DOCUMENTS):
                named = {source_id_of(document.raw): document for document in documents_read}
                for source_id in named:
                    gone.pop(source_id, None)
                applied.update(self._merge(named, stored, done))
        applied.update(one for one in gone if one not in stored)  # inserted and deleted since the last batch
        done.left = [one for one in source_ids if one not in applied]
        done.applied = len(applied)
        return done

    def _merge(self, named: dict[str, SourceDocument], stored: StoredRows, done: PlainResult) -> list[str]:
        """Merge the rows of plain changes; return the source ids of their documents."""
        chosen: dict[str, SourceDocument] = {}
        owned: set[int] = set()
        new: dict[type[Record], dict[UUID | int, list[str]]] = {}
        for source_id, document in named.items():
            if not document.serialized or document.dangling or document.links:
                continue
            had = stored.get(source_id, set())
            rows = {(type(row.record), (row.record.id, row.record.tenant_id)): row for row in document.serialized}  # type: ignore[attr-defined] # every loaded record has both
            if not had <= rows.keys():
                continue
            chosen[source_id] = document
            owned.update(id(rows[one]) for one in had)
            for record, key in rows.keys() - had:
                if record in self._referred:
                    new.setdefault(record, {}).setdefault(key[0], []).append(source_id)
        for record, by_id in new.items():
            for one in references.awaited_rows(self._target, record.table, by_id):
                for source_id in by_id[one]:
                    chosen.pop(source_id, None)
        done.written += merge_rows(self._target, list(chosen.values()), owned).total()
        return [source_id for source_id, document in chosen.items() if document.rejected is None]
