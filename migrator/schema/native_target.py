"""The tool's schema beside a native target: a view for each table of the library, through which rows are written.

A table of a library has no column for the document that a row came from, nor for its remainder. They are in a table of
its own, the origins of the rows, by the key of the row. A remainder that many rows have stands once, in the table of
shared remainders, which an origin names. The view joins them, in the types that a record has. Triggers
of the view write both, so that every statement of the pipeline is the same for every target. Nothing of the library's
is changed; the whole schema can be dropped.

**What another program wrote.** The tool writes a row and its origin in one transaction, so that both versions have one
``xmin``. PostgreSQL keeps it when it freezes or moves a row. A row with another ``xmin`` than its origin was changed by
another program, unless both transactions are a multiple of 2³² apart; an origin without its row says that another
program deleted the row. The triggers of the view refuse to write over such a row, to delete it, and to insert it again.
So nothing is stored, and a first load costs nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.config import TargetSettings, nearest
from migrator.connections.postgres import REFUSED, Connection, fetch_value
from migrator.errors import ConfigurationError, RefusedError
from migrator.schema.security import NeededRights
from migrator.targets import catalogue
from migrator.targets.catalogue import Catalogue, Shape, ShapeDifference
from migrator.targets.library import LIBRARIES
from migrator.targets.model import Column, Link, Table, Target

ORIGINS = "_origins"
"""Behind the name of a table: the table of what its rows came from."""

OWN_COLUMNS = ("id", "tenant_id", "source", "source_id", "extra")
"""Of the table of origins, besides the key of the row."""

SHARED = "shared"
"""The column of an origin that names its shared remainder; null: the remainder stands in ``extra``."""

ACCEPTED = "accepted"
"""The column of an origin that has the ``xmin`` of the row which another program wrote, and which counts as written by
the tool (``take_over``); null: the row has the ``xmin`` of its origin."""

OVERWRITE = "migrator backfill --overwrite-changed-rows"

_KEY = "key_"
"""Before the name of a column of the library's key, in the table of origins."""

PREPARE = "call migrator target prepare"
MAKE_TABLES = "--make-tables"

_SHOWN = 3
"""Differences from a known shape that a refusal names; the others are counted."""

WRITES = "migrator.writes"
"""The setting that the tool's functions have while they write: the fence of a rollback lets them through.

They set it themselves: ``CREATE FUNCTION … SET`` of a setting that no extension defines needs a superuser.
"""

_LET = sql.SQL("PERFORM set_config({writes}, {{}}, true);").format(writes=sql.Literal(WRITES)).as_string(None)
_OPEN_WRITES = _LET.format("'on'")
_CLOSE_WRITES = _LET.format("before")
_DECLARE_BEFORE = f"before text := coalesce(current_setting('{WRITES}', true), '');"
"""Of PL/pgSQL: the setting is put on, and back again. An error undoes it with the subtransaction."""

CHANGES = "_changes"
"""The table of the keys of rows that the library has written since a cutover, and that were carried to MongoDB."""


REMAINDERS = "_remainders"
"""The table of shared remainders. An id is made of its remainder, and may stand there more than once: two transactions
that share one do not wait for each other. Nothing is deleted there."""


class LibraryTable(msgspec.Struct, frozen=True):
    """A table of a library as it stands in the database."""

    schema: str
    name: str
    types: Mapping[str, str]
    """Column to its type, qualified."""
    sequences: Mapping[str, str]
    """Column to the sequence that it owns, qualified; empty: none."""
    has_versions: bool
    """Whether its rows have an ``xmin``: those of a view have none."""

    @property
    def identifier(self) -> sql.Identifier:
        """Return its quoted name."""
        return sql.Identifier(self.schema, self.name)


def library_name(table: Table, target: Target, settings: TargetSettings) -> sql.Identifier:
    """Return the quoted name of a table of the library."""
    return sql.Identifier(*place(table, target, settings))


def place(table: Table, target: Target, settings: TargetSettings) -> tuple[str, str]:
    """Return the schema and the name that a table of the library has in the database."""
    return settings.schema or target.schema, settings.tables.get(table.name, table.name)


