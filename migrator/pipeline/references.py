"""References between documents, resolved by what is stored.

``decode`` reads one document and computes the id that a reference would have. Only the target can say whether that row
is stored, and of which document it is. Several documents may share an id (``sch_<hex>`` and ``job_<hex>``). So a
reference leads to a row only if the row belongs to the named document and to the same tenant. A run may also refer to a
schedule and a trigger of the tenant ``*``. Any other is a dangling reference: it becomes null, its text stays in the
remainder, and a note counts it. A reference into the same table (``retry_of``) may point forward. So it is loaded as
null with a pending link, which a closing pass resolves.

Dangling references are recorded in ``migration.dangling_references``, so that the tail reads their document again when
the row is stored. An entry that is out of date costs one read of a document. Only the tail deletes entries.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import fault_points
from migrator.connections.postgres import Connection
from migrator.pipeline import ledger
from migrator.pipeline.ledger import Plan
from migrator.pipeline.transform import KnownReferences, PendingLink, SourceDocument
from migrator.records import Record
from migrator.sources.profile import Collection, Note, Reference, ReferenceKey, Rejected, Rows
from migrator.store.postgres.rows import table_name
from migrator.store.validation import GLOBAL
from migrator.values import identity
from migrator.values.identity import source_id_of

ORPHAN = "orphan"
CACHED_IDS = 20_000
"""Known ids kept per table; it bounds the memory of a worker."""

_UUID_BYTES = 16

RowKey: TypeAlias = tuple[UUID | int, str]
"""Id and tenant of a row."""


class StoredRow(NamedTuple):
    """The document to which a stored row belongs."""

    tenant: str
    collection: str
    """The collection of its document, without the profile; empty: it has none, or does not name it."""
    source_id: str


class MissingParent(Rejected):
    """A required reference dangles: the document is quarantined until the row is stored."""

    def __init__(self, reference: Reference, target: UUID) -> None:
        super().__init__(ORPHAN, reference.path or reference.column, f"a stored row of {reference.target.table}")
        self.orphan: ReferenceKey = (reference.target.table, target)


class UncheckedResolver:
    """Leaves every reference as it is, because there is no target: for the census, and for a dry run."""

    def look_up(self, collection: Collection, decoded: Sequence[SourceDocument]) -> None:
        """Do nothing."""

    def resolve(self, document: SourceDocument) -> None:
        """Do nothing: the rows stay as they were decoded."""

    def known_references(self, collection: Collection) -> Sequence[KnownReferences]:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return ()

    def look_up_unknown(
        self, collection: Collection, known: Sequence[KnownReferences], unknown: Sequence[tuple[int, bytes]]
    ) -> None:
        """Do nothing."""


class FirstLoadResolver:
    """Resolves as ``resolver`` does, but leaves a reference into the table that is being loaded pending.

    A lookup would depend on what is loaded already, and cost a query for each small batch.
    """

    def __init__(self, resolver: "TargetResolver", collection: Collection) -> None:
        elsewhere = tuple(one for one in collection.references if one.target is not one.record)
        self._elsewhere = msgspec.structs.replace(collection, references=elsewhere)
        self._resolver = resolver
        self.resolve, self.look_up_unknown = resolver.resolve, resolver.look_up_unknown

    def look_up(self, collection: Collection, decoded: Sequence[SourceDocument]) -> None:  # noqa: ARG002 - the protocol's
        """Look up the references into other tables."""
        self._resolver.look_up(self._elsewhere, decoded)

    def known_references(self, collection: Collection) -> Sequence[KnownReferences]:
        """Return the known rows of the references; a document with one into its own table is for the Python codec."""
        known = self._resolver.known_references(collection)
        own = [one.target is one.record for one in collection.references]
        return [False if is_own else rows for rows, is_own in zip(known, own, strict=True)]


class TargetResolver:
    """Knows which referenced rows are stored; asks the target for unknown ids, once for each small batch."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stored: dict[str, dict[UUID, tuple[StoredRow, ...]]] = {}
        self._removed: dict[str, set[RowKey]] = {}
        self._known_references: dict[str, dict[tuple[str, int], dict[bytes, bool]]] = {}
        """Table to collection and position of a reference to what the native codec is told; as old as ``_stored``."""

    def mark_removed(self, table: str, keys: Iterable[RowKey]) -> None:
        """Treat rows that are stored as removed: they are removed when no row refers to them any more."""
        self._removed.setdefault(table, set()).update(keys)
        self._known_references.pop(table, None)

    def unmark(self, table: str, key: RowKey) -> None:
        """Treat a row as stored again; the target is asked again to which document it belongs."""
        self._removed.get(table, set()).discard(key)
        self.changed(table, (key,))

    def unmark_all(self) -> None:
        """Treat all rows that are stored as stored again, and ask the target again about those that were not."""
        for table, keys in self._removed.items():
            self.changed(table, keys)
        self._removed.clear()

    def changed(self, table: str, keys: Iterable[RowKey]) -> None:
        """Forget what was known of rows that were written."""
        known: dict[Any, tuple[StoredRow, ...]] = self._stored.get(table, {})
        for one, _ in keys:
            known.pop(one, None)
        self._known_references.pop(table, None)

    def known_references(self, collection: Collection) -> Sequence[KnownReferences]:
        """Return the known rows of each reference."""
        known: list[KnownReferences] = []
        for index, reference in enumerate(collection.references):
            of_table = self._known_references.setdefault(reference.target.table, {})
            of_reference = of_table.setdefault((collection.name, index), {})
            if len(of_reference) > CACHED_IDS:
                of_reference.clear()
            known.append(of_reference)
        return known

    def look_up_unknown(
        self, collection: Collection, known: Sequence[KnownReferences], unknown: Sequence[tuple[int, bytes]]
    ) -> None:
        """Look up the rows that are named, and add whether each is that of the named document."""
        named: dict[type[Record], set[UUID]] = {}
        for index, key in unknown:
            named.setdefault(collection.references[index].target, set()).add(UUID(bytes=key[:_UUID_BYTES]))
        for record, ids in named.items():
            self._fetch(
                record, ids.difference(self._bounded(record))
            )  # goes through the ids alone, not all that is known
        for index, key in unknown:
            reference, row_id, tenant = collection.references[index], UUID(bytes=key[:_UUID_BYTES]), key[_UUID_BYTES:]
            spelled = f"{reference.prefix}{row_id.hex}"
            of_reference = known[index]
            assert isinstance(of_reference, dict)  # noqa: S101 - only what a mapping lacks is unknown
            of_reference[key] = any(
                _is_of(stored, spelled, row_id, reference)
                for stored in self._stored_rows(reference.target.table, row_id, tenant.decode())
            )

    def _bounded(self, record: type[Record]) -> dict[UUID, tuple[StoredRow, ...]]:
        """Return the known rows of a table, before a query: the rows that its documents name must be known after it."""
        known = self._stored.setdefault(record.table, {})
        if len(known) > CACHED_IDS:
            known.clear()
        return known

    def _stored_rows(self, table: str, one: UUID, tenant: str) -> Iterator[StoredRow]:
        """Yield the known rows with this id in a tenant; nothing of a row that is treated as removed."""
        if (one, tenant) not in self._removed.get(table, ()):
            yield from (stored for stored in self._stored.get(table, {}).get(one, ()) if stored.tenant == tenant)

    def look_up(self, collection: Collection, decoded: Sequence[SourceDocument]) -> None:
        """Look up every reference of these documents that is not known yet."""
        named: dict[type[Record], set[UUID]] = {}
        for reference in collection.references:
            named.setdefault(reference.target, set()).update(_targets(reference, decoded))
        for record, ids in named.items():
            self._fetch(record, ids.difference(self._bounded(record)))
        for reference in collection.references:
            if reference.shared:
                self._fetch(reference.target, self._global_targets(reference, decoded))

    def _fetch(self, record: type[Record], unknown: set[UUID]) -> None:
        if not unknown:
            return
        known = self._stored.setdefault(record.table, {})
        whose = _DOCUMENT_OF_ROW if "source" in record.__struct_fields__ else _DOCUMENT_OF_GRAPH_JOB
        mine = {one: one for one in unknown}  # the objects that documents share compare equal at once
        rows = self._connection.execute(
            sql.SQL("SELECT id, tenant_id, {} FROM {} WHERE id = ANY(%s)").format(whose, table_name(record.table)),
            (list(unknown),),
        )
        for one, *stored in rows:
            known[mine[one]] = (*known.get(one, ()), StoredRow(*stored))

    def _global_targets(self, reference: Reference, decoded: Sequence[SourceDocument]) -> set[UUID]:
        """Return the unknown ids that dangling references would have if their documents were of the tenant ``*``."""
        known = self._stored.get(reference.target.table, {})
        any_removed = bool(self._removed.get(reference.target.table))
        wanted: set[UUID] = set()
        for document in decoded:
            for row in document.rows:
                target = getattr(row, reference.column) if type(row) is reference.record else None
                if target is None or (target in known and not any_removed):
                    continue
                other = _global_id(reference, document)
                if other is not None and other not in known:
                    wanted.add(other)
        return wanted

    def resolve(self, document: SourceDocument) -> None:
        """Set dangling references to null; raise ``Rejected`` if a row requires the reference."""
        rows, notes, links = document.rows, document.notes, list[PendingLink]()
        dangling: tuple[ReferenceKey, ...] = ()
        shared: dict[int, str] = {}
        for reference in document.collection.references:
            for position, row in enumerate(rows):
                target = getattr(row, reference.column) if type(row) is reference.record else None
                if target is None:
                    continue
                led_to = self._row_led_to(reference, document, row, target, shared.get(position))
                if led_to is not None:
                    if reference.shared:
                        shared[position] = led_to[1]
                    if led_to[0] != target:
                        rows = _with_value(rows, position, reference.column, led_to[0])
                    continue
                if reference.required:
                    raise MissingParent(reference, target)
                rows = _with_value(rows, position, reference.column, None)
                if reference.target is reference.record:
                    links.append(_pending_link(reference, document, row, target))
                    continue
                notes = (*notes, Note(ORPHAN, reference.column))
                dangling = (*dangling, (reference.target.table, target))
                other = _global_id(reference, document) if reference.shared else None
                if other is not None and other != target:
                    dangling = (*dangling, (reference.target.table, other))
        document.resolved, document.notes, document.links, document.dangling = rows, notes, tuple(links), dangling
        document.refers_to_global = any(tenant == GLOBAL != _tenant(rows[place]) for place, tenant in shared.items())

    def _row_led_to(
        self, reference: Reference, document: SourceDocument, row: Record, target: UUID, schedule_tenant: str | None
    ) -> tuple[UUID, str] | None:
        """Return id and tenant of the row to which a reference leads.

        A row of the own tenant comes before one of the tenant ``*``. ``schedule_tenant``: the tenant to which the
        reference to the schedule leads; a trigger is of the same tenant.
        """
        table, own, content = reference.target.table, _tenant(row), document.content
        named: str | None = None
        for tenant in (own, GLOBAL) if reference.shared and own != GLOBAL else (own,):
            if schedule_tenant is not None and tenant != schedule_tenant and reference.record.table == "runs":
                continue
            row_id = target if tenant == own else _global_id(reference, document) or target
            for stored in self._stored_rows(table, row_id, tenant):
                named = named or (reference.named(content) if reference.named is not None else None)
                if named is None or _is_of(stored, named, row_id, reference):
                    return row_id, tenant
        return None


