"""Extract from tables and views of PostgreSQL: rows in ranges of their key, as documents (``values.table_row``).

The key of a row is its ``_id``: the value of a primary key of one column, and a document of the columns of any other
key. The columns follow under their names, in the order of the table.

The source is only read. Every row of a copy is read in one snapshot, which the first process exports and the workers
import, so that rows that refer to each other are of one moment.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

import msgspec
import psycopg
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.rows import dict_row
from psycopg.types.uuid import UUIDLoader

from migrator.config import Settings
from migrator.connections.postgres import Connection, open_source, translate_source_errors
from migrator.errors import DeniedError, RefusedError
from migrator.pipeline.extract import BATCH_BYTES, MAX_BATCH_DOCUMENTS, SourceCollection, id_batches
from migrator.sources.profile import INHERITED, Collection, Measure, Profile
from migrator.values import document as documents
from migrator.values import table_row
from migrator.values.identity import parse_source_id, source_id

NOT_FOLLOWED: Final = (
    "the source is tables of PostgreSQL, which the tool reads and never writes: there is no change stream that a tail"
    " could follow, and nothing can be carried back; stop the writers, call migrator backfill, and then"
    " migrator parity --lock-source"
)
"""Why what needs a change stream is refused."""

DEFAULT_SCHEMA: Final = "public"
AVERAGE_BYTES: Final = 500.0
"""Of a row of a view, whose size nobody knows."""

READ_AS_THEY_ARE: Final = frozenset(
    (
        *("bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric"),
        *("text", "varchar", "bpchar", "name", "bytea", "uuid", "json", "jsonb"),
        *("date", "timestamp", "timestamptz"),
    )
)
"""Types whose values have a type in BSON, and arrays of which are read; any other is read as the server writes it."""


class _SourceColumn(msgspec.Struct, frozen=True):
    name: str
    type: str
    """As SQL spells it, with its modifiers."""
    plain: bool
    """Read as it is; else as text."""


class _SourceTable(msgspec.Struct, frozen=True):
    name: sql.Composable
    columns: tuple[_SourceColumn, ...]
    key: tuple[_SourceColumn, ...]
    oid: int


class _TextLoader(Loader):
    make: Callable[[str], object]

    def load(self, data: Buffer) -> object:
        return type(self).make(bytes(data).decode())


def _loader(function: Callable[[str], object]) -> type[Loader]:
    return type("TableLoader", (_TextLoader,), {"make": staticmethod(function)})


class _UuidLoader(UUIDLoader):
    def load(self, data: Buffer) -> Any:  # noqa: ANN401 - the driver's UUID, as BSON has it
        return Binary(super().load(data).bytes, UUID_SUBTYPE)


_LOADERS: Final[Mapping[str, type[Loader]]] = {
    "int8": _loader(Int64),
    "oid": _loader(Int64),
    "numeric": _loader(lambda text: Binary(text.encode(), table_row.NUMERIC)),
    "timestamp": _loader(table_row.time_from_text),
    "timestamptz": _loader(table_row.time_from_text),
    "date": _loader(lambda text: Binary(text.encode(), table_row.DATE)),
    "json": _loader(table_row.json_from_text),
    "jsonb": _loader(table_row.json_from_text),
    "uuid": _UuidLoader,
}

_RELATION: Final = """
SELECT c.oid, c.relkind::text, has_table_privilege(c.oid, 'SELECT'),
    CASE WHEN c.relkind IN ('r', 'm', 'p') THEN pg_table_size(c.oid) END
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_COLUMNS: Final = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(e.typname, b.typname, t.typname)::text
FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_type AS b ON b.oid = t.typbasetype
LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PRIMARY_KEY: Final = """
SELECT a.attname::text FROM pg_index AS i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
JOIN pg_attribute AS a ON a.attnum = k.attnum WHERE a.attrelid = %s AND i.indrelid = a.attrelid AND i.indisprimary
ORDER BY k.place
"""
_OTHERS: Final = """
SELECT n.nspname::text, c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1, 2
"""


