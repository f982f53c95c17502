"""Lookups from a document to its rows, and from a row to the documents that refer to it.

The target keeps no index for either, because neither the application nor the copy needs one. So the tail creates them
when it begins, under names of its own (``tail_<table>_<column>``): on the tables of the scheduler, and on the origins
of a native target; the tables of a library are left as they are. Those of the scheduler are dropped when the cutover is
finished. A table that does not name the document of a row is read once, and a temporary table keeps the documents.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection, fetch_value
from migrator.pipeline.load import copy_out, fetch
from migrator.pipeline.references import RowKey
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import rebuild
from migrator.records import Record
from migrator.schema import LOOKUP_PREFIX, native_target
from migrator.schema.native_target import ORIGINS
from migrator.sources.profile import Collection, Profile, Reference
from migrator.store.postgres.rows import table_name
from migrator.targets import load_target
from migrator.targets.model import SCHEDULER
from migrator.values.copy_format import codec
from migrator.values.identity import source_id

_FETCHED: Final = 2_000
"""So many source ids are held in memory while those of a collection are read."""


def ensure_indexes(target: Connection, profile: Profile) -> None:
    """Create the indexes that are missing."""
    sourced = {record.table for one in profile.collections for record in one.tables if has_source_column(record)}
    if profile.target != SCHEDULER:
        library = load_target(profile.target)
        for table in library.tables:
            if table.full_name in sourced:
                _create_index(target, table.name + ORIGINS, native_target.origins(table, library), "source_id", "hash")
        return
    wanted: list[tuple[str, str, Literal["hash", "btree"]]] = [(table, "source_id", "hash") for table in sourced]
    wanted += [(one.record.table, one.column, "btree") for one in references_of_profile(profile)]
    for name, column, method in sorted(set(wanted)):
        if method == "hash" or not _has_index(target, name, column):
            _create_index(target, name, table_name(name), column, method)


def _create_index(
    target: Connection, name: str, table: sql.Identifier, column: str, method: Literal["hash", "btree"]
) -> None:
    """Create the lookup index of a column, unless it exists; ``name``: of the table, without its schema."""
    target.execute(
        sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING {} ({})").format(
            sql.Identifier(f"{LOOKUP_PREFIX}{name}_{column}"), table, sql.SQL(method), sql.Identifier(column)
        )
    )


def tail_indexes(target: Connection) -> list[str]:
    """Return the names of the indexes of ``ensure_indexes`` that exist."""
    rows = target.execute(
        "SELECT indexname FROM pg_indexes WHERE schemaname = 'scheduler' AND starts_with(indexname, %s) ORDER BY 1",
        (LOOKUP_PREFIX,),
    )
    return [row[0] for row in rows]


def drop_indexes(target: Connection) -> int:
    """Drop the indexes of ``ensure_indexes``, while the application continues to read and write; return their number.

    Outside a transaction. It waits for transactions of others that use the tables, for the session's ``lock_timeout``.
    A tail that begins again creates the indexes again.
    """
    indexes = tail_indexes(target)
    for name in indexes:
        target.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier("scheduler", name)))
    return len(indexes)


def _has_index(target: Connection, table: str, column: str) -> bool:
    """Return whether an index begins with a column and holds every row in which it is not null."""
    exists = fetch_value(
        target,
        "SELECT EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]"
        " WHERE indrelid = %s::regclass AND attname = %s AND indisvalid AND (indpred IS NULL"
        " OR pg_get_expr(indpred, indrelid) = '(' || attname || ' IS NOT NULL)'))",
        (f"scheduler.{table}", column),
    )
    return bool(exists)


def references_of_profile(profile: Profile) -> Iterator[Reference]:
    """Yield every reference of a profile."""
    for collection in profile.collections:
        yield from collection.references


def has_source_column(record: type[Record]) -> bool:
    """Return whether a table names the document of its rows."""
    return "source" in record.__struct_fields__


class RowLookups:
    """Finds rows by document, and documents by row, in one session with the target."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._read: set[str] = set()
        """Collections whose rows do not name their document, and have been read."""

    def rows_of(self, collection: Collection, record: type[Record], source_ids: Sequence[str]) -> dict[RowKey, str]:
        """Return the stored rows of these documents in one table, with the source id of each."""
        if has_source_column(record):
            rows = self._sessions.target.execute(
                sql.SQL(
                    "SELECT stored.id, stored.tenant_id, stored.source_id"
                    " FROM json_array_elements_text(%s::json) AS wanted (source_id)"
                    " JOIN {} AS stored ON stored.source_id = wanted.source_id WHERE stored.source = %s"
                ).format(table_name(record.table)),
                # as JSON: the driver needs five times as long for an array of texts
                (msgspec.json.encode(source_ids).decode(), self._sessions.profile.source_of(collection.name)),
            )
        else:
            rows = self._sessions.target.execute(
                sql.SQL("SELECT id, tenant_id, source_id FROM {} WHERE source_id = ANY(%s)").format(
                    self._remembered(collection, record)
                ),
                (list(source_ids),),
            )
        return {(one, tenant): named for one, tenant, named in rows.fetchall()}

    def all_of(self, collection: Collection) -> Iterator[str]:
        """Yield the source ids of every document of a collection that has rows, through a cursor of the transaction."""
        record = collection.tables[0]
        if has_source_column(record):
            query = sql.SQL("SELECT source_id FROM {} WHERE source = {}").format(
                table_name(record.table), sql.Literal(self._sessions.profile.source_of(collection.name))
            )
        else:
            query = sql.SQL("SELECT source_id FROM {}").format(self._remembered(collection, record))
        with self._sessions.target.cursor(name="documents_with_rows") as cursor:
            cursor.itersize = _FETCHED
            for (one,) in cursor.execute(query):
                yield one

    def by_row(self, collection: Collection, record: type[Record], key: str) -> str:
        """Return the document of a row in a table that does not name it; ``key`` is its id as text."""
        rows = self._sessions.target.execute(
            sql.SQL("SELECT source_id FROM {} WHERE id::text = %s").format(self._remembered(collection, record)), (key,)
        ).fetchone()
        return "" if rows is None else str(rows[0])

    def referring(
        self, collection: Collection, reference: Reference, targets: Iterable[UUID | int]
    ) -> dict[RowKey, str]:
        """Return the rows that refer to a row with any of these ids, with the source ids of their documents."""
        record, table = reference.record, table_name(reference.record.table)
        column = sql.Identifier(reference.column)
        if has_source_column(record):
            rows = self._sessions.target.execute(
                sql.SQL("SELECT id, tenant_id, source_id FROM {} WHERE {} = ANY(%s) AND source = %s").format(
                    table, column
                ),
                (list(targets), self._sessions.profile.source_of(collection.name)),
            )
        else:
            rows = self._sessions.target.execute(
                sql.SQL(
                    "SELECT id, tenant_id, own.source_id FROM {} JOIN {} AS own USING (id, tenant_id)"
                    " WHERE {} = ANY(%s)"
                ).format(table, self._remembered(collection, record), column),
                (list(targets),),
            )
        return {(one, tenant): named for one, tenant, named in rows.fetchall()}

    def remember(self, collection: Collection, record: type[Record], rows: Iterable[tuple[RowKey, str]]) -> None:
        """Record rows that were stored, in a table that does not name their documents."""
        if has_source_column(record):
            return
        place = self._remembered(collection, record)
        with self._sessions.target.cursor() as cursor:
            cursor.executemany(
                sql.SQL(
                    "INSERT INTO {} VALUES (%s, %s, %s)"
                    " ON CONFLICT (id, tenant_id) DO UPDATE SET source_id = EXCLUDED.source_id"
                ).format(place),
                [(*key, named) for key, named in rows],
            )

    def forget(self, record: type[Record], keys: Sequence[RowKey]) -> None:
        """Record rows that were deleted, in such a table."""
        if record.table in self._read:
            self._sessions.target.execute(
                sql.SQL("DELETE FROM {} AS stored USING {} WHERE {}").format(
                    _origin_table(record), *given_keys(record)
                ),
                key_columns(keys),
            )

    def _remembered(self, collection: Collection, record: type[Record]) -> sql.Identifier:
        """Return the temporary table with the documents of a table's rows; create and fill it the first time."""
        name, place = f"tail_origin_{record.table}", _origin_table(record)
        if record.table not in self._read:
            target = self._sessions.target
            kind = sql.SQL(codec(record).types["id"])
            target.execute(
                sql.SQL(
                    "CREATE TEMP TABLE IF NOT EXISTS {}"
                    " (id {}, tenant_id text, source_id text NOT NULL, PRIMARY KEY (id, tenant_id))"
                ).format(sql.Identifier(name), kind)
            )
            target.execute(sql.SQL("TRUNCATE {}").format(place))
            origins = list(_origins(target, collection, record))
            with (
                target.cursor() as cursor,
                cursor.copy(sql.SQL("COPY {} FROM STDIN").format(place)) as copy,
            ):
                for row in origins:
                    copy.write_row(row)
            target.execute(
                sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING hash (source_id)").format(
                    sql.Identifier(f"{name}_source_id"), place
                )
            )
            self._read.add(record.table)
        return place