def _is_of(stored: StoredRow, named: str, row_id: UUID, reference: Reference) -> bool:
    """Return whether a stored row belongs to the named document.

    A row without a document in that collection (created on PostgreSQL, or the trigger that a schedule makes), and a row
    whose id does not follow from a UUID in its ``_id``, are named by their own id, as ``encode`` spells it.
    """
    by_id = not reference.prefix or f"{reference.prefix}{row_id.hex}" == named
    if stored.collection != reference.collection:
        return by_id
    return stored.source_id == named or (by_id and not identity.keeps_uuid(stored.source_id))


_DOCUMENT_OF_ROW = sql.SQL("coalesce(substr(source, strpos(source, '/') + 1), ''), coalesce(source_id, '')")
_DOCUMENT_OF_GRAPH_JOB = sql.SQL(
    "CASE WHEN payload ? '_id' THEN 'graph_jobs' ELSE '' END, coalesce(payload ->> '_id', '')"
)
"""Graph jobs of the source hold their document; those created on PostgreSQL have no ``_id`` in it."""


def _pending_link(reference: Reference, document: SourceDocument, row: Record, target: UUID) -> PendingLink:
    source: str | None = getattr(row, "source", None)
    named = None if source is None or reference.named is None else reference.named(document.content)
    return PendingLink(
        table=reference.record.table,
        row_id=row.id,  # type: ignore[attr-defined] # every loaded record has an id
        tenant=_tenant(row),
        column=reference.column,
        target_table=reference.target.table,
        target_id=target,
        target_source=None if named is None else f"{str(source).partition('/')[0]}/{reference.collection}",
        target_source_id=named,
    )


