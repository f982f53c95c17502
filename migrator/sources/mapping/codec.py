"""From a mapping to a profile: decode, encode, known fields, references and aggregates of each collection.

``decode`` reads the fields of a document with one check of their types (``shapes.read``), converts each value, and
makes a row of each table that something was found for. ``encode`` writes the fields back from the rows. Both follow
from the same fields, and ``pipeline.transform`` computes the remainder between them, so that nothing is lost where a
converter does not lead back exactly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from migrator import constraints, cron
from migrator.cron import CronError
from migrator.records import Record, Trigger
from migrator.sources import aggregates
from migrator.sources.mapping import compiled, converters, native_plan, tables
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.converters.base import UNEVALUABLE, Reader, Writer, value_at
from migrator.sources.mapping.converters.ids import named_by
from migrator.sources.mapping.converters.numbers import none_of
from migrator.sources.mapping.excerpts import ExcerptCodec
from migrator.sources.mapping.language import Case, Field, Mapped, Reading, SourceMapping, When
from migrator.sources.mapping.measures import measures_of, tenant_sql
from migrator.sources.profile import (
    INHERITED,
    MONGODB,
    POSTGRESQL,
    Collection,
    Context,
    Decoded,
    Document,
    Note,
    Profile,
    Reference,
    Rejected,
    Rows,
    Skipped,
)
from migrator.sources.shapes import Shape, paths_of_type, read
from migrator.sources.tenants import BLANK, NO_TENANT, first_said, tenant_of
from migrator.targets.model import SCHEDULER
from migrator.values import document as documents
from migrator.values import identity, jsonb, times

NO_TRIGGER: Final = "no-trigger"


def profile_of_mapping(
    mapping: SourceMapping, version: int, servers: tuple[str, ...] = (MONGODB, POSTGRESQL)
) -> Profile:
    """Return the profile of a mapping that ``file`` has checked."""
    by_name = {one.name: one for one in mapping.collections}
    return Profile(
        name=mapping.name,
        version=version,
        documents=mapping.documents,
        left_out=mapping.left_out,
        signs=mapping.signs,
        target=mapping.target,
        servers=servers,
        collections=tuple(collection_of(mapping, by_name[name]) for name in load_order(mapping)),
        slots="runs" if MONGODB in servers and any(map(_says_when_run, mapping.collections)) else "",
    )


def _says_when_run(one: Mapped) -> bool:
    """Whether documents of a collection are runs that name their schedule, and when they began."""
    columns = {column for shape in one.shapes() for field in shape.all_fields for column in field.columns}
    return "runs.schedule_id" in columns and not columns.isdisjoint(("runs.scheduled_at", "runs.started_at"))


def load_order(mapping: SourceMapping) -> tuple[str, ...]:
    """Return the collections with each after those that it refers to; a reference into itself does not count.

    Collections that refer to each other keep the order of the mapping.
    """
    waiting = {one.name: _referred(one) for one in mapping.collections}
    ordered: list[str] = []
    while waiting:
        ready = next((name for name, parents in waiting.items() if not parents & waiting.keys()), next(iter(waiting)))
        ordered.append(ready)
        del waiting[ready]
    return tuple(ordered)


def _referred(one: Mapped) -> set[str]:
    fields = (field for shape in one.shapes() for field in shape.all_fields)
    return {field.collection for field in fields if field.collection and not field.loose} - {one.name}


class _Place:
    """A path at which a field is read."""

    def __init__(self, codec: "Codec", field: Field, path: str, attribute: str) -> None:
        here = msgspec.structs.replace(field, path=path, also=())
        self.path = path
        self.get = _getter(attribute)
        self.targets = tuple(
            (table, *tables.split(column), convert) for table, column, convert in _targets(codec, here)
        )
        """Table, column, member of the object that it holds (empty: the whole column), and reader."""


class _Step:
    """A field that is found in another way than by its name alone, or that fills several columns."""

    def __init__(self, codec: "Codec", field: Field, attributes: Mapping[str, str]) -> None:
        self._finding = "alias" if field.finding is None else field.finding
        self._places = tuple(_Place(codec, field, path, attributes[path]) for path in (field.path, *field.also))

    def read(self, found: Shape, reading: Reading) -> None:
        """Fill the columns of the field from the first path that holds something."""
        for place in self._places:
            value = place.get(found)
            if value is None:
                continue
            if place is not self._places[0] and self._finding:
                reading.notes.append(Note(self._finding, place.path))
            for table, column, member, convert in place.targets:
                converted = value if convert is None else convert(value, reading)
                if converted is None:
                    continue
                columns = reading.columns[table]
                if not member:
                    columns[column] = converted
                elif column in columns:
                    columns[column][member] = converted
                else:
                    columns[column] = {member: converted}
            return


def _targets(codec: "Codec", field: Field) -> tuple[tuple[str, str, Reader | None], ...]:
    """Return table, column and reader of each column that a field fills; an own id is read, and fills none."""
    if field.converter in ("own-id", "refused"):
        return ((codec.first, "", converters.reader(field, "")),)
    readers = [(*tables.split(column), codec.reader(field, column)) for column in field.columns]
    if field.local:
        return tuple((table, column, _in_zone(field.path, convert)) for table, column, convert in readers)
    return tuple(readers)


def _in_zone(path: str, convert: Reader | None) -> Reader:
    """Return the reader that gives the trigger the zone of the source, in which a BSON date is a local time."""

    def read(value: Any, reading: Reading) -> Any:  # noqa: ANN401 - a field's value
        zone = reading.context.zone
        if zone is None:
            raise Rejected("no-zone", path, "the setting source.zone, since the value was meant in local time")
        reading.columns["triggers"]["timezone"] = zone
        if isinstance(value, datetime):
            try:
                value = times.instant_of(value, cron.zone(zone)[0])
            except OverflowError:
                raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None
        return value if convert is None else convert(value, reading)

    return read


class _Part:
    """Fields that are read and written together."""

    def __init__(self, codec: "Codec", name: str, fields: Sequence[Field]) -> None:
        self.shape, self.attributes = _shape_of(name, fields)
        self.keys = frozenset(field.path.partition(".")[0] for field in fields)
        places: dict[str, tuple[str, str, Reader | None] | None] = dict.fromkeys(self.shape.__struct_fields__)
        steps: list[_Step] = []
        for field in fields:
            if field.converter == "tenant":
                continue
            attribute = self.attributes[field.path]
            targets = _targets(codec, field)
            if "." in attribute or field.also or len(targets) > 1 or any(map(tables.member_of, field.columns)):
                steps.append(_Step(codec, field, self.attributes))
            elif targets:
                [places[attribute]] = targets
        self._fill = compiled.filling(tuple(places.values()))
        self._steps = tuple(steps)
        members = [
            column.rpartition(".")[0] for field in fields for column in field.columns if tables.member_of(column)
        ]
        self._shared = tuple(map(tables.split, dict.fromkeys(members)))
        """Tables and jsonb columns of which each field fills a member."""

    def read(self, found: Shape, reading: Reading) -> None:
        """Fill the columns of the fields."""
        self._fill(found, reading)
        for step in self._steps:
            step.read(found, reading)
        for table, column in self._shared:
            columns = reading.columns[table]
            if column in columns:
                columns[column] = jsonb.encode(columns[column])


class _Writer:
    """Writes fields from the columns of rows."""

    def __init__(self, mapped: Mapped, fields: Sequence[Field]) -> None:
        owner = mapped.tables[0]
        columns: dict[str, list[str]] = {table: [] for table in mapped.tables}
        objects: dict[str, list[str]] = {}
        self._functions: list[Callable[[Rows], Any]] = []
        entries: list[tuple[tuple[str, str], str, tuple[str, ...], Writer | None, bool]] = []
        for field in fields:
            table, column, write, is_null = owner, "", None, False
            if field.write is not None:
                table, column = "", str(len(self._functions))
                self._functions.append(field.write)
            elif field.converter in ("tenant", "own-id"):
                column = "tenant_id" if field.converter == "tenant" else "source_id"
                write = converters.writer(field) if field.converter == "own-id" else None
            elif field.columns and not _is_unwritten(field):
                table, column = tables.split(field.columns[0])
                nothing = NULL if field.write_null else None
                write = _unless_default(
                    None if field.write_default else field.default, converters.writer(field), nothing
                )
                name, member = tables.split(column)
                is_null = field.write_null and table == owner and not field.local
                function = None if is_null else _function_of(field, write)
                if member and function is None:
                    table, column = f"{table}.{name}", member
                    objects.setdefault(table, []).append(member)
                elif function is not None:
                    table, column, write = "", str(len(self._functions)), None
                    self._functions.append(function)
            else:
                continue
            if table in columns:
                columns[table].append(column)
            *parents, name = field.path.split(".")
            entries.append(((table, column), name, tuple(parents), write, is_null))
        self._getters = tuple(
            (tables.record_of(table), _values(names), len(names)) for table, names in columns.items() if names
        )
        self._objects = tuple((*tables.split(place), members) for place, members in objects.items())
        """Table and jsonb column of an object, and its members that are written."""
        self._is_plain = bool(entries) and not self._functions and all(table == owner for (table, _), *_ in entries)
        flat = [(table, name) for table, names in (*columns.items(), *objects.items()) for name in names]
        flat += [("", str(index)) for index in range(len(self._functions))]
        first = {place: index for index, place in reversed([*enumerate(flat)])}
        positions = [first[place] for place, *_ in entries]
        self._pick: Callable[[Any], Any] = itemgetter(*positions) if len(positions) > 1 else tuple
        self._write = compiled.writing(
            [((*parents, name), write, is_null) for _, name, parents, write, is_null in entries]
        )
        self._nothing = () if any(is_null for *_, is_null in entries) else (None,) * len(entries)

    def write(self, rows: Rows, document: Document) -> None:
        """Add the fields to the document, without those of which the columns hold nothing."""
        values = self._getters[0][1](rows[0]) if self._is_plain else self._pick(self._gathered(rows))
        if values != self._nothing:
            self._write(values, document)

    def _gathered(self, rows: Rows) -> list[Any]:
        values: list[Any] = []
        for record, get, count in self._getters:
            row = next((row for row in rows if type(row) is record), None)
            values += (None,) * count if row is None else get(row)
        for table, column, members in self._objects:
            held = next((getattr(row, column) for row in rows if row.table == table), None)
            found = {} if held is None else jsonb.decode(held)
            values += [found.get(member) for member in members] if isinstance(found, dict) else [None] * len(members)
        values += [function(rows) for function in self._functions]
        return values


def _values(columns: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that reads these columns of a row."""
    if len(columns) == 1:
        [column] = columns
        return lambda row: (getattr(row, column),)
    return attrgetter(*columns)


