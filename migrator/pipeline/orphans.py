"""References that lead nowhere, on record: the document is read again when the row it refers to is stored.

An entry that is out of date costs a document read in vain, and nothing else; only the tail takes entries away.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias
from uuid import UUID

from psycopg import sql

from migrator import fault_points
from migrator.connections.postgres import Connection
from migrator.pipeline import ledger
from migrator.pipeline.decoding import Outcome
from migrator.pipeline.model import Plan
from migrator.pipeline.references import ORPHAN, Orphaned
from migrator.sources.profile import ReferenceKey
from migrator.store.postgres.rows import table_name
from migrator.values.rawid import source_id_of

Orphan: TypeAlias = tuple[str, str, UUID]
"""Source id of the document that refers, table and row referred to."""

_LEADS = sql.SQL(
    "other.id = link.target_id AND other.tenant_id = link.tenant_id AND (link.target_source_id IS NULL"
    " OR other.source IS DISTINCT FROM link.target_source OR other.source_id = link.target_source_id)"
)
"""A pending link leads to the row of the document that it names, in its tenant (``references``)."""


def of(raw: bytes, references: Iterable[ReferenceKey]) -> Iterator[Orphan]:
    """Yield the entries of one document."""
    source_id = source_id_of(raw)
    for table, target in references:
        yield source_id, table, target


def of_outcome(outcome: Outcome, *, own: bool = False) -> Iterator[Orphan]:
    """Yield the entries of a document as it came out; ``own``: also references into its own table, for good."""
    if isinstance(outcome.rejected, Orphaned):
        yield from of(outcome.raw, (outcome.rejected.orphan,))
    elif outcome.loadable is not None:
        loadable = outcome.loadable
        if loadable.orphans:
            yield from of(outcome.raw, loadable.orphans)
        if own and loadable.links:
            yield from of(outcome.raw, ((link.target_table, link.target_id) for link in loadable.links))


def store(target: Connection, collection: str, orphans: Sequence[Orphan]) -> None:
    """Record references that lead nowhere; those on record already stay."""
    if not orphans:
        return
    ids, tables, targets = zip(*orphans, strict=True)
    target.execute(
        "INSERT INTO migration.orphans (collection, source_key, source_id, target_table, target_id)"
        " SELECT %s, * FROM unnest(%s::bytea[], %s::text[], %s::text[], %s::uuid[]) ON CONFLICT DO NOTHING",
        (collection, [ledger.source_key(one) for one in ids], list(ids), list(tables), list(targets)),
    )


def keep_links(target: Connection) -> None:
    """Record the references into their own table that a closing pass could not fill."""
    for (table,) in target.execute("SELECT DISTINCT record_table FROM migration.pending_links ORDER BY 1").fetchall():
        target.execute(
            sql.SQL(
                "INSERT INTO migration.orphans (collection, source_key, source_id, target_table, target_id)"
                " SELECT link.collection, sha256(convert_to(stored.source_id, 'UTF8')), stored.source_id,"
                " link.target_table, link.target_id FROM migration.pending_links AS link"
                " JOIN {} AS stored ON stored.id = link.row_id AND stored.tenant_id = link.tenant_id"
                " WHERE link.record_table = %s AND stored.source_id IS NOT NULL ON CONFLICT DO NOTHING"
            ).format(table_name(table)),
            (table,),
        )


def recorded(target: Connection, collection: str, source_ids: Iterable[str]) -> set[Orphan]:
    """Return the entries of some documents."""
    rows = target.execute(
        "SELECT source_id, target_table, target_id FROM migration.orphans WHERE collection = %s"
        " AND source_key = ANY(%s)",
        (collection, [ledger.source_key(one) for one in source_ids]),
    )
    return {(row[0], row[1], row[2]) for row in rows}


def forget(target: Connection, collection: str, source_ids: Iterable[str]) -> None:
    """Take away the entries of documents that are looked at anew."""
    target.execute(
        "DELETE FROM migration.orphans WHERE collection = %s AND source_key = ANY(%s)",
        (collection, [ledger.source_key(one) for one in source_ids]),
    )


def waiting_for(target: Connection, table: str, ids: Iterable[UUID | int]) -> dict[str, set[str]]:
    """Return, by collection, the documents whose references may lead to rows that are stored now.

    By id alone: whether the row is of the document and the tenant that they name is decided when they are read again.
    """
    found: dict[str, set[str]] = {}
    for collection, source_id in target.execute(
        "SELECT DISTINCT collection, source_id FROM migration.orphans WHERE target_table = %s AND target_id = ANY(%s)",
        (table, list(ids)),
    ):
        found.setdefault(collection, set()).add(source_id)
    return found


def close_links(target: Connection, plan: Plan) -> Counter[str]:
    """Fill the references into their own table whose row is stored now; count what stays empty, by collection."""
    with target.transaction():
        places = target.execute(
            "SELECT DISTINCT record_table, column_name, target_table FROM migration.pending_links ORDER BY 1, 2, 3"
        ).fetchall()
        for table, column, referred in places:
            target.execute(
                sql.SQL(
                    "UPDATE {table} AS stored SET {column} = link.target_id, extra = link.resolved_extra"
                    " FROM migration.pending_links AS link"
                    " WHERE link.record_table = {name} AND link.column_name = {column_name}"
                    " AND stored.id = link.row_id AND stored.tenant_id = link.tenant_id"
                    " AND EXISTS (SELECT FROM {referred} AS other WHERE {leads})"
                ).format(
                    table=table_name(table),
                    column=sql.Identifier(column),
                    name=sql.Literal(table),
                    column_name=sql.Literal(column),
                    referred=table_name(referred),
                    leads=_LEADS,
                )
            )
            fault_points.reach(fault_points.AFTER_LINKS_FILLED)
            target.execute(
                sql.SQL(
                    "DELETE FROM migration.pending_links AS link WHERE link.record_table = {name}"
                    " AND link.column_name = {column}"
                    " AND EXISTS (SELECT FROM {referred} AS other WHERE {leads})"
                ).format(
                    name=sql.Literal(table), column=sql.Literal(column), referred=table_name(referred), leads=_LEADS
                )
            )
        left: Counter[str] = Counter()
        for name, column, count in target.execute(
            "SELECT collection, column_name, count(*) FROM migration.pending_links GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall():
            left[name] += count
            notes = Counter({("finding", ORPHAN, column): count})
            ledger.store_notes(target, plan.id, name, ledger.CLOSING_PASS, notes)
        keep_links(target)
        target.execute("DELETE FROM migration.pending_links")
    fault_points.reach(fault_points.AFTER_LINKS_CLOSED)
    return left
