"""Rows: records as parameters and results of statements."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, Generic, LiteralString, TypeAlias, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format

from migrator.records import EMPTY, Record
from migrator.targets.model import SEPARATOR, tool_schema
from migrator.values.copy_format import column_types
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


def table_name(table: str) -> sql.Identifier:
    """Return the quoted name of a table of the target; of a native target, that of its view."""
    target, separator, name = table.rpartition(SEPARATOR)
    return sql.Identifier(tool_schema(target), name) if separator else sql.Identifier(SCHEMA, table)


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
    """Return the readable rows of a result of which some row cannot be read, row by row, and the keys of the others.

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


def fetch_rows(
    connection: psycopg.Connection[tuple[Any, ...]], statement: str, parameters: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Execute a statement with numbered parameters, and return its rows."""
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(statement.encode(), parameters, binary=True)
        return cursor.fetchall() if cursor.description else []


def fetch_readable(
    connection: psycopg.Connection[tuple[Any, ...]], statement: str, parameters: Sequence[Any]
) -> tuple[list[tuple[Any, ...]], list[RowKey]]:
    """Return the rows of a statement, and the keys of those that hold a value that Python has no value for.

    The statement has been executed, and its changes stand, whether its rows can be read or not.
    """
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(statement.encode(), parameters, binary=True)
        try:
            return cursor.fetchall(), []
        except psycopg.DataError:
            return readable_rows(cursor)


def as_json(documents: Iterable[object]) -> str:
    """Return the text of a parameter of type json: a list."""
    return msgspec.json.encode(list(documents)).decode()


R = TypeVar("R", bound=Record)

_FIXED = ("id", "tenant_id", "source", "source_id", "extra")
"""Columns that no update writes."""


class TableStatements(Generic[R]):
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
def table(record: type[R]) -> TableStatements[R]:
    """Return the table of a record; made once per process."""
    return TableStatements(record)