def library_table(connection: Connection, table: Table, target: Target, settings: TargetSettings) -> LibraryTable:
    """Return the table of the library; raise ``RefusedError`` if it does not exist, or lacks a column."""
    schema, name = place(table, target, settings)
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), coalesce(pg_get_serial_sequence(%(name)s, attname), '')"
        " FROM pg_attribute WHERE attrelid = to_regclass(%(name)s) AND attnum > 0 AND NOT attisdropped",
        {"name": sql.Identifier(schema, name).as_string(connection)},
    ).fetchall()
    if not rows:
        raise RefusedError(
            f"the target has no table {schema}.{name}, which {target.title or target.name} makes: {_making(target)}"
        )
    present = {column: kind for column, kind, _ in rows}
    missing = [column.name for column in table.columns if column.name not in present]
    if missing:
        raise RefusedError(
            f"table {schema}.{name} has no column {', '.join(missing)}: it is not the table of the target {target.name}"
            + (f" (versions {target.versions})" if target.versions else "")
        )
    sequences = {column: sequence for column, _, sequence in rows if sequence}
    return LibraryTable(schema, name, present, sequences, has_versions(connection, sql.Identifier(schema, name)))


def has_versions(connection: Connection, table: sql.Identifier) -> bool:
    """Return whether the rows of a table have an ``xmin`` that says who wrote them: not those of a view."""
    kind = "SELECT relkind IN ('r', 'p') FROM pg_class WHERE oid = to_regclass(%s)"
    return bool(fetch_value(connection, kind, (table.as_string(connection),)))


def _making(target: Target) -> str:
    """Return how the tables of a target are made."""
    library = LIBRARIES.get(target.name)
    if library is None:
        return f"make it, and {PREPARE}"
    return f"{PREPARE} {MAKE_TABLES}, and the library makes it; or let the application make it: {library.makes}"


def missing_tables(connection: Connection, target: Target, settings: TargetSettings) -> list[str]:
    """Return the tables of the library that do not exist, with their schema."""
    _check_names(target, settings)
    schema = settings.schema or target.schema
    names = [table.name for table in target.tables]
    if catalogue.shapes(target.name):
        live = catalogue.read_known(connection, target.name, schema, settings.tables)
        names = list(catalogue.recognise(target.name, live)[0].catalogue.tables)
    rows = connection.execute(
        "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place)"
        " WHERE to_regclass(quote_ident(%s) || '.' || quote_ident(name)) IS NULL ORDER BY place",
        ([settings.tables.get(name, name) for name in names], schema),
    )
    return [f"{schema}.{name}" for (name,) in rows]


def require_schema(connection: Connection, schema: str) -> None:
    """Raise ``RefusedError`` if a schema does not exist: no library makes it."""
    if fetch_value(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NULL", (schema,)):
        statement = sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)).as_string(connection)
        raise RefusedError(f"the target has no schema {schema}, which target.schema names: call {statement} there")


def require_tables(connection: Connection, target: Target, settings: TargetSettings) -> Shape | None:
    """Return the known shape that the tables of the library have; None for a target of which no shape is known.

    Raises ``RefusedError`` if a table does not exist or lacks a column, and if the tables are half made, or are those
    of no known version. Raises ``ConfigurationError`` if the settings name a table that the target does not have.
    """
    _check_names(target, settings)
    if not catalogue.shapes(target.name):
        for table in target.tables:
            library_table(connection, table, target, settings)
        return None
    schema, title = settings.schema or target.schema, target.title or target.name
    actual = catalogue.read_known(connection, target.name, schema, settings.tables)
    if not actual.tables:
        library_table(connection, target.tables[0], target, settings)
    shape, differences = catalogue.recognise(target.name, actual)
    missing = [one.place for one in differences if one.kind == "table" and one.actual is None]
    if missing and len(missing) == len(differences):
        names = ", ".join(settings.tables.get(name, name) for name in missing)
        raise RefusedError(
            f"the tables of {title} in the schema {schema} are half made, without {names}: {_making(target)}"
        )
    if not differences and shape.version_row is not None:
        row = catalogue.version_difference(connection, schema, shape.version_row, settings.tables)
        differences = [] if row is None else [row]
    if differences:
        raise _unknown_tables(title, schema, shape, differences, actual)
    return shape


def needed_rights(connection: Connection, target: Target, settings: TargetSettings) -> NeededRights:
    """Return the rights to the library's tables that the tool's user needs; raises as ``library_table`` does."""
    libraries = [(table, library_table(connection, table, target, settings)) for table in target.tables]
    return NeededRights(
        tables=tuple(library.identifier.as_string(connection) for _, library in libraries),
        sequences=tuple(_sequence(table, library) for table, library in libraries if table.made == "sequence"),
    )


