"""Rows: records as parameters and results of statements, and whole rows as binary COPY."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Generic, LiteralString, TypeAlias, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format

from migrator.connections.postgres import Connection
from migrator.records import EMPTY, Record
from migrator.values.copy_format import HEADER, NULL, TRAILER, RowCodec, column_types
from migrator.values.jsonb import canonicalise

SCHEMA = "scheduler"


def literals(words: Iterable[str]) -> str:
    """Return words of ours as SQL literals, separated by commas."""
    return ", ".join(f"'{word}'" for word in words)


LONGEST_MS: Final = 10_000 * 366 * 86_400_000
"""Longer than all years that a column of times holds. A column of milliseconds holds more than an interval does."""


def interval(milliseconds: str) -> str:
    """Return the SQL interval of an expression in milliseconds; what is longer than all years is cut to them."""
    return f"least({milliseconds}, {LONGEST_MS}) * interval '1 millisecond'"


def columns(codec: RowCodec) -> sql.Composed:
    """Return the column list of a codec's rows."""
    return sql.SQL(", ").join(map(sql.Identifier, codec.columns))


def copy_in(connection: Connection, table: sql.Composable, codec: RowCodec, rows: Iterable[bytes]) -> None:
    """Append serialized rows to ``table``, a quoted name."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table, columns(codec))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(b"".join((HEADER, *rows, TRAILER)))


def table_name(table: str) -> sql.Identifier:
    """Return the quoted name of a table of the target."""
    return sql.Identifier(SCHEMA, table)


def fetch(connection: Connection, table: str, codec: RowCodec, ids: Sequence[UUID | int]) -> dict[bytes, bytes]:
    """Return the stored rows with these ids, of any tenant, as the server serializes them, by their ``row_key``."""
    if not ids:
        return {}
    kind: LiteralString = "uuid" if isinstance(ids[0], UUID) else "bigint"
    stored = map(bytes, copy_out(connection, table, codec, "{" + ",".join(map(str, ids)) + "}", kind))
    return {row_key(codec, row): row for row in stored}


def copy_out(connection: Connection, table: str, codec: RowCodec, ids: str, kind: LiteralString) -> Iterator[Buffer]:
    """Yield the stored rows with these ids, of any tenant, as the server serializes them.

    ``ids``: the text of an array, ``kind``: the type of its elements.
    """
    statement = sql.SQL("COPY (SELECT {} FROM {} WHERE id = ANY({}::{}[])) TO STDOUT (FORMAT BINARY)").format(
        columns(codec), table_name(table), sql.Literal(ids), sql.SQL(kind)
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        first = True
        while data := copy.read():
            row: Buffer = memoryview(data)[len(HEADER) :] if first else data
            first = False
            if row and row != TRAILER:
                yield row


def row_key(codec: RowCodec, row: bytes) -> bytes:
    """Return the bytes of a row's primary key: its id, which is its first column, and its tenant."""
    after_id = start = 6 + int.from_bytes(row[2:6], "big")
    for _ in range(codec.plain.index("tenant_id") - 1):
        start += 4 + int.from_bytes(row[start : start + 4], "big")
    return row[2:after_id] + row[start : start + 4 + int.from_bytes(row[start : start + 4], "big")]


def origin(codec: RowCodec, row: bytes) -> bytes:
    """Return the document of a row: its source and source id, or the ``_id`` in a job's payload."""
    if "source" in codec.plain:
        end = position = 2
        for index in range(4):  # id, tenant_id, source, source_id
            if index == 2:  # noqa: PLR2004 - source begins here
                position = end
            length = row[end : end + 4]
            end += 4 + (0 if length == NULL else int.from_bytes(length, "big"))
        return row[position:end]
    payload = codec.cells(row)["payload"]
    assert payload is not None  # noqa: S101 - NOT NULL in both tables
    found: dict[str, msgspec.Raw] = msgspec.json.decode(payload[1:], type=dict[str, msgspec.Raw])
    return bytes(found.get("_id", b""))


