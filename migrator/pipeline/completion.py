"""The closing passes, which need all documents to be loaded: contested keys, derived rows, statistics of the planner.

Derived rows are made from many documents together (the workers of Agenda), and belong to no document.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import sql

from migrator import fault_points
from migrator.connections.postgres import Connection
from migrator.pipeline import ledger
from migrator.pipeline.ledger import Plan
from migrator.pipeline.load import DUPLICATE_ID, DUPLICATE_KEY, duplicate_id, duplicate_key, upsert
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import SerializedRow, SourceDocument, decode_document, serialize_rows
from migrator.records import Record
from migrator.sources.profile import Collection, Context, DerivedRows, Rejected, Skipped
from migrator.store.postgres.rows import table_name
from migrator.values import document as documents
from migrator.values import identity

_PRIMARY_KEY = ("id", "tenant_id")
STATISTICS_ENTRIES: Final = 10
"""Of a column, that a copy collects, unless the server is set to fewer: the usual 100 cost much while nothing else can
be done."""


def reassign_contested_keys(sessions: Sessions, plan: Plan, context: Context) -> dict[str, set[UUID]]:
    """Give every contested key to the first document in MongoDB's order of ``_id``.

    The order of the workers decides which document was stored first. It must not decide which one keeps the key.
    Returns, by table, the ids of the rows that changed their document or were deleted. Documents that refer to them
    must be read again (``tail.applier``).
    """
    changed: dict[str, set[UUID]] = {}
    collections = sessions.profile.by_name()
    for name, source_id, why in contested_documents(sessions.target, plan.profile):
        contest = _ContestedKeys(sessions, plan, collections[name], context)
        for table, row_id in contest.decide(source_id, why):
            changed.setdefault(table, set()).add(row_id)
        fault_points.reach(fault_points.AFTER_CONTEST_SETTLED)
    fault_points.reach(fault_points.AFTER_DUPLICATES_SETTLED)
    return changed


def contested_documents(target: Connection, profile: str) -> list[tuple[str, str, Rejected]]:
    """Return collection, source id and reason of the documents that are quarantined because others hold their keys."""
    rows = target.execute(
        "SELECT collection, source_id, reason, path, expected FROM migration.quarantine"
        " WHERE profile = %s AND state = 'open' AND reason = ANY(%s) ORDER BY collection, source_key",
        (profile, [DUPLICATE_ID, DUPLICATE_KEY]),
    )
    return [(row[0], row[1], Rejected(*row[2:])) for row in rows]


def refresh_statistics(sessions: Sessions, plan: Plan) -> None:
    """Run ANALYZE on the tables to which this plan has written, over 300 rows for each entry of the statistics.

    Their jsonb columns are left out: no query of the store looks into them, and reading them is most of the work. An
    ANALYZE of some columns does not tell autovacuum that the table was analyzed, so it takes the usual sample later.
    """
    target = sessions.target
    written = ledger.written_tables(target, plan.id)
    for record in {record for one in sessions.profile.collections for record in one.tables if record.table in written}:
        with target.transaction():
            target.execute(
                "SELECT set_config(name, least(setting::int, %s)::text, true) FROM pg_settings"
                " WHERE name = 'default_statistics_target'",
                (STATISTICS_ENTRIES,),
            )
            for table, columns in sessions.target_tables.analyzed(record):
                target.execute(
                    sql.SQL("ANALYZE {} ({})").format(table, sql.SQL(", ").join(map(sql.Identifier, columns)))
                )


class _Holder(NamedTuple):
    """A stored row that holds a contested key."""

    key: tuple[str, UUID, str]
    reason: Rejected | None
    """Why its document would be quarantined; None: for the reason of the document that lost the key."""


class _ContestedKeys:
    """The contested keys of one collection."""

    def __init__(self, sessions: Sessions, plan: Plan, collection: Collection, context: Context) -> None:
        self._sessions = sessions
        self._plan = plan
        self._collection = collection
        self._context = context

    def decide(self, loser_id: str, reason: Rejected) -> list[tuple[str, UUID]]:
        """Store the quarantined document in place of those that hold its keys, if it comes before all of them.

        Returns table and id of the rows written or deleted. One document may conflict with one holder by its id and
        with another by a key.
        """
        loser = self._read(loser_id)
        held = {} if loser is None else self._holders(loser)
        if loser is None or not held or not all(self._first(loser_id, one) for one in held):
            return []
        holders = {one: holder for one in held if (holder := self._read(one)) is not None}
        if len(holders) < len(held):
            return []
        for holder in holders.values():
            self._serialize(holder)
        if any(held[one].key not in map(_row_key, holder.serialized) for one, holder in holders.items()):
            return []  # a holder was given another id or tenant since: whoever reads it next frees the key
        target, plan, name = self._sessions.target, self._plan, self._collection.name
        self._serialize(loser)
        rows = loser.serialized
        kept = {_row_key(row) for row in rows}
        before = [row for holder in holders.values() for row in reversed(holder.serialized)]
        for one, holder in holders.items():
            holder.reject(held[one].reason or reason)
        with target.transaction():
            for row in before:
                if _row_key(row) not in kept:
                    target.execute(
                        sql.SQL("DELETE FROM {} WHERE id = %s AND tenant_id = %s").format(table_name(row.record.table)),
                        _row_key(row)[1:],
                    )
            for row in rows:
                upsert(target, type(row.record), [row.head + row.tail], whoever=True)
            ledger.close_entries(target, plan.profile, name, [loser_id], "resolved")
            ledger.quarantine(target, plan, name, [holder for _, holder in sorted(holders.items())])
        changed = [_row_key(row) for row in (*before, *rows)]
        for table, row_id, tenant in changed:
            self._sessions.resolver.changed(table, [(row_id, tenant)])
        return [(table, row_id) for table, row_id, _ in changed]

    def _read(self, source_id: str) -> SourceDocument | None:
        """Return a document as it is now; None if it does not exist, or cannot become rows, so that it claims no key.

        If it was changed since it was quarantined, the tail or the next copy reads it again.
        """
        for batch in self._sessions.reader.of(self._collection, self._context.history_before).by_ids([source_id]):
            with suppress(Rejected, Skipped):
                return decode_document(self._collection, self._context, batch)
        return None

    def _serialize(self, document: SourceDocument) -> None:
        resolver = self._sessions.resolver
        resolver.look_up(self._collection, [document])
        resolver.resolve(document)
        document.serialize()

    def _holders(self, loser: SourceDocument) -> "dict[str, _Holder]":
        """Return the other documents that hold its id or one of its keys, by source id."""
        owner: Any = serialize_rows(loser.rows[:1])[
            0
        ].record  # as it would be stored: PostgreSQL's text cannot hold NUL
        if "source" not in owner.__struct_fields__:
            row = self._sessions.target.execute(
                sql.SQL("SELECT payload ->> '_id', id, tenant_id FROM {} WHERE id = %s AND tenant_id = %s").format(
                    table_name(owner.table)
                ),
                (owner.id, owner.tenant_id),
            ).fetchone()
            own = identity.source_id_of(loser.raw)
            return {} if row is None or str(row[0]) == own else {str(row[0]): _Holder((owner.table, *row[1:]), None)}
        holders: dict[str, _Holder] = {}
        for key, also in (
            (_PRIMARY_KEY, ()),
            *((key, ()) for key in self._collection.unique),
            *self._unique_among(owner),
        ):
            row = self._sessions.target.execute(
                sql.SQL("SELECT source_id, id, tenant_id FROM {} WHERE {} AND source = %s").format(
                    table_name(owner.table),
                    sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in (*key, *also)),
                ),
                (*(getattr(owner, name) for name in (*key, *also)), owner.source),
            ).fetchone()
            if row is not None and row[0] != owner.source_id:
                holders.setdefault(str(row[0]), _Holder((owner.table, *row[1:]), self._why(type(owner), key)))
        return holders if len(holders) > 1 else {one: holder._replace(reason=None) for one, holder in holders.items()}

    def _unique_among(self, owner: Record) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Yield the columns that are unique among such rows, and those that make a row one of them."""
        for one in self._collection.unique_among:
            if all(getattr(owner, name) == value for name, value in one.when.items()):
                yield one.columns, tuple(one.when)

    def _why(self, record: type[Record], key: tuple[str, ...]) -> Rejected | None:
        """Return why the copy would have quarantined a document that lost a key."""
        if key == _PRIMARY_KEY:
            return duplicate_id()
        row = self._sessions.target.execute(
            "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
            " WHERE indrelid = ANY(%s::regclass[]) AND indisunique"
            " AND %s::text[] <@ (SELECT array_agg(attname::text) FROM pg_attribute"
            " WHERE attrelid = indexrelid) ORDER BY indnatts, relname LIMIT 1",
            (list(self._sessions.target_tables.relations(record)), list(key)),
        ).fetchone()
        return None if row is None else duplicate_key(row[0])

    def _first(self, one: str, other: str) -> bool:
        """Return whether ``one`` comes before ``other`` in MongoDB's order of ``_id``; the server decides."""
        return self._sessions.reader.of(self._collection).is_first(one, other)