class TableReader:
    """Reads tables and views of a database of PostgreSQL."""

    has_change_stream = False
    is_shared = False  # one connection, on which one statement runs
    session = None

    def __init__(self, settings: Settings, profile: Profile) -> None:
        self.settings = settings
        tables = {collection.name: collection.table for collection in profile.collections if collection.table}
        self.names = tables | settings.source.collections
        """Collection → its table, where that has another name than the collection."""
        self.described: dict[str, _SourceTable] = {}
        """Collection → its table, of which the server is asked once."""
        self._snapshot = ""
        self._held: Connection | None = None
        with self.connected() as connection:
            self.database = connection.info.dbname
            place = connection.info.host if connection.info.host.startswith("/") else connection.info.hostaddr
            self._identity = f"{place}:{connection.info.port}/{self.database}"

    def close(self) -> None:
        """Close the connection."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def of(self, collection: Collection, _history_before: datetime | None = None, /) -> "TableCollection":
        """Return the reader of a table, of which nothing is left out as history."""
        return TableCollection(self, collection)

    def name_of(self, collection: Collection) -> str:
        """Return the name of the table of a collection of the profile."""
        return self.names.get(collection.name, collection.name)

    def consistent(self) -> "TableReader":
        """Return this reader: every read is of the latest state."""
        return self

    @contextmanager
    def snapshot(self) -> Iterator[str]:
        """Read in one snapshot within the block, and yield the name by which other processes import it."""
        with translate_source_errors(), _opened(self.settings) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._snapshot = _value(connection, "SELECT pg_export_snapshot()")
            try:
                yield self._snapshot
            finally:
                self._snapshot = ""

    def join_snapshot(self, name: str) -> None:
        """Read from now on in a snapshot that another process holds; empty: in none."""
        self._snapshot = name

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Yield this reader's connection, in a transaction that sees the snapshot, if there is one."""
        with translate_source_errors():
            if self._held is None or self._held.closed:
                self._held = _opened_for_rows(self.settings)
            connection = self._held
            try:
                with _reading(connection, self._snapshot):
                    yield connection
            except psycopg.Error:
                self.close()
                raise

    @contextmanager
    def connected_anew(self) -> Iterator[Connection]:
        """Yield a connection that the block alone uses, in a transaction that sees the snapshot, if there is one."""
        with translate_source_errors(), _opened(self.settings) as connection:
            _take_rows(connection)
            with _reading(connection, self._snapshot, always=True):
                yield connection

    def now(self) -> datetime:
        """Return the server's time."""
        with self.connected() as connection:
            now: datetime = connection.execute("SELECT clock_timestamp()", binary=True).fetchone()[0]  # type: ignore[index] # one row
        return now

    def identity(self) -> str:
        """Return address and database."""
        return self._identity

    def position(self) -> None:
        """Return None: there is no change stream."""

    def survey(self, profile: Profile) -> tuple[list[SourceCollection], tuple[str, ...]]:
        """Return the profile's tables that exist, and the names of the others in their schemas."""
        self.described.clear()
        with self.connected() as connection:
            surveyed = [self.of(collection).surveyed(connection) for collection in profile.collections]
            existing = [one for one in surveyed if one is not None]
            read = {place_of(one.name) for one in existing}
            schemas = sorted({schema for schema, _ in read} or {DEFAULT_SCHEMA})
            others = [place for place in connection.execute(_OTHERS, (schemas,)).fetchall() if place not in read]
        return existing, tuple(name if schema == DEFAULT_SCHEMA else f"{schema}.{name}" for schema, name in others)


