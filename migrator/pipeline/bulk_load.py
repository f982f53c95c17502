"""Rows of an empty range are appended to their tables: of the schema ``scheduler`` by COPY, of a library in two ways.

Rows of a native target are copied into the library's table and into that of origins at once, where both take the bytes
as they are (``schema.direct_copy``); a remainder that comes again in a chunk is stored once. Otherwise, and without the
native codec, they are copied into a temporary table, from which the function of the target appends them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from psycopg import sql

from migrator import native
from migrator.connections.postgres import Connection
from migrator.pipeline.load import copy_in, new_stage, parents_first
from migrator.pipeline.target import TargetTables
from migrator.pipeline.transform import PlainRows, SourceDocument
from migrator.records import Record
from migrator.schema import native_target
from migrator.schema.direct_copy import DirectColumns, DirectCopy
from migrator.store.postgres.rows import table_name
from migrator.targets import load_target, native_table
from migrator.targets.model import Table
from migrator.values.copy_format import HEADER

JSONB_VERSION_SIZE: Final = 1
"""Bytes before the text of a jsonb value in binary COPY."""

_SETTINGS: Final = "SELECT quote_ident(%s), current_setting('search_path'), coalesce(current_setting(%s, true), '')"
_SET: Final = "SELECT set_config('search_path', %s, true), set_config(%s, %s, true)"


class BulkLoad:
    """Appends the rows of one chunk, in its transaction."""

    def __init__(self, connection: Connection, tables: TargetTables) -> None:
        self._connection, self._tables = connection, tables
        self._direct: dict[type[Record], _DirectLoad | None] = {}

    def append(self, batch: Iterable[SourceDocument], plain: Iterable[PlainRows] = ()) -> Counter[str]:
        """Copy the rows of these documents into their tables, those of plain ones first; return the number by table.

        It keeps bytes only, so that decoded documents can be freed at once. Raises ``psycopg.errors.UniqueViolation``
        if a row is stored already.
        """
        by_table: dict[type[Record], list[bytes]] = {}
        counts: Counter[str] = Counter()
        for one in plain:
            by_table.setdefault(one.record, []).append(one.copied())
            counts[one.record.table] += len(one.positions)
        for document in batch:
            for row in document.serialized:
                record = type(row.record)
                parts = by_table.get(record)
                if parts is None:
                    parts = by_table[record] = []
                parts.append(row.head)
                parts.append(row.tail)
                counts[record.table] += 1
        for record in parents_first(by_table):
            self._append(record, by_table[record])
        return counts

    def _append(self, record: type[Record], rows: Sequence[bytes]) -> None:
        table = native_table(record.table)
        if table is None:
            copy_in(self._connection, table_name(record.table), record, rows)
        elif (direct := self._direct_load(record)) is None or not direct.append(rows):
            self._append_from_stage(record, table, rows)

    def _append_from_stage(self, record: type[Record], table: Table, rows: Sequence[bytes]) -> None:
        copy_in(self._connection, new_stage(self._connection, record), record, rows)
        function = native_target.append_function(table, load_target(table.target))
        self._connection.execute(sql.SQL("SELECT {}()").format(function))

    def _direct_load(self, record: type[Record]) -> "_DirectLoad | None":
        """Return the way of rows straight into the library's table; None if the stage must be used."""
        if record not in self._direct:
            way = None if native.module() is None else self._tables.direct_copy(self._connection, record)
            self._direct[record] = None if way is None else _DirectLoad(self._connection, way)
        return self._direct[record]


class _DirectLoad:
    """Copies rows of one record into the library's table and into that of origins."""

    def __init__(self, connection: Connection, way: DirectCopy) -> None:
        self._connection, self._way = connection, way
        parts = way.library.fields, way.origins.fields
        self._split: Any = import_module("migrator_speedups.row_split").RowSplit(way.fields, *parts, way.remainder)
        row = connection.execute(_SETTINGS, (way.schema, native_target.WRITES)).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM
        self._search_path, *self._before = row

    def append(self, rows: Sequence[bytes]) -> bool:
        """Copy the rows; return False, with nothing written, for a number that the server must refuse itself."""
        try:
            library, origins = self._split.split(rows[0] if len(rows) == 1 else b"".join(rows), HEADER)
        except OverflowError:
            return False
        if shared := self._split.take_shared():
            named = [(UUID(bytes=made), value[JSONB_VERSION_SIZE:].decode()) for made, value in shared]
            native_target.share(self._connection, self._way.remainders, named)
        self._copy(self._way.origins, origins)  # first: a trigger of the library's table may look there
        # as the function of the target has them: triggers of the library name its other tables without their schema
        self._set(self._search_path, "on")
        self._copy(self._way.library, library)
        self._set(*self._before)
        return True

    def _copy(self, part: DirectColumns, rows: bytes) -> None:
        with self._connection.cursor() as cursor, cursor.copy(part.statement) as copy:
            copy.write(rows)

    def _set(self, search_path: str, writes: str) -> None:
        self._connection.execute(_SET, (search_path, native_target.WRITES, writes))
