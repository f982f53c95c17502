"""The tables of a copy that another tool made: which row is whose, read in one snapshot.

The tool's own copy has a computed id and an origin for each row. Here a row is found by what the mapping fills: the key
of its table, columns that are unique and never null, or the row to which it refers or which refers to it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec
from psycopg import sql
from psycopg.rows import TupleRow

from migrator.config import Settings
from migrator.connections.postgres import Connection, fetch_value, open_login, translate_errors
from migrator.errors import RefusedError
from migrator.records import Lock, Record
from migrator.schema import native_target
from migrator.sources.profile import Profile
from migrator.store import epoch
from migrator.store.postgres import parallel_run
from migrator.store.postgres.rows import table_name
from migrator.targets import load_target, native_table
from migrator.targets.model import Table, Target
from migrator.values.copy_format import codec

OWN_COLUMNS: Final = frozenset({"source", "source_id", "extra", "tenant_id"})
"""Columns in which the tool keeps a row's origin and its remainder: another tool's copy need not fill them. The tenant
of a row of the schema ``scheduler`` is part of its key."""
UNFIT: Final = frozenset({"jsonb", "text[]"})
"""Types of columns by which rows are not searched."""

Key = tuple[str | None, ...]
"""Values of columns as text."""


class Relation(msgspec.Struct, frozen=True):
    """Columns that hold the key of a row of another table, or a part of it."""

    table: str
    """Name of the other table's record."""
    columns: tuple[str, ...]
    places: tuple[int, ...]
    """For each of these columns, its position in the key of the other table."""


class ForeignTable(msgspec.Struct, frozen=True):
    """A table of the copy, as the mapping describes it."""

    record: type[Record]
    name: sql.Identifier
    columns: Mapping[str, sql.Composable]
    """Member of the record to the expression of its value, over a row ``stored``: those that are compared by value."""
    match: tuple[str, ...]
    """Members by which a row is found; empty: there are none."""
    key: tuple[str, ...]
    """The columns of the primary key."""
    types: Mapping[str, str]
    """Column to its type, for those of the key and of relations."""
    made: frozenset[str]
    """Members of ``columns`` that the copy may have made: a row may be found by them, and they say nothing else."""
    relations: Mapping[str, Relation]
    """Members of the record that are compared by the row to which they lead."""
    has_origin: bool
    """Whether it has the columns ``source`` and ``source_id``, which another tool may have filled."""
    not_rows: sql.Composable
    """Condition of rows that are none of a copy."""


class StoredRow(msgspec.Struct, eq=False):
    """A row of the copy."""

    place: tuple[int, int, int]
    """Table, page and line: they hold for one snapshot."""
    key: Key
    related: Mapping[str, Key]
    """Member to the values of the columns of its relation."""
    source_id: str | None
    tenant: str | None
    cells: Mapping[str, bytes | None]
    """Member to its value, as ``RowCodec.cells`` gives it."""


class SeenRows:
    """Rows of a table that a document made, by their places: a bit for each."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], int] = {}

    def add(self, place: tuple[int, int, int]) -> None:
        """Add a row."""
        table, page, line = place
        self._pages[table, page] = self._pages.get((table, page), 0) | 1 << line

    def __contains__(self, place: tuple[int, int, int]) -> bool:
        """Whether a document made a row."""
        table, page, line = place
        return bool(self._pages.get((table, page), 0) >> line & 1)


@contextmanager
def opened_copy(settings: Settings) -> Iterator[Connection]:
    """Yield a connection in one read-only snapshot, which is rolled back at the end."""
    with translate_errors("the target"), open_login(settings) as connection:
        role = settings.postgres.migration_role
        member = "SELECT pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = %s"
        if not settings.target.is_native and fetch_value(connection, member, (role,)):
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield connection
        finally:
            if not connection.closed:
                connection.rollback()


def foreign_tables(connection: Connection, settings: Settings, profile: Profile) -> dict[str, ForeignTable]:
    """Return the tables that the profile's collections feed, by the names of their records.

    Raises ``RefusedError`` for a table that does not exist or lacks a column, for one of which the user does not see
    every row, and for a copy that this tool made.
    """
    records = dict.fromkeys(record for collection in profile.collections for record in collection.tables)
    tables: dict[str, ForeignTable] = {}
    if settings.target.is_native:
        target = load_target(settings.target.name)
        for record in records:
            described = native_table(record.table)
            assert described is not None  # noqa: S101 - every collection of the profile feeds tables of this target
            tables[record.table] = _library_table(connection, record, described, target, settings)
        _refuse_own(connection, [(target.tool_schema, f"{table.name}{native_target.ORIGINS}", "true") for table in
                                 target.tables])  # fmt: skip
    else:
        tables = {record.table: _scheduler_table(record) for record in records}
        of_profile = sql.SQL("profile = {}").format(sql.Literal(profile.name)).as_string(connection)
        _refuse_own(connection, [("migration", "plans", of_profile)])
    for table in tables.values():
        _require_visible(connection, table)
    return tables


def _refuse_own(connection: Connection, tables: Sequence[tuple[str, str, str]]) -> None:
    """Raise ``RefusedError`` if one of the tool's tables (schema, name, condition) shows that it made the copy."""
    readable = (
        "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE nspname = %s"
        " AND relname = %s AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))"
    )
    for schema, name, condition in tables:
        if not fetch_value(connection, readable, (schema, name)):
            continue
        rows = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(
            sql.Identifier(schema, name),
            sql.SQL(condition),
        )
        if fetch_value(connection, rows):
            raise RefusedError(
                f"{schema}.{name} says that this tool made the copy: call migrator parity without --target-of, which"
                " also asks the ledger, the quarantine and the remainders"
            )


