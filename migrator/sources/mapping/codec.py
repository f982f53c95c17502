"""From a mapping to a profile: decode, encode, known fields, references and aggregates of each collection.

``decode`` reads the fields of a document with one check of their types (``shapes.read``), converts each value, and
makes a row of each table that something was found for. ``encode`` writes the fields back from the rows. Both follow
from the same fields, and ``pipeline.transform`` computes the remainder between them, so that nothing is lost where a
converter does not lead back exactly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final, cast

import msgspec

from migrator import cron
from migrator.cron import CronError, ZoneError
from migrator.records import Lock, Record, attach_extra, remainder_of
from migrator.sources import aggregates
from migrator.sources.mapping import converters, tables
from migrator.sources.mapping.language import Case, Field, Mapped, Reading, SourceMapping, When
from migrator.sources.mapping.measures import measures_of
from migrator.sources.mapping.table_measures import tenant_sql
from migrator.sources.profile import (
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
from migrator.sources.shapes import Shape, paths_of_type, read, text
from migrator.sources.tenants import tenant_of
from migrator.values import identity, jsonb, times

UNEVALUABLE: Final = "unevaluable-cron"
UNKNOWN_ZONE: Final = "unknown-zone"
NO_TRIGGER: Final = "no-trigger"
_NOTHING: Final = object()
"""In place of the value of a field: the field is not written."""


def profile_of_mapping(mapping: SourceMapping, version: int) -> Profile:
    """Return the profile of a mapping that ``file`` has checked."""
    by_name = {one.name: one for one in mapping.collections}
    return Profile(
        name=mapping.name,
        version=version,
        documents=mapping.documents,
        servers=(MONGODB, POSTGRESQL),
        collections=tuple(_collection(mapping, by_name[name]) for name in load_order(mapping)),
    )


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
    fields = (field for shape in one.shapes() for field in shape.fields)
    return {field.collection for field in fields if field.collection} - {one.name}


class _Place:
    """A path at which a field is read."""

    def __init__(self, field: Field, path: str, attribute: str) -> None:
        here = msgspec.structs.replace(field, path=path)
        self.path = path
        self.get = _getter(attribute)
        self.names = tuple(path.split("."))
        self.targets = tuple((*tables.split(column), converters.reader(here, column)) for column in field.columns)


class _Step:
    """One field of a collection, ready to be read and written."""

    def __init__(self, field: Field, attributes: Mapping[str, str]) -> None:
        self.field = field
        self._places = tuple(_Place(field, path, attributes[path]) for path in (field.path, *field.also))
        self._is_raw = field.converter == "json" and field.shape is not None
        self.first = tables.split(field.columns[0]) if field.columns else ("", "")
        """Table and column that the field is written from."""
        self.names = self._places[0].names
        self.write = None if _is_unwritten(field) else converters.writer(field)
        self.none = converters.none_of(field)
        """What is written for a column that holds nothing."""

    def held(self, row: Any) -> Any:  # noqa: ANN401 - the value of a column, or of a member of it
        """Return what a row holds for the field."""
        column, member = tables.split(self.first[1])
        held = getattr(row, column)
        if not member or held is None:
            return held
        members = jsonb.decode(held)
        return members.get(member) if isinstance(members, dict) else None

    def written(self, rows: Mapping[str, Any], tenant: str) -> Any:  # noqa: ANN401 - the value of a field
        """Return what is written for the field, or ``_NOTHING``. ``rows``: table to row."""
        table, column = self.first
        if self.write is None or table not in rows:
            return _NOTHING
        held, field = self.held(rows[table]), self.field
        if held is None:
            return self.none if self.none is not None or field.nulls else _NOTHING
        if held == field.default and not field.written:
            return _NOTHING
        if (table, column) == ("locks", "key"):
            held = held.removeprefix(f"{tenant}/")
        if field.local and field.converter == "time":
            zone = rows[table].timezone
            if zone is None:
                return _NOTHING
            held = times.wall_clock(held, cron.zone(zone)[0])
        value = held if tables.split(column)[1] else self.write(held)
        return _NOTHING if value is None else value

    def find(self, found: Shape, document: Document, notes: list[Note]) -> tuple[Any, _Place]:
        """Return the value of the field and where it stands; None and its own path if nothing is there."""
        own = self._places[0]
        for place in self._places:
            value = place.get(found)
            if value is not None:
                if place is not own:
                    notes.append(Note("alias", place.path))
                return (_at(document, place.names) if self._is_raw else value), place
        return None, own


def _is_unwritten(field: Field) -> bool:
    """Tell whether a field is never written: the ``_id`` follows from the source id, a reference has a spelling."""
    return field.path == "_id" or (field.converter == "reference" and not field.prefix)


class _Choice:
    """A column whose value is chosen by what other fields hold."""

    def __init__(self, column: str, cases: Sequence[Case]) -> None:
        self.table, self.column = tables.split(column)
        self._cases = tuple((one.field.split(".") if one.field else (), one.equals, one.value) for one in cases)

    def value(self, document: Document) -> Any:  # noqa: ANN401 - a value of the column
        """Return the value of the first case that applies; None if no case does."""
        for names, equals, value in self._cases:
            held = _at(document, names) if names else True
            if held is not None and (equals is None or _is_equal(held, equals)):
                return value
        return None


def _is_equal(held: object, value: object) -> bool:
    return held == value and isinstance(held, bool) == isinstance(value, bool)


class Codec:
    """Decodes and encodes the documents of one collection of a mapping that ``file`` has checked."""

    def __init__(self, mapping: SourceMapping, mapped: Mapped) -> None:
        self._mapped = mapped
        self._source = f"{mapping.name}/{mapped.name}"
        self._keeps = {table: first_feeding(mapping, table) == mapped.name for table in mapped.tables}
        self.shape, attributes = _shape_of(mapped)
        every = tuple(_Step(field, attributes) for field in mapped.fields)
        self._steps = every
        self._read_steps = tuple(step for step in every if step.field.converter not in ("tenant", "own-id"))
        self._own_ids = tuple(step for step in every if step.field.converter == "own-id")
        self._tenant = next((step for step in every if step.field.converter == "tenant"), None)
        self._choices = tuple(_Choice(column, cases) for column, cases in mapped.choices.items())
        columns = [tables.split(column) for field in mapped.fields for column in field.columns]
        self._shared = {(table, tables.split(name)[0]) for table, name in columns if "." in name}
        """Tables and jsonb columns of which each field fills a member."""
        self._dialect = next((field.dialect for field in mapped.fields if field.dialect), "")
        self._targets = {
            step.field.path: _parent_id(mapping, step) for step in every if step.field.converter == "reference"
        }
        self._present = {
            table: tuple(_getter(attributes[path]) for path in paths) for table, paths in mapped.present.items()
        }
        self._constants = {
            table: {name: value for where, name, value in _constants(mapped) if where == table}
            for table in mapped.tables
        }

    def decode(self, document: Document, context: Context) -> Decoded:
        """Return the rows of a document.

        Raises ``Rejected`` for a document that must be quarantined, ``Skipped`` for a lock that had expired.
        """
        if "_id" not in document:
            raise Rejected("missing-field", "_id", "a value")
        found = read(document, self.shape)
        notes: list[Note] = []
        tenant = self._tenant_of(found, document, context, notes)
        for step in self._own_ids:
            own, place = step.find(found, document, notes)
            if own is not None and own != document["_id"]:
                notes.append(Note("id-mismatch", place.path))
        reading = Reading(tenant, {table: {} for table in self._mapped.tables}, notes)
        self._fill(found, document, reading, context)
        self._evaluate(reading)
        made = [table for table in self._mapped.tables if self._is_made(table, found, reading)]
        source_id = identity.source_id(document["_id"])
        ids = {
            table: identity.row_id(table, tenant, self._mapped.name, source_id, keep_uuid=self._keeps[table])
            for table in made
        }
        rows = tuple(self._row(table, reading, ids, tenant_id=tenant, source_id=source_id) for table in made)
        if self._mapped.expects_trigger and "triggers" not in {*made, *reading.unusable}:
            notes.append(Note(NO_TRIGGER, ""))
        if isinstance(rows[0], Lock):
            context.skip_expired_lock(rows[0].expires_at)
        return Decoded(rows, (*notes, *reading.unusable.values()))

    def _fill(self, found: Shape, document: Document, reading: Reading, context: Context) -> None:
        for step in self._read_steps:
            self._read(step, found, document, reading, context)
        for table, column in self._shared:
            if column in reading.columns[table]:
                reading.columns[table][column] = jsonb.encode(reading.columns[table][column])
        for choice in self._choices:
            value = choice.value(document)
            if value is not None:
                reading.columns[choice.table][choice.column] = value
        if self._mapped.derive is not None:
            self._mapped.derive(document, reading, context)

    def encode(self, rows: Rows) -> Document:
        """Return the document as far as the columns carry it."""
        by_table: dict[str, Any] = {row.table: row for row in rows}
        owner: Any = rows[0]
        document: Document = {"_id": identity.parse_source_id(owner.source_id)}
        for step in self._steps:
            if step is self._tenant:
                _place(document, step.names, owner.tenant_id)
                continue
            if step.field.converter == "own-id":
                if type(document["_id"]) is str:
                    _place(document, step.names, document["_id"])
                continue
            value = step.written(by_table, owner.tenant_id)
            if value is not _NOTHING:
                _place(document, step.names, value)
        if self._mapped.respell is not None:
            self._mapped.respell(rows, document)
        return document

    def could_make(self, rows: Rows) -> bool:
        """Tell whether documents of this kind can have made these rows, by the tables, the ``_id`` and constants."""
        owner: Any = rows[0]
        when = self._mapped.when
        if when is not None and when.path == "_id":
            return _applies(when, {"_id": identity.parse_source_id(owner.source_id)})
        return all(row.table in self._mapped.tables for row in rows) and all(
            getattr(row, column) == value for row in rows for column, value in self._constants[row.table].items()
        )

    def _tenant_of(self, found: Shape, document: Document, context: Context, notes: list[Note]) -> str:
        if self._tenant is None:
            return tenant_of(None, context, [], path="")
        value, place = self._tenant.find(found, document, notes)
        return tenant_of(value, context, notes, path=place.path)

    def _read(self, step: _Step, found: Shape, document: Document, reading: Reading, context: Context) -> None:
        """Fill the columns of one field."""
        field, notes = step.field, reading.notes
        value, place = step.find(found, document, notes)
        if field.local and value is not None:
            value = _in_zone(value, place.path, context, reading)
        for table, column, convert in place.targets:
            converted = value
            if value is not None and field.converter == "reference":
                converted = self._targets[field.path](reading.tenant, value, place.path)
            elif value is not None and convert is not None:
                try:
                    converted = convert(value, notes)
                except ZoneError:
                    reading.unusable[table] = Note(UNKNOWN_ZONE, place.path)
                    continue
            name, member = tables.split(column)
            if converted is not None:
                reading.filled.add(table)
            if converted is not None and member:
                reading.columns[table].setdefault(name, {})[member] = converted
            elif converted is not None:
                reading.columns[table][column] = converted
            elif field.default is not None:
                reading.columns[table][column] = field.default

    def _evaluate(self, reading: Reading) -> None:
        """Mark a trigger whose cron line cannot be evaluated: it would never fire."""
        trigger = reading.columns.get("triggers", {})
        line = trigger.get("cron_expression")
        if line is None or "triggers" in reading.unusable:
            return
        held = self._constants["triggers"] | trigger
        dialect = trigger.setdefault("cron_dialect", self._dialect)
        try:
            cron.validate(dialect, line, held.get("timezone"))
        except CronError:
            del trigger["cron_dialect"]
            reading.unusable["triggers"] = Note(UNEVALUABLE, self._path_of("triggers", "cron_expression"))

    def _is_made(self, table: str, found: Shape, reading: Reading) -> bool:
        """Tell whether the document makes a row of a table; it always makes one of the first."""
        unusable = reading.unusable.get(table)
        if table == self._mapped.tables[0]:
            if unusable is not None:
                raise Rejected("unknown-value", unusable.path, "a cron line and a zone that can be evaluated")
            return True
        if unusable is not None:
            return False
        if table in self._present:
            return any(get(found) is not None for get in self._present[table])
        if table == "triggers":
            return not tables.CAUSES.keys().isdisjoint(reading.columns[table])
        return table in reading.filled

    def _row(self, table: str, reading: Reading, ids: Mapping[str, Any], **origin: str) -> Record:
        columns = self._constants[table] | reading.columns[table]
        for column, parent in tables.TARGETS.items():
            if parent in ids and parent != table and column in tables.types_of(table):
                columns.setdefault(column, ids[parent])
        if table == "locks" and "key" in columns:
            columns["key"] = f"{origin['tenant_id']}/{columns['key']}"
            columns["lock_id"] = identity.lock_id(columns["key"])
        for column in tables.needed_columns(table):
            if columns.get(column) is None:
                raise Rejected("missing-field", self._path_of(table, column), f"a value for {table}.{column}")
        if table == "triggers":
            tables.complete_trigger(columns)
        elif table == "runs" and not tables.complete_run(columns):
            reading.notes.append(Note("finished-before-started", self._path_of("runs", "finished_at")))
        return tables.TABLES[table](id=ids[table], source=self._source, **origin, **columns)

    def _path_of(self, table: str, column: str) -> str:
        """Return the path of the first field that fills a column; empty if a constant does, or nothing."""
        name = f"{table}.{column}"
        return next((step.field.path for step in self._steps if name in step.field.columns), "")


def _in_zone(value: Any, path: str, context: Context, reading: Reading) -> Any:  # noqa: ANN401 - a field's value
    """Give the trigger the zone of the source; return the instant of a local time, any other value as it is."""
    if context.zone is None:
        raise Rejected("no-zone", path, "the setting source.zone, since the value was meant in local time")
    reading.columns["triggers"]["timezone"] = context.zone
    if not isinstance(value, datetime):
        return value
    try:
        return times.instant_of(value, cron.zone(context.zone)[0])
    except OverflowError:
        raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None


def _at(document: Document, names: Sequence[str]) -> Any:  # noqa: ANN401 - any value of a document
    value: Any = document
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class _Kinds:
    """Decodes and encodes the documents of a collection that holds several kinds."""

    def __init__(self, mapping: SourceMapping, mapped: Mapped) -> None:
        self._kinds = tuple(
            (name, kind, None if kind.skipped else Codec(mapping, kind)) for name, kind in mapped.kinds.items()
        )
        self._expected = "a document of one of the kinds " + ", ".join(mapped.kinds)

    def decode(self, document: Document, context: Context) -> Decoded:
        """Return the rows of a document by the first kind that describes it."""
        for name, kind, codec in self._kinds:
            if kind.when is None or _applies(kind.when, document):
                if codec is None:
                    raise Skipped(f"kind {name}")
                return codec.decode(document, context)
        raise Rejected("unknown-value", "", self._expected)

    def encode(self, rows: Rows) -> Document:
        """Return the document of the first kind that could have made the rows."""
        codecs = [codec for _, _, codec in self._kinds if codec is not None]
        chosen = next((codec for codec in codecs if codec.could_make(rows)), codecs[0])
        return chosen.encode(rows)


def _applies(when: When, document: Document) -> bool:
    held = _at(document, when.path.split("."))
    if when.present is not None and (held is not None) != when.present:
        return False
    if when.equals is not None and not _is_equal(held, when.equals):
        return False
    return not when.begins or (isinstance(held, str) and held.startswith(when.begins))


def _collection(mapping: SourceMapping, mapped: Mapped) -> Collection:
    codec = _Kinds(mapping, mapped) if mapped.kinds else Codec(mapping, mapped)
    shapes = mapped.shapes()
    fed = tuple(dict.fromkeys(table for shape in shapes for table in shape.tables))
    fields = [field for shape in shapes for field in shape.fields]
    return Collection(
        name=mapped.name,
        tables=tuple(tables.TABLES[table] for table in fed),
        decode=codec.decode,
        encode=codec.encode,
        references=tuple(_references(fields)),
        after=tuple(sorted(_referred(mapped))),
        tenant_expression=_tenant_expression(fields),
        measures=() if mapped.kinds else tuple(measures_of(mapped)),
        tenant_sql=tenant_sql(fields),
        key=mapped.key,
        attach=attach_extra,
        remainder=remainder_of,
        unique=tables.UNIQUE.get(fed[0], ()),
        reference_paths=frozenset(field.path for field in fields if field.converter == "reference"),
        known=frozenset(path for shape in (*shapes, *mapped.kinds.values()) for path in _known(shape)),
    )


def _references(fields: Sequence[Field]) -> Iterator[Reference]:
    """Yield the references; fields of several kinds that fill one column make one."""
    found: dict[tuple[str, str], list[Field]] = {}
    for field in fields:
        if field.converter == "reference" and not field.loose:
            found.setdefault((field.columns[0], field.collection), []).append(field)
    for (place, collection), same in found.items():
        table, column = tables.split(place)
        yield Reference(
            record=tables.TABLES[table],
            column=column,
            target=tables.TABLES[tables.TARGETS[column]],
            required=column in tables.needed_columns(table),
            collection=collection,
            named=partial(_named, fields=tuple(same)),
            shared=same[0].shared,
            prefix=same[0].prefix,
        )


def _named(document: Document, fields: Sequence[Field]) -> str | None:
    for field in fields:
        for path in (field.path, *field.also):
            value = _at(document, path.split("."))
            if value is not None:
                if field.trim and isinstance(value, str):
                    value = value.strip() or None
                return None if value is None else identity.source_id(value)
    return None


def _tenant_expression(fields: Sequence[Field]) -> Any:  # noqa: ANN401 - a MongoDB expression
    paths = [f"${path}" for field in fields if field.converter == "tenant" for path in (field.path, *field.also)]
    return aggregates.tenant(*paths[1:], field=paths[0]) if paths else None


def _known(mapped: Mapped) -> Iterator[str]:
    yield "_id"
    yield from mapped.derived_paths
    for field in mapped.fields:
        for path in (field.path, *field.also):
            yield from _beginnings(path)
            yield from (f"{path}.{name}" for name in converters.inner_paths(field))
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


def first_feeding(mapping: SourceMapping, table: str) -> str:
    """Return the first collection that feeds a table: its documents keep the UUIDs of their ``_id``."""
    feeding = (one.name for one in mapping.collections for shape in one.shapes() if table in shape.tables)
    return next(feeding, "")


def _parent_id(mapping: SourceMapping, step: _Step) -> Callable[[str, Any, str], Any]:
    """Return the function from a tenant, a reference and its path to the id of the row that is referred to."""
    field = step.field
    table = tables.TARGETS[step.first[1]]
    keep_uuid = first_feeding(mapping, table) == field.collection

    def parent_id(tenant: str, value: object, path: str) -> Any:  # noqa: ANN401 - a UUID, or None
        if isinstance(value, list):
            raise Rejected("wrong-type", path, "the _id of a document")
        if field.trim and isinstance(value, str):
            value = text(value, path)
            if value is None:
                return None
        return identity.row_id(table, tenant, field.collection, identity.source_id(value), keep_uuid=keep_uuid)

    return parent_id


def _constants(mapped: Mapped) -> Iterator[tuple[str, str, Any]]:
    for column, value in mapped.constants.items():
        table, name = tables.split(column)
        yield table, name, value


def _place(document: Document, names: Sequence[str], value: object) -> None:
    for name in names[:-1]:
        document = document.setdefault(name, {})
    document[names[-1]] = value


def _getter(attribute: str) -> Callable[[Any], Any]:
    """Return the function that reads an attribute; None if a document on the way to it is absent or null."""
    first, _, rest = attribute.partition(".")
    get = attrgetter(first)
    if not rest:
        return get
    inner = _getter(rest)

    def read_inner(found: Any) -> Any:  # noqa: ANN401 - the value of a field
        held = get(found)
        return None if held is None else inner(held)

    return read_inner


def _shape_of(mapped: Mapped) -> tuple[type[Shape], dict[str, str]]:
    """Return the shape of the documents, and the attribute path of each field in it."""
    tree: dict[str, Any] = {}
    for field in mapped.fields:
        for path in (field.path, *field.also):
            *parents, name = path.split(".")
            place = tree
            for parent in parents:
                place = place.setdefault(parent, {})
            place[name] = msgspec.structs.replace(field, path=path)
    attributes: dict[str, str] = {}
    return _struct_of(mapped.name, tree, "", attributes), attributes


def _struct_of(name: str, tree: Mapping[str, Any], prefix: str, attributes: dict[str, str]) -> type[Shape]:
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for index, (key, inner) in enumerate(tree.items()):
        attribute = f"f{index}"
        names[attribute] = key
        if isinstance(inner, Field):
            attributes[inner.path] = f"{prefix}{attribute}"
            fields.append((attribute, converters.shape_of(inner), None))
        else:
            struct = _struct_of(f"{name}.{key}", inner, f"{prefix}{attribute}.", attributes)
            fields.append((attribute, struct | None, None))
    made = msgspec.defstruct(name, fields, bases=(Shape,), rename=names, kw_only=True, gc=False)
    return cast("type[Shape]", made)