def _is_unwritten(field: Field) -> bool:
    """Whether a field is never written: the ``_id`` follows from the source id, a reference has a spelling."""
    return field.path == "_id" or (field.converter == "reference" and not (field.prefix or field.id_type))


def _unless_default(default: object, write: Writer | None, nothing: object) -> Writer | None:
    """Return the writer that writes ``nothing`` for the default: null, or None, which is not written."""
    if default is None:
        return write
    return lambda value: nothing if value == default else value if write is None else write(value)


def _function_of(field: Field, write: Writer | None) -> Callable[[Rows], Any] | None:
    """Return the function that writes a field for which the value of its column does not suffice; None for others."""
    table, column = tables.split(field.columns[0])
    name, member = tables.split(column)
    if field.columns[0] == "locks.key":
        return _resource
    is_local = field.local and field.converter == "time"
    none = NULL if field.write_null else none_of(field)
    if not is_local and none is None:
        return None
    record = tables.record_of(table)

    def written(rows: Rows) -> Any:  # noqa: ANN401 - the value of a field
        row: Any = next((row for row in rows if type(row) is record), None)
        if row is None:
            return None
        held = getattr(row, name)
        if member and held is not None:
            members = jsonb.decode(held)
            held = members.get(member) if isinstance(members, dict) else None
        if held is None:
            return none
        if is_local:
            if row.timezone is None:
                return None
            held = times.wall_clock(held, cron.zone(row.timezone)[0])
        value = held if write is None else write(held)
        return NULL if value is None and field.write_null else value

    return written