def _require_visible(connection: Connection, table: ForeignTable) -> None:
    """Raise ``RefusedError`` if policies of rows hide rows from the user, or the table has no places of rows."""
    name = table.name.as_string(connection)
    row = connection.execute(
        "SELECT relkind IN ('r', 'p'), row_security_active(oid), current_user FROM pg_class"
        " WHERE oid = to_regclass(%s)",
        (name,),
    ).fetchone()
    if row is None:
        raise RefusedError(f"the target has no table {name}: set postgres.dsn to the database that holds the copy")
    ordinary, hidden, user = row
    if not ordinary:
        raise RefusedError(f"{name} of the target is not an ordinary table: name the table that holds the rows")
    if hidden:
        raise RefusedError(
            f"row-level security hides rows of {name} from {user}: connect as the owner of the table, or as a user with"
            " BYPASSRLS"
        )


def _scheduler_table(record: type[Record]) -> ForeignTable:
    kind = codec(record)
    own = OWN_COLUMNS | {"id"}
    ids = [name for name, type_name in kind.types.items() if type_name == "uuid" and name not in own]
    return ForeignTable(
        record=record,
        name=table_name(record.table),
        columns={
            name: sql.Identifier("stored", name)
            for name in kind.columns
            if name == "tenant_id" or name not in {*OWN_COLUMNS, *ids}
        },
        match=("id", "tenant_id"),
        key=("id",),
        types={"id": kind.types["id"], **dict.fromkeys(ids, "uuid")},
        made=frozenset({"id"}),
        # by the id alone: to which table it leads does not matter
        relations={name: Relation("", (name,), (0,)) for name in ids},
        has_origin="source_id" in kind.columns,
        not_rows=sql.SQL("stored.key IN ({}, {})").format(epoch.KEY, parallel_run.KEY)
        if record is Lock
        else sql.SQL("false"),
    )


def _library_table(
    connection: Connection, record: type[Record], table: Table, target: Target, settings: Settings
) -> ForeignTable:
    library = native_target.library_table(connection, table, target, settings.target)
    by_value = [column for column in table.filled if column.name not in table.references]
    fit = {column.name for column in by_value if codec(record).types[column.member] not in UNFIT}
    needed = {column.name for column in by_value if column.needed}
    keys = [() if table.made else table.key, *(names for names in table.unique if needed.issuperset(names))]
    match: tuple[str, ...] = next((names for names in keys if names and fit.issuperset(names)), ())
    relations = {
        table.member_of(name): Relation(target.by_name[other].full_name, (name,), (0,))
        for name, other in table.references.items()
    }
    for member, link in table.links.items():
        other = target.by_name[link.table]
        places = tuple(other.key.index(name) for name in link.columns)
        relations[member] = Relation(other.full_name, link.columns, places)
    return ForeignTable(
        record=record,
        name=library.identifier,
        columns={
            column.member: sql.SQL(column.kind.read).format(sql.Identifier("stored", column.name))
            for column in by_value
        },
        match=tuple(table.member_of(name) for name in match),
        key=table.key,
        types=library.types,
        made=frozenset(),
        relations=relations,
        has_origin=False,
        not_rows=sql.SQL("false"),
    )


def rows_by_match(connection: Connection, table: ForeignTable, rows: Iterable[Record]) -> list[StoredRow]:
    """Return the stored rows whose members of ``match`` have the values of one of these rows."""
    values = [list(column) for column in zip(*{_values(row, table.match) for row in rows}, strict=True)]
    types = codec(table.record).types
    given = sql.SQL(", ").join(sql.SQL("%s::{}[]").format(sql.SQL(types[name])) for name in table.match)
    names = [sql.Identifier(f"match_{number}") for number, _ in enumerate(table.match)]
    same = sql.SQL(" AND ").join(
        sql.SQL("{} = given.{}").format(table.columns.get(member, sql.Identifier("stored", member)), name)
        for member, name in zip(table.match, names, strict=True)
    )
    condition = sql.SQL("EXISTS (SELECT FROM unnest({}) AS given ({}) WHERE {})").format(
        given, sql.SQL(", ").join(names), same
    )
    return _select(connection, table, condition, values)