class TableCollection:
    """Reads one table or view, as the documents of a collection."""

    def __init__(self, reader: TableReader, collection: Collection) -> None:
        self._reader, self._collection, self._name = reader, collection, reader.name_of(collection)

    def surveyed(self, connection: Connection) -> SourceCollection | None:
        """Return the table with its size; None: it does not exist. Raises ``DeniedError`` if it cannot be read."""
        name = self._name
        relation = connection.execute(_RELATION, place_of(name)).fetchone()
        if relation is None:
            return None
        oid, kind, may, size = relation
        if not may:
            schema, table = map(sql.Identifier, place_of(name))
            user = sql.Identifier(connection.info.user)
            grant = sql.SQL("GRANT SELECT ON {}.{} TO {}").format(schema, table, user).as_string(connection)
            raise DeniedError(f"the source's user may not read {name}; as an administrator run", grant=grant)
        rows = self._count(connection, self._describe(connection, oid, kind))
        return SourceCollection(
            collection=self._collection,
            name=name,
            documents=rows,
            average_bytes=size / rows if size and rows else AVERAGE_BYTES,
        )

    def _count(self, connection: Connection, table: _SourceTable) -> int:
        """Return how many rows there are; refuse a key of the profile that is null or not unique."""
        if not self._collection.key:
            return int(_value(connection, sql.SQL("SELECT count(*) FROM {}").format(table.name)))
        key = _listed(table.key)
        query = sql.SQL(
            "SELECT count(*), count(*) FILTER (WHERE num_nulls({}) > 0), (SELECT count(*) FROM (SELECT FROM {}"
            " GROUP BY {} HAVING count(*) > 1) AS twice) FROM {}"
        ).format(key, table.name, key, table.name)
        rows, nulls, twice = connection.execute(query).fetchone() or (0, 0, 0)
        if nulls or twice:
            named = ", ".join(one.name for one in table.key)
            raise RefusedError(
                f"{self._name} of the source: key ({named}): expected columns that are unique and not null together;"
                f" {nulls} rows have a null, {twice} keys stand in several rows"
            )
        return int(rows)

    def _describe(self, connection: Connection, oid: int, kind: str) -> _SourceTable:
        name = self._name
        rows = connection.execute(_COLUMNS, (oid,)).fetchall()
        columns = tuple(_SourceColumn(column, spelled, of in READ_AS_THEY_ARE) for column, spelled, of in rows)
        by_name = {one.name: one for one in columns}
        key = self._collection.key or tuple(row[0] for row in connection.execute(_PRIMARY_KEY, (oid,)))
        if not key:
            what = "is a view" if kind in "vm" else "has no primary key"
            raise RefusedError(
                f"{name} of the source {what}, so that nothing tells its rows apart: name the columns that are unique"
                ' and not null together as key = ["..."] of this collection in the mapping'
            )
        missing = [one for one in key if one not in by_name]
        if missing:
            raise RefusedError(f"{name} of the source has no column {', '.join(missing)}, which its key names")
        taken = {"_id": key != ("_id",), INHERITED: True}
        for column, refused in taken.items():
            if column in by_name and refused:
                raise RefusedError(f"{name} of the source has a column {column}, a name that the tool itself uses")
        unusable = [one for one in key if not by_name[one].plain or by_name[one].type.startswith(("json", "bytea"))]
        unusable += [one for one in key if by_name[one].type.endswith("[]") and one not in unusable]
        if unusable:
            raise RefusedError(
                f"{name} of the source: key column {unusable[0]} is {by_name[unusable[0]].type}: expected a text, a"
                " number, a time or a uuid"
            )
        schema, table = place_of(name)
        found = _SourceTable(sql.Identifier(schema, table), columns, tuple(by_name[one] for one in key), oid)
        self._reader.described[self._collection.name] = found
        return found

    def _table(self, connection: Connection) -> _SourceTable:
        """Return the table's columns and key; asks the server once."""
        table = self._reader.described.get(self._collection.name)
        if table is None:
            row = connection.execute(_RELATION, place_of(self._name)).fetchone()
            if row is None:
                raise RefusedError(f"{self._name} of the source does not exist any more")
            table = self._describe(connection, row[0], row[1])
        return table

    def has_tenant(self, tenants: Sequence[str], default_tenant: str | None) -> bool:
        """Whether a row is of one of these tenants."""
        with self._reader.connected() as connection:
            condition = self._of_tenants(tenants, default_tenant)
            query = sql.SQL("SELECT EXISTS (SELECT FROM {} AS this WHERE {})")
            return bool(_value(connection, query.format(self._table(connection).name, condition)))

    def _of_tenants(self, tenants: Sequence[str], default: str | None) -> sql.Composable:
        if not tenants:
            return sql.SQL("true")
        return sql.SQL("{} = ANY({})").format(self._tenant(default), sql.Literal(list(tenants)))

    def _tenant(self, default: str | None) -> sql.Composable:
        """Return the SQL of a row's tenant."""
        stated = self._expanded(self._collection.tenant_sql or "NULL")
        return sql.SQL("coalesce(({})::text, {}::text)").format(stated, sql.Literal(default))

    def _expanded(self, expression: str) -> sql.SQL:
        """Return an expression with the tables of this database for the names in braces.

        A name that is not that of a collection with a table of its own is that of a table in this table's schema.
        """
        names = self._reader.names
        schema_of_collection, _ = place_of(self._name)

        def table_of(match: re.Match[str]) -> str:
            schema, table = place_of(names.get(match[1], f"{schema_of_collection}.{match[1]}"))
            return sql.Identifier(schema, table).as_string(None)

        return sql.SQL(re.sub(r"\{(\w+)\}", table_of, expression))

    def next_bound(self, lower: bytes | None, steps: int) -> bytes | None:
        """Return the key so many rows after ``lower``."""
        with self._reader.connected() as connection:
            table = self._table(connection)
            query = sql.SQL("SELECT {} FROM {} AS this WHERE {} ORDER BY {} OFFSET {} LIMIT 1").format(
                _listed(table.key), table.name, _from_to(table, lower, None), _listed(table.key), sql.Literal(steps)
            )
            row = connection.execute(query).fetchone()
        return None if row is None else documents.encode({"_id": _id_of(table, row)})

    def batches(
        self,
        *,
        lower: bytes | None = None,
        upper: bytes | None = None,
        tenants: Sequence[str] = (),
        default_tenant: str | None = None,
        batch_size: int = MAX_BATCH_DOCUMENTS,
    ) -> Iterator[bytes]:
        """Yield the rows of a range of keys, read through a cursor of a connection of its own."""
        with self._reader.connected_anew() as connection:
            wanted = sql.SQL("{} AND {}").format(
                _from_to(self._table(connection), lower, upper), self._of_tenants(tenants, default_tenant)
            )
            yield from self._read(connection, wanted, batch_size)

    def _read(
        self, connection: Connection, condition: sql.Composable, batch_size: int = MAX_BATCH_DOCUMENTS
    ) -> Iterator[bytes]:
        """Yield the rows that a condition takes, in the order of their key."""
        table = self._table(connection)
        inherited = [self._expanded(one) for one in self._collection.inherited.values()]
        columns = [sql.SQL("this.{}").format(sql.Identifier(one.name)) for one in table.columns]
        selected = [
            column if one.plain else sql.SQL("{}::text").format(column)
            for one, column in zip(table.columns, columns, strict=True)
        ]
        query = sql.SQL("SELECT {} FROM {} AS this WHERE {} ORDER BY {}").format(
            sql.SQL(", ").join([*selected, *(sql.SQL("({})").format(one) for one in inherited)]),
            table.name,
            condition,
            _listed(table.key, "this"),
        )
        with connection.cursor(name="rows") as cursor:
            cursor.itersize = batch_size
            batch: list[bytes] = []
            size = 0
            for row in cursor.execute(query):
                raw = _raw(self._collection, table, row)
                if batch and (size + len(raw) > BATCH_BYTES or len(batch) >= batch_size):
                    yield b"".join(batch)
                    batch, size = [], 0
                batch.append(raw)
                size += len(raw)
            if batch:
                yield b"".join(batch)

    def by_ids(self, source_ids: Iterable[str]) -> Iterator[bytes]:
        """Yield the rows with these keys."""
        for some in id_batches(source_ids):
            with self._reader.connected() as connection, connection.transaction():
                found = list(self._read(connection, _is_among(self._table(connection), some)))
            yield from found

    def ids(self) -> Iterator[str]:
        """Yield the source ids of all rows, read through a cursor of a connection of its own."""
        with self._reader.connected_anew() as connection:
            table = self._table(connection)
            with connection.cursor(name="ids") as cursor:
                cursor.itersize = MAX_BATCH_DOCUMENTS
                for row in cursor.execute(sql.SQL("SELECT {} FROM {}").format(_listed(table.key), table.name)):
                    yield source_id(_id_of(table, row))

    def is_first(self, one: str, other: str) -> bool:
        """Whether the first of two rows comes before the other in the order of the key."""
        with self._reader.connected() as connection:
            table = self._table(connection)
            query = sql.SQL("SELECT {} < {}").format(_values(table, one), _values(table, other))
            return bool(_value(connection, query))

    def sample(self, size: int) -> list[bytes]:
        """Return up to ``size`` rows, drawn at random by the server."""
        with self._reader.connected() as connection, connection.transaction():
            table = self._table(connection)
            chosen = sql.SQL("({}) IN (SELECT {} FROM {} ORDER BY random() LIMIT {})").format(
                _listed(table.key, "this"), _listed(table.key), table.name, sql.Literal(size)
            )
            return [raw for batch in self._read(connection, chosen) for raw in documents.split(batch)]

    def aggregate(
        self, measures: Sequence[Measure], left_out: Sequence[str], default_tenant: str | None
    ) -> list[dict[str, Any]]:
        """Return the measures by tenant and words, computed by SQL over the table alone.

        A row has ``tenant``, ``documents``, and by the position of a measure ``g0`` a word, ``s1`` a sum, ``a2`` and
        ``z2`` times. ``left_out``: source ids of rows that do not count.
        """
        groups: list[sql.Composable] = [sql.SQL("{} AS tenant").format(self._tenant(default_tenant))]
        sums: list[sql.Composable] = [sql.SQL("count(*) AS documents")]
        for index, measure in enumerate(measures):
            stated = self._expanded(measure.source_sql or "NULL")
            if measure.kind == "group":
                groups.append(sql.SQL("({})::text AS {}").format(stated, sql.Identifier(f"g{index}")))
            elif measure.kind == "sum":
                sums.append(sql.SQL("sum(({})::numeric) AS {}").format(stated, sql.Identifier(f"s{index}")))
            else:
                for function, letter in (("min", "a"), ("max", "z")):
                    column = sql.Identifier(f"{letter}{index}")
                    sums.append(sql.SQL("{}({}) AS {}").format(sql.SQL(function), stated, column))
        with self._reader.connected() as connection:
            table = self._table(connection)
            counted = sql.SQL("NOT ({})").format(_is_among(table, left_out)) if left_out else sql.SQL("true")
            query = sql.SQL("SELECT {} FROM {} AS this WHERE {} GROUP BY {}").format(
                sql.SQL(", ").join([*groups, *sums]),
                table.name,
                counted,
                sql.SQL(", ").join(sql.SQL(str(place)) for place in range(1, len(groups) + 1)),
            )
            with connection.cursor(row_factory=dict_row, binary=True) as cursor:
                return cursor.execute(query).fetchall()


