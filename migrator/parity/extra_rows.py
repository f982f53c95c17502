"""Extra rows, which no document explains: counted first, and searched only where the count differs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection, fetch_value
from migrator.parity.causes import CauseCode
from migrator.parity.changes import CHANGED
from migrator.pipeline.extract import SourceCollection, batch_documents
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.lookups import has_source_column
from migrator.pipeline.transform import transform_documents
from migrator.records import Record
from migrator.result import Finding
from migrator.sources.profile import Context
from migrator.store.postgres.rows import table_name
from migrator.values.copy_format import codec

EXPECTED_KEYS = sql.Identifier("pg_temp", "expected_ids")


class ExtraRows(msgspec.Struct):
    """Rows of one collection's source that no document asks for."""

    tables: Counter[str] = msgspec.field(default_factory=Counter)
    findings: list[Finding] = msgspec.field(default_factory=list)
    """The first few of each table, in order of their id."""


def count_rows(target: Connection, source: str, record: type[Record]) -> int:
    """Return how many rows of a table came from a source; a table without that column has one source alone."""
    condition = sql.SQL("WHERE source = {}").format(sql.Literal(source)) if has_source_column(record) else sql.SQL("")
    return int(fetch_value(target, sql.SQL("SELECT count(*) FROM {} {}").format(table_name(record.table), condition)))


def removed_collections(sessions: Sessions, found: Sequence[SourceCollection]) -> list[SourceCollection]:
    """Return the collections that the source does not have (any more), and rows of which are stored."""
    existing = {one.collection.name for one in found}
    return [
        SourceCollection(collection=one, name=sessions.name_of(one.name), documents=0, average_bytes=0.0)
        for one in sessions.profile.collections
        if one.name not in existing
        and any(count_rows(sessions.target, sessions.profile.source_of(one.name), record) for record in one.tables)
    ]


def find_extra_rows(
    sessions: Sessions,
    context: Context,
    found: Sequence[SourceCollection],
    compared: Mapping[tuple[str, str], int],
    *,
    listed: int,
    rejected: Mapping[str, Sequence[str]],
    unchanged_since: datetime | None = None,
    counted: Mapping[tuple[str, str], int] = {},
) -> dict[str, ExtraRows]:
    """Return, by collection, the rows that have no document; ``compared`` counts the rows by (collection, table).

    ``counted``: how many rows are stored, by (collection, table), where the server was asked already.

    ``unchanged_since``: only rows that, as far as they say, were not changed since then.

    ``rejected`` has, by collection, the documents that cannot become rows and are not in quarantine: their rows are
    not without a document, and the difference is told of the document.
    """
    extras: dict[str, ExtraRows] = {}
    for collection in found:
        name = collection.collection.name
        extra = ExtraRows()
        for record in collection.collection.tables:
            stored = counted.get((name, record.table))
            if stored is None:
                stored = count_rows(sessions.target, sessions.profile.source_of(name), record)
            if stored != compared.get((name, record.table), 0):
                count, findings = _without_document(
                    sessions, context, collection, record, listed, rejected.get(name, ()), unchanged_since
                )
                if count:
                    extra.tables[record.table] += count
                    extra.findings.extend(findings)
        if extra.tables:
            extras[name] = extra
    return extras


def find_foreign_rows(
    sessions: Sessions, found: Sequence[SourceCollection], listed: int
) -> Iterator[tuple[str, ExtraRows]]:
    """Yield the rows that no document made and no tool copied, with the first collection that fills their table."""
    seen: set[type[Record]] = set()
    for collection in found:
        extra = ExtraRows()
        for record in collection.collection.tables:
            if record not in seen:
                seen.add(record)
                count, keys = sessions.target_tables.foreign_rows(sessions.target, sessions.profile, record, listed)
                extra.findings += [_extra(collection.collection.name, record, key, cause="foreign-row") for key in keys]
                extra.tables[record.table] += count
        if extra.findings:
            yield collection.collection.name, extra


def _extra(collection: str, record: type[Record], key: str, cause: CauseCode) -> Finding:
    return Finding(severity="difference", collection=collection, key=key, side="extra", table=record.table, cause=cause)


