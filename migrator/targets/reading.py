"""A native target in TOML: read and checked, as data of its user.

A column is written as in SQL: its type, and ``not null`` behind it. With more to say it is a table of TOML.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, get_args

from migrator.config import nearest
from migrator.targets.model import (
    RESERVED,
    SCHEDULER,
    Column,
    Link,
    MadeKey,
    OptionKind,
    Table,
    Target,
    TargetOption,
    UniqueAmong,
    WordedReference,
    is_known_type,
)

Wrong = Callable[[tuple[str, ...], str], None]
"""Notes a mistake: the key at which it stands, and what is wrong."""

NOT_NULL: Final = " not null"
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,40}")
LONGEST_NAME: Final = 55
"""Bytes of the name of a table: with the tool's ending it is a name of PostgreSQL."""
_ABBREVIATED: Final = {
    "varchar": "character varying",
    "timestamptz": "timestamp with time zone",
    "timestamp": "timestamp without time zone",
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int": "integer",
    "int8": "bigint",
    "float8": "double precision",
    "float4": "real",
}
"""Other names of types, to those that ``format_type`` prints."""


def read_target(tree: Mapping[str, Any], wrong: Wrong) -> Target:
    """Return the target in the section ``[target]`` of a tree of TOML; ``wrong`` is called for each mistake."""
    held = _section(tree.get("target"), ("target",), wrong)
    _known_keys(
        held, ("name", "title", "versions", "schema", "options", "runs_first", "one_way", "tables"), ("target",), wrong
    )
    texts = {key: _text(held, key, ("target",), wrong) for key in ("name", "title", "versions", "schema", "one_way")}
    name = texts["name"]
    if _NAME.fullmatch(name) is None or name == SCHEDULER:
        wrong(("target", "name"), "target.name: expected a name of lower-case letters, digits, - and _")
    described = _section(held.get("tables"), ("target", "tables"), wrong)
    if not described:
        wrong(("target",), "target: expected at least one section [target.tables.NAME]")
    tables = tuple(_table(name, table, inner, wrong) for table, inner in described.items())
    for table in tables:
        _check_references(table, tables, wrong)
    return Target(
        name=name,
        title=texts["title"],
        versions=texts["versions"],
        schema=texts["schema"] or "public",
        tables=tables,
        runs_first=_flag(held, "runs_first", wrong),
        one_way=texts["one_way"],
        options={
            option: _option(option, inner, wrong)
            for option, inner in _section(held.get("options", {}), ("target", "options"), wrong).items()
        },
    )


def _flag(held: Mapping[str, Any], name: str, wrong: Wrong) -> bool:
    value = held.get(name, False)
    if not isinstance(value, bool):
        wrong(("target", name), f"target.{name}: expected true or false")
    return value is True


def _option(name: str, value: object, wrong: Wrong) -> TargetOption:
    key = ("target", "options", name)
    held = _section(value, key, wrong)
    _known_keys(held, ("meaning", "kind", "default", "example", "words"), key, wrong)
    meaning, kind, listed = _text(held, "meaning", key, wrong), held.get("kind", "text"), held.get("words", [])
    if not meaning:
        wrong((*key, "meaning"), f"option {name}: meaning: expected what its value is, in words")
    if kind not in get_args(OptionKind):
        wrong((*key, "kind"), f"option {name}: kind: expected one of {', '.join(get_args(OptionKind))}")
        kind = "text"
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        wrong((*key, "words"), f"option {name}: words: expected a list of texts")
        listed = []
    return TargetOption(
        meaning=meaning,
        kind=cast("OptionKind", kind),
        default=held.get("default"),
        example=held.get("example", ""),
        words=tuple(listed),
    )