def upsert(
    connection: Connection,
    table: str,
    codec: RowCodec,
    rows: Sequence[bytes],
    *,
    whoever: bool = False,
    different: bool = False,
) -> int:
    """Insert the rows, or update the stored ones with the same id and tenant; return how many were written.

    A stored row of another document is overwritten only if ``whoever`` allows it; otherwise it is not counted.
    ``different``: a row that is stored already as it must be is not counted either.
    """
    stage = sql.Identifier("pg_temp", f"stage_{table}")
    connection.execute(
        sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA").format(
            sql.Identifier(f"stage_{table}"), columns(codec), table_name(table)
        )
    )
    connection.execute(sql.SQL("TRUNCATE {}").format(stage))
    copy_in(connection, stage, codec, rows)
    computed = {"global_schedule": global_schedule("new")} if table == "runs" else {}
    return connection.execute(
        sql.SQL(
            "INSERT INTO {table} AS stored ({names}) SELECT {values} FROM {stage} AS new "
            "ON CONFLICT (id, tenant_id) DO UPDATE SET {changes} WHERE {same} AND {different}"
        ).format(
            table=table_name(table),
            names=sql.SQL(", ").join(map(sql.Identifier, (*codec.columns, *computed))),
            values=sql.SQL(", ").join([columns(codec), *map(sql.SQL, computed.values())]),
            stage=stage,
            changes=sql.SQL(", ").join(
                sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name))
                for name in (*codec.columns, *computed)
                if name not in ("id", "tenant_id")
            ),
            same=sql.SQL("true") if whoever else _same_origin(codec),
            different=_different(codec) if different else sql.SQL("true"),
        )
    ).rowcount


def global_schedule(row: LiteralString) -> LiteralString:
    """Return the expression for ``runs.global_schedule`` of a row, called ``row``, whose references are given.

    A row of the own tenant comes first. Runs may refer to global schedules and triggers, and to no other global row.
    """

    def leads(table: LiteralString, column: LiteralString) -> LiteralString:
        named = "EXISTS (SELECT FROM scheduler." + table + " AS g WHERE g.id = " + row + "." + column
        own = " AND NOT " + named + " AND g.tenant_id = " + row + ".tenant_id)"
        return "(" + named + " AND g.tenant_id = '*')" + own + ")"

    schedule, trigger = leads("schedules", "schedule_id"), leads("triggers", "trigger_id")
    return "CASE WHEN " + row + ".schedule_id IS NULL THEN " + trigger + " ELSE " + schedule + " END"


def _same_origin(codec: RowCodec) -> sql.SQL:
    if "source" in codec.plain:
        return sql.SQL(
            "stored.source IS NOT DISTINCT FROM EXCLUDED.source "
            "AND stored.source_id IS NOT DISTINCT FROM EXCLUDED.source_id"
        )
    return sql.SQL("stored.payload -> '_id' IS NOT DISTINCT FROM EXCLUDED.payload -> '_id'")


def _different(codec: RowCodec) -> sql.Composed:
    """Compare rows by their bytes: two equal numbers in jsonb may be spelled differently (5 and 5.0)."""
    stored, new = (
        sql.SQL(", ").join(sql.SQL("{}.{}").format(sql.SQL(side), sql.Identifier(name)) for name in codec.columns)
        for side in ("stored", "EXCLUDED")
    )
    return sql.SQL("ROW({})::record *<> ROW({})::record").format(stored, new)


class _TextLoader(Loader):
    format = Format.TEXT

    def load(self, data: Buffer) -> bytes:
        return _canonical(bytes(data))


class _BinaryLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return _canonical(bytes(data[1:]))


def _canonical(text: bytes) -> bytes:
    return EMPTY if text == EMPTY else canonicalise(text)  # most rows have no remainder


def register_json_loaders(connection: psycopg.Connection[Any]) -> None:
    """Let a connection give jsonb as canonical bytes."""
    connection.adapters.register_loader("jsonb", _TextLoader)
    connection.adapters.register_loader("jsonb", _BinaryLoader)


RowKey: TypeAlias = tuple[UUID, str]
"""Id and tenant of a row, its first two columns."""