def _global_id(reference: Reference, document: SourceDocument) -> UUID | None:
    """Return the id that the referenced row has if its document is of the tenant ``*``."""
    named = None if reference.named is None else reference.named(document.content)
    return None if named is None else reference.id_in(GLOBAL, named)


def _with_value(rows: Rows, position: int, column: str, value: UUID | None) -> Rows:
    row = msgspec.structs.replace(rows[position], **{column: value})
    return (*rows[:position], row, *rows[position + 1 :])


def _tenant(row: Record) -> str:
    tenant: str = row.tenant_id  # type: ignore[attr-defined] # every loaded record has a tenant
    return tenant


def _targets(reference: Reference, decoded: Sequence[SourceDocument]) -> list[UUID]:
    """Return the ids that these documents name in one column."""
    record, column = reference.record, reference.column
    return [
        target
        for document in decoded
        for row in document.rows
        if type(row) is record and (target := getattr(row, column)) is not None
    ]


DanglingReference: TypeAlias = tuple[str, str, UUID]
"""Source id of the document that refers, table and row referred to."""

_LEADS_TO_ROW = sql.SQL(
    "other.id = link.target_id AND other.tenant_id = link.tenant_id AND (link.target_source_id IS NULL"
    " OR other.source IS DISTINCT FROM link.target_source OR other.source_id = link.target_source_id)"
)
"""The condition that a stored row belongs to the document that a pending link names, and to its tenant."""