def _resource(rows: Rows) -> str:
    """Return the key of a lock without the tenant."""
    row: Any = rows[0]
    key: str = row.key
    return key.removeprefix(f"{row.tenant_id}/")


class _Choice:
    """A column whose value is chosen by what other fields hold."""

    def __init__(self, column: str, cases: Sequence[Case]) -> None:
        self.column = tables.split(column)[1]
        self._cases = tuple((one.field.split(".") if one.field else (), one.equals, one.value) for one in cases)

    def value(self, document: Document) -> Any:  # noqa: ANN401 - a value of the column
        """Return the value of the first case that applies; None if no case does."""
        for names, equals, value in self._cases:
            held = value_at(document, names) if names else True
            if held is not None and (equals is None or _is_equal(held, equals)):
                return value
        return None


def _is_equal(held: object, value: object) -> bool:
    return held == value and isinstance(held, bool) == isinstance(value, bool)


class _Table:
    """One table that documents feed, and what its rows have besides what is read."""

    def __init__(self, mapping: SourceMapping, mapped: Mapped, name: str) -> None:
        fields = [field for field in mapped.all_fields if any(tables.split(one)[0] == name for one in field.columns)]
        self.name = name
        self.record = tables.record_of(name)
        self.keeps_uuid = _keeps_uuids(mapping, mapped, name)
        self.constants = {tables.split(one)[1]: value for one, value in mapped.constants.items() if _is_of(one, name)}
        self.initial = self.constants | {
            tables.split(one)[1]: field.default
            for field in fields
            if field.default is not None
            for one in field.columns
            if _is_of(one, name)
        }
        """Column to the value that it begins with: constants, and defaults of the fields."""
        self.defaults = {
            field.name: field.default
            for field in tables.fields_of(self.record)
            if field.default is not msgspec.NODEFAULT
        }
        """Of the record."""
        self.parents = tuple(
            (column, parent)
            for column, parents in tables.references_of(name).items()
            for parent in parents
            if parent in mapped.tables and parent != name
        )
        self.needed = tuple(
            (column, *_missing(mapped, fields, f"{name}.{column}")) for column in sorted(tables.needed_columns(name))
        )
        self.is_completed = name in ("locks", "runs", "triggers")