def readable_rows(cursor: psycopg.Cursor[Any]) -> tuple[list[Any], list[RowKey]]:
    """Return what is left of a result of which some row cannot be read, row by row, and the keys of such rows.

    The result is binary, and its first two columns are id and tenant.
    """
    rows, unreadable = [], list[RowKey]()
    result = cursor.pgresult
    assert result is not None  # noqa: S101 - the statement has returned rows
    for position in range(result.ntuples):
        cursor.scroll(position, mode="absolute")
        try:
            rows.append(cursor.fetchone())
        except psycopg.DataError:
            identity, tenant = bytes(result.get_value(position, 0) or b""), result.get_value(position, 1)
            unreadable.append((UUID(int=int.from_bytes(identity, "big")), bytes(tenant or b"").decode()))
    return rows, unreadable


R = TypeVar("R", bound=Record)

_FIXED = ("id", "tenant_id", "source", "source_id", "extra")
"""Columns that no update writes."""


class Table(Generic[R]):
    """A table by its record: quoted names, whole-row statements, and the conversion of rows."""

    def __init__(self, record: type[R]) -> None:
        types = column_types(record)
        self.record, self.name = record, table_name(record.table)
        self.names = tuple(types)
        self.columns = sql.SQL(", ").join(map(sql.Identifier, types))
        """The columns in the record's order, for SELECT and RETURNING."""
        self._lists = tuple(name for name, kind in types.items() if kind == "text[]")
        self._json = frozenset(name for name, kind in types.items() if kind == "jsonb")
        self.written = tuple(name for name in types if name not in _FIXED)
        """The columns that an update writes."""
        self.select = _flat(sql.SQL("SELECT {} FROM {} ").format(self.columns, self.name))
        self.factory = self._factory

    @cache  # noqa: B019 - a table lives as long as the process
    def insert(self, *more: str) -> sql.SQL:
        """Return the INSERT of a row; ``more``: columns that no record has, whose parameters come last."""
        names = (*self.names, *more)
        return _flat(
            sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
                self.name,
                sql.SQL(", ").join(map(sql.Identifier, names)),
                sql.SQL(", ").join([sql.Placeholder()] * len(names)),
                self.columns,
            )
        )

    @cache  # noqa: B019 - as above
    def replace(self, *more: str) -> sql.SQL:
        """Return the UPDATE of a row by its key; ``more``: columns that no record has, whose parameters come first."""
        changes = (sql.SQL("{} = %s").format(sql.Identifier(name)) for name in (*more, *self.written))
        return _flat(
            sql.SQL("UPDATE {} SET {} WHERE id = %s AND tenant_id = %s RETURNING {}").format(
                self.name, sql.SQL(", ").join(changes), self.columns
            )
        )

    def qualified(self, alias: str) -> sql.Composed:
        """Return the columns in the record's order, of the table that the query calls ``alias``."""
        return sql.SQL(", ").join(sql.Identifier(alias, name) for name in self.names)

    def values(self, record: R) -> list[Any]:
        """Return the parameters of ``insert``."""
        return [self.value(name, getattr(record, name)) for name in self.names]

    def changes(self, record: R) -> list[Any]:
        """Return the parameters of ``replace``."""
        changed = [self.value(name, getattr(record, name)) for name in self.written]
        return [*changed, record.id, record.tenant_id]  # type: ignore[attr-defined] # every table has both

    def value(self, name: str, value: Any) -> Any:  # noqa: ANN401 - columns have all types
        """Return the value of a column as a parameter: JSON as text, a list as a list."""
        if value is None:
            return None
        if name in self._json:
            return bytes(value).decode()
        return list(value) if name in self._lists else value

    def document(self, record: R) -> dict[str, Any]:
        """Return the row as ``json_populate_recordset`` reads it, without nulls."""
        given = ((name, getattr(record, name)) for name in self.names)
        return {name: msgspec.Raw(value) if name in self._json else value for name, value in given if value is not None}

    def _factory(self, cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], R]:  # noqa: ARG002 - the columns are ours
        return self.read

    def read(self, values: Sequence[Any]) -> R:
        """Return the record of a row whose columns are ``columns``."""
        row = dict(zip(self.names, values, strict=True))
        for name in self._lists:
            if row[name] is not None:
                row[name] = tuple(row[name])
        return self.record(**row)


def _flat(statement: sql.Composed) -> sql.SQL:
    """Return the statement with its names in place: quoting forty columns takes longer than many a query."""
    return sql.SQL(statement.as_string(None))


@cache
def table(record: type[R]) -> Table[R]:
    """Return the table of a record; made once per process."""
    return Table(record)