def _check_names(target: Target, settings: TargetSettings) -> None:
    known = [table.name for table in target.tables]
    for name in settings.tables:
        known += [own for shape in catalogue.shapes(target.name) for own in shape.catalogue.tables if own not in known]
        if name not in known:
            raise ConfigurationError(
                f"target.tables.{name}: target {target.name} has no table of this name{nearest(name, known)}"
            )


def require_makeable(connection: Connection, target: Target, settings: TargetSettings) -> None:
    """Raise ``RefusedError`` if tables that exist are not the library's: it would change what is of others, or fail."""
    schema = settings.schema or target.schema
    if not catalogue.shapes(target.name):
        return
    actual = catalogue.read_known(connection, target.name, schema, settings.tables)
    shape, differences = catalogue.recognise(target.name, actual)
    # what else is missing (a trigger, a constraint) the library may make anew
    foreign = [one for one in differences if one.kind in _COLUMNS and one.place.partition(".")[0] in actual.tables]
    if foreign:
        raise _unknown_tables(target.title or target.name, schema, shape, foreign, actual)


_COLUMNS = frozenset({"column", "type", "required", "default", "generated", "identity", "primary key"})
"""What a library does not change of a table that exists."""


def _unknown_tables(
    title: str, schema: str, shape: Shape, differences: Sequence[ShapeDifference], actual: Catalogue
) -> RefusedError:
    other = catalogue.shape_of_tables(actual)
    if other is not None and other.target != shape.target:
        return RefusedError(
            f"the tables in the schema {schema} are those of {other.made_by}, not of the target {shape.target}: let"
            f' [target] say name = "{other.target}"'
        )
    more = f", and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    return RefusedError(
        f"the tables of {title} in the schema {schema} are those of no known version; the nearest is"
        f" {shape.made_by}: {'; '.join(map(str, differences[:_SHOWN]))}{more}. Let a known version make them in an"
        " empty schema, which target.schema names, or describe these tables in a mapping file (docs/targets.md)"
    )


def prepare(connection: Connection, target: Target, settings: TargetSettings) -> None:
    """Make the tool's schema beside the library's tables, or its views anew; rows and their origins stay.

    Raises ``RefusedError`` as ``require_tables`` does.
    """
    require_tables(connection, target, settings)
    with connection.transaction():
        connection.execute("SET LOCAL search_path = pg_catalog")  # so that names of types are qualified
        libraries = {table.name: library_table(connection, table, target, settings) for table in target.tables}
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(target.tool_schema)))
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (table_name text, row_id text, made boolean NOT NULL DEFAULT false,"
                " PRIMARY KEY (table_name, row_id))"
            ).format(changes(target))
        )
        beside = remainders(target)
        connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} (id uuid NOT NULL, extra jsonb NOT NULL)").format(beside)
        )
        connection.execute(
            sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (id)").format(sql.Identifier(f"{REMAINDERS}_id"), beside)
        )
        for make in (_origins_of, _views_of):  # a view of one table may look into the origins of another
            for table in target.tables:
                for statement in make(target, table, libraries[table.name]):
                    connection.execute(statement)


def is_prepared(connection: Connection, target: Target) -> bool:
    """Whether every view of the target exists."""
    names = [sql.Identifier(target.tool_schema, table.name).as_string(connection) for table in target.tables]
    return bool(
        fetch_value(
            connection, "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest(%s::text[]) AS name", (names,)
        )
    )


def origins(table: Table, target: Target) -> sql.Identifier:
    """Return the quoted name of the table of origins."""
    return sql.Identifier(target.tool_schema, table.name + ORIGINS)


def remainders(target: Target) -> sql.Identifier:
    """Return the quoted name of the table of shared remainders."""
    return sql.Identifier(target.tool_schema, REMAINDERS)


def share(connection: Connection, table: sql.Identifier, shared: Sequence[tuple[UUID, str]]) -> None:
    """Store remainders, as ids and JSON, in ``remainders`` of a target, for origins that this transaction writes."""
    connection.execute(
        sql.SQL(
            "INSERT INTO {remainders} (id, extra)"
            " SELECT given.id, given.extra::jsonb FROM unnest(%s::uuid[], %s::text[]) AS given (id, extra)"
            " WHERE NOT EXISTS (SELECT FROM {remainders} AS stored WHERE stored.id = given.id)"
        ).format(remainders=table),
        ([one for one, _ in shared], [extra for _, extra in shared]),
    )