def _is_of(column: str, table: str) -> bool:
    return tables.split(column)[0] == table


def _missing(mapped: Mapped, fields: Sequence[Field], column: str) -> tuple[str, str, str]:
    """Return the reason for which a document without the column is quarantined, a path, and what is expected there."""
    field = next((field for field in fields if column in field.columns), None)
    if field is not None:
        return "missing-field", field.path, "a value" if field.required else f"a value for {column}"
    case = next((case for case in mapped.choices.get(column, ()) if case.option), None)
    if case is not None:
        return "unknown-value", case.field, f"one of those that target.options.{case.option} names"
    return "missing-field", "", f"a value for {column}"


class Codec:
    """Decodes and encodes the documents of one collection of a mapping that ``file`` has checked."""

    def __init__(self, mapping: SourceMapping, mapped: Mapped) -> None:
        self._mapping, self.mapped = mapping, mapped
        self.source = f"{mapping.name}/{mapped.name}"
        self.first = mapped.tables[0]
        self.is_native = mapping.target != SCHEDULER
        """It feeds the tables of a native target."""
        self.named_by = mapping.named_by(mapped.name)
        self.tables = tuple(_Table(mapping, mapped, name) for name in mapped.tables)
        self.excerpt = None if mapped.excerpt is None else ExcerptCodec(self, mapped.excerpt)
        self._part = _Part(self, mapped.name, mapped.fields)
        self._further = _Part(self, mapped.name, mapped.rare_fields) if mapped.rare_fields else None
        self._writers = tuple(_Writer(mapped, fields) for fields in (mapped.fields, mapped.rare_fields) if fields)
        attributes = self._part.attributes
        self._tenant = next((field for field in mapped.fields if field.converter == "tenant"), None)
        self._read_tenant = None if self._tenant is None else _getter(attributes[self._tenant.path])
        self._choices = {
            table: tuple(_Choice(column, cases) for column, cases in mapped.choices.items() if _is_of(column, table))
            for table in mapped.tables
        }
        self.dialect = next((field.dialect for field in mapped.fields if field.dialect), "")
        self._is_local = any(field.local for field in mapped.all_fields)
        self.may_fail = "triggers" in mapped.tables and (bool(self.dialect) or mapped.tables[0] != "triggers")
        """A trigger is evaluated, unless it is a row of our own that a store checked."""
        self._zone = next((one.initial.get("timezone") for one in self.tables if one.name == "triggers"), None)
        self._fixed = {path: value for path, value in mapped.fixed.items() if "." not in path}
        self._fixed_within = tuple((path.split("."), value) for path, value in mapped.fixed.items() if "." in path)
        """Those inside a document that a field is written into."""
        self._paths = {column: field.path for field in reversed(mapped.all_fields) for column in field.columns}
        self._present = {
            table: tuple(_getter(attributes[path]) for path in paths) for table, paths in mapped.rows.items()
        }

    def decode(self, document: Document, context: Context) -> Decoded:
        """Return the rows of a document.

        Raises ``Rejected`` for a document that must be quarantined, ``Skipped`` for a lock that had expired.
        """
        mapped, part = self.mapped, self._part
        if "_id" not in document:
            raise Rejected("missing-field", "_id", "a value")
        if mapped.admit is not None:
            mapped.admit(document, context)
        shape = read(document, part.shape)
        notes: list[Note] = []
        tenant = self._tenant_of(shape, document, context, notes)
        reading = Reading(document, tenant, context, {table: {} for table in mapped.tables}, notes)
        part.read(shape, reading)
        further = self._further
        if further is not None and not further.keys.isdisjoint(document):
            further.read(read(document, further.shape), reading)
        if mapped.choices:
            self._choose(mapped.tables[0], reading)
        if self._is_local and context.zone is not None:
            reading.columns["triggers"]["timezone"] = context.zone  # of every trigger: a time may be added to it
        if self.excerpt is not None:
            self.excerpt.derive(document, reading, context)
        elif mapped.derive is not None:
            mapped.derive(document, reading, context)
        self.evaluate(reading)
        rows = self._rows(shape, reading)
        if mapped.tables[0] == "locks":
            lock: Any = rows[0]
            context.skip_expired_lock(lock.expires_at)
        if mapped.expects_trigger and "triggers" not in {*(row.table for row in rows), *reading.unusable}:
            notes.append(Note(NO_TRIGGER, ""))
        return Decoded(rows, (*notes, *reading.unusable.values()) if reading.unusable else tuple(notes))

    def encode(self, rows: Rows) -> Document:
        """Return the document as far as the columns carry it."""
        owner: Any = rows[0]
        document: Document = {"_id": identity.parse_source_id(owner.source_id or ""), **self._fixed}
        for writer in self._writers:
            writer.write(rows, document)
        for names, value in self._fixed_within:
            inner = value_at(document, names[:-1])
            if isinstance(inner, dict):
                inner.setdefault(names[-1], value)
        if self.excerpt is not None:
            self.excerpt.respell(rows, document)
        elif self.mapped.respell is not None:
            self.mapped.respell(rows, document)
        return document

    def could_make(self, rows: Rows) -> bool:
        """Whether documents of this kind can have made these rows.

        It follows from the ``_id`` if the kind is told by it, else from the tables, from what makes a trigger fire, and
        from the constants.
        """
        owner: Any = rows[0]
        when = self.mapped.when
        if when is not None and when.path == "_id":
            return _applies(when, {"_id": identity.parse_source_id(owner.source_id)})
        filled = {column for field in self.mapped.all_fields for column in field.columns}
        causes = {kind for column, kind in constraints.CAUSES.items() if f"triggers.{column}" in filled}
        if any(isinstance(row, Trigger) and row.kind not in causes for row in rows):
            return False
        constants = {table.name: table.constants for table in self.tables}
        return all(row.table in constants for row in rows) and all(
            getattr(row, column) == value for row in rows for column, value in constants[row.table].items()
        )

    def reader(self, field: Field, column: str) -> Reader | None:
        """Return the function that reads a field for a column; the value as it is if there is none."""
        table = tables.referred_table(column)
        keeps_uuid = field.collection != "" and self.keeps_uuids(table, field.collection)
        return converters.reader(field, column, keeps_uuid=keeps_uuid)

    def memo_function(self, field: Field, context: Context) -> Callable[[bytes], native_plan.MemoEntry]:
        """Return the function that reads and writes a value of a field for the native codec (``native_plan.Step``).

        The field must fill one column, and its converter may look at nothing but its value.
        """
        alone = msgspec.structs.replace(field, path="value", also=(), required=True)
        part = _Part(self, self.mapped.name, (alone,))
        table, column = tables.split(field.columns[0])

        def entry_of(value: bytes) -> native_plan.MemoEntry:
            try:
                document = {"value": native_plan.value_in(value)}
                reading = Reading(document, "", context, {name: {} for name in self.mapped.tables}, [], {})
                part.read(read(document, part.shape), reading)
            except (documents.Undecodable, Rejected):
                return None
            held = reading.columns[table].get(column)
            if held is None or reading.notes or reading.unusable:
                return None
            return native_plan.memo_entry(field, value, held)

        return entry_of

    def computed_id(self, table: str, row: Any) -> UUID:  # noqa: ANN401 - a row that names its document
        """Return the id that a row of a table has unless the document names another one."""
        rules = next(one for one in self.tables if one.name == table)
        return identity.row_id(table, row.tenant_id, self.mapped.name, row.source_id or "", keep_uuid=rules.keeps_uuid)

    def evaluable(self, key: bytes) -> tuple[()] | None:
        """Tell the native codec whether a cron line can be evaluated (``native_plan.NativeTrigger.evaluable``)."""
        dialect, line, *zone = key[2:].decode().split("\0")
        return () if _is_evaluable(dialect, line, *zone or (None,)) else None

    def shape_of_fields(self, names: Sequence[str]) -> type[Shape]:
        """Return the type of documents that have these fields alone."""
        return _Part(self, self.mapped.name, [field for field in self.mapped.fields if field.path in names]).shape

    def row_of(self, table: str, shape: Shape, reading: Reading) -> dict[str, Any] | None:
        """Return the columns of a row as far as they were read, with defaults; None if there is no such row."""
        rules = next(one for one in self.tables if one.name == table)
        if rules is not self.tables[0] and not self._is_made(table, shape, reading):
            return None
        columns = {**rules.initial, **reading.columns[table]}
        if table == "triggers":
            tables.complete_trigger(columns)
        return {**rules.defaults, **columns}

    def keeps_uuids(self, table: str, collection: str) -> bool:
        """Whether the rows that a table holds for a collection keep the UUIDs of the documents' ``_id``."""
        return _first_feeding(self._mapping, table) == collection

    def reference_index(self, field: Field) -> int:
        """Return the position of a field's reference among those of the collection."""
        table, column = tables.split(field.columns[0])
        places = [(one.record.table, one.column, one.collection) for one in _references(self.mapped.all_fields)]
        return places.index((table, column, field.collection))

    def _tenant_of(self, shape: Shape, document: Document, context: Context, notes: list[Note]) -> str:
        field = self._tenant
        if field is None or self._read_tenant is None:
            if self.is_native:
                return NO_TENANT
            given = self.mapped.tenant
            return tenant_of(None, context, [], path="") if given is None else given(document, context)
        value = self._read_tenant(shape)
        if not field.also and field.shape is None:
            return tenant_of(value, context, notes, path=field.path)
        if field.shape is Any and value is not None and type(value) is not str:
            raise Rejected("wrong-type", field.path, "string")
        for path in field.also if field.also and _may_be_blank(value) and first_said(value) is None else ():
            other = value_at(document, path.split("."))
            if isinstance(other, str) and first_said(other) is not None:
                if field.finding != "":
                    notes.append(Note("alias", path) if field.finding is None else Note(field.finding, field.path))
                return tenant_of(other, context, notes, path=path if field.finding is None else field.path)
        return tenant_of(value, context, notes, path=field.path)

    def _choose(self, table: str, reading: Reading) -> None:
        """Fill the columns that are chosen by what fields hold."""
        for choice in self._choices[table]:
            value = choice.value(reading.document)
            if value is not None:
                reading.columns[table].setdefault(choice.column, value)

    def evaluate(self, reading: Reading) -> None:
        """Mark a trigger whose cron line cannot be evaluated: it would never fire."""
        if not self.may_fail:
            return
        trigger = reading.columns["triggers"]
        line = trigger.get("cron_expression")
        if line is None or "triggers" in reading.unusable:
            return
        zone = trigger.get("timezone", self._zone)
        if not _is_evaluable(trigger.setdefault("cron_dialect", self.dialect), line, zone):
            del trigger["cron_dialect"]
            reading.unusable["triggers"] = Note(UNEVALUABLE, self._paths.get("triggers.cron_expression", ""))

    def _rows(self, shape: Shape, reading: Reading) -> Rows:
        """Return the rows: always one of the first table, and of each other one for which something was found."""
        if reading.unusable:
            note = reading.unusable.get(self.tables[0].name)
            if note is not None:
                raise Rejected("unknown-value", note.path, "a cron line and a zone that can be evaluated")
        source_id = identity.source_id(reading.document["_id"])
        first, *others = self.tables
        ids: dict[str, Any] = {}
        if not others:
            return (self._row(first, reading, ids, source_id),)
        made = [first]
        for table in others:
            if self._is_made(table.name, shape, reading):
                self._choose(table.name, reading)
                made.append(table)
        for table in made:
            ids[table.name] = reading.columns[table.name].get("id") or self._id_of(table, reading, source_id)
        return tuple([self._row(table, reading, ids, source_id) for table in made])

    def _id_of(self, table: _Table, reading: Reading, source_id: str) -> UUID:
        name = value_at(reading.document, self.named_by.split(".")) if self.named_by else None
        if name is not None:
            collection = named_by(self.mapped.name, self.named_by)
            return identity.row_id(table.name, reading.tenant, collection, identity.source_id(name), keep_uuid=False)
        return identity.row_id(table.name, reading.tenant, self.mapped.name, source_id, keep_uuid=table.keeps_uuid)

    def _is_made(self, table: str, shape: Shape, reading: Reading) -> bool:
        """Whether the document makes a row of a table after the first."""
        if table in reading.unusable:
            return False
        if table in self._present:
            return any(get(shape) is not None for get in self._present[table])
        if table == "triggers":
            return not constraints.CAUSES.keys().isdisjoint(reading.columns[table])
        return bool(reading.columns[table])

    def _row(self, table: _Table, reading: Reading, ids: dict[str, Any], source_id: str) -> Record:
        columns = reading.columns[table.name]
        if table.initial:
            columns = {**table.initial, **columns}
        columns["id"] = ids[table.name] if ids else columns.get("id") or self._id_of(table, reading, source_id)
        columns["tenant_id"] = reading.tenant
        columns["source"] = self.source
        columns["source_id"] = source_id
        for column, parent in table.parents:
            if parent in ids:
                columns.setdefault(column, ids[parent])
        for column, reason, path, expected in table.needed:
            if columns.get(column) is None:
                raise Rejected(reason, path, expected)
        if table.is_completed:
            self._complete(table.name, columns, reading)
        return table.record(**columns)

    def _complete(self, table: str, columns: dict[str, Any], reading: Reading) -> None:
        """Add the columns that follow from others."""
        if table == "locks":
            columns["key"] = f"{reading.tenant}/{columns['key']}"
            columns["lock_id"] = identity.lock_id(columns["key"])
        elif table == "triggers":
            tables.complete_trigger(columns)
        elif not tables.complete_run(columns):
            reading.notes.append(Note("finished-before-started", self._paths.get("runs.finished_at", "")))


