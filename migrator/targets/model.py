"""What a native target is: tables that a library, or a user, has made, described as data.

A description says, for each table, its columns with the types that ``format_type`` prints, its primary key, and how a
new key is made. From it follow the record of a row, with which the pipeline works as with a record of the schema
``scheduler``, and the view through which rows are read and written (``schema.target_views``).

The pipeline knows a row by five columns of its own: ``id``, ``tenant_id``, ``source``, ``source_id`` and ``extra``. The
tables of a library have none of them, so they are kept beside, in the tool's own schema, by the key of the row.
"""

import keyword
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import msgspec

from migrator import records
from migrator.records import Record, SourcedRecord

SCHEDULER: Final = "scheduler"
"""The target that is the tool's own schema; all others are native targets."""

SEPARATOR: Final = "/"
"""Between target and table in the name that a record has: tables of two targets may have the same name."""

TARGET_FILE: Final = "target.toml"
"""The file of a target's folder that describes it; the others are its mappings."""

RESERVED: Final = frozenset({"id", "tenant_id", "source", "source_id", "extra", "table"})
"""Names of the tool's own columns in the view; a column of the library with such a name has ``_`` behind it there."""

MadeKey = Literal["", "row", "sequence"]
"""Who makes the key of a row. Empty: fields of the document. ``row``: it is the id that the tool computes for the row.
``sequence``: the next number of the table's sequence."""


class ColumnType(msgspec.Struct, frozen=True):
    """How values of one type of PostgreSQL stand in a record."""

    annotation: Any
    """Annotation of the record's member, which names the type of the view's column."""
    read: str = "{}"
    """SQL from a value of the table to one of the view."""
    write: str = "{}"
    """SQL from a value of the view to one of the table."""


_TYPES: Final[Mapping[str, ColumnType]] = MappingProxyType(
    {
        "text": ColumnType(records.Text),
        "character varying": ColumnType(records.Text, "{}::text", "{}::character varying"),
        "text[]": ColumnType(records.TextList),
        "uuid": ColumnType(records.Uuid),
        "boolean": ColumnType(records.Flag),
        "smallint": ColumnType(records.Small),
        "integer": ColumnType(records.Int),
        "bigint": ColumnType(records.Big),
        "double precision": ColumnType(records.Double),
        "real": ColumnType(records.Double, "{}::double precision", "{}::real"),
        "bytea": ColumnType(records.Bytes),
        "jsonb": ColumnType(records.Jsonb),
        "json": ColumnType(records.Jsonb, "{}::jsonb", "{}::json"),
        "timestamp with time zone": ColumnType(records.Time),
        "timestamp without time zone": ColumnType(records.Time, "{} AT TIME ZONE 'UTC'", "{} AT TIME ZONE 'UTC'"),
        "interval": ColumnType(
            records.Big, "(extract(epoch FROM {}) * 1000000)::bigint", "({} * interval '1 microsecond')"
        ),
    }
)
"""Type as ``format_type`` prints it, without a length or a precision, to what a record holds. Times without a zone are
in UTC, intervals are whole microseconds."""

_LENGTH: Final = re.compile(r"character varying\((\d+)\)")
_PRECISION: Final = re.compile(r"\(\d+\)")


class Column(msgspec.Struct, frozen=True):
    """A column of a table of a native target."""

    name: str
    type: str
    """As ``format_type`` prints it. An enum type has ``words``."""
    needed: bool = False
    """It cannot be null."""
    words: tuple[str, ...] = ()
    """The closed list of its values: those of its enum type, or of its CHECK constraint."""
    default: Any = None
    """What the row holds where the mapping gives nothing; None: null."""
    least: int | None = None
    """The smallest number that it takes, where a CHECK constraint says more than its type; None: any of its type."""

    @property
    def longest(self) -> int:
        """Return the number of characters that it holds; 0: any number."""
        length = _LENGTH.fullmatch(self.type)
        return int(length[1]) if length else 0

    @property
    def base_type(self) -> str:
        """Return its type without a length or a precision."""
        return _PRECISION.sub("", self.type)

    @property
    def is_real(self) -> bool:
        """Whether it holds numbers of 32 bits with a fraction."""
        return self.type == "real"

    @property
    def kind(self) -> ColumnType:
        """Return how its values stand in a record; raises ``KeyError`` for a type that the tool does not write."""
        plain = _TYPES.get(self.base_type)
        if plain is None and self.words:
            return ColumnType(records.Text, "{}::text", "{}::text::" + self.type)
        return _TYPES[self.base_type] if plain is None else plain

    @property
    def member(self) -> str:
        """Return its name in the record and in the view."""
        return member_name(self.name)


def member_name(column: str) -> str:
    """Return the name that a column of a table has in its record and in the view."""
    return f"{column}_" if column in RESERVED or keyword.iskeyword(column) else column


def is_known_type(column: Column) -> bool:
    """Whether the tool writes values of the type of a column."""
    return column.base_type in _TYPES or bool(column.words)


class Link(msgspec.Struct, frozen=True):
    """Columns that hold the key of a row of another table, as its library has made it: a reference by several columns.

    The record has one member in their place, which holds the ``id`` of that row.
    """

    table: str
    columns: tuple[str, ...]
    """Those that hold the columns of the same names of the other table's key. The other columns of that key are
    columns of the same names here, which are filled otherwise: both rows have the same values there."""


class WordedReference(msgspec.Struct, frozen=True):
    """A column that holds the key of a row of one of several tables: another column has the word for the table.

    In the record it holds the ``id`` of that row. A document makes a row of one of these tables.
    """

    by: str
    """The column with the word."""
    tables: Mapping[str, str]
    """Word to the table, whose key is made."""