def changes(target: Target) -> sql.Identifier:
    """Return the quoted name of the table of the keys of rows that the library has written since a cutover."""
    return sql.Identifier(target.tool_schema, CHANGES)


def key_columns(table: Table) -> tuple[tuple[str, str], ...]:
    """Return the columns of a key: in the table of the library, and in that of the origins."""
    return tuple((name, "id" if table.made == "row" else _KEY + name) for name in table.key)


def key_text(alias: str, columns: Sequence[str]) -> sql.Composed:
    """Return the key of a row as one text: of the columns of a library's row, or of an origin."""
    quoted = [sql.Identifier(alias, name) for name in columns]
    if len(quoted) == 1:
        return sql.SQL("{}::text").format(quoted[0])
    return sql.SQL("jsonb_build_array({})::text").format(sql.SQL(", ").join(quoted))


def changed_documents(table: Table, target: Target, library: sql.Identifier) -> sql.Composed:
    """Return the query for the source ids of documents whose rows the library has written or deleted since a cutover.

    Its parameter is the source.
    """
    return sql.SQL(
        "SELECT origin.source_id FROM {origins} AS origin WHERE origin.source = %s AND ("
        "NOT EXISTS (SELECT FROM {library} AS stored WHERE {same})"
        " OR {key} IN (SELECT row_id FROM {changes} WHERE table_name = {name}"
        " UNION SELECT row_id FROM migration.outbox WHERE table_name = {name}))"
    ).format(
        origins=origins(table, target),
        library=library,
        same=same_key(table, "stored", "origin"),
        key=key_text("origin", [name for _, name in key_columns(table)]),
        changes=changes(target),
        name=sql.Literal(table.full_name),
    )


def rows_of_others(connection: Connection, table: Table, target: Target, library: sql.Identifier) -> tuple[int, int]:
    """Return how many rows another program has changed, and how many deleted, since the tool wrote them."""
    if not has_versions(connection, library):
        return 0, 0
    changed, deleted = connection.execute(
        sql.SQL(
            "SELECT count(*) FILTER (WHERE stored.xmin IS NOT NULL), count(*) FILTER (WHERE stored.xmin IS NULL)"
            " FROM {origins} AS origin LEFT JOIN {library} AS stored ON {same} WHERE {own} IS NOT TRUE"
        ).format(**_compared(table, target, library))
    ).fetchall()[0]
    return changed, deleted


def written_by_others(
    connection: Connection, table: Table, target: Target, library: sql.Identifier, ids: Sequence[UUID]
) -> frozenset[UUID]:
    """Return the ids of those of these rows that another program has changed or deleted since the tool wrote them."""
    if not has_versions(connection, library):
        return frozenset()
    rows = connection.execute(
        sql.SQL(
            "SELECT origin.id FROM {origins} AS origin LEFT JOIN {library} AS stored ON {same}"
            " WHERE origin.id = ANY(%s) AND {own} IS NOT TRUE"
        ).format(**_compared(table, target, library)),
        (list(ids),),
    )
    return frozenset(row_id for (row_id,) in rows)


def take_over(connection: Connection, table: Table, target: Target, library: sql.Identifier) -> int:
    """Let what another program has changed and deleted count as written by the tool; return the number of rows.

    From then on these rows are overwritten, and inserted again.
    """
    parts = _compared(table, target, library)
    count = connection.execute(
        sql.SQL(
            "DELETE FROM {origins} AS origin WHERE NOT EXISTS (SELECT FROM {library} AS stored WHERE {same})"
        ).format(**parts)
    ).rowcount
    if has_versions(connection, library):
        count += connection.execute(
            sql.SQL(
                "UPDATE {origins} AS origin SET {accepted} = stored.xmin FROM {library} AS stored"
                " WHERE {same} AND NOT {own}"
            ).format(accepted=sql.Identifier(ACCEPTED), **parts)
        ).rowcount
    return count


def refusal(table: str, what: str) -> str:
    """Return why rows of a table of the library are not written; ``what``: what another program did with them."""
    return (
        f"table {table}: another program has {what} since the tool wrote them, so an application seems to work there;"
        " nothing of it is overwritten. If it shall stay there, copy nothing into its tables any more; else stop it,"
        f" and call {OVERWRITE}"
    )