def _without_document(
    sessions: Sessions,
    context: Context,
    source: SourceCollection,
    record: type[Record],
    listed: int,
    rejected: Sequence[str],
    unchanged_since: datetime | None,
) -> tuple[int, list[Finding]]:
    """Return how many rows of one table and source have a key that no document has, and the first of them."""
    target, collection = sessions.target, source.collection
    sourced = has_source_column(record)
    with target.transaction():
        target.execute(
            sql.SQL("CREATE TEMP TABLE expected_ids (id {} NOT NULL, tenant_id text NOT NULL) ON COMMIT DROP").format(
                sql.SQL(codec(record).types["id"])
            )
        )
        with (
            target.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} (id, tenant_id) FROM STDIN").format(EXPECTED_KEYS)) as copy,
        ):
            for key in _expected_keys(sessions, context, source, record):
                copy.write_row(key)
        target.execute(sql.SQL("ANALYZE {}").format(EXPECTED_KEYS))
        condition = (
            sql.SQL("stored.source = {} AND").format(sql.Literal(sessions.profile.source_of(collection.name)))
            if sourced
            else sql.SQL("")
        )
        if unchanged_since is not None:
            own = sessions.profile.source_of(collection.name)
            changed = sessions.target_tables.changed_documents(target, record, own)
            condition += _unchanged(record, unchanged_since) if changed is None else _not_of(changed)
        key_column = sql.SQL("coalesce(stored.source_id, stored.id::text)" if sourced else "stored.id::text")
        document = sql.SQL("stored.source_id" if sourced else "stored.payload ->> '_id'")
        rows = target.execute(
            sql.SQL(
                "SELECT {}, count(*) OVER () FROM {} AS stored WHERE {} NOT EXISTS"
                " (SELECT FROM {} AS expected WHERE expected.id = stored.id AND expected.tenant_id = stored.tenant_id)"
                " AND ({} = ANY(%s)) IS NOT TRUE ORDER BY stored.id LIMIT {}"
            ).format(key_column, table_name(record.table), condition, EXPECTED_KEYS, document, listed),
            (list(rejected),),
        ).fetchall()
    return rows[0][1] if rows else 0, [_extra(collection.name, record, key, cause="extra-row") for key, _ in rows]


def _unchanged(record: type[Record], since: datetime) -> sql.Composed:
    """Return the condition for rows that, as far as they and their schedules say, were not changed since an instant."""
    columns = record.__struct_fields__
    times = sql.SQL(", ").join(sql.Identifier("stored", name) for name in CHANGED if name in columns)
    condition = sql.Composed([])
    if any(name in columns for name in CHANGED):
        condition += sql.SQL(" coalesce(greatest({}) < {}, true) AND").format(times, sql.Literal(since))
    if "schedule_id" in columns:
        condition += sql.SQL(
            " NOT EXISTS (SELECT FROM scheduler.schedules AS s WHERE s.id = stored.schedule_id"
            " AND s.tenant_id = stored.tenant_id AND greatest(s.updated_at, s.deleted_at) >= {}) AND"
        ).format(sql.Literal(since))
    return condition


def _not_of(documents: Iterable[str]) -> sql.Composed:
    """Return the condition for rows of other documents than these."""
    return sql.SQL(" stored.source_id <> ALL({}) AND").format(sql.Literal(sorted(documents)))


def _expected_keys(
    sessions: Sessions, context: Context, one: SourceCollection, record: type[Record]
) -> Iterator[tuple[object, str]]:
    # without its references: ids do not depend on them, and the connection is busy copying
    collection = msgspec.structs.replace(one.collection, references=())
    batch_size = batch_documents(one.average_bytes)
    for batch in sessions.reader.of(one.collection, context.history_before).batches(batch_size=batch_size):
        for document in transform_documents(collection, context, sessions.resolver, batch):
            for row in document.serialized:
                if type(row.record) is record:
                    yield row.record.id, row.record.tenant_id  # type: ignore[attr-defined] # every loaded record has both