def _table(target: str, name: str, value: object, wrong: Wrong) -> Table:
    section = ("target", "tables", name)
    held = _section(value, section, wrong)
    known = ("columns", "key", "made", "sequence", "unique", "references", "links", "parents")
    _known_keys(held, known, section, wrong)
    if not name or len(name.encode()) > LONGEST_NAME or not name.isprintable() or "/" in name or "." in name:
        wrong(section, f"table {name!r}: expected a name of at most {LONGEST_NAME} bytes, without . and /")
    described = _section(held.get("columns"), (*section, "columns"), wrong)
    columns = tuple(
        _column(name, column, inner, (*section, "columns", column), wrong) for column, inner in described.items()
    )
    key = _names(held.get("key", []), described, (*section, "key"), f"table {name}: key: ", wrong)
    if not key:
        wrong((*section, "key"), f"table {name}: key: expected the columns of its primary key")
    made = held.get("made", "")
    if made not in get_args(MadeKey):
        wrong((*section, "made"), f'table {name}: made: expected "row" or "sequence"')
        made = ""
    if made and len(key) != 1:
        wrong((*section, "made"), f"table {name}: made: only a key of one column is made")
    types = {column.name: column.type for column in columns}
    if made == "row" and any(types.get(column) != "uuid" for column in key):
        wrong((*section, "made"), f"table {name}: made: the id of a row is a uuid, and the key is none")
    unique = held.get("unique", [])
    if not isinstance(unique, list):
        wrong((*section, "unique"), f"table {name}: unique: expected a list of lists of columns")
        unique = []
    references = _section(held.get("references", {}), (*section, "references"), wrong)
    parents = held.get("parents", [])
    if not isinstance(parents, list):
        wrong((*section, "parents"), f"table {name}: parents: expected a list of tables")
        parents = []
    return Table(
        target=target,
        name=name,
        columns=columns,
        key=key,
        made=cast("MadeKey", made),
        sequence=_text(held, "sequence", section, wrong),
        unique=tuple(
            _names(columns, described, (*section, "unique"), f"table {name}: unique: ", wrong)
            for columns in unique
            if not isinstance(columns, dict)
        ),
        unique_among=tuple(
            _unique_among(name, one, described, (*section, "unique"), wrong) for one in unique if isinstance(one, dict)
        ),
        references={column: str(table) for column, table in references.items() if not isinstance(table, dict)},
        worded={
            column: _worded(name, column, inner, described, wrong)
            for column, inner in references.items()
            if isinstance(inner, dict)
        },
        links={
            member: _link(name, member, inner, described, wrong)
            for member, inner in _section(held.get("links", {}), (*section, "links"), wrong).items()
        },
        parents=tuple(map(str, parents)),
    )


def _worded(
    table: str, column: str, held: Mapping[str, Any], described: Mapping[str, Any], wrong: Wrong
) -> WordedReference:
    """Return the reference to a row of one of several tables."""
    key, where = ("target", "tables", table, "references", column), f"table {table}: references: {column}: "
    _known_keys(held, ("by", "tables"), key, wrong, where)
    by, tables = held.get("by"), _section(held.get("tables", {}), (*key, "tables"), wrong)
    if not isinstance(by, str) or by not in described or by == column:
        wrong((*key, "by"), f"{where}by: expected the column that has the word for the table")
    if not tables:
        wrong((*key, "tables"), f"{where}tables: expected words, each with its table")
    return WordedReference(str(by), {word: str(other) for word, other in tables.items()})


def _link(table: str, member: str, value: object, described: Mapping[str, Any], wrong: Wrong) -> Link:
    key, where = ("target", "tables", table, "links", member), f"table {table}: link {member}: "
    held = _section(value, key, wrong)
    _known_keys(held, ("table", "columns"), key, wrong, where)
    if member in described or member in RESERVED or not member.isidentifier():
        wrong(key, f"{where}expected a name that is no column, of letters, digits and _")
    columns = _names(held.get("columns", []), described, (*key, "columns"), f"{where}columns: ", wrong)
    return Link(str(held.get("table", "")), columns)


def _unique_among(
    table: str, held: Mapping[str, Any], described: Mapping[str, Any], key: tuple[str, ...], wrong: Wrong
) -> UniqueAmong:
    """Return the columns that are unique among the rows in which others have a value."""
    where = f"table {table}: unique: "
    _known_keys(held, ("columns", "when"), key, wrong, where)
    when = held.get("when")
    if not isinstance(when, dict) or not when or not all(type(one) in (str, int, bool) for one in when.values()):
        wrong(key, f'{where}when: expected the values of columns, such as {{ type = "single" }}')
        when = {}
    columns = _names(held.get("columns"), described, key, where, wrong)
    _names(list(when), described, key, f"{where}when: ", wrong)
    return UniqueAmong(columns, when)