def _compared(table: Table, target: Target, library: sql.Identifier) -> dict[str, sql.Composable]:
    """Return the parts of a statement that compares rows with their origins."""
    return {
        "origins": origins(table, target),
        "library": library,
        "same": same_key(table, "stored", "origin"),
        "own": _IS_OWN,
    }


_IS_OWN: Final = sql.SQL("(stored.xmin = coalesce(origin.{}, origin.xmin))").format(sql.Identifier(ACCEPTED))
"""Whether the tool wrote the row of an origin last."""


def written_rows(target: Target) -> sql.Composed:
    """Return the query for the number of rows that the library has written since a cutover."""
    return sql.SQL(
        "SELECT count(*) FROM (SELECT table_name, row_id FROM {} UNION SELECT table_name, row_id FROM migration.outbox)"
        " AS written"
    ).format(changes(target))


def _origins_of(target: Target, table: Table, library: LibraryTable) -> Iterator[sql.Composed]:
    """Yield the table of origins; the index by document is made by who looks for one (``tail.lookups``)."""
    keys = () if table.made == "row" else table.key
    yield sql.SQL(
        "CREATE TABLE IF NOT EXISTS {origins} (id uuid NOT NULL, tenant_id text NOT NULL, source text, source_id text,"
        " extra jsonb, {shared} uuid, {accepted} xid, {keys} PRIMARY KEY (id) {unique})"
    ).format(
        accepted=sql.Identifier(ACCEPTED),
        shared=sql.Identifier(SHARED),
        origins=origins(table, target),
        keys=sql.SQL("").join(
            sql.SQL("{} {} NOT NULL, ").format(sql.Identifier(_KEY + name), sql.SQL(library.types[name]))
            for name in keys
        ),
        unique=sql.SQL(", UNIQUE ({})").format(_names(_KEY + name for name in keys)) if keys else sql.SQL(""),
    )


def _views_of(target: Target, table: Table, library: LibraryTable) -> Iterator[sql.Composed]:
    view = sql.Identifier(target.tool_schema, table.name)
    view_columns = [
        sql.SQL("{} AS {}").format(_read(target, table, column), sql.Identifier(column.member))
        for column in table.filled
    ]
    view_columns += [
        sql.SQL("{} AS {}").format(_read_link(target, link), sql.Identifier(member))
        for member, link in table.links.items()
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
                _read_remainder(target),
            ]
        ),
        origins=origins(table, target),
        library=library.identifier,
        same=same_key(table, "stored", "origin"),
    )
    yield from _triggers(target, table, library, view)
    yield _append(target, table, library)


def _read_remainder(target: Target) -> sql.Composed:
    """Return the remainder of an origin, its own or the shared one that it names."""
    return sql.SQL(
        "coalesce(origin.extra, (SELECT remainder.extra FROM {} AS remainder WHERE remainder.id = origin.{} LIMIT 1))"
        " AS extra"
    ).format(remainders(target), sql.Identifier(SHARED))


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
    if column.name in table.worded:
        return _by_word(table, column, "stored", lambda other: _id_of_key(target, other, stored))
    referred = table.references.get(column.name)
    if referred is None:
        return sql.SQL(column.kind.read).format(stored)
    return _id_of_key(target, referred, stored)


def _id_of_key(target: Target, referred: str, stored: sql.Identifier) -> sql.Composable:
    """Return the id of the row of a table whose key is made, by that key."""
    other = target.by_name[referred]
    if other.made == "row":
        return stored
    return sql.SQL("(SELECT id FROM {} AS referred WHERE referred.{} = {})").format(
        origins(other, target), sql.Identifier(_KEY + other.key[0]), stored
    )


def _key_of_id(target: Target, referred: str, given: sql.Identifier) -> sql.Composable:
    """Return the key, which is made, of the row of a table by its id."""
    other = target.by_name[referred]
    if other.made == "row":
        return given
    return sql.SQL("(SELECT {} FROM {} AS referred WHERE referred.id = {})").format(
        sql.Identifier(_KEY + other.key[0]), origins(other, target), given
    )


def _by_word(table: Table, column: Column, row: str, value: Callable[[str], sql.Composable]) -> sql.Composed:
    """Return the value for the table that the word in another column of the row names."""
    worded = table.worded[column.name]
    by = next(one for one in table.columns if one.name == worded.by)
    cases = [
        sql.SQL(" WHEN {} THEN {}").format(sql.Literal(word), value(other)) for word, other in worded.tables.items()
    ]
    name = by.name if row == "stored" else by.member
    return sql.SQL("CASE {}::text{} END").format(sql.Identifier(row, name), sql.SQL("").join(cases))


