"""The plan of the native codec for one collection: its mapping as data that needs no Python object per document.

The native codec takes plain documents alone, so a plan need not say all that a mapping says. A field that it leaves out
is reserved (``NativeRemainder``): each document that has it is handed to the Python codec. Fields that the mapping does
not name are the remainder of a document. A collection of which the plan cannot say what must be said of every document
has none: a function decides about them that may look at all of a document, and not at an ``Excerpt`` alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid5

import bson
import msgspec

from migrator import constraints, native
from migrator.records import Record
from migrator.sources.mapping import converters, tables
from migrator.sources.mapping.converters.base import Unplannable
from migrator.sources.mapping.converters.celery import RESULT
from migrator.sources.mapping.converters.numbers import NUMBER_TYPES, none_of
from migrator.sources.mapping.language import Field
from migrator.sources.profile import INHERITED, Context, DeclaredLoss, Note, Rejected
from migrator.sources.shape_description import Description, IndescribableError
from migrator.sources.tenants import NO_TENANT, tenant_of
from migrator.values import copy_format, identity, jsonb, remainder
from migrator.values import document as documents
from migrator.values.canonical import same

if TYPE_CHECKING:
    from migrator.sources.mapping.codec import Codec

MemoEntry: TypeAlias = tuple[bytes, bytes] | None
"""The cell of a value, and the value as it is written (BSON type and bytes); None: it is for the Python codec."""

ExcerptEntry: TypeAlias = tuple[tuple[bytes | None, ...], int] | None
"""The cell of each declared column, and the tables that have a row, as bits; None: it is for the Python codec."""

RemainderEntry: TypeAlias = tuple[bytes, bytes] | None
"""The cell of a remainder, and the remainder; None: it is for the Python codec."""

Chosen: TypeAlias = tuple[int, bytes | None, bytes]
"""Position of a step (-1: always), the value that its field holds (BSON type and bytes; None: any), and the cell."""

NULL: Final = b"\x0a"
_ABSENT: Final = 1
"""The mark of a field that the document does not have."""
_EXTRA: Final = "extra"
"""The column of the remainder."""
_OWNER: Final = ("id", "tenant_id", "source", "source_id")
"""The first columns of a row."""
_RUN: Final = ("trigger_id", "scheduled_at", "attempt", "started_at", "finished_at", "duration_ms")
"""The columns that complete a run."""
_OF_THE_ID: Final = frozenset({"path", "columns", "converter", "required", "finding"})
"""The members of ``Field`` that are heeded at the ``_id``."""
_OF_EVERY_FIELD: Final = _OF_THE_ID | {"also", "default", "write_default", "write_null"}
"""Those that are heeded whatever the operation is. What is counted as a finding is for the Python codec."""
_OF_AN_EXCERPT: Final = frozenset({"path", "converter", "shape", "write"})
"""Those of a field that ``Mapped.derive`` reads, and that fills no column itself."""
_TRIGGER: Final = ("kind", "anchor", "start_at", "end_at", "cron_dialect", "timezone", "next_fire_at")
"""The columns that are looked at, or filled, when a trigger is completed."""
_OF_A_VALUE: Final = frozenset(
    {
        *(
            "path",
            "columns",
            "converter",
            "finding",
            "also",
            "words",
            "write_as",
            "allow_unknown",
            "encoding",
            "unit",
            "type",
        ),
        *(
            "factor",
            "add",
            "clamp",
            "trim",
            "exact",
            "local",
            "dialect",
            "members",
            "number",
            "unit_from",
            "fixed",
            "holds",
        ),
        *("spaced", "expected", "collection", "prefix", "id_type", "by", "loose", "shared", "shape", "respelled"),
        *("time", "time_format", "first", "begins", "taken", "zone", "below", "part", "default", "write_default"),
    }
)
"""Those that say nothing of a document without the field; the last two are looked at where a field is left out."""


class NativeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A field in the order in which it is written; the native codec knows its operation by name."""

    key: bytes
    operation: str
    column: int = -1
    """Position of the column among those of all tables."""
    others: tuple[int, ...] = ()
    """Further columns that hold the same cell."""
    stop: int = 0
    """Of a group, a document whose members are the next steps: position of the step after its last one."""
    reference: int = -1
    """Position among the collection's references; -1: it leads to the computed id, whether or not that is stored."""
    required: bool = False
    default: bytes | None = None
    """Cell of which nothing is written, unless ``written``."""
    written: bool = False
    null_as: bytes | None = None
    """BSON type and value that are written where the column holds nothing."""
    longest: int = 0
    """Bytes of an indexed text; 0: no limit."""
    least: int = 0
    most: int = 0
    width: int = 0
    """Bytes of a number's cell."""
    number: int = NUMBER_TYPES["int"]
    """BSON type in which a number is written."""
    sized: bool = False
    """A number that is a double is for the Python codec."""
    none: int | None = None
    """The number that stands for none."""
    beside: int = 0
    """The step of the result, of a field that is written in the serializer of the result."""
    per_second: int = 0
    """Of a time that is written as a number."""
    prefix: bytes | None = None
    """Of a reference: what stands before the digits of the id."""
    literal: bytes | None = None
    """The whole element, which each document has."""
    shape: Description | None = None
    learn: Callable[[bytes], MemoEntry] | None = None
    """Of a field with few distinct values: asked once for each (BSON type and bytes)."""