@contextmanager
def _opened(settings: Settings) -> Iterator[Connection]:
    connection = open_source(settings)
    try:
        yield connection
    finally:
        connection.close()


def _opened_for_rows(settings: Settings) -> Connection:
    connection = open_source(settings)
    _take_rows(connection)
    return connection


def _take_rows(connection: Connection) -> None:
    """Let the driver read values in types of BSON."""
    for name, loader in _LOADERS.items():
        connection.adapters.register_loader(name, loader)


@contextmanager
def _reading(connection: Connection, snapshot: str, *, always: bool = False) -> Iterator[None]:
    """Read in a snapshot within the block; ``always``: in a transaction also if there is none."""
    if not snapshot and not always:
        yield
        return
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        if snapshot:
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        yield
    finally:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")


def _value(connection: Connection, query: Any) -> Any:  # noqa: ANN401 - a query, and what it returns
    row = connection.execute(query).fetchone()
    assert row is not None  # noqa: S101 - the queries of this module that are asked so have one row
    return row[0]


def place_of(name: str) -> tuple[str, str]:
    """Return the schema and the table of ``schema.table`` or ``table``."""
    schema, parted, table = name.partition(".")
    return (schema, table) if parted else (DEFAULT_SCHEMA, name)


def _listed(columns: Sequence[_SourceColumn], *alias: str) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(*alias, one.name) for one in columns)