def documents_of(
    target: Connection, collection: Collection, record: type[Record], keys: Iterable[str]
) -> dict[str, str]:
    """Return the documents that rows encode to, in a table that does not name them; both ids as text."""
    kind: Any = codec(record)
    parse = UUID if kind.types["id"] == "uuid" else int
    made: Any = record
    rows = [made(**kind.read(row)) for row in fetch(target, record, list(map(parse, keys))).values()]
    return {str(row.id): source_id(rebuild(collection, (row,))["_id"]) for row in rows}


def given_keys(record: type[Record]) -> tuple[sql.Composed, sql.SQL]:
    """Return the FROM or USING item for the parameters of ``key_columns``, and the condition on ``stored``."""
    kind = sql.SQL(codec(record).types["id"])
    given = sql.SQL("unnest(%s::{}[], %s::text[]) AS given (id, tenant_id)").format(kind)
    return given, sql.SQL("stored.id = given.id AND stored.tenant_id = given.tenant_id")


def key_columns(keys: Iterable[RowKey]) -> tuple[list[UUID | int], list[str]]:
    """Return the ids and the tenants of keys, as two parameters."""
    keys = list(keys)
    return [one for one, _ in keys], [tenant for _, tenant in keys]


def _origin_table(record: type[Record]) -> sql.Identifier:
    return sql.Identifier("pg_temp", f"tail_origin_{record.table}")


def _origins(target: Connection, collection: Collection, record: Any) -> Iterator[tuple[UUID | int, str, str]]:  # noqa: ANN401 - a type of record
    """Yield the keys of the rows of a table with the documents that they encode to."""
    kind = codec(record)
    for row in copy_out(target, record):
        made = record(**kind.read(bytes(row)))
        yield made.id, made.tenant_id, source_id(rebuild(collection, (made,))["_id"])
