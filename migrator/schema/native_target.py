"""The tool's schema beside a native target: a view for each table of the library, through which rows are written.

A table of a library has no column for the document that a row came from, nor for its remainder. They are in a table of
its own, the origins of the rows, by the key of the row. The view joins both, in the types that a record has. Triggers
of the view write both, so that every statement of the pipeline is the same for every target. Nothing of the library's
is changed; the whole schema can be dropped.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from psycopg import sql

from migrator.config import TargetSettings
from migrator.connections.postgres import Connection, fetch_value
from migrator.errors import RefusedError
from migrator.targets.model import Column, Table, Target

ORIGINS = "_origins"
"""Behind the name of a table: the table of what its rows came from."""

_KEY = "key_"
"""Before the name of a column of the library's key, in the table of origins."""

PREPARE = "call migrator target prepare"


class LibraryTable(msgspec.Struct, frozen=True):
    """A table of a library as it stands in the database."""

    schema: str
    name: str
    types: Mapping[str, str]
    """Column to its type, qualified."""
    sequences: Mapping[str, str]
    """Column to the sequence that it owns, qualified; empty: none."""

    @property
    def identifier(self) -> sql.Identifier:
        """Return its quoted name."""
        return sql.Identifier(self.schema, self.name)


def library_name(table: Table, target: Target, settings: TargetSettings) -> sql.Identifier:
    """Return the quoted name of a table of the library."""
    return sql.Identifier(*_place(table, target, settings))


def _place(table: Table, target: Target, settings: TargetSettings) -> tuple[str, str]:
    return settings.schema or target.schema, settings.tables.get(table.name, table.name)


def library_table(connection: Connection, table: Table, target: Target, settings: TargetSettings) -> LibraryTable:
    """Return the table of the library; raise ``RefusedError`` if it does not exist, or lacks a column."""
    schema, name = _place(table, target, settings)
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), coalesce(pg_get_serial_sequence(%(name)s, attname), '')"
        " FROM pg_attribute WHERE attrelid = to_regclass(%(name)s) AND attnum > 0 AND NOT attisdropped",
        {"name": sql.Identifier(schema, name).as_string(connection)},
    ).fetchall()
    if not rows:
        raise RefusedError(
            f"the target has no table {schema}.{name}, which {target.title or target.name} makes: {PREPARE}"
        )
    types = {column: kind for column, kind, _ in rows}
    missing = [column.name for column in table.columns if column.name not in types]
    if missing:
        raise RefusedError(
            f"table {schema}.{name} has no column {', '.join(missing)}: it is of another version than {target.versions}"
        )
    return LibraryTable(schema, name, types, {column: sequence for column, _, sequence in rows if sequence})


def prepare(connection: Connection, target: Target, settings: TargetSettings) -> None:
    """Make the tool's schema beside the library's tables, or its views anew; rows and their origins stay.

    Raises ``RefusedError`` if a table of the library does not exist, or lacks a column.
    """
    library_tables = {table.name: library_table(connection, table, target, settings) for table in target.tables}
    with connection.transaction():
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(target.tool_schema)))
        for table in target.tables:
            for statement in _statements(target, table, library_tables):
                connection.execute(statement)


def is_prepared(connection: Connection, target: Target) -> bool:
    """Tell whether every view of the target exists."""
    names = [sql.Identifier(target.tool_schema, table.name).as_string(connection) for table in target.tables]
    return bool(
        fetch_value(
            connection, "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest(%s::text[]) AS name", (names,)
        )
    )


def origins(table: Table, target: Target) -> sql.Identifier:
    """Return the quoted name of the table of origins."""
    return sql.Identifier(target.tool_schema, table.name + ORIGINS)


def _statements(target: Target, table: Table, found: Mapping[str, LibraryTable]) -> Iterator[sql.Composed]:
    library, view = found[table.name], sql.Identifier(target.tool_schema, table.name)
    beside = origins(table, target)
    keys = () if table.made == "row" else table.key
    yield sql.SQL(
        "CREATE TABLE IF NOT EXISTS {origins} (id uuid NOT NULL, tenant_id text NOT NULL, source text, source_id text,"
        " extra jsonb NOT NULL, {keys} PRIMARY KEY (id, tenant_id), UNIQUE (id) {unique})"
    ).format(
        origins=beside,
        keys=sql.SQL("").join(
            sql.SQL("{} {} NOT NULL, ").format(sql.Identifier(_KEY + name), sql.SQL(library.types[name]))
            for name in keys
        ),
        unique=sql.SQL(", UNIQUE ({})").format(_names(_KEY + name for name in keys)) if keys else sql.SQL(""),
    )
    yield sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (source, source_id)").format(
        sql.Identifier(f"{table.name}{ORIGINS}_source"), beside
    )
    view_columns = [
        sql.SQL("{} AS {}").format(_read(target, table, column), sql.Identifier(column.member))
        for column in table.filled
    ]
    yield sql.SQL("DROP VIEW IF EXISTS {}").format(view)
    yield sql.SQL(
        "CREATE VIEW {view} AS SELECT {columns} FROM {origins} AS origin JOIN {library} AS stored ON {same}"
    ).format(
        view=view,
        columns=sql.SQL(", ").join(
            [
                *(sql.Identifier("origin", name) for name in ("id", "tenant_id", "source", "source_id")),
                *view_columns,
                sql.Identifier("origin", "extra"),
            ]
        ),
        origins=beside,
        library=library.identifier,
        same=same_key(table, "stored", "origin"),
    )
    yield from _triggers(target, table, library, view)