def dangling_references_of(document: SourceDocument, *, own: bool = False) -> list[DanglingReference]:
    """Return the entries of a document; ``own``: also of references into its own table that stay dangling."""
    keys: list[ReferenceKey] = []
    if isinstance(document.rejected, MissingParent):
        keys = [document.rejected.orphan]
    elif document.serialized:
        links = document.links if own else ()
        keys = [*document.dangling, *((link.target_table, link.target_id) for link in links)]
    if not keys:
        return []
    source_id = source_id_of(document.raw)
    return [(source_id, table, target) for table, target in keys]


def store_dangling(target: Connection, collection: str, dangling: Sequence[DanglingReference]) -> None:
    """Record dangling references; entries that exist stay."""
    if not dangling:
        return
    ids, tables, targets = zip(*dangling, strict=True)
    target.execute(
        "INSERT INTO migration.dangling_references (collection, source_key, source_id, target_table, target_id)"
        " SELECT %s, * FROM unnest(%s::bytea[], %s::text[], %s::text[], %s::uuid[]) ON CONFLICT DO NOTHING",
        (collection, [ledger.source_key(one) for one in ids], list(ids), list(tables), list(targets)),
    )


def _store_unfilled_links(target: Connection) -> None:
    """Record the references into their own table that a closing pass could not resolve."""
    for (table,) in target.execute("SELECT DISTINCT record_table FROM migration.pending_links ORDER BY 1").fetchall():
        target.execute(
            sql.SQL(
                "INSERT INTO migration.dangling_references (collection, source_key, source_id, target_table, target_id)"
                " SELECT link.collection, sha256(convert_to(stored.source_id, 'UTF8')), stored.source_id,"
                " link.target_table, link.target_id FROM migration.pending_links AS link"
                " JOIN {} AS stored ON stored.id = link.row_id AND stored.tenant_id = link.tenant_id"
                " WHERE link.record_table = %s AND stored.source_id IS NOT NULL ON CONFLICT DO NOTHING"
            ).format(table_name(table)),
            (table,),
        )