def _read_link(target: Target, link: Link) -> sql.Composable:
    """Return the id of the row whose key the columns of a link hold."""
    other = target.by_name[link.table]
    return sql.SQL("(SELECT id FROM {} AS referred WHERE {})").format(
        origins(other, target),
        sql.SQL(" AND ").join(
            sql.SQL("referred.{} = {}").format(sql.Identifier(_KEY + name), sql.Identifier("stored", name))
            for name in other.key
        ),
    )


def _write_link(target: Target, member: str, link: Link, column: str) -> sql.Composable:
    """Return the value of one of the columns of a link for a new row of the view."""
    return sql.SQL("(SELECT {} FROM {} AS referred WHERE referred.id = {})").format(
        sql.Identifier(_KEY + column), origins(target.by_name[link.table], target), sql.Identifier("new", member)
    )


def _write(target: Target, table: Table, column: Column, library: LibraryTable) -> sql.Composable:
    """Return the value of the library's table for a column of a new row of the view."""
    given = sql.Identifier("new", column.member)
    if column.name in table.worded:
        return _by_word(table, column, "new", lambda other: _key_of_id(target, other, given))
    referred = table.references.get(column.name)
    if referred is None:
        written = "{}::" + library.types[column.name] if column.words else column.kind.write
        return sql.SQL(written).format(given)
    return _key_of_id(target, referred, given)


class _Writing:
    """The SQL that writes rows of a view into the library's table and into the table of origins."""

    def __init__(self, target: Target, table: Table, library: LibraryTable, made: sql.Identifier) -> None:
        """``made``: how the statement calls a key that is made."""
        self.target, self.table, self.library = target, table, library
        filled = [column.name for column in table.filled]
        values = [_write(target, table, column, library) for column in table.filled]
        for member, link in table.links.items():
            filled += link.columns
            values += [_write_link(target, member, link, column) for column in link.columns]
        # A key that is made never changes, and PostgreSQL refuses to update one that is GENERATED ALWAYS.
        kept = _names(filled), sql.SQL(", ").join(values)
        if table.made:
            filled, values = [table.key[0], *filled], [made, *values]
        keys = () if table.made == "row" else table.key
        given = [sql.Identifier("new", name) for name in OWN_COLUMNS]
        self.parts: dict[str, sql.Composable] = {
            "library": library.identifier,
            "origins": origins(table, target),
            "same": same_key(table, "stored", "origin"),
            "columns": _names(filled),
            "values": sql.SQL(", ").join(values),
            "kept_columns": kept[0],
            "kept_values": kept[1],
            "names": _names([*OWN_COLUMNS, *(_KEY + name for name in keys)]),
            "given": sql.SQL(", ").join([*given, *(values[filled.index(name)] for name in keys)]),
            "shared": sql.Identifier(SHARED),
            "accepted": sql.Identifier(ACCEPTED),
            "own": _IS_OWN if library.has_versions else sql.SQL("true"),
            "refuse": _refuse(library),
            "new_key": _new_key(table, library),
        }


def _triggers(target: Target, table: Table, library: LibraryTable, view: sql.Identifier) -> Iterator[sql.Composed]:
    """Yield the function of the view's triggers, and the triggers."""
    writing = _Writing(target, table, library, sql.Identifier("made"))
    body = sql.SQL(
        """
DECLARE made {made_type}; {before}
BEGIN
    {open}
    IF TG_OP = 'DELETE' THEN
        DELETE FROM {library} AS stored USING {origins} AS origin WHERE origin.id = old.id AND {same} AND {own};
        IF NOT FOUND THEN {refuse} END IF;
        DELETE FROM {origins} WHERE id = old.id;
        {close}
        RETURN old;
    END IF;
    IF TG_OP = 'INSERT' THEN
        made := {new_key};
        IF EXISTS (SELECT FROM {origins} AS origin
            WHERE origin.id = new.id AND NOT EXISTS (SELECT FROM {library} AS stored WHERE {same}))
        THEN {refuse} END IF;
        INSERT INTO {library} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({values});
        INSERT INTO {origins} ({names}) VALUES ({given});
        {close}
        RETURN new;
    END IF;
    made := {old_key};
    UPDATE {library} AS stored SET ({kept_columns}) = ROW({kept_values}) FROM {origins} AS origin
        WHERE origin.id = old.id AND {same} AND {own};
    IF NOT FOUND THEN {refuse} END IF;
    UPDATE {origins} SET ({names}) = ROW({given}), {shared} = NULL, {accepted} = NULL WHERE id = old.id;
    {close}
    RETURN new;
END
"""
    ).format(
        made_type=sql.SQL(library.types[table.key[0]]),
        old_key=_old_key(table, origins(table, target)),
        before=sql.SQL(_DECLARE_BEFORE),
        open=sql.SQL(_OPEN_WRITES),
        close=sql.SQL(_CLOSE_WRITES),
        **writing.parts,
    )
    function = sql.Identifier(target.tool_schema, f"write_{table.name}")
    yield sql.SQL("CREATE OR REPLACE FUNCTION {}() RETURNS trigger {} AS {}").format(
        function, _writing_function(library), sql.Literal(body.as_string(None))
    )
    yield sql.SQL(
        "CREATE TRIGGER written INSTEAD OF INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION {}()"
    ).format(view, function)


