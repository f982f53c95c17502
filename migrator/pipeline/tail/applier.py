"""The applier updates rows and quarantine to what documents are now, and finds the documents that refer to the rows.

Each named document is read. The rows that it makes are merged. The rows that it does not make any more are marked as
removed. Other documents may refer to rows that appear or disappear, so this is repeated until nothing changes: a
document is read again if its reference leads to a row that has appeared, or to one that is marked. At the end the
marked rows are deleted, referring rows before the rows to which they refer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.pipeline import ledger, references
from migrator.pipeline import plan as plans
from migrator.pipeline.completion import contested_documents, reassign_contested_keys
from migrator.pipeline.extract import DocumentReader, prefetched
from migrator.pipeline.ledger import Plan
from migrator.pipeline.load import merge_rows
from migrator.pipeline.plan import plan_context
from migrator.pipeline.references import RowKey
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import backlog
from migrator.pipeline.tail.lookups import (
    RowLookups,
    given_keys,
    has_source_column,
    key_columns,
    references_of_profile,
)
from migrator.pipeline.tail.plain import StoredRows, write_native_rows
from migrator.pipeline.tail.positions import TailTotals
from migrator.pipeline.transform import (
    ReadBatch,
    SerializedRow,
    SourceDocument,
    transform_batch,
)
from migrator.records import Record, Schedule, Trigger
from migrator.sources.profile import Collection
from migrator.store.postgres.rows import table_name
from migrator.values import document as documents
from migrator.values.identity import source_id_of

MERGE_DOCUMENTS = 500
"""Documents whose rows are merged at a time."""

# A run that still refers to a removed schedule or trigger was read again: it leads to the row with the same id of the
# other of the two tenants, its own or *.
_SET_GLOBAL = sql.SQL(
    "UPDATE scheduler.runs AS stored SET global_schedule = NOT global_schedule FROM {} WHERE stored.tenant_id <> '*'"
    " AND stored.schedule_tenant_id = given.tenant_id AND coalesce(stored.schedule_id, stored.trigger_id) = given.id"
)

DocumentsByCollection = dict[str, set[str]]
"""Collection → source ids."""


class _CollectionUpdate(msgspec.Struct):
    """Some documents of a collection while they are updated."""

    collection: Collection
    stored: dict[type[Record], dict[RowKey, str]]
    """Rows that they have and, so far, do not make."""
    gone: dict[str, None]
    """Documents that, so far, were not found."""
    loaded: list[str] = msgspec.field(default_factory=list)
    appeared: dict[type[Record], dict[RowKey, str]] = msgspec.field(default_factory=dict)
    """Rows that did not exist before."""
    written: int = 0


class Applier:
    """Applies named documents, within transactions of its caller. Not to be used after a transaction failed."""

    def __init__(self, sessions: Sessions, plan: Plan) -> None:
        self._context = plans.plan_context(plan)
        self.reader = DocumentReader(sessions, self._context.history_before)
        self.lookups = RowLookups(sessions)
        self._sessions = sessions
        self._target = sessions.target
        self._plan = msgspec.structs.replace(plan, profile_version=sessions.profile.version)
        self._collections = sessions.profile.collections
        self._referred = {one.target for one in references_of_profile(sessions.profile)}
        self._tables = list(dict.fromkeys(record for one in self._collections for record in one.tables))
        self._removed: dict[type[Record], dict[RowKey, str]] = {}
        self._referrers_queued: set[tuple[type[Record], RowKey]] = set()
        """Marked rows whose referrers were found. One that still has the id leads to a row of another tenant now."""
        self._done: Counter[str] = Counter()
        """The totals of an update, by the fields of its result."""

    def apply(self, named: Mapping[str, Iterable[str]]) -> TailTotals:
        """Update the rows of these documents to what a majority read returns now."""
        self._done.clear()
        self._sessions.forget()  # ids of rows that others have deleted meanwhile would be taken as stored
        before = self.contested()
        changed = self._update_all({name: set(ids) for name, ids in named.items()})
        self._settle_contested(before, changed)
        return TailTotals(**self._done)

    def name_all(self, collections: Sequence[str]) -> None:
        """Add every document of these collections to the list: those with rows, and those in the source."""
        for name in backlog.take_whole(self._target, collections):
            collection = self._sessions.profile.by_name()[name]
            backlog.add(self._target, {name: self.lookups.all_of(collection)})
            backlog.add_quarantined(self._target, self._plan.profile, name)
            backlog.add(self._target, {name: self.reader.ids(name)})

    def _update_all(self, pending: DocumentsByCollection) -> set[str]:
        """Work until no document must be read again; return the collections of which rows were changed."""
        changed: set[str] = set()
        while pending:
            again: DocumentsByCollection = {}
            for collection in self._collections:
                if ids := pending.get(collection.name):
                    update = self._update(collection, sorted(ids), again)
                    if update.written or any(update.stored.values()):
                        changed.add(collection.name)
            self._queue_referrers(again)
            pending = again
        self._remove()
        return changed

    def _update(self, collection: Collection, ids: Sequence[str], again: DocumentsByCollection) -> _CollectionUpdate:
        """Merge the rows of some documents, and mark the rows that they do not make any more."""
        name, profile = collection.name, self._plan.profile
        self._done["documents"] += len(ids)
        update = _CollectionUpdate(
            collection,
            {record: self.lookups.rows_of(collection, record, ids) for record in collection.tables},
            dict.fromkeys(ids),
        )
        references.forget_dangling(
            self._target, name, ledger.documents_with_entries(self._target, "dangling_references", name, ids)
        )
        for batch in prefetched(self.reader.documents(name, ids)):
            for documents_read in self._documents(update, batch):
                self._merge(update, documents_read)
        if recorded := ledger.documents_with_entries(self._target, "quarantine", name, ids):
            ledger.close_entries(self._target, profile, name, recorded.intersection(update.loaded), "resolved")
            ledger.close_entries(self._target, profile, name, recorded.intersection(update.gone), "superseded")
        for record, appeared in update.appeared.items():
            self.lookups.remember(collection, record, appeared.items())
            if record in self._referred:
                self._sessions.resolver.changed(record.table, appeared)
                new = [one for one, _ in appeared]
                for other, waiting in references.documents_waiting_for(self._target, record.table, new).items():
                    again.setdefault(other, set()).update(waiting)
        for record, rows in update.stored.items():
            if rows:
                self._removed.setdefault(record, {}).update(rows)
                self._sessions.resolver.mark_removed(record.table, rows)
        self._done["written"] += update.written
        return update

    def _documents(self, update: _CollectionUpdate, batch: bytes) -> Iterator[list[SourceDocument]]:
        """Write the rows of the plain changes that the native codec can read; yield the other documents.

        Rows that were marked, and rows that do not name their document, are left to the Python codec.
        """
        collection, resolver = update.collection, self._sessions.resolver
        if self._removed or not all(has_source_column(record) for record in collection.tables):
            yield from transform_batch(collection, self._context, resolver, batch, MERGE_DOCUMENTS)
            return
        read = ReadBatch(collection, self._context, resolver, batch)
        if read.plain:
            self._write_native(update, read, documents.split(batch))
        yield from read.documents(MERGE_DOCUMENTS)

    def _write_native(self, update: _CollectionUpdate, read: ReadBatch, raws: Sequence[bytes]) -> None:
        """Write the rows of the plain changes among the documents that the native codec has read."""
        stored: StoredRows = {}
        for record, rows in update.stored.items():
            for key, source_id in rows.items():
                stored.setdefault(source_id, set()).add((record, key))
        done = write_native_rows(self._target, read, raws, stored, self._referred)
        update.written += done.written
        for source_id, places in done.rows.items():
            update.loaded.append(source_id)
            update.gone.pop(source_id, None)
            for record, key in places:
                if update.stored[record].pop(key, None) is None:
                    update.appeared.setdefault(record, {})[key] = source_id

    def _merge(self, update: _CollectionUpdate, documents_read: Sequence[SourceDocument]) -> None:
        """Merge the rows of one batch of documents."""
        name = update.collection.name
        loadable = {source_id_of(document.raw): document for document in documents_read if document.serialized}
        owned = {
            id(row)
            for source_id, document in loadable.items()
            for row in document.serialized
            if update.stored[type(row.record)].get(_key(row)) == source_id
        }
        dangling = [one for each in documents_read for one in references.dangling_references_of(each, own=True)]
        update.written += merge_rows(self._target, list(loadable.values()), owned).total()
        rejected = [document for document in documents_read if document.rejected is not None]
        ledger.quarantine(self._target, self._plan, name, rejected)
        references.store_dangling(self._target, name, dangling)
        for document in rejected:
            update.gone.pop(source_id_of(document.raw), None)
        for source_id, document in loadable.items():
            if document.rejected is None:
                self._keep(update, source_id, document)

    def _keep(self, update: _CollectionUpdate, source_id: str, document: SourceDocument) -> None:
        """Record a document whose rows are stored."""
        update.loaded.append(source_id)
        update.gone.pop(source_id, None)
        for row in document.serialized:
            record, key = type(row.record), _key(row)
            was_stored = update.stored[record].pop(key, None) is not None
            if self._removed.get(record, {}).pop(key, None) is not None:
                self._referrers_queued.discard((record, key))
                self._sessions.resolver.unmark(record.table, key)
                was_stored = False
            if not was_stored:
                update.appeared.setdefault(record, {})[key] = source_id

    def _queue_referrers(self, again: DocumentsByCollection) -> None:
        """Find the documents that refer to rows marked since the last call, and whose own rows are not marked."""
        new = {
            record: [key for key in removed if (record, key) not in self._referrers_queued]
            for record, removed in self._removed.items()
        }
        self._referrers_queued.update((record, key) for record, keys in new.items() for key in keys)
        for collection in self._collections:
            for reference in collection.references:
                if ids := [one for one, _ in new.get(reference.target, ())]:
                    own = self._removed.get(reference.record, {})
                    for key, source_id in self.lookups.referring(collection, reference, ids).items():
                        if key not in own:
                            again.setdefault(collection.name, set()).add(source_id)

    def _remove(self) -> None:
        """Delete the marked rows."""
        for record in reversed(self._tables):
            if removed := self._removed.pop(record, None):
                given, is_given = given_keys(record)
                if record in (Schedule, Trigger):
                    self._target.execute(_SET_GLOBAL.format(given), key_columns(removed))
                self._target.execute(
                    sql.SQL("DELETE FROM {} AS stored USING {} WHERE {}").format(
                        table_name(record.table), given, is_given
                    ),
                    key_columns(removed),
                )
                self.lookups.forget(record, list(removed))
                self._done["removed"] += len(removed)
        self._referrers_queued.clear()
        self._sessions.resolver.unmark_all()

    def _settle_contested(self, before: DocumentsByCollection, changed: set[str]) -> None:
        """Retry documents that lost a key if rows were changed, then give each key to its first claimant."""
        contested = self.contested()
        new = any(ids - before.get(name, set()) for name, ids in contested.items())
        waiting = {name: ids for name, ids in contested.items() if name in changed}
        while waiting:
            self._update_all({name: set(ids) for name, ids in waiting.items()})
            left = {name: ids for name, ids in self.contested().items() if name in changed}
            if left == waiting:
                break
            waiting = left
        if new:
            self._update_all(self.referring(reassign_contested_keys(self._sessions, self._plan, self._context)))

    def referring(self, changed: Mapping[str, Iterable[UUID]]) -> DocumentsByCollection:
        """Find the documents that refer, or would refer, to rows with these ids, by table."""
        named: DocumentsByCollection = {}
        for collection in self._collections:
            for reference in collection.references:
                if ids := list(changed.get(reference.target.table, ())):
                    found = self.lookups.referring(collection, reference, ids)
                    named.setdefault(collection.name, set()).update(found.values())
        for table, written in changed.items():
            for name, waiting in references.documents_waiting_for(self._target, table, written).items():
                named.setdefault(name, set()).update(waiting)
        return {name: ids for name, ids in named.items() if ids}

    def contested(self) -> DocumentsByCollection:
        """Return the documents that are quarantined because another one holds their key."""
        contested: DocumentsByCollection = {}
        for name, source_id, _ in contested_documents(self._target, self._plan.profile):
            contested.setdefault(name, set()).add(source_id)
        return contested


def _key(row: SerializedRow) -> RowKey:
    return row.record.id, row.record.tenant_id  # type: ignore[attr-defined] # every loaded record has both


def settle_contested_keys(sessions: Sessions, plan: Plan) -> None:
    """Give every contested key to the first document, then read again the documents that refer to a changed row."""
    changed = reassign_contested_keys(sessions, plan, plan_context(plan))
    if not changed:
        return
    applier = Applier(sessions, plan)
    with closing(applier.reader), sessions.target.transaction():
        applier.reader.not_before_now()
        named = applier.referring(changed)
        if named:
            applier.apply(named)