def _may_be_blank(value: str | None) -> bool:
    return not value or value[0] in BLANK


@lru_cache(maxsize=4_096)
def _is_evaluable(dialect: str, line: str, zone: str | None) -> bool:
    """Whether a dialect can evaluate a line; cached, since schedules repeat a few lines."""
    try:
        cron.validate(dialect, line, zone)
    except CronError:
        return False
    return True


class _Kinds:
    """Decodes and encodes the documents of a collection that holds several kinds."""

    def __init__(self, mapping: SourceMapping, mapped: Mapped) -> None:
        self._kinds = tuple(
            (name, kind, None if kind.skipped else Codec(mapping, kind)) for name, kind in mapped.kinds.items()
        )
        described = [(kind, codec) for _, kind, codec in self._kinds if codec is not None]
        self._codecs = tuple(codec for _, codec in sorted(described, key=lambda one: -len(one[0].constants)))
        self._expected = "a document of one of the kinds " + ", ".join(mapped.kinds)

    def decode(self, document: Document, context: Context) -> Decoded:
        """Return the rows of a document by the first kind that describes it."""
        for name, kind, codec in self._kinds:
            if (kind.when is None or _applies(kind.when, document)) and (
                kind.applies is None or kind.applies(document)
            ):
                if codec is None:
                    raise Skipped(f"kind {name}")
                return codec.decode(document, context)
        raise Rejected("unknown-value", "", self._expected)

    def encode(self, rows: Rows) -> Document:
        """Return the document of the kind with most constants of those that could have made the rows."""
        chosen = next((codec for codec in self._codecs if codec.could_make(rows)), self._codecs[0])
        return chosen.encode(rows)


