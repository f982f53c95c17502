"""The shape of a library's tables: as a version of the library makes them, and as a database has them.

The shapes that are known are data, a TOML file for each in ``catalogues``: ``<target>-<shape>.toml``. Each was read
from a database in which the library itself had made its tables, and written by the test that makes them. A shape does
not name the schema: the library's tables may be in any. Tables have the names that the library gives them if nobody
configures others.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection

_FOLDER: Final = "catalogues"


class ShapeColumn(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A column of a table."""

    name: str
    type: str
    """As ``format_type`` prints it; of an enum type, its name without the schema."""
    required: bool = False
    """NOT NULL."""
    default: str = ""
    generated: str = ""
    """The expression of a generated column, which nobody may write."""
    identity: str = ""
    """``always`` or ``by default``."""


class ShapeTable(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A table; definitions as PostgreSQL prints them, sorted."""

    columns: tuple[ShapeColumn, ...]
    """In the order of the table, which counts for nothing."""
    primary_key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    """Unique constraints and indexes: method, columns and condition."""
    checks: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    """The names of triggers: what they execute belongs to the library."""


class VersionRow(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where the library itself notes the version of its tables."""

    table: str
    column: str
    value: str
    """As text. A row that has it must be there."""
    where: dict[str, str] = {}
    """Columns of the row with their values, as text."""
    last: bool = False
    """Whether no row may have a greater value: the version is the last of a list of changes."""


class Catalogue(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tables of a library."""

    tables: dict[str, ShapeTable]
    enums: dict[str, tuple[str, ...]] = {}
    """Words of each enum type of a column, in their order."""
    sequences: dict[str, str] = {}
    """Name → ``table.column`` that it belongs to, or nothing: the library alone asks it for values."""


class Shape(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What versions of a library make of its tables."""

    target: str
    name: str
    made_by: str
    """The distribution and the version that the catalogue was read from."""
    catalogue: Catalogue
    version_row: VersionRow | None = None


class ShapeDifference(msgspec.Struct, frozen=True):
    """One difference between a database and a shape."""

    place: str
    """``apscheduler_jobs.id``, or the name of a table, a type or a sequence."""
    kind: str
    """``table``, ``column``, ``type``, ``required``, ``default``, ``generated``, ``identity``, ``primary key``,
    ``unique``, ``check``, ``foreign key``, ``trigger``, ``enum``, ``sequence``, ``version row``."""
    expected: str | None
    """None: unknown, and present."""
    actual: str | None
    """None: missing."""

    def __str__(self) -> str:
        """Return the difference as words."""
        what = self.kind
        if self.actual is None:
            what += "" if self.place.endswith(str(self.expected)) else f" {self.expected}"
            return f"{self.place}: {what} is missing"
        if self.expected is None:
            what += "" if self.place.endswith(self.actual) else f" {self.actual}"
            return f"{self.place}: {what} is unknown"
        return f"{self.place}: {self.kind} is {self.actual}, expected {self.expected}"


@cache
def shapes(target: str) -> tuple[Shape, ...]:
    """Return the known shapes of a target's tables, newest first; none if no catalogue of it is known."""
    known = [one for one in _shapes_of_files(f"{target}-") if one.target == target]  # a name may begin another's
    return tuple(sorted(known, key=lambda one: one.name, reverse=True))


def _shapes_of_files(prefix: str = "") -> Iterator[Shape]:
    for entry in files(__package__ or "").joinpath(_FOLDER).iterdir():
        if entry.name.startswith(prefix) and entry.name.endswith(".toml"):
            yield msgspec.toml.decode(entry.read_text(encoding="utf-8"), type=Shape)


def shape_of_tables(actual: Catalogue) -> Shape | None:
    """Return the known shape, of any target, that tables of a database have; None if they have none.

    Targets may have tables of the same names in different shapes, as versions of a library make them.
    """
    return next((one for one in _shapes_of_files() if not differences(one.catalogue, actual)), None)


def read(connection: Connection, schema: str, tables: Mapping[str, str], sequences: Sequence[str] = ()) -> Catalogue:
    """Read the tables of a library from a database.

    ``tables``: the library's own name of each → its name in the database. ``sequences``: those of no column.
    What is missing is missing in the result.
    """
    query = files(__package__ or "").joinpath("catalogue.sql").read_text(encoding="utf-8")
    with connection.transaction():
        namespace = connection.execute(
            "SELECT pg_catalog.to_regnamespace(pg_catalog.quote_ident(%s))::oid", (schema,)
        ).fetchone()
        if namespace is None or namespace[0] is None:
            return Catalogue({})
        before = connection.execute("SELECT pg_catalog.current_setting('search_path')").fetchone()
        connection.execute(sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(schema)))
        parameters = {"namespace": namespace[0], "tables": [*tables.values()], "sequences": [*sequences]}
        rows = connection.execute(query.encode(), parameters).fetchall()
        connection.execute("SELECT pg_catalog.set_config('search_path', %s, true)", before)
    facts: dict[str, dict[str, list[tuple[str, Any]]]] = {}
    for table, kind, name, members, _ in rows:
        facts.setdefault(table, {}).setdefault(kind, []).append((name, members))
    loose = facts.get("", {})
    return Catalogue(
        tables={own: _table(facts[live], own, live) for own, live in tables.items() if live in facts},
        enums={name: tuple(members["words"]) for name, members in loose.get("enum", [])},
        sequences=dict(_sequence(name, members["owner"], tables) for name, members in loose.get("sequence", [])),
    )


def _sequence(live: str, owner: str, tables: Mapping[str, str]) -> tuple[str, str]:
    """Return a sequence and what it belongs to, as the library names both for a table of its own name."""
    table, _, column = owner.rpartition(".")
    own = next((name for name, renamed in tables.items() if renamed == table), table)
    prefix = f"{table}_"
    name = f"{own}_{live.removeprefix(prefix)}" if table and live.startswith(prefix) else live
    return name, f"{own}.{column}" if table else owner


def _table(facts: Mapping[str, list[tuple[str, Any]]], own: str, live: str) -> ShapeTable:
    """Return a table, with its triggers as the library names them for a table of its own name."""
    names = {kind: tuple(sorted(name for name, _ in facts.get(kind, []))) for kind in ("unique", "check", "trigger")}
    prefix = f"{live}_"
    triggers = (f"{own}_{one.removeprefix(prefix)}" if one.startswith(prefix) else one for one in names["trigger"])
    return ShapeTable(
        columns=tuple(ShapeColumn(name=name, **members) for name, members in facts.get("column", [])),
        primary_key=tuple(column for _, members in facts.get("primary key", []) for column in members["columns"]),
        unique=names["unique"],
        checks=names["check"],
        foreign_keys=tuple(sorted(name for name, _ in facts.get("foreign key", []))),
        triggers=tuple(sorted(triggers)),
    )


def differences(expected: Catalogue, actual: Catalogue) -> list[ShapeDifference]:
    """Return the differences; a table that is missing is one difference, not one for each of its columns."""
    listed: list[ShapeDifference] = []
    for name, table in expected.tables.items():
        live = actual.tables.get(name)
        listed += [ShapeDifference(name, "table", name, None)] if live is None else _of_table(name, table, live)
    for name in actual.tables.keys() - expected.tables.keys():
        listed.append(ShapeDifference(name, "table", None, name))
    shown = {name: ", ".join(words) for name, words in expected.enums.items()}
    listed += _of_names("enum", shown, {name: ", ".join(words) for name, words in actual.enums.items()})
    missing = {name for name in expected.tables if name not in actual.tables}
    owned = {name: owner for name, owner in expected.sequences.items() if owner.partition(".")[0] not in missing}
    return [*listed, *_of_names("sequence", owned, actual.sequences)]


def _of_names(kind: str, expected: Mapping[str, str], actual: Mapping[str, str]) -> Iterator[ShapeDifference]:
    for name in sorted(expected.keys() | actual.keys()):
        wanted, live = expected.get(name), actual.get(name)
        if wanted != live:
            yield ShapeDifference(
                name,
                kind,
                None if wanted is None else wanted or "(of no column)",
                None if live is None else live or "(of no column)",
            )


def _of_table(name: str, expected: ShapeTable, actual: ShapeTable) -> Iterator[ShapeDifference]:
    columns = {column.name: column for column in actual.columns}
    for column in expected.columns:
        live = columns.pop(column.name, None)
        place = f"{name}.{column.name}"
        if live is None:
            yield ShapeDifference(place, "column", column.name, None)
            continue
        for member in ("type", "required", "default", "generated", "identity"):
            wanted, present = getattr(column, member), getattr(live, member)
            if wanted != present:
                yield ShapeDifference(place, member, _shown(wanted), _shown(present))
    for column in columns.values():
        yield ShapeDifference(f"{name}.{column.name}", "column", None, column.name)
    if expected.primary_key != actual.primary_key:
        yield ShapeDifference(
            name, "primary key", ", ".join(expected.primary_key), ", ".join(actual.primary_key) or None
        )
    for kind, member in (
        ("unique", "unique"),
        ("check", "checks"),
        ("foreign key", "foreign_keys"),
        ("trigger", "triggers"),
    ):
        wanted, present = set(getattr(expected, member)), set(getattr(actual, member))
        yield from (ShapeDifference(name, kind, one, None) for one in sorted(wanted - present))
        yield from (ShapeDifference(name, kind, None, one) for one in sorted(present - wanted))


def _shown(value: object) -> str:
    return {True: "not null", False: "nullable", "": "nothing"}.get(value, str(value))


def recognise(target: str, actual: Catalogue) -> tuple[Shape, list[ShapeDifference]]:
    """Return the shape that is nearest to a database, and what differs from it; nothing differs if it is that shape.

    Raises ``KeyError`` if no shape of the target is known.
    """
    known = shapes(target)
    if not known:
        raise KeyError(target)
    compared = [(shape, differences(shape.catalogue, actual)) for shape in known]
    return min(compared, key=lambda pair: len(pair[1]))


def version_difference(
    connection: Connection, schema: str, row: VersionRow, tables: Mapping[str, str]
) -> ShapeDifference | None:
    """Return how the library's own version row differs from the known one; None if it does not.

    ``tables``: as for ``read``. The table must be there.
    """
    table = sql.Identifier(schema, tables.get(row.table, row.table))
    conditions = [sql.SQL("{}::text = {}").format(sql.Identifier(name), value) for name, value in row.where.items()]
    chosen = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL("")
    query = sql.SQL("SELECT {}::text FROM {}{} ORDER BY 1").format(sql.Identifier(row.column), table, chosen)
    values = [value for (value,) in connection.execute(query)]
    values = values[-1:] if row.last else values
    if values == [row.value]:
        return None
    return ShapeDifference(f"{row.table}.{row.column}", "version row", row.value, ", ".join(map(str, values)) or None)


def read_known(connection: Connection, target: str, schema: str, tables: Mapping[str, str] | None = None) -> Catalogue:
    """Read the tables of a target from a database: all that any known shape has.

    ``tables``: the library's own name of a table → its name in the database, where they differ. Raises ``KeyError`` if
    no shape of the target is known.
    """
    known = shapes(target)
    if not known:
        raise KeyError(target)
    names = {name: (tables or {}).get(name, name) for shape in known for name in shape.catalogue.tables}
    sequences = {name for shape in known for name, owner in shape.catalogue.sequences.items() if not owner}
    return read(connection, schema, names, sorted(sequences))
