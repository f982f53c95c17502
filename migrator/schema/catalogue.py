"""The comparison of the live catalogue with the declared one, which is what the revisions make.

The revisions are applied to the temporary schema in a transaction that is rolled back, and one query
(``catalogue.sql``) reads both. So what PostgreSQL makes of an expression is compared with what the same server makes of
the other, and no version's spelling matters. It needs the right to create temporary tables, as the copy does.
"""

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.schema import LOOKUP_PREFIX
from migrator.schema.revisions import BOOKKEEPING, BRANCHES, apply_to_temporary_schema
from migrator.schema.security import Roles
from migrator.schema.transaction import be_owner, driver, transaction

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection

Fact: TypeAlias = tuple[str, str, str]
"""(relation, kind, name), as ``catalogue.sql`` returns them."""
Catalogue: TypeAlias = dict[Fact, str]


class Difference(msgspec.Struct, frozen=True):
    """One difference between the live catalogue and the declared one."""

    object: str
    """``scheduler.runs constraint ck_runs_state``."""
    kind: Literal["missing", "extra", "changed"]
    expected: str | None
    found: str | None
    harmless: bool = False
    """An addition of somebody else's that takes nothing from the tables: it refuses no row, and lets nobody write."""


def split_harmless(found: Sequence[Difference]) -> tuple[list[Difference], list[Difference]]:
    """Return the differences that count, and the additions that harm nothing."""
    return [one for one in found if not one.harmless], [one for one in found if one.harmless]


def differences(dsn: str, *, names: Roles | None = None) -> list[Difference]:
    """Compare both schemas with what the revisions make; an empty list means that they are equal.

    What a first load has dropped and not yet created again is listed, with this reason. Nothing is changed.
    """
    names = names or Roles()
    listed: list[Difference] = []
    with transaction(dsn) as alchemy:
        connection = driver(alchemy)
        be_owner(connection, names)
        owed = _owed(connection)
        live = {schema: _read(connection, schema) for schema in BRANCHES}
        declared = _declared(alchemy, names)
        connection.rollback()
    for schema in BRANCHES:
        listed += _compare(schema, declared[schema], live[schema], owed)
    return listed


def _read(connection: Connection, schema: str) -> Catalogue | None:
    """Return the facts of a schema; None if there is no such schema."""
    row = connection.execute("SELECT to_regnamespace(%s)::oid", (schema,)).fetchone()
    if row is None or row[0] is None:
        return None
    connection.execute(sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(schema)))
    query = files(__package__ or "").joinpath("catalogue.sql").read_text(encoding="utf-8")
    rows = connection.execute(query.encode(), {"namespace": row[0], "exempt": [*BOOKKEEPING]})
    facts = {(relation, kind, name): definition for relation, kind, name, definition in rows}
    usage = connection.execute(
        "SELECT pg_get_userbyid(grantee), string_agg(lower(privilege_type), ', ' ORDER BY privilege_type)"
        " FROM pg_namespace CROSS JOIN aclexplode(nspacl) WHERE oid = %s AND grantee <> nspowner GROUP BY grantee",
        (row[0],),
    )
    return facts | {("", "grant", grantee): rights for grantee, rights in usage}


def _declared(alchemy: "AlchemyConnection", names: Roles) -> dict[str, Catalogue]:
    """Apply the revisions to the temporary schema and read it, one branch after the other."""
    connection = driver(alchemy)
    catalogues: dict[str, Catalogue] = {}
    connection.execute("SET LOCAL check_function_bodies = off")  # the tables that they read may be missing
    for branch in BRANCHES:
        with alchemy.begin_nested() as scratch:
            apply_to_temporary_schema(alchemy, branch, names)
            temporary = connection.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchone()
            catalogues[branch] = cast("Catalogue", _read(connection, temporary[0] if temporary else ""))
            scratch.rollback()
    catalogues["scheduler"] |= {("", "grant", role): "usage" for role in (names.service, names.dispatcher)}
    return catalogues


def _compare(schema: str, declared: Catalogue, live: Catalogue | None, owed: frozenset[str]) -> Iterator[Difference]:
    if live is None:
        yield Difference(f"schema {schema}", "missing", "a schema", None)
        return
    missing = {relation for relation, kind, _ in declared if kind == "relation"} - {fact[0] for fact in live}
    extra = {relation for relation, kind, _ in live if kind == "relation"} - {fact[0] for fact in declared}
    for fact in sorted(declared.keys() | live.keys()):
        relation, kind, name = fact
        expected, actual = declared.get(fact), live.get(fact)
        if expected == actual:
            continue
        if expected is None and kind == "index" and name.startswith(LOOKUP_PREFIX):
            continue  # the tail's own, until the cutover is finished
        if relation in missing | extra and kind != "relation":
            continue  # a missing table is one difference, not one for each of its columns
        place = f"{schema}.{relation}" if relation else f"schema {schema}"
        what = " ".join(part for part in (place, kind if kind != "relation" else "", name) if part)
        if actual is None and name in owed:
            actual = "removed for the first load and not yet restored; call migrator backfill"
        kind_of = "missing" if live.get(fact) is None else "extra" if expected is None else "changed"
        harmless = kind_of == "extra" and actual is not None and _harms_nothing(fact, actual, declared)
        yield Difference(what, cast("Literal['missing', 'extra', 'changed']", kind_of), expected, actual, harmless)


_PLAIN_INDEX: Final = re.compile(
    r"CREATE INDEX \S+ ON \S+ USING (?:btree|hash|brin) \((?P<columns>\w+(?: DESC)?(?: NULLS \w+)?(?:, [^()]+)?)\)"
)
"""An index of columns alone, of every row: an expression, or a condition, may fail for a row."""
_FIXED_SIZE: Final = ("uuid", "boolean", "smallint", "integer", "bigint", "double precision", "timestamp")
"""Types of which no value is too long for an index."""


def _harms_nothing(fact: Fact, actual: str, declared: Catalogue) -> bool:
    """Return whether an addition harms nothing.

    That is the right of a role, not of everybody, to read, and an index that no row can violate: not unique, without
    expressions, and of columns whose values are never too long for it.
    """
    relation, kind, name = fact
    if kind == "grant":
        return name != "public" and bool(re.fullmatch(r"(?:select|usage)(?: \([^)]*\))?", actual))
    match = _PLAIN_INDEX.fullmatch(actual) if kind == "index" else None
    if match is None:
        return False
    columns = [one.partition(" ")[0] for one in match["columns"].split(", ")]
    indexed = {
        word
        for (of, sort, _), definition in declared.items()
        if of == relation and sort == "index" and "USING btree" in definition
        for word in re.findall(r"\w+", definition.partition("(")[2].partition(")")[0])
    }
    types = [declared.get((relation, "column", column), "") for column in columns]
    return all(
        column in indexed or kind_of.startswith(_FIXED_SIZE) for column, kind_of in zip(columns, types, strict=True)
    )


def _owed(connection: Connection) -> frozenset[str]:
    """Return the names of indexes and constraints that a first load has dropped."""
    row = connection.execute("SELECT to_regclass('migration.deferred_ddl') IS NULL").fetchone()
    if row == (True,):
        return frozenset()
    rows = connection.execute("SELECT name FROM migration.deferred_ddl WHERE restored_at IS NULL")
    return frozenset(name for (name,) in rows)