def _raw(collection: Collection, table: _SourceTable, row: Sequence[Any]) -> bytes:
    held = dict(zip((one.name for one in table.columns), row, strict=False))
    key = [held[one.name] for one in table.key]
    document = {"_id": _id_of(table, key)}
    single = table.key[0].name if len(table.key) == 1 else ""
    document |= {name: table_row.to_bson(value) for name, value in held.items() if name != single}
    if collection.inherited:
        values = row[len(table.columns) :]
        document[INHERITED] = {
            name: table_row.to_bson(value) for name, value in zip(collection.inherited, values, strict=True)
        }
    return documents.encode(document)


def _id_of(table: _SourceTable, key: Sequence[Any]) -> Any:  # noqa: ANN401 - any BSON value
    """Return the ``_id`` of a row."""
    if len(table.key) == 1:
        return table_row.to_bson(key[0])
    return {one.name: table_row.to_bson(value) for one, value in zip(table.key, key, strict=True)}


def _key_texts(table: _SourceTable, _id: Any) -> list[str]:  # noqa: ANN401 - any BSON value
    """Return the texts of the columns of a key."""
    if len(table.key) == 1:
        return [table_row.sql_text(_id)]
    return [table_row.sql_text(_id[one.name]) for one in table.key]


def _values(table: _SourceTable, identity: str) -> sql.Composable:
    return _row_of(table, parse_source_id(identity))