def _refuse(library: LibraryTable) -> sql.Composed:
    """Return the statement that ends a write of a row which another program has changed or deleted."""
    words = refusal(f"{library.schema}.{library.name}", "changed or deleted rows")
    return sql.SQL("RAISE EXCEPTION USING ERRCODE = {}, MESSAGE = {};").format(sql.Literal(REFUSED), sql.Literal(words))


def _append(target: Target, table: Table, library: LibraryTable) -> sql.Composed:
    """Return the function that appends the rows of ``stage`` at once; a trigger of a view takes one after the other."""
    writing = _Writing(target, table, library, sql.Identifier("new", "made"))
    body = sql.SQL(
        """
WITH given AS MATERIALIZED (SELECT new.*, {new_key} AS made FROM {stage} AS new),
    stored AS (INSERT INTO {library} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM given AS new)
INSERT INTO {origins} ({names}) SELECT {given} FROM given AS new
"""
    ).format(stage=stage(table), **writing.parts)
    # not in SQL: such a function could only be made while the temporary table exists
    block = f"DECLARE {_DECLARE_BEFORE} BEGIN {_OPEN_WRITES} {body.as_string(None)}; {_CLOSE_WRITES} END"
    return sql.SQL("CREATE OR REPLACE FUNCTION {}() RETURNS void {} AS {}").format(
        append_function(table, target), _writing_function(library), sql.Literal(block)
    )


def _writing_function(library: LibraryTable) -> sql.Composed:
    """Return the language and the settings of a function that writes.

    Triggers of the library name its other tables without their schema.
    """
    return sql.SQL("LANGUAGE plpgsql SET search_path = {}").format(sql.Identifier(library.schema))


def stage(table: Table) -> sql.Identifier:
    """Return the quoted name of the temporary table from which rows are appended."""
    return sql.Identifier("pg_temp", f"stage_{table.full_name}")


def append_function(table: Table, target: Target) -> sql.Identifier:
    """Return the quoted name of the function that appends the rows of ``stage``."""
    return sql.Identifier(target.tool_schema, f"append_{table.name}")


def _new_key(table: Table, library: LibraryTable) -> sql.Composable:
    """Return the key of a new row, if it is made; raises ``RefusedError`` for a key without a sequence."""
    match table.made:
        case "row":
            return sql.Identifier("new", "id")
        case "sequence":
            return sql.SQL("nextval({}::regclass)").format(sql.Literal(_sequence(table, library)))
        case _:
            return sql.SQL("NULL")


def _sequence(table: Table, library: LibraryTable) -> str:
    """Return the quoted name of the sequence of a key that is made; raises ``RefusedError`` if there is none."""
    sequence = table.sequence or library.sequences.get(table.key[0], "")
    if not sequence:
        raise RefusedError(f"table {library.schema}.{library.name} has no sequence for its key {table.key[0]}")
    return sequence if "." in sequence else sql.Identifier(library.schema, sequence).as_string(None)


def _old_key(table: Table, beside: sql.Identifier) -> sql.Composable:
    match table.made:
        case "row":
            return sql.SQL("old.id")
        case "sequence":
            return sql.SQL("(SELECT {} FROM {} WHERE id = old.id)").format(sql.Identifier(_KEY + table.key[0]), beside)
        case _:
            return sql.SQL("NULL")


def _names(names: Sequence[str] | Iterator[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