class UniqueAmong(msgspec.Struct, frozen=True):
    """Columns that are unique together among some rows of a table."""

    columns: tuple[str, ...]
    when: Mapping[str, Any]
    """Column to the value that it has in these rows."""


class Table(msgspec.Struct, frozen=True, dict=True):
    """A table of a native target."""

    target: str
    name: str
    columns: tuple[Column, ...]
    """Those that a mapping may fill, in the order of the table; the others keep their defaults."""
    key: tuple[str, ...]
    """The columns of its primary key."""
    made: MadeKey = ""
    sequence: str = ""
    """With ``made = "sequence"``: the sequence; empty: the one that the key's column owns."""
    unique: tuple[tuple[str, ...], ...] = ()
    """Its unique constraints besides the primary key."""
    unique_among: tuple[UniqueAmong, ...] = ()
    """Its unique indexes of some rows."""
    references: Mapping[str, str] = {}
    """Column that holds the key of a row of another table, whose key is made, to that table. In the record it holds the
    ``id`` of that row."""
    worded: Mapping[str, WordedReference] = {}
    """Column that holds the key of a row of one of several tables."""

    links: Mapping[str, Link] = {}
    """Member of the record to the columns that it stands for."""
    parents: tuple[str, ...] = ()
    """Further tables to which its foreign keys lead: their rows are written before."""

    @property
    def written_after(self) -> frozenset[str]:
        """Return the tables whose rows are written before those of this one."""
        worded = (name for one in self.worded.values() for name in one.tables.values())
        linked = (link.table for link in self.links.values())
        return frozenset((*self.references.values(), *worded, *self.parents, *linked))

    @property
    def full_name(self) -> str:
        """Return the name of its record: ``target/table``."""
        return f"{self.target}{SEPARATOR}{self.name}"

    @property
    def filled(self) -> tuple[Column, ...]:
        """Return the columns that the record has: none of a key that is made, and none of those of a link."""
        linked = {name for link in self.links.values() for name in link.columns}
        left_out = linked | ({*self.key} if self.made else set())
        return tuple(column for column in self.columns if column.name not in left_out)

    @staticmethod
    def member_of(column: str) -> str:
        """Return the name that a column has in the record and in the view."""
        return member_name(column)

    def column(self, member: str) -> Column | None:
        """Return the column of a member of the record; None for one of the tool's own."""
        return self._by_member.get(member)

    @cached_property
    def _by_member(self) -> Mapping[str, Column]:
        return {column.member: column for column in self.filled}

    @cached_property
    def record(self) -> type[Record]:
        """Return the record of a row: the tool's own columns, with those of the table between them."""
        members: list[Any] = []
        for column in self.filled:
            is_key = column.name in self.references or column.name in self.worded
            annotation = records.Uuid if is_key else column.kind.annotation
            if column.needed and column.default is None:
                members.append((column.member, annotation))
            else:
                members.append((column.member, annotation | None, column.default))
        needed = {column.name for column in self.columns if column.needed}
        for member, link in self.links.items():
            is_needed = needed.issuperset(link.columns)
            members.append((member, records.Uuid) if is_needed else (member, records.Uuid | None, None))
        members.append(("extra", records.Jsonb, records.EMPTY))
        made = msgspec.defstruct(
            re.sub(r"\W", "_", self.full_name),
            members,
            bases=(SourcedRecord,),
            namespace={"table": self.full_name},
            module=__name__,
            frozen=True,
            kw_only=True,
        )
        return cast("type[Record]", made)


OptionKind = Literal["text", "flag", "zone", "lists"]


class TargetOption(msgspec.Struct, frozen=True, kw_only=True):
    """What a target asks its user: said in ``[target.options]`` of the settings."""

    meaning: str
    """What the value is, in words: a refusal quotes it."""
    kind: OptionKind = "text"
    """``lists``: names, each with a list of ``words``."""
    default: Any = None
    """What holds where the settings say nothing; None: it must be said."""
    example: Any = ""
    """A value, for lists and pages, and for what only looks at the mapping."""
    words: tuple[str, ...] = ()
    """Of a text, and of the members of lists: the words that are known; empty: any."""


class Target(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """A native target: the tables of one library, or of a user's own mapping file."""

    name: str
    title: str = ""
    """Library and class, for lists and pages."""
    versions: str = ""
    """The versions of the library whose tables these are."""
    schema: str = "public"
    """Where the tables are unless the settings say otherwise."""
    tables: tuple[Table, ...] = ()
    options: Mapping[str, TargetOption] = {}
    """What it asks its user, by name."""
    runs_first: bool = False
    """The library executes a job before it writes that down: a fence does not keep it from executing what the other
    side executes too, or of which the result is then nowhere, so that its application must be stopped before."""
    one_way: str = ""
    """Why nothing of it goes back to MongoDB, so that a cutover is refused; empty: it does."""
    folder: str = ""
    """The path of the folder with its mappings, ``<source>.toml``; empty: it stands in a mapping file."""

    @cached_property
    def mappings(self) -> Mapping[str, Path]:
        """Return the sources that can be moved to it, by name, each with the path of its mapping."""
        paths = sorted(Path(self.folder).glob("*.toml")) if self.folder else []
        return {path.stem: path for path in paths if path.name != TARGET_FILE}

    @cached_property
    def by_name(self) -> Mapping[str, Table]:
        """Return the tables by name."""
        return {table.name: table for table in self.tables}

    @property
    def tool_schema(self) -> str:
        """Return the schema in which the tool keeps its views and what the library's tables have no columns for."""
        return tool_schema(self.name)


def tool_schema(target: str) -> str:
    """Return the name of the schema that the tool keeps for a native target."""
    return "migration_" + target.replace("-", "_")