def _row_of(table: _SourceTable, _id: Any) -> sql.Composable:  # noqa: ANN401 - any BSON value
    """Return SQL of a key, each column of its type."""
    texts = _key_texts(table, _id)
    typed = [
        sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(one.type))
        for one, text in zip(table.key, texts, strict=True)
    ]
    return sql.SQL("ROW({})").format(sql.SQL(", ").join(typed))


def _from_to(table: _SourceTable, lower: bytes | None, upper: bytes | None) -> sql.Composable:
    """Return the condition of a range of keys."""
    conditions: list[sql.Composable] = [sql.SQL("true")]
    for bound, operator in ((lower, ">="), (upper, "<")):
        if bound is not None:
            key = _row_of(table, documents.decode(bound)["_id"])
            conditions.append(sql.SQL("ROW({}) {} {}").format(_listed(table.key, "this"), sql.SQL(operator), key))
    return sql.SQL(" AND ").join(conditions)


def _is_among(table: _SourceTable, source_ids: Iterable[str]) -> sql.Composable:
    """Return the condition that a row has one of these keys."""
    keys = [_key_texts(table, parse_source_id(one)) for one in source_ids]
    texts = list(zip(*keys, strict=True)) or [()] * len(table.key)
    arrays = [
        sql.SQL("{}::{}[]").format(sql.Literal(list(column)), sql.SQL(one.type))
        for one, column in zip(table.key, texts, strict=True)
    ]
    return sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(_listed(table.key, "this"), sql.SQL(", ").join(arrays))
