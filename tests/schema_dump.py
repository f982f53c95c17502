"""The tables of the target as ``tests/golden/schema.sql`` has them, which is compared with a dump on every server.

So tests of names, types and comments need no server.
"""

import re
from pathlib import Path

import msgspec

GOLDEN = Path(__file__).with_name("golden") / "schema.sql"
BOOKKEEPING = ("schema_revision", "schema_history")

_COLUMN = re.compile(
    r"    (?P<name>\w+|\"\w+\") (?P<type>[a-z ]+?(\[\])?)"
    r"( DEFAULT (?P<default>.+?))?(?P<computed> GENERATED ALWAYS AS \((?s:.*)\) STORED)?(?P<required> NOT NULL)?"
)


class Column(msgspec.Struct, frozen=True):
    """A column; ``default`` as the server spells it."""

    name: str
    type: str
    nullable: bool
    default: str | None
    computed: bool
    comment: str | None


class Table(msgspec.Struct):
    """A table; constraints and indexes by name, each with its definition."""

    name: str
    comment: str | None
    columns: dict[str, Column]
    constraints: dict[str, str]
    indexes: dict[str, str]

    def foreign_keys(self) -> dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]]:
        """Return the foreign keys by name: columns, table referred to with its schema, columns referred to."""
        found = {}
        for name, definition in self.constraints.items():
            if match := re.match(r"FOREIGN KEY \((.+?)\) REFERENCES (\S+)\((.+?)\)", definition):
                found[name] = (tuple(match[1].split(", ")), match[2], tuple(match[3].split(", ")))
        return found

    def unique(self) -> dict[str, tuple[tuple[str, ...], str | None]]:
        """Return the unique constraints and indexes by name: columns, and condition."""
        found: dict[str, tuple[tuple[str, ...], str | None]] = {}
        for name, definition in (self.constraints | self.indexes).items():
            if match := re.match(r"UNIQUE (?:INDEX \w+ ON \S+ USING btree )?\((.+?)\)", definition):
                found[name] = (tuple(match[1].split(", ")), definition.partition(" WHERE ")[2] or None)
        return found


def read_tables(schema: str) -> dict[str, Table]:
    """Return the tables of a schema by name, without those in which the revisions are recorded."""
    text = GOLDEN.read_text()
    found = re.findall(r"^COMMENT ON (TABLE|COLUMN) (\S+) IS '((?:[^']|'')*)';$", text, re.MULTILINE)
    comments = {(kind, place): words.replace("''", "'") for kind, place, words in found}
    tables = {}
    for name, body in re.findall(rf"^CREATE TABLE {schema}\.(\w+) \(\n(.*?)\n\);$", text, re.MULTILINE | re.DOTALL):
        if name in BOOKKEEPING:
            continue
        lines = re.split(r",\n(?=    [\w\"])", body)
        checks = [line.removeprefix("    CONSTRAINT ") for line in lines if line.startswith("    CONSTRAINT ")]
        columns = [_column(line, f"{schema}.{name}", comments) for line in lines[: len(lines) - len(checks)]]
        tables[name] = Table(
            name,
            comments.get(("TABLE", f"{schema}.{name}")),
            {column.name: column for column in columns},
            dict(check.split(" ", 1) for check in checks),
            {},
        )
    place = rf"{schema}\.(\w+)"
    for table, name, definition in re.findall(
        rf"^ALTER TABLE ONLY {place}\n    ADD CONSTRAINT (\w+) (.+);$", text, re.MULTILINE
    ):
        if table in tables:
            tables[table].constraints[name] = definition
    for line in re.findall(rf"^CREATE ((?:UNIQUE )?INDEX \w+ ON {schema}\..+);$", text, re.MULTILINE):
        name, table = re.findall(rf"INDEX (\w+) ON {place}", line)[0]
        tables[table].indexes[name] = line
    return tables


def _column(line: str, table: str, comments: dict[tuple[str, str], str]) -> Column:
    match = _COLUMN.fullmatch(line)
    if match is None:
        raise ValueError(f"{table}: a column as pg_dump writes it is expected: {line}")
    name = match["name"].strip('"')
    return Column(
        name,
        match["type"],
        match["required"] is None,
        match["default"],
        match["computed"] is not None,
        comments.get(("COLUMN", f"{table}.{match['name']}")),
    )
