"""Whether rows of a native target can be copied straight into the library's table and into the table of origins.

The function of ``native_target`` that appends rows takes them from a temporary table: each is stored three times, and
the library's table and its indexes get one row after the other. COPY into both tables costs PostgreSQL half as much.
It is possible if each value has the bytes that the library's column takes, and if the table takes a COPY as it takes
an INSERT. Both is asked of the catalogue in the transaction that copies, under the lock that COPY takes: an application
may have changed its table since ``target prepare``.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from psycopg import sql

from migrator.config import TargetSettings
from migrator.connections.postgres import Connection, fetch_value
from migrator.schema.native_target import OWN_COLUMNS, SHARED, key_columns, library_name, origins, remainders
from migrator.targets.model import Column, Table, Target
from migrator.values.copy_format import codec

_SAME_BYTES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "text": frozenset({"text", "character varying"}),
        "text[]": frozenset({"text[]"}),
        "uuid": frozenset({"uuid"}),
        "bool": frozenset({"boolean"}),
        "int2": frozenset({"smallint"}),
        "int4": frozenset({"integer"}),
        "int8": frozenset({"bigint"}),
        "float8": frozenset({"double precision"}),
        "bytea": frozenset({"bytea"}),
        # microseconds since the year 2000, of UTC in both
        "timestamptz": frozenset({"timestamp with time zone", "timestamp without time zone"}),
        "jsonb": frozenset({"jsonb"}),
    }
)
"""Type of a value in a record to the types of a column that take its bytes."""

_IS_TABLE: Final = "SELECT relkind IN ('r', 'p') FROM pg_class WHERE oid = %s::regclass"
"""COPY writes into no view, and LOCK TABLE refuses a foreign table."""

_TAKES_COPY: Final = "SELECT NOT relhasrules AND NOT row_security_active(oid) FROM pg_class WHERE oid = %s::regclass"
"""COPY passes rules over, and is refused where policies choose rows."""

_COLUMNS: Final = """
SELECT attname, format_type(atttypid, NULL), typtype = 'e'
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""


class DirectColumns(msgspec.Struct, frozen=True):
    """The columns of one of the two tables, and which field of a serialized row each of the first takes."""

    table: sql.Identifier
    columns: tuple[str, ...]
    fields: tuple[tuple[int, bool], ...]
    """The place of the field in a serialized row; whether its number of 64 bits becomes one of 32."""

    @property
    def statement(self) -> sql.Composed:
        """Return the COPY of these columns."""
        names = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(self.table, names)


class DirectCopy(msgspec.Struct, frozen=True):
    """How serialized rows of a record are copied into both tables."""

    schema: str
    """The library's: its triggers name other tables of it without it."""
    library: DirectColumns
    origins: DirectColumns
    """Its last column takes the id of a shared remainder."""
    remainders: sql.Identifier
    """The table of shared remainders."""
    remainder: int
    """The place of the remainder in a serialized row."""
    fields: int
    """Of a serialized row."""


def direct_copy(connection: Connection, table: Table, target: Target, settings: TargetSettings) -> DirectCopy | None:
    """Return how rows are copied straight into both tables; None where only the tool's function can write them.

    Locks both tables as a COPY does, until the end of the transaction.
    """
    members = _members(table, target)
    if members is None:
        return None
    library, beside = library_name(table, target, settings), origins(table, target)
    name = library.as_string(connection)
    if not fetch_value(connection, _IS_TABLE, (name,)):
        return None
    connection.execute(sql.SQL("LOCK TABLE {}, {} IN ROW EXCLUSIVE MODE").format(library, beside))
    if not fetch_value(connection, _TAKES_COPY, (name,)):
        return None
    keys = {column: members[name] for name, column in key_columns(table) if column not in OWN_COLUMNS}
    parts = (
        _directed(connection, table, library, members),
        _directed(connection, table, beside, {name: (name, None) for name in OWN_COLUMNS} | keys, (SHARED,)),
    )
    if parts[0] is None or parts[1] is None:
        return None
    columns = codec(table.record).columns
    return DirectCopy(
        schema=settings.schema or target.schema,
        library=parts[0],
        origins=parts[1],
        remainders=remainders(target),
        remainder=columns.index("extra"),
        fields=len(columns),
    )


_Given = tuple[str, Column | None]
"""The member of the record that fills a column, and the column of the library; None: one of the tool's own."""


def _members(table: Table, target: Target) -> dict[str, _Given] | None:
    """Return the member for each column of the library's table; None if PostgreSQL must look one up, or make it."""
    made = [target.by_name[name].made for name in table.references.values()]
    if table.made == "sequence" or table.worded or table.links or any(how != "row" for how in made):
        return None
    members: dict[str, _Given] = {column.name: (column.member, column) for column in table.filled}
    if table.made == "row":
        key = next((column for column in table.columns if column.name == table.key[0]), None)
        if key is None:
            return None
        members[key.name] = ("id", key)
    return members


def _directed(
    connection: Connection,
    table: Table,
    name: sql.Identifier,
    members: Mapping[str, _Given],
    further: Sequence[str] = (),
) -> DirectColumns | None:
    """Return the columns of one table; None if one of them does not take the bytes of its member, or is missing.

    ``further``: columns that no member fills, after the others.
    """
    row = codec(table.record)
    live = {column: (kind, is_enum) for column, kind, is_enum in connection.execute(_COLUMNS, (name.as_string(None),))}
    if any(column not in live for column in further):
        return None
    fields: list[tuple[int, bool]] = []
    for column, (member, described) in members.items():
        kind, is_enum = live.get(column, ("", False))
        given = row.types[member]
        is_same = kind in _SAME_BYTES[given] and (described is None or described.base_type == kind)
        is_word = is_enum and given == "text" and described is not None and bool(described.words)
        is_real = kind == "real" and given == "float8" and described is not None and described.is_real
        if not (is_same or is_word or is_real):
            return None
        fields.append((row.columns.index(member), is_real))
    return DirectColumns(name, (*members, *further), tuple(fields))