def _row_key(row: SerializedRow) -> tuple[str, UUID, str]:
    return row.record.table, row.record.id, row.record.tenant_id  # type: ignore[attr-defined] # every loaded record has both


def derived_rows(sessions: Sessions, closing: DerivedRows) -> list[SerializedRow]:
    """Return the rows that the source's documents make together now."""
    present = set(sessions.source.list_collection_names())
    return serialize_rows(closing.make(_derived_values(sessions, closing, present)))


def _derived_values(sessions: Sessions, closing: DerivedRows, present: set[str]) -> Iterator[object]:
    for collection, pipeline in closing.pipelines:
        name = sessions.name_of(collection)
        if name in present:
            batches = sessions.source[name].aggregate_raw_batches(list(pipeline), allowDiskUse=True)
            for found in documents.readable(batches):
                yield found["_id"]


def write_derived(sessions: Sessions) -> int:
    """Update the derived rows, and delete those that no document makes any more; return the number of rows written."""
    written = 0
    profile = sessions.profile
    of_documents = [profile.source_of(one.name) for one in profile.collections]
    for closing in profile.closing:
        rows = derived_rows(sessions, closing)
        with sessions.target.transaction():
            if rows:
                serialized = [row.head + row.tail for row in rows]
                written += upsert(sessions.target, closing.record, serialized, different=True)
            sessions.target.execute(
                sql.SQL(
                    "DELETE FROM {} WHERE starts_with(source, %s) AND source <> ALL(%s)"
                    " AND (id, tenant_id) NOT IN (SELECT * FROM unnest(%s::uuid[], %s::text[]))"
                ).format(table_name(closing.record.table)),
                (
                    f"{profile.name}/",
                    of_documents,
                    [row.record.id for row in rows],  # type: ignore[attr-defined] # every loaded record has both
                    [row.record.tenant_id for row in rows],  # type: ignore[attr-defined] # as above
                ),
            )
    return written