def _applies(when: When, document: Document) -> bool:
    held = value_at(document, when.path.split("."))
    if when.present is not None and (held is not None) != when.present:
        return False
    if when.equals is not None and not _is_equal(held, when.equals):
        return False
    return not when.begins or (isinstance(held, str) and held.startswith(when.begins))


def collection_of(mapping: SourceMapping, mapped: Mapped) -> Collection:
    """Return a collection of a mapping as the pipeline takes it."""
    codec = _Kinds(mapping, mapped) if mapped.kinds else Codec(mapping, mapped)
    is_native = mapping.target != SCHEDULER
    shapes = mapped.shapes()
    fed = tuple(dict.fromkeys(table for shape in shapes for table in shape.tables))
    fields = [field for shape in shapes for field in shape.all_fields]
    measures = mapped.measures
    if measures is None:
        measures = () if mapped.kinds else tuple(measures_of(mapped))
    return Collection(
        name=mapped.name,
        tables=tuple(map(tables.record_of, fed)),
        decode=codec.decode,
        encode=codec.encode,
        references=(*_references(fields), *mapped.references),
        after=tuple(sorted(_referred(mapped))),
        tenant_expression=_tenant_expression(fields) or ({"$literal": NO_TENANT} if is_native else None),
        measures=measures,
        tenant_sql=mapped.tenant_sql or tenant_sql(fields) or (f"'{NO_TENANT}'" if is_native else ""),
        key=mapped.key,
        inherited=mapped.inherited,
        unique=tables.unique_of(fed[0]),
        unique_among=tables.unique_among_of(fed[0]),
        reference_paths=frozenset(field.path for field in fields if field.converter == "reference"),
        known=frozenset(
            path
            for shape in (mapped, *mapped.kinds.values())
            for path in _known(shape)
            if path.partition(".")[0] != INHERITED
        ),
        lost={path: why for shape in shapes for path, why in shape.lost.items()},
        history=mapped.history,
        derived=mapped.ignored_fields,
        object_ids=any(shape.object_ids for shape in shapes),
        meanings=dict(_meanings(fields)),
        native=None if isinstance(codec, _Kinds) else lru_cache(maxsize=2)(partial(native_plan.reader_of, codec)),
    )