def recorded_dangling(target: Connection, collection: str, source_ids: Iterable[str]) -> set[DanglingReference]:
    """Return the entries of some documents."""
    rows = target.execute(
        "SELECT source_id, target_table, target_id FROM migration.dangling_references WHERE collection = %s"
        " AND source_key = ANY(%s)",
        (collection, [ledger.source_key(one) for one in source_ids]),
    )
    return {(row[0], row[1], row[2]) for row in rows}


def forget_dangling(target: Connection, collection: str, source_ids: Iterable[str]) -> None:
    """Delete the entries of documents that are read again."""
    if keys := [ledger.source_key(one) for one in source_ids]:
        target.execute(
            "DELETE FROM migration.dangling_references WHERE collection = %s AND source_key = ANY(%s)",
            (collection, keys),
        )


def documents_waiting_for(target: Connection, table: str, ids: Iterable[UUID | int]) -> dict[str, set[str]]:
    """Return, by collection, the documents whose references may lead to rows that are stored now.

    They are found by the id alone. Whether the row belongs to the document and the tenant that they name is decided
    when they are read again.
    """
    waiting: dict[str, set[str]] = {}
    for collection, source_id in target.execute(
        "SELECT DISTINCT collection, source_id FROM migration.dangling_references"
        " WHERE target_table = %s AND target_id = ANY(%s)",
        (table, list(ids)),
    ):
        waiting.setdefault(collection, set()).add(source_id)
    return waiting


def awaited_rows(target: Connection, table: str, ids: Iterable[UUID | int]) -> set[UUID | int]:
    """Return those of these ids for which a document waits, as ``documents_waiting_for`` finds it."""
    query = "SELECT DISTINCT target_id FROM migration.dangling_references WHERE target_table = %s"
    rows = target.execute(f"{query} LIMIT {ledger.FEW_ENTRIES + 1}", (table,)).fetchall()
    if len(rows) > ledger.FEW_ENTRIES:
        rows = target.execute(f"{query} AND target_id = ANY(%s)", (table, list(ids))).fetchall()
    return {one for (one,) in rows}.intersection(ids)


def fill_links(target: Connection, plan: Plan) -> Counter[str]:
    """Resolve the pending links whose row is stored now; count those that stay dangling, by collection."""
    with target.transaction():
        places = target.execute(
            "SELECT DISTINCT record_table, column_name, target_table FROM migration.pending_links ORDER BY 1, 2, 3"
        ).fetchall()
        for table, column, referred in places:
            target.execute(
                sql.SQL(
                    "WITH filled AS (DELETE FROM migration.pending_links AS link WHERE link.record_table = %s"
                    " AND link.column_name = %s AND EXISTS (SELECT FROM {referred} AS other WHERE {leads}) RETURNING *)"
                    " UPDATE {table} AS stored SET {column} = filled.target_id, extra = filled.resolved_extra"
                    " FROM filled WHERE stored.id = filled.row_id AND stored.tenant_id = filled.tenant_id"
                ).format(
                    table=table_name(table),
                    column=sql.Identifier(column),
                    referred=table_name(referred),
                    leads=_LEADS_TO_ROW,
                ),
                (table, column),
            )
            fault_points.reach(fault_points.AFTER_LINKS_FILLED)
        left: Counter[str] = Counter()
        for name, column, count in target.execute(
            "SELECT collection, column_name, count(*) FROM migration.pending_links GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall():
            left[name] += count
            notes = Counter({("finding", ORPHAN, column): count})
            ledger.store_notes(target, plan.id, name, ledger.CLOSING_PASS, notes)
        _store_unfilled_links(target)
        target.execute("DELETE FROM migration.pending_links")
    fault_points.reach(fault_points.AFTER_LINKS_CLOSED)
    return left