class NativeTable(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one table."""

    record: type[Record]
    cells: tuple[bytes | None, ...]
    """Of each column, in the order of the serialized row: the cell if no field fills it."""
    needed: tuple[int, ...]
    """Columns without which the document is for the Python codec."""
    keeps_uuid: bool
    namespace: bytes
    made_by: tuple[int, ...] = ()
    """Columns of which one must be filled, or there is no row."""
    parents: tuple[tuple[int, int], ...] = ()
    """(column, position of the table whose row's id it holds)."""


class NativeTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """How the row of a trigger is completed, as ``tables.complete_trigger`` does; columns are positions."""

    table: int
    causes: tuple[tuple[int, bytes], ...]
    """Column of each cause, and the cell of its kind."""
    kind: int
    anchor: int
    default_anchor: bytes
    start: int
    end: int
    cron: tuple[int, int, int]
    """Columns of the line, its dialect and its zone."""
    dialect: bytes | None
    """The cell of the dialect of a line that names none; None: lines are not evaluated."""
    evaluable: Callable[[bytes], tuple[()] | None]
    """Of a zero byte, then dialect, line and zone with a zero byte before each: None if no row can be made of it."""
    of_events: tuple[int, ...]
    """Columns that a trigger by an event has not."""


class NativeExcerpt(msgspec.Struct, frozen=True, kw_only=True):
    """What ``Mapped.derive`` fills, asked once for each combination of the values of its fields."""

    steps: tuple[int, ...]
    """The steps of its fields; they have the operation ``excerpt``."""
    columns: tuple[int, ...]
    tables: int
    """The tables with one of its columns, as bits."""
    learn: Callable[[bytes], ExcerptEntry]
    """Of a zero byte, then for each step the BSON type (0: absent), the size (int32) and the bytes of the value."""


class NativeRemainder(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a document that its columns do not give back as it is: fields that no step has, and marks.

    A mark says of a step that is not within a group that the rows give its field and the document has none, or that it
    is null in the document and the rows give none.
    """

    column: int
    """Of the first table."""
    reserved: frozenset[bytes]
    """Names of fields that say something to the Python codec: they are no part of a remainder."""
    losses: Mapping[bytes, bytes | None]
    """Name of a field whose loss is counted by name, to the value (BSON type and bytes) of which nothing is lost. None:
    there is no such value but null, of which nothing is lost either."""
    learn: Callable[[bytes], RemainderEntry]
    """Of a zero byte, then for each marked step the mark (1: absent, 2: null) and its position (uint16), a zero byte,
    and the elements that no step has."""


class NativeOutline(msgspec.Struct, frozen=True, kw_only=True):
    """How documents are read that differ in a few values: asked once for all of one outline (``outlines``)."""

    fields: tuple[tuple[bytes, str], ...]
    """Those that differ, and what they hold: ``text``, ``time`` or ``json``."""
    longest: int
    """Bytes of a text in one of them."""
    extra: int
    """Column of the remainder, of the first table."""
    learn: Callable[[bytes, tuple[int, ...]], tuple[Any, ...] | None]
    """Of a document, and the positions of the fields that it has; see ``outlines.OutlineRows``."""


class NativeJobs(msgspec.Struct, frozen=True, kw_only=True):
    """How pickled jobs of APScheduler are read: asked once for all that differ in a few values."""

    steps: tuple[int, int]
    """The steps of the pickle and of the next run; they have the operations ``pickled-job`` and ``due``."""
    columns: tuple[int, int, int, int, int]
    """Those of the name, the payload, the metadata with the pickle, the next run, and the trigger's specification."""
    learn: Callable[..., tuple[Any, ...] | None]
    """See ``migrator_speedups.pickled_jobs``, as for the next."""
    offset: Callable[[str, bytes], int | None]


class NativePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What ``migrator_speedups.rows.RowCodec`` is made of."""

    tables: tuple[NativeTable, ...]
    steps: tuple[NativeStep, ...]
    collection: bytes
    """What stands between tenant and source id in the name of a row's id."""
    tenant: bytes | None = None
    """The tenant of documents that name none; None: each names its own."""
    id_time: int = -1
    """Column of the time in an ``_id``, which must be an ObjectId."""
    id_longest: int = 0
    """Bytes of an ``_id`` that a column holds as a text; 0: no limit."""
    id_text: int = -1
    """Column of the ``_id`` as a text."""
    id_plain: int = -1
    """Column of an ``_id`` that must be a text."""
    id_uuid: int = -1
    """Column of a UUID that holds the ``_id``, which must be an ObjectId, after zeros."""
    run: tuple[int, ...] = ()
    choices: tuple[tuple[int, tuple[Chosen, ...]], ...] = ()
    """Columns whose value the first case gives that applies."""
    trigger: NativeTrigger | None = None
    expected: int = -1
    """Position of a table without a row of which a document is for the Python codec."""
    excerpt: NativeExcerpt | None = None
    remainder: NativeRemainder | None = None
    """None: a document with a remainder is for the Python codec."""
    jobs: NativeJobs | None = None
    outline: NativeOutline | None = None


class NativeReader(msgspec.Struct, frozen=True):
    """The native codec of a collection, and what its rows are."""

    plan: NativePlan
    codec: Any
    """``migrator_speedups.rows.RowCodec``."""


def reader_of(codec: "Codec", context: Context) -> NativeReader | None:
    """Return the native codec of a collection; None where the Python codec takes all of its documents."""
    if native.module() is None:
        return None
    try:
        plan = plan_of(codec, context)
    except Unplannable:
        return None
    return _with_codec(plan)


def reader_for_tenant(context: Context, plan_for: Callable[[str], NativePlan]) -> NativeReader | None:
    """Return the native codec of a collection whose documents name no tenant, by the plan for the tenant of all.

    None where the Python codec takes all of its documents.
    """
    if native.module() is None:
        return None
    try:
        tenant = tenant_of(None, context, [], path="")
    except Rejected:
        return None
    return _with_codec(plan_for(tenant))


def _with_codec(plan: NativePlan) -> NativeReader:
    return NativeReader(plan, import_module("migrator_speedups.rows").RowCodec(plan))


def plan_of(codec: "Codec", context: Context) -> NativePlan:
    """Return the plan of a collection; raises ``Unplannable`` if it cannot have one."""
    mapped = codec.mapped
    derive = mapped.derive if mapped.derive_if is None and mapped.excerpt is None else None
    if any(function is not None for function in (mapped.admit, mapped.tenant, mapped.respell, derive)) or mapped.rows:
        raise Unplannable("a function, or the document, decides about every row")
    if codec.named_by:
        raise Unplannable("ids that follow from a field")
    if mapped.tables[0] in ("locks", "triggers"):
        raise Unplannable("a table whose rows need more than cells")
    return _Planner(codec, context).plan()


class _Planner:
    """Makes the plan of a collection."""

    def __init__(self, codec: "Codec", context: Context) -> None:
        self._codec, self._context, self._mapped = codec, context, codec.mapped
        self._formats = [copy_format.codec(rules.record) for rules in codec.tables]
        names = [
            f"{rules.name}.{name}"
            for rules, kind in zip(codec.tables, self._formats, strict=True)
            for name in kind.columns
        ]
        self._positions = {name: index for index, name in enumerate(names)}
        self._templates = [self._template(*one) for one in zip(codec.tables, self._formats, strict=True)]
        self._cells = [cell for cells in self._templates for cell in cells]
        self._id_columns = {"id-time": -1, "id-text": -1, "text": -1, "object-id-uuid": -1}
        self._id_longest = 0
        self._places: dict[str, int] = {}
        """Path of a field to the position of its step."""
        excerpt = self._mapped.excerpt
        self._excerpt = frozenset[str]() if excerpt is None else excerpt.fields
        self._of_excerpt = frozenset[str]() if excerpt is None else frozenset(excerpt.columns)

    def plan(self) -> NativePlan:
        """Return the plan."""
        if any(kind.columns[: len(_OWNER)] != _OWNER or kind.types["id"] != "uuid" for kind in self._formats):
            raise Unplannable("rows that name no document")
        self._check_columns()
        steps = self._steps(self._mapped.fields)
        for field in self._mapped.rare_fields:
            self._leave_out(field)
        expected = self._mapped.expects_trigger
        if expected and "triggers" not in self._mapped.tables:
            raise Unplannable("a finding about each document")
        return NativePlan(
            tables=tuple(self._table(index) for index in range(len(self._codec.tables))),
            steps=tuple(steps),
            collection=f"\0{self._mapped.name}\0".encode(),
            tenant=self._given_tenant(),
            id_time=self._id_columns["id-time"],
            id_longest=self._id_longest,
            id_text=self._id_columns["id-text"],
            id_plain=self._id_columns["text"],
            id_uuid=self._id_columns["object-id-uuid"],
            choices=tuple(self._choices()),
            run=self._run(),
            trigger=self._trigger(),
            expected=self._mapped.tables.index("triggers") if expected else -1,
            excerpt=self._planned_excerpt(),
            remainder=self._remainder(steps),
        )

    def _remainder(self, steps: Sequence[NativeStep]) -> NativeRemainder | None:
        """Return the part about remainders; None where another column keeps them, or a function names other rows."""
        mapped = self._mapped
        column = f"{mapped.tables[0]}.{_EXTRA}"
        if column not in self._positions or mapped.references:
            return None
        paths = {INHERITED, *mapped.fixed, *mapped.ignored_fields, *mapped.derived_paths}
        paths |= {path for field in mapped.all_fields for path in (field.path, *field.also)}
        paths |= {case.field for cases in mapped.choices.values() for case in cases if case.field}
        reserved = {"_id", *(path.partition(".")[0] for path in paths)}
        return NativeRemainder(
            column=self._positions[column],
            reserved=frozenset(name.encode() for name in reserved),
            losses=_losses(mapped.lost),
            learn=partial(_remainder_entry, column, tuple(step.key.decode() for step in steps)),
        )

    def _template(self, rules: Any, kind: copy_format.RowCodec) -> tuple[bytes | None, ...]:  # noqa: ANN401 - of ``codec``
        fields = {field.name: field for field in tables.fields_of(rules.record)}
        given = {"source": self._codec.source, **rules.initial}
        cells: list[bytes | None] = []
        for name in kind.columns:
            value = given.get(name, fields[name].default)
            if value is msgspec.NODEFAULT or value is None:
                if fields[name].default_factory is not msgspec.NODEFAULT:
                    raise Unplannable(f"a default of {name} that is made anew for each row")
                cells.append(None)
            else:
                cells.append(copy_format.cell(kind.types[name], value))
        return tuple(cells)

    def _table(self, index: int) -> NativeTable:
        rules = self._codec.tables[index]
        return NativeTable(
            record=rules.record,
            cells=self._templates[index],
            needed=tuple(self._positions[f"{rules.name}.{column}"] for column, *_ in rules.needed),
            keeps_uuid=rules.keeps_uuid,
            namespace=uuid5(identity.ROOT, rules.name).bytes,
            made_by=self._made_by(rules.name) if index else (),
            parents=tuple(
                (self._positions[f"{rules.name}.{column}"], self._mapped.tables.index(parent))
                for column, parent in rules.parents
            ),
        )

    def _made_by(self, table: str) -> tuple[int, ...]:
        """Return the columns of which one must be read, or there is no row of a table after the first."""
        if table == "triggers":
            columns = [f"triggers.{name}" for name in constraints.CAUSES]
        else:
            if any(tables.split(column)[0] == table for column in self._of_excerpt):
                raise Unplannable("a row of which a function says that there is one")
            columns = [column for field in self._mapped.all_fields for column in field.columns]
            columns = [column for column in columns if tables.split(column)[0] == table]
        positions = tuple(self._positions[column] for column in columns if column in self._positions)
        if any(self._cells[position] is not None for position in positions):
            raise Unplannable("a default of a column that makes a row")
        return positions

    def _check_columns(self) -> None:
        """Refuse what would need more than one pass: a column with two fields, a field within another."""
        fields = [field for field in self._mapped.all_fields if field.converter not in ("tenant", "own-id")]
        columns = [column for field in fields for column in field.columns]
        if len({*columns}) < len(columns):
            raise Unplannable("a column that several fields fill")
        if any(tables.member_of(column) == "" and column not in self._positions for column in columns):
            raise Unplannable("a column of another table")
        if any(tables.split(column)[1] in _OWNER for column in columns):
            raise Unplannable("a field that fills what follows from the document")
        paths = [field.path for field in self._mapped.all_fields] + [*self._mapped.fixed]
        if any(one != other and one.startswith(f"{other}.") for one in paths for other in paths) or (
            len({*paths}) < len(paths)
        ):
            raise Unplannable("a field within another one")
        taken = {column for field in self._mapped.fields for column in field.columns} | self._mapped.choices.keys()
        if not taken.isdisjoint(self._of_excerpt):
            raise Unplannable("a column that both a field and a function fill")

    def _given_tenant(self) -> bytes | None:
        if self._codec.is_native:
            return NO_TENANT.encode()
        if any(field.converter == "tenant" for field in self._mapped.fields):
            return None
        try:
            return tenant_of(None, self._context, [], path="").encode()
        except Rejected:
            raise Unplannable("documents without a tenant") from None

    def _run(self) -> tuple[int, ...]:
        if "runs" not in self._mapped.tables:
            return ()
        positions = tuple(self._positions[f"runs.{name}"] for name in _RUN)
        if any(self._cells[position] is not None for position in positions):
            raise Unplannable("a constant that completes a run")
        return positions

    def _trigger(self) -> NativeTrigger | None:
        if "triggers" not in self._mapped.tables:
            return None
        place = {name: self._positions[f"triggers.{name}"] for name in _TRIGGER}
        causes = constraints.CAUSES
        given = {name for name in _TRIGGER if self._cells[place[name]] is not None and name != "timezone"}
        if given or any(f"triggers.{name}" in self._mapped.choices for name in (*_TRIGGER, *causes)):
            raise Unplannable("a constant, or a choice, of what a trigger is completed with")
        if "triggers.anchor" in self._of_excerpt or any(field.local for field in self._mapped.all_fields):
            raise Unplannable("an anchor that a function says, or a zone of the source")

        def cell(name: str, value: str) -> bytes:
            return copy_format.cell(tables.type_of(f"triggers.{name}"), value)

        return NativeTrigger(
            table=self._mapped.tables.index("triggers"),
            causes=tuple(
                (self._positions[f"triggers.{column}"], cell("kind", kind))
                for column, kind in constraints.CAUSES.items()
            ),
            kind=place["kind"],
            anchor=place["anchor"],
            default_anchor=cell("anchor", "fixed_rate"),
            start=place["start_at"],
            end=place["end_at"],
            cron=(self._positions["triggers.cron_expression"], place["cron_dialect"], place["timezone"]),
            dialect=cell("cron_dialect", self._codec.dialect) if self._codec.may_fail else None,
            evaluable=self._codec.evaluable,
            of_events=(place["timezone"], place["next_fire_at"]),
        )

    def _planned_excerpt(self) -> NativeExcerpt | None:
        excerpt = self._mapped.excerpt
        if excerpt is None or self._codec.excerpt is None:
            return None
        fields = [field for field in self._mapped.fields if field.path in excerpt.fields]
        held = [tables.split(column)[0] for column in excerpt.columns]
        return NativeExcerpt(
            steps=tuple(self._places[field.path] for field in fields),
            columns=tuple(self._positions[column] for column in excerpt.columns),
            tables=sum(1 << index for index, name in enumerate(self._mapped.tables) if name in held),
            learn=self._codec.excerpt.memo_function([field.path for field in fields], self._context),
        )

    def _literals(self) -> Iterator[NativeStep]:
        for name, text in self._mapped.fixed.items():
            element = bson.encode({name: text})[4:-1]
            yield NativeStep(key=name.encode(), operation="literal", literal=element, required=True)

    def _steps(self, fields: Sequence[Field]) -> list[NativeStep]:
        """Return the steps: of what stands in each document, then of the fields, those of one document in a group.

        Fields of one document must stand together: then they are written together, whichever of them are there.
        """
        steps = list(self._literals())
        open_groups: list[tuple[str, int]] = []
        closed: set[str] = set()

        def close(down_to: int) -> None:
            while len(open_groups) > down_to:
                path, start = open_groups.pop()
                closed.add(path)
                steps[start] = msgspec.structs.replace(steps[start], stop=len(steps))

        for field in fields:
            step = self._step_or_none(field)
            if step is None:
                continue
            parents = field.path.split(".")[:-1]
            groups = [".".join(parents[: count + 1]) for count in range(len(parents))]
            same = 0
            while same < min(len(groups), len(open_groups)) and open_groups[same][0] == groups[same]:
                same += 1
            close(same)
            for name, path in zip(parents[same:], groups[same:], strict=True):
                if path in closed:
                    raise Unplannable("fields of one document that do not stand together")
                open_groups.append((path, len(steps)))
                steps.append(NativeStep(key=name.encode(), operation="group"))
            self._places[field.path] = len(steps)
            steps.append(step)
        close(0)
        return steps

    def _step_or_none(self, field: Field) -> NativeStep | None:
        if field.path == "_id":
            self._take_id(field)
            return None
        if field.path in self._excerpt:
            _check_heeded(field, _OF_AN_EXCERPT)
            return NativeStep(key=field.path.encode(), operation="excerpt")
        try:
            return self._step(field)
        except (Unplannable, IndescribableError):
            self._leave_out(field)
            return None

    def _take_id(self, field: Field) -> None:
        operation = converters.CONVERTERS[field.converter].operation(field)
        kinds = [tables.type_of(column) for column in field.columns]
        is_timed = operation.name == "object-id-uuid" and kinds == ["uuid", "timestamptz"]
        if (
            operation.name not in self._id_columns
            or not (is_timed or len(kinds) == 1)
            or field.columns[0] in tables.INDEXED
        ):
            raise Unplannable("an _id that is read in another way")
        # of exact: the native codec takes no _id with NUL
        _check_heeded(field, _OF_THE_ID | operation.options)
        if is_timed:
            self._id_columns["id-time"] = self._positions[field.columns[1]]
        self._id_columns[operation.name] = self._positions[field.columns[0]]
        self._id_longest = tables.longest_of(field.columns[0])  # of a native target: characters, at most as many bytes

    def _choices(self) -> Iterator[tuple[int, tuple[Chosen, ...]]]:
        """Yield the columns that are chosen; a case for a field without a step is for the Python codec."""
        filled = {column for field in self._mapped.all_fields for column in field.columns}
        for column, cases in self._mapped.choices.items():
            if column not in self._positions or column in filled:
                raise Unplannable("a choice for what a field fills")
            chosen: list[Chosen] = []
            for case in cases:
                if case.field and case.field not in self._places:
                    self._check_absent(case.field)
                    continue
                if case.value is None or not (case.equals is None or isinstance(case.equals, str | bool)):
                    raise Unplannable("a choice by a number, or of nothing")
                cell = copy_format.cell(tables.type_of(column), case.value)
                equals = None if case.equals is None else value_of(case.equals)
                chosen.append((self._places[case.field] if case.field else -1, equals, cell))
            yield self._positions[column], tuple(chosen)

    def _check_absent(self, path: str) -> None:
        """Raise unless a plain document holds nothing at a path."""
        names = {field.path.partition(".")[0] for field in self._mapped.all_fields if field.path != path}
        if path.partition(".")[0] in {"_id", *names, *self._mapped.fixed}:
            raise Unplannable("a choice by a part of a field")

    def _leave_out(self, field: Field) -> None:
        """Leave out a field; raise if documents without it are not plain either."""
        _check_heeded(field, _OF_A_VALUE)
        for column in field.columns:
            position = self._positions.get(".".join((tables.split(column)[0], tables.split(column)[1].split(".")[0])))
            cell = None if position is None else self._cells[position]
            if cell is not None and (field.write_default or cell != self._default(field, column)):
                raise Unplannable(f"the field {field.path}, which is written of every row")

    def _is_default_of_columns(self, field: Field) -> bool:
        """Whether a column that no field fills holds the default of its field: then null makes the default."""
        return all(
            column in self._positions and self._cells[self._positions[column]] == self._default(field, column)
            for column in field.columns
        )

    def _default(self, field: Field, column: str) -> bytes | None:
        return None if field.default is None else copy_format.cell(tables.type_of(column), field.default)

    def _step(self, field: Field) -> NativeStep:
        converter = converters.CONVERTERS[field.converter]
        if field.write_null and field.default is not None and not self._is_default_of_columns(field):
            raise Unplannable(f"the field {field.path}, of which null is no default of the column")
        if any(map(tables.member_of, field.columns)) or not (field.columns or field.converter in ("tenant", "own-id")):
            raise Unplannable("a field that fills a part of a column, or none")
        operation = converter.operation(field)
        _check_heeded(field, _OF_EVERY_FIELD | operation.options | ({"shape"} if operation.shapes else set()))
        if operation.shapes and field.shape not in (None, *operation.shapes, *(one | None for one in operation.shapes)):
            raise Unplannable("a shape of its own")
        step = NativeStep(key=field.path.rpartition(".")[2].encode(), operation=operation.name, **operation.step)
        return msgspec.structs.replace(step, **self._common(field, step), **self._own(field, step))

    def _common(self, field: Field, step: NativeStep) -> dict[str, Any]:
        """Return the members of a step that no operation says."""
        column, *others = (self._positions[column] for column in field.columns) if field.columns else (-1,)
        taken = {one.split(".")[0] for one in (*(other.path for other in self._mapped.all_fields), *self._mapped.fixed)}
        none = none_of(field)
        return {
            "column": column,
            "others": tuple(others),
            "required": step.required or field.required or any(path.split(".")[0] in taken for path in field.also),
            "default": self._default(field, field.columns[0]) if field.columns else None,
            "written": field.write_default,
            "null_as": NULL if field.write_null else None if none is None else value_of(none),
        }

    def _own(self, field: Field, step: NativeStep) -> dict[str, Any]:
        """Return the members of a step that its operation leaves to what is around the field."""
        if step.operation == "tenant":
            return {"learn": self._tenant_entry}
        if step.operation == "memo":
            if len(field.columns) > 1:
                raise Unplannable("words in several columns")
            return {"learn": self._codec.memo_function(field, self._context)}
        if step.operation == "kombu-json":
            if RESULT not in self._places:
                raise Unplannable("a field in the serializer of a result that is not read before")
            return {"beside": self._places[RESULT]}
        if step.operation == "reference":
            target = tables.referred_table(field.columns[0])
            if not self._codec.keeps_uuids(target, field.collection):
                raise Unplannable("a reference whose id is not kept")
            return {"reference": -1 if field.loose else self._codec.reference_index(field)}
        derived = self._mapped.derive_if
        if step.shape is not None and derived is not None and field.path in derived.below_zero:
            return {"shape": _not_negative(step.shape)}
        return {}

    def _tenant_entry(self, value: bytes) -> MemoEntry:
        notes: list[Note] = []
        try:
            tenant_text = value_in(value)
            tenant = tenant_of(tenant_text, self._context, notes)
        except (documents.Undecodable, Rejected, TypeError, AttributeError):
            return None
        return None if notes or type(tenant_text) is not str else (tenant.encode(), value_of(tenant))


def value_in(value: bytes) -> Any:  # noqa: ANN401 - any BSON value
    """Return the value of BSON type and bytes; raises ``Undecodable``."""
    element = value[:1] + b"\0" + value[1:]
    return documents.decode((len(element) + 5).to_bytes(4, "little") + element + b"\0")[""]


def excerpt_values(names: Sequence[str], key: bytes) -> dict[str, bytes]:
    """Return BSON type and bytes of the fields that are there, by name, from the key of an excerpt."""
    values, place = {}, 1
    for name in names:
        kind, place = key[place : place + 1], place + 1
        if kind != b"\0":
            end = place + 4 + int.from_bytes(key[place : place + 4], "little")
            values[name] = kind + key[place + 4 : end]
            place = end
    return values


def value_of(value: object) -> bytes:
    """Return BSON type and bytes of a value."""
    element = bson.encode({"": value}, codec_options=documents.OPTIONS)[4:-1]
    return element[:1] + element[2:]


def _losses(lost: Mapping[str, DeclaredLoss]) -> dict[bytes, bytes | None]:
    """Return ``NativeRemainder.losses``; of a loss within a field, each value but null may lose something."""
    losses: dict[bytes, bytes | None] = {path.partition(".")[0].encode(): None for path in lost}
    for path, loss in lost.items():
        if loss.unless is not None and not any(other.startswith(f"{path}.") for other in lost):
            losses[path.encode()] = value_of(loss.unless)
    return losses


def _remainder_entry(column: str, names: Sequence[str], key: bytes) -> RemainderEntry:
    """Return the remainder of marks and elements, as the Python codec computes it of a document that has them alone.

    It is compared member by member, so that the others do not matter. (``NativeRemainder.learn``.)
    """
    nulls: list[str] = []
    absent: list[str] = []
    place = 1
    while mark := key[place]:
        (absent if mark == _ABSENT else nulls).append(names[int.from_bytes(key[place + 1 : place + 3], "little")])
        place += 3
    elements = key[place + 1 :]
    raw = (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
    try:
        unknown = documents.decode(raw)
        if documents.encode(unknown) != raw:
            return None
        document, rebuilt = unknown | dict.fromkeys(nulls), dict.fromkeys(absent)
        left = remainder.difference(document, rebuilt)
        cell = copy_format.cell(tables.type_of(column), jsonb.as_sent(left))
        is_whole = same(remainder.apply(rebuilt, left), document)
    except (documents.Undecodable, UnicodeEncodeError, OverflowError, ValueError, bson.errors.BSONError):
        return None
    return (cell, left) if is_whole else None


def cell_of(column: str, held: object) -> bytes | None:
    """Return the cell of a value of ``table.column``, JSON in the spelling in which the server gives it back.

    None: it is for the Python codec.
    """
    if tables.type_of(column) != "jsonb":
        return copy_format.cell(tables.type_of(column), held)
    value = value_of(jsonb.decode(held))  # type: ignore[arg-type] # jsonb is bytes
    text = import_module("migrator_speedups.json_text").json_of(value[0], value[1:])
    return None if text is None else b"\x01" + text


def memo_entry(field: Field, value: bytes, held: Any) -> MemoEntry:  # noqa: ANN401 - the value of a column
    """Return the facts about a value of a field, which the column holds as ``held``."""
    write = converters.writer(field)
    try:
        written = value_of(held if write is None else write(held))
        cell = copy_format.cell(tables.type_of(field.columns[0]), held)
    except (copy_format.NulInTextError, UnicodeEncodeError, OverflowError, bson.errors.BSONError):
        return None
    return (cell, written) if written == value else None


@cache
def _members_of(kind: type[Field]) -> tuple[tuple[str, Any], ...]:
    """Return the members of a field with their defaults: msgspec evaluates the annotations at each call."""
    return tuple(
        (member.name, {} if member.default is msgspec.NODEFAULT else member.default)
        for member in msgspec.structs.fields(kind)
    )


def _check_heeded(field: Field, heeded: AbstractSet[str]) -> None:
    """Raise ``Unplannable`` for a field with a member that is not heeded and does not have its default."""
    for name, default in _members_of(type(field)):
        if name not in heeded and getattr(field, name) != default:
            raise Unplannable(f"{name} of the field {field.path}")


def _not_negative(shape: Description) -> Description:
    """Return the description of documents that hold no number below zero."""
    match shape:
        case ("int", least, most):
            return ("int", max(0, least), most)
        case ("union", inner):
            return ("union", tuple(map(_not_negative, inner)))
        case ("members", members):
            return ("members", tuple((name, _not_negative(inner), required) for name, inner, required in members))
    return shape