def _meanings(fields: Sequence[Field]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield the columns of the first table that say in several ways the same, with what tells what they say."""
    for field in fields:
        meaning = converters.CONVERTERS[field.converter].meaning(field)
        if meaning is not None:
            yield tables.split(field.columns[0])[1], meaning


def _references(fields: Sequence[Field]) -> Iterator[Reference]:
    """Yield the references; fields of several kinds that fill one column make one."""
    references: dict[tuple[str, str], list[Field]] = {}
    for field in fields:
        if field.converter == "reference" and not field.loose:
            references.setdefault((field.columns[0], field.collection), []).append(field)
    for (place, collection), same in references.items():
        table, column = tables.split(place)
        yield Reference(
            record=tables.record_of(table),
            column=column,
            target=tables.record_of(tables.referred_table(place)),
            required=column in tables.needed_columns(table),
            collection=collection,
            named=None if same[0].by else partial(_named, fields=tuple(same)),
            by=same[0].by,
            shared=same[0].shared,
            prefix=same[0].prefix,
            path=same[0].path if _is_unwritten(same[0]) and len({one.path for one in same}) == 1 else "",
        )


def _named(document: Document, fields: Sequence[Field]) -> str | None:
    """Return the source id of the document that a reference names; the text of one is taken as it stands."""
    for field in fields:
        for path in (field.path, *field.also):
            value = value_at(document, path.split("."))
            if value is not None and (not field.prefix or isinstance(value, str)):
                return identity.source_id(value)
    return None


def _tenant_expression(fields: Sequence[Field]) -> Any:  # noqa: ANN401 - a MongoDB expression
    tenants = [field for field in fields if field.converter == "tenant"]
    paths = list(dict.fromkeys(f"${path}" for field in tenants for path in (field.path, *field.also)))
    return aggregates.tenant(*paths[1:], field=paths[0]) if paths else None


def _known(mapped: Mapped) -> Iterator[str]:
    yield "_id"
    yield from mapped.derived_paths
    yield from mapped.ignored_fields
    for path in mapped.fixed:
        yield from _beginnings(path)
    for path in mapped.lost:
        yield from _beginnings(path)
    for field in mapped.all_fields:
        for path in (field.path, *field.also):
            yield from _beginnings(path)
            yield from (f"{path}.{name}" for name in field.inner_paths)
            if field.converter == "texts":
                yield f"{path}[]"
            if field.shape is not None:
                yield from (f"{path}{inner}" for inner in paths_of_type(field.shape))
    if mapped.when is not None:
        yield from _beginnings(mapped.when.path)
    for cases in mapped.choices.values():
        for case in cases:
            yield from _beginnings(case.field)


def _beginnings(path: str) -> Iterator[str]:
    names = path.split(".") if path else []
    yield from (".".join(names[:count]) for count in range(1, len(names) + 1))


def _keeps_uuids(mapping: SourceMapping, mapped: Mapped, table: str) -> bool:
    """Whether the rows of a table keep the UUIDs of the documents' ``_id``."""
    return mapped.name == _first_feeding(mapping, table) if mapped.keeps_uuids is None else mapped.keeps_uuids


def _first_feeding(mapping: SourceMapping, table: str) -> str:
    """Return the collection whose documents keep their UUIDs: the first with this first table, else with this table."""

    def shapes() -> Iterator[tuple[str, tuple[str, ...]]]:
        return ((one.name, shape.tables) for one in mapping.collections for shape in one.shapes())

    first = next((name for name, fed in shapes() if fed[:1] == (table,)), None)
    return next((name for name, fed in shapes() if table in fed), "") if first is None else first


def _getter(attribute: str) -> Callable[[Any], Any]:
    """Return the function that reads an attribute; None if a document on the way to it is absent or null."""
    names = attribute.split(".")
    if len(names) == 1:
        return attrgetter(attribute)

    def read_inner(shape: Any) -> Any:  # noqa: ANN401 - the value of a field
        for name in names:
            shape = getattr(shape, name)
            if shape is None:
                break
        return shape

    return read_inner


def _shape_of(collection: str, fields: Sequence[Field]) -> tuple[type[Shape], dict[str, str]]:
    """Return the shape of the documents, and the attribute path of each field in it."""
    tree: dict[str, Any] = {}
    paths = {field.path for field in fields}
    for field in fields:
        for path in (field.path, *field.also):
            if any(other in paths for other in _beginnings(path.rpartition(".")[0])):
                continue  # a further path of the tenant, inside a field whose shape checks it
            *parents, name = path.split(".")
            place = tree
            for parent in parents:
                place = place.setdefault(parent, {})
            place[name] = msgspec.structs.replace(field, path=path, also=())
    attributes: dict[str, str] = {}
    return _struct_of(collection, tree, "", attributes), attributes


def _struct_of(name: str, tree: Mapping[str, Any], prefix: str, attributes: dict[str, str]) -> type[Shape]:
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for index, (key, inner) in enumerate(tree.items()):
        attribute = f"f{index}"
        names[attribute] = key
        if isinstance(inner, Field):
            attributes[inner.path] = f"{prefix}{attribute}"
            default = msgspec.NODEFAULT if inner.required and inner.default is None else None
            fields.append((attribute, converters.shape_of(inner), default))
        else:
            struct = _struct_of(f"{name}.{key}", inner, f"{prefix}{attribute}.", attributes)
            fields.append((attribute, struct | None, None))
    made = msgspec.defstruct(name, fields, bases=(Shape,), rename=names, kw_only=True, gc=False)
    return cast("type[Shape]", made)