def rows_by_origin(connection: Connection, table: ForeignTable, source_ids: Iterable[str]) -> list[StoredRow]:
    """Return the stored rows that say that they come from one of these documents."""
    return _select(connection, table, sql.SQL("stored.source_id = ANY(%s::text[])"), [sorted(set(source_ids))])


def rows_by_columns(connection: Connection, table: ForeignTable, column: str, values: Iterable[str]) -> list[StoredRow]:
    """Return the stored rows of which a column, of the key or of a relation, has one of these values."""
    kind = sql.SQL(table.types[column])
    condition = sql.SQL("{} = ANY(%s::text[]::{}[])").format(sql.Identifier("stored", column), kind)
    return _select(connection, table, condition, [sorted(set(values))])


Origins: TypeAlias = dict[tuple[str, str], str | None]
"""Tenant and id of a row to its source id."""


def existing_origins(
    connection: Connection, table: ForeignTable, ids: Iterable[str], source_ids: Iterable[str]
) -> Origins:
    """Return the origins of the rows that have one of these ids, or that one of these documents made.

    The table is one of the schema ``scheduler``, where two tenants may have rows with the same id.
    """
    origin = sql.SQL("source_id" if table.has_origin else "NULL::text")
    kind = sql.SQL(table.types["id"])
    query = sql.SQL("SELECT tenant_id, id::text, {} FROM {} WHERE id = ANY(%s::text[]::{}[])").format(
        origin, table.name, kind
    )
    rows = connection.execute(query, (sorted(set(ids)),)).fetchall()
    names = sorted(set(source_ids))
    if names and table.has_origin:
        made = sql.SQL("SELECT tenant_id, id::text, {} FROM {} WHERE source_id = ANY(%s::text[])").format(
            origin, table.name
        )
        rows += connection.execute(made, (names,)).fetchall()
    return {(tenant, row_id): source_id for tenant, row_id, source_id in rows}


def unseen_rows(connection: Connection, table: ForeignTable, seen: SeenRows) -> Iterator[str]:
    """Yield the keys of the rows that are not among those seen."""
    query = sql.SQL("SELECT tableoid::int8, ctid::text, concat_ws(', ', {}) FROM {} AS stored WHERE NOT ({})").format(
        sql.SQL(", ").join(sql.Identifier("stored", name) for name in table.key), table.name, table.not_rows
    )
    with connection.cursor() as cursor:
        for oid, place, key in cursor.stream(query):
            if _place(oid, place) not in seen:
                yield key


def _values(row: Record, members: Sequence[str]) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in members)


def _select(
    connection: Connection, table: ForeignTable, condition: sql.Composable, values: Sequence[object]
) -> list[StoredRow]:
    """Return the rows of a condition: what says whose they are as text, and what is compared as the server sends it."""
    asked = [*table.key, *(name for relation in table.relations.values() for name in relation.columns)]
    origin = ("source_id", "tenant_id") if table.has_origin else ()
    texts = [sql.SQL("{}::text").format(sql.Identifier("stored", name)) for name in (*asked, *origin)]
    # what a row is, as one array of texts: NULL stays NULL there
    query = sql.SQL(
        "SELECT tableoid::int8, ctid::text, ARRAY[{}]::text[] FROM {} AS stored WHERE {} ORDER BY ctid"
    ).format(sql.SQL(", ").join(texts), table.name, condition)
    described: list[TupleRow] = connection.execute(query, values).fetchall()
    if not described:
        return []
    query = sql.SQL("SELECT {} FROM {} AS stored WHERE {} ORDER BY tableoid, ctid").format(
        sql.SQL(", ").join(table.columns.values()), table.name, condition
    )
    with connection.cursor(binary=True) as cursor:
        result = cursor.execute(query, values).pgresult
        assert result is not None  # noqa: S101 - a query has a result
        rows = [
            {name: result.get_value(line, number) for number, name in enumerate(table.columns)}
            for line in range(result.ntuples)
        ]
    return [
        _stored_row(table, oid, place, texts_of, cells)
        for (oid, place, texts_of), cells in zip(described, rows, strict=True)
    ]


def _stored_row(
    table: ForeignTable, oid: int, place: str, texts: Sequence[str | None], cells: Mapping[str, bytes | None]
) -> StoredRow:
    width, related = len(table.key), {}
    for member, relation in table.relations.items():
        related[member] = tuple(texts[width : width + len(relation.columns)])
        width += len(relation.columns)
    source_id, tenant = texts[width:] if table.has_origin else (None, None)
    return StoredRow(
        place=_place(oid, place),
        key=tuple(texts[: len(table.key)]),
        related=related,
        source_id=source_id,
        tenant=tenant,
        cells=cells,
    )


def _place(oid: int, place: str) -> tuple[int, int, int]:
    page, _, line = place.strip("()").partition(",")
    return oid, int(page), int(line)