def _column(table: str, name: str, value: object, key: tuple[str, ...], wrong: Wrong) -> Column:
    where = f"column {name} of {table}: "
    held: Mapping[str, Any] = {"type": value} if isinstance(value, str) else value if isinstance(value, dict) else {}
    if not held:
        wrong(key, f'{where}expected its type, such as "text not null"')
    _known_keys(held, ("type", "words", "default", "least"), key, wrong, where)
    least = held.get("least")
    if least is not None and type(least) is not int:
        wrong(key, f"{where}least: expected a whole number")
        least = None
    written = held.get("type", "text")
    if not isinstance(written, str):
        wrong(key, f"{where}type: expected a type of PostgreSQL")
        written = "text"
    plain = written.removesuffix(NOT_NULL)
    labels = held.get("words", [])
    if not isinstance(labels, list) or not all(isinstance(word, str) for word in labels):
        wrong(key, f"{where}words: expected a list of texts")
        labels = []
    base, bracket, length = plain.partition("(")
    default = held.get("default")
    if base in ("json", "jsonb") and isinstance(default, str):
        default = default.encode()  # as records hold JSON
    column = Column(
        name=name,
        type=_ABBREVIATED.get(base, base) + bracket + length,
        needed=written.endswith(NOT_NULL),
        words=tuple(labels),
        default=default,
        least=least,
    )
    if not is_known_type(column):
        wrong(key, f"{where}values of the type {plain} are not written; an enum type needs its words")
        return Column(name=name, type="text")
    return column


def _check_references(table: Table, tables: Sequence[Table], wrong: Wrong) -> None:
    by_name = {other.name: other for other in tables}
    types = {column.name: column.type for column in table.columns}
    worded = ((column, other) for column, one in table.worded.items() for other in one.tables.values())
    for column, other in (*table.references.items(), *worded):
        key, where = ("target", "tables", table.name, "references"), f"table {table.name}: references: "
        if column not in types:
            wrong(key, f"{where}no column {column}{nearest(column, types)}")
        if other not in by_name or not by_name[other].made:
            wrong(key, f"{where}{other} is no table whose key is made{nearest(other, by_name)}")
    for other in table.parents:
        if other not in by_name or other == table.name:
            wrong(("target", "tables", table.name, "parents"), f"table {table.name}: parents: no other table {other}")
    for member, link in table.links.items():
        place = ("target", "tables", table.name, "links", member)
        key_columns = by_name[link.table].key if link.table in by_name else ()
        is_key = bool(link.columns) and {*link.columns} <= {*key_columns} <= types.keys()
        if not is_key or by_name[link.table].made or {*link.columns} & {*table.key}:
            wrong(
                place,
                f"table {table.name}: link {member}: expected columns of the key of {link.table or 'another table'},"
                " which is not made, and its other columns here too",
            )


def _section(value: object, key: tuple[str, ...], wrong: Wrong) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    wrong(key, f"expected a section [{'.'.join(key)}]")
    return {}


def _text(held: Mapping[str, Any], name: str, key: tuple[str, ...], wrong: Wrong) -> str:
    value = held.get(name, "")
    if isinstance(value, str) and value.isprintable():
        return value
    wrong((*key, name), f"{'.'.join((*key, name))}: expected a text")
    return ""


def _names(value: object, known: Mapping[str, Any], key: tuple[str, ...], where: str, wrong: Wrong) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(column, str) for column in listed):
        wrong(key, f"{where}expected a list of columns")
        return ()
    for column in listed:
        if column not in known:
            wrong(key, f"{where}no column {column}{nearest(column, known)}")
    return tuple(column for column in listed if column in known)


def _known_keys(
    held: Mapping[str, Any], known: Sequence[str], key: tuple[str, ...], wrong: Wrong, where: str = ""
) -> None:
    for name in held:
        if name not in known:
            wrong((*key, name), f"{where or '.'.join(key) + ': '}unknown key {name}{nearest(name, known)}")