def same_key(table: Table, library: str, origin: str) -> sql.Composed:
    """Return the condition that a row of the library is that of an origin."""
    if table.made == "row":
        return sql.SQL("{} = {}").format(sql.Identifier(library, table.key[0]), sql.Identifier(origin, "id"))
    return sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier(library, name), sql.Identifier(origin, _KEY + name))
        for name in table.key
    )


def _read(target: Target, table: Table, column: Column) -> sql.Composable:
    """Return the value of the view for a column."""
    stored = sql.Identifier("stored", column.name)
    referred = table.references.get(column.name)
    if referred is None:
        return sql.SQL(column.kind.read).format(stored)
    other = target.by_name[referred]
    if other.made == "row":
        return stored
    return sql.SQL("(SELECT id FROM {} AS referred WHERE referred.{} = {})").format(
        origins(other, target), sql.Identifier(_KEY + other.key[0]), stored
    )


def _write(target: Target, table: Table, column: Column, library: LibraryTable) -> sql.Composable:
    """Return the value of the library's table for a column of a new row of the view."""
    given = sql.Identifier("new", column.member)
    referred = table.references.get(column.name)
    if referred is None:
        written = "{}::" + library.types[column.name] if column.words else column.kind.write
        return sql.SQL(written).format(given)
    other = target.by_name[referred]
    if other.made == "row":
        return given
    return sql.SQL("(SELECT {} FROM {} AS referred WHERE referred.id = {})").format(
        sql.Identifier(_KEY + other.key[0]), origins(other, target), given
    )


def _triggers(target: Target, table: Table, library: LibraryTable, view: sql.Identifier) -> Iterator[sql.Composed]:
    """Yield the function of the view's triggers, and the triggers."""
    beside = origins(table, target)
    filled = [column.name for column in table.filled]
    values = [_write(target, table, column, library) for column in table.filled]
    if table.made:
        [key] = table.key
        filled, values = [key, *filled], [sql.Identifier("made"), *values]
    own = ("id", "tenant_id", "source", "source_id", "extra")
    given: list[sql.Composable] = [sql.Identifier("new", name) for name in own]
    keys = () if table.made == "row" else table.key
    for name in keys:
        made = sql.Identifier("made") if table.made else values[filled.index(name)]
        given.append(made)
    names = _names([*own, *(_KEY + name for name in keys)])
    function = sql.Identifier(target.tool_schema, f"write_{table.name}")
    sequence = table.sequence or library.sequences.get(table.key[0], "")
    if table.made == "sequence" and not sequence:
        raise RefusedError(f"table {library.schema}.{library.name} has no sequence for its key {table.key[0]}")
    body = sql.SQL(
        """
DECLARE made {made_type};
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM {library} AS stored USING {origins} AS origin
        WHERE origin.id = old.id AND origin.tenant_id = old.tenant_id AND {same};
        DELETE FROM {origins} WHERE id = old.id AND tenant_id = old.tenant_id;
        RETURN old;
    END IF;
    IF TG_OP = 'INSERT' THEN
        made := {new_key};
        INSERT INTO {library} ({columns}) VALUES ({values});
        INSERT INTO {origins} ({names}) VALUES ({given})
        ON CONFLICT (id, tenant_id) DO UPDATE SET ({names}) = ROW({given});
        RETURN new;
    END IF;
    made := {old_key};
    UPDATE {library} AS stored SET ({columns}) = ROW({values}) FROM {origins} AS origin
    WHERE origin.id = old.id AND origin.tenant_id = old.tenant_id AND {same};
    UPDATE {origins} SET ({names}) = ROW({given}) WHERE id = old.id AND tenant_id = old.tenant_id;
    RETURN new;
END
"""
    ).format(
        made_type=sql.SQL(library.types[table.key[0]]),
        library=library.identifier,
        origins=beside,
        same=same_key(table, "stored", "origin"),
        columns=_names(filled),
        values=sql.SQL(", ").join(values),
        names=names,
        given=sql.SQL(", ").join(given),
        new_key=_new_key(table, sequence),
        old_key=_old_key(table, beside),
    )
    yield sql.SQL("CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {}").format(
        function, sql.Literal(body.as_string(None))
    )
    yield sql.SQL(
        "CREATE TRIGGER written INSTEAD OF INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION {}()"
    ).format(view, function)


def _new_key(table: Table, sequence: str) -> sql.Composable:
    match table.made:
        case "row":
            return sql.SQL("new.id")
        case "sequence":
            return sql.SQL("nextval({}::regclass)").format(sql.Literal(sequence))
        case _:
            return sql.SQL("NULL")


def _old_key(table: Table, beside: sql.Identifier) -> sql.Composable:
    match table.made:
        case "row":
            return sql.SQL("old.id")
        case "sequence":
            return sql.SQL("(SELECT {} FROM {} WHERE id = old.id AND tenant_id = old.tenant_id)").format(
                sql.Identifier(_KEY + table.key[0]), beside
            )
        case _:
            return sql.SQL("NULL")


def _names(names: Sequence[str] | Iterator[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
