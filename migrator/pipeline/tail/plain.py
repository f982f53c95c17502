"""Plain changes: they concern one document alone, so that several processes may apply them at the same time.

A change of a document is plain if the document exists and becomes rows, every reference in these rows leads to a stored
row, every row that is stored for the document stays, no other document waits for a new row, no other document holds one
of its keys, and the ledger has no entry of the document (quarantine, dangling references). A change that is not plain
is left to the applier of the tail's own process. To leave a change to it is always correct.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from migrator.pipeline import ledger, references
from migrator.pipeline.extract import DocumentReader
from migrator.pipeline.ledger import Plan
from migrator.pipeline.load import merge_rows
from migrator.pipeline.plan import plan_context
from migrator.pipeline.references import RowKey
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.lookups import RowLookups, has_source_column, references_of_profile
from migrator.pipeline.tail.stream import prefetched
from migrator.pipeline.transform import DocumentOutcome, LoadableDocument, transform_batch
from migrator.records import Record
from migrator.sources.profile import Collection
from migrator.values.identity import source_id_of

MERGE_DOCUMENTS = 500
"""Documents whose rows are merged at a time."""

StoredRows = dict[str, set[tuple[type[Record], RowKey]]]
"""Source id → the rows that are stored for the document."""


class PlainResult(msgspec.Struct, kw_only=True):
    """What became of some documents of a collection."""

    left: list[str]
    """Those whose change is not plain; nothing of them was written."""
    applied: int = 0
    """Those whose change was applied."""
    written: int = 0
    """Rows that were different."""


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
        self.reader = DocumentReader(sessions)
        self._sessions = sessions
        self._target = sessions.target
        self._context = plan_context(plan)
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
            for found in transform_batch(collection, self._context, self._sessions.resolver, batch, MERGE_DOCUMENTS):
                named = {source_id_of(one.raw): one for one in found}
                for one in named:
                    gone.pop(one, None)
                applied.update(self._merge(named, stored, done))
        applied.update(one for one in gone if one not in stored)  # inserted and deleted since the last batch
        done.left = [one for one in source_ids if one not in applied]
        done.applied = len(applied)
        return done

    def _merge(self, found: dict[str, DocumentOutcome], stored: StoredRows, done: PlainResult) -> list[str]:
        """Merge the rows of plain changes; return the source ids of their documents."""
        chosen: dict[str, LoadableDocument] = {}
        owned: set[int] = set()
        new: dict[type[Record], dict[UUID | int, list[str]]] = {}
        for source_id, outcome in found.items():
            document = outcome.loadable
            if document is None or document.dangling or document.links:
                continue
            had = stored.get(source_id, set())
            rows = {(type(row.record), (row.record.id, row.record.tenant_id)): row for row in document.rows}  # type: ignore[attr-defined] # every loaded record has both
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
        written, conflicts = merge_rows(self._target, list(chosen.values()), owned)
        done.written += written.total()
        return [source_id for source_id, document in chosen.items() if id(document) not in conflicts]
