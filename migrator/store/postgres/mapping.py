"""Records and rows: what a statement needs to know of a table, built once from the record's declaration."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
import psycopg
from psycopg import sql

from migrator.records.base import Record
from migrator.store.postgres.rows import table_name
from migrator.values.rowbytes import column_types

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
        self.insert = _flat(
            sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
                self.name, self.columns, sql.SQL(", ").join([sql.Placeholder()] * len(types)), self.columns
            )
        )
        self.replace = _flat(
            sql.SQL("UPDATE {} SET {} WHERE id = %s AND tenant_id = %s RETURNING {}").format(
                self.name,
                sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in self.written),
                self.columns,
            )
        )
        self.factory = self._factory

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
        """Return the row as ``json_populate_recordset`` reads it; what is null is left out."""
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
