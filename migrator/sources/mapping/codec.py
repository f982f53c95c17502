"""From a mapping to a profile: decode, encode, known fields, references and aggregates of each collection.

``decode`` reads the fields of a document with one check of their types (``shapes.read``), converts each value, and
makes a row of each table that something was found for. ``encode`` writes the fields back from the rows. Both follow
from the same fields, and ``pipeline.transform`` computes the remainder between them, so that nothing is lost where a
converter does not lead back exactly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, cast

import msgspec

from migrator import cron
from migrator.cron import CronError, ZoneError
from migrator.records import Lock, Record, attach_extra, remainder_of
from migrator.sources import aggregates
from migrator.sources.mapping import converters, tables
from migrator.sources.mapping.language import Field, Mapped, SourceMapping
from migrator.sources.mapping.measures import measures_of
from migrator.sources.profile import (
    Collection,
    Context,
    Decoded,
    Document,
    Note,
    Profile,
    Reference,
    Rejected,
    Rows,
)
from migrator.sources.shapes import Shape, read
from migrator.sources.tenants import tenant_of
from migrator.values import identity

UNEVALUABLE: Final = "unevaluable-cron"
UNKNOWN_ZONE: Final = "unknown-zone"


def profile_of_mapping(mapping: SourceMapping, version: int) -> Profile:
    """Return the profile of a mapping that ``file`` has checked."""
    by_name = {one.name: one for one in mapping.collections}
    return Profile(
        name=mapping.name,
        version=version,
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
    return {field.collection for field in one.fields if field.collection} - {one.name}


class _Step:
    """One field of a collection, ready to be read and written."""

    def __init__(self, field: Field, attribute: str) -> None:
        self.field = field
        self.get = _getter(attribute)
        self.names = tuple(field.path.split("."))
        self.targets = tuple((*tables.split(column), converters.reader(field, column)) for column in field.columns)
        self.write = converters.writer(field)

    @property
    def first(self) -> tuple[str, str]:
        """Table and column that the field is written from."""
        table, column, _ = self.targets[0]
        return table, column


class _Reading:
    """What is read of one document."""

    def __init__(self, fed: Sequence[str], notes: list[Note]) -> None:
        self.columns: dict[str, dict[str, Any]] = {table: {} for table in fed}
        self.filled: set[str] = set()
        """Tables of which a field filled a column; a default does not count."""
        self.unusable: dict[str, Note] = {}
        """Tables that cannot have the row that the document describes, and why."""
        self.notes = notes


class Codec:
    """Decodes and encodes the documents of one collection of a mapping that ``file`` has checked."""

    def __init__(self, mapping: SourceMapping, mapped: Mapped) -> None:
        self._mapped = mapped
        self._source = f"{mapping.name}/{mapped.name}"
        self._keeps = {table: first_feeding(mapping, table) == mapped.name for table in mapped.tables}
        self.shape, attributes = _shape_of(mapped)
        self._steps = tuple(_Step(field, attributes[field.path]) for field in mapped.fields)
        self._tenant = next((step for step in self._steps if step.field.converter == "tenant"), None)
        self._dialect = next((field.dialect for field in mapped.fields if field.converter == "cron"), "")
        self._targets = {
            step.field.path: _parent_id(mapping, step) for step in self._steps if step.field.converter == "reference"
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
        tenant = self._tenant_of(found, context, notes)
        reading = _Reading(self._mapped.tables, notes)
        for step in self._steps:
            if step is not self._tenant:
                self._read(step, step.get(found), tenant, reading)
        self._evaluate(reading)
        made = [table for table in self._mapped.tables if self._is_made(table, found, reading)]
        source_id = identity.source_id(document["_id"])
        ids = {
            table: identity.row_id(table, tenant, self._mapped.name, source_id, keep_uuid=self._keeps[table])
            for table in made
        }
        rows = tuple(self._row(table, reading, ids, tenant_id=tenant, source_id=source_id) for table in made)
        if isinstance(rows[0], Lock):
            context.skip_expired_lock(rows[0].expires_at)
        return Decoded(rows, (*notes, *reading.unusable.values()))

    def encode(self, rows: Rows) -> Document:
        """Return the document as far as the columns carry it."""
        by_table: dict[str, Any] = {row.table: row for row in rows}
        owner: Any = rows[0]
        document: Document = {"_id": identity.parse_source_id(owner.source_id)}
        for step in self._steps:
            if step is self._tenant:
                _place(document, step.names, owner.tenant_id)
                continue
            table, column = step.first
            held = getattr(by_table[table], column) if table in by_table else None
            if held is None or held == step.field.default or step.field.converter == "reference":
                continue
            if (table, column) == ("locks", "key"):
                held = held.removeprefix(f"{owner.tenant_id}/")
            value = step.write(held)
            if value is not None:
                _place(document, step.names, value)
        return document

    def _tenant_of(self, found: Shape, context: Context, notes: list[Note]) -> str:
        if self._tenant is None:
            return tenant_of(None, context, [], path="")
        return tenant_of(self._tenant.get(found), context, notes, path=self._tenant.field.path)

    def _read(self, step: _Step, value: Any, tenant: str, reading: _Reading) -> None:  # noqa: ANN401 - a field's value
        """Fill the columns of one field."""
        field = step.field
        for table, column, convert in step.targets:
            columns = reading.columns[table]
            if value is None:
                if field.default is not None:
                    columns[column] = field.default
                continue
            reading.filled.add(table)
            if field.converter == "reference":
                columns[column] = self._targets[field.path](tenant, value)
                continue
            try:
                columns[column] = converted = convert(value)
            except ZoneError:
                reading.unusable[table] = Note(UNKNOWN_ZONE, field.path)
                continue
            if field.converter == "zone" and converted != value:
                reading.notes.append(Note("mapped-zone", field.path))

    def _evaluate(self, reading: _Reading) -> None:
        """Mark a trigger whose cron line cannot be evaluated: it would never fire."""
        trigger = reading.columns.get("triggers", {})
        line = trigger.get("cron_expression")
        if line is None or "triggers" in reading.unusable:
            return
        held = self._constants["triggers"] | trigger
        try:
            cron.validate(self._dialect, line, held.get("timezone"))
        except CronError:
            reading.unusable["triggers"] = Note(UNEVALUABLE, self._path_of("triggers", "cron_expression"))
        else:
            trigger["cron_dialect"] = self._dialect

    def _is_made(self, table: str, found: Shape, reading: _Reading) -> bool:
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

    def _row(self, table: str, reading: _Reading, ids: Mapping[str, Any], **origin: str) -> Record:
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


def _collection(mapping: SourceMapping, mapped: Mapped) -> Collection:
    codec = Codec(mapping, mapped)
    return Collection(
        name=mapped.name,
        tables=tuple(tables.TABLES[table] for table in mapped.tables),
        decode=codec.decode,
        encode=codec.encode,
        references=tuple(_references(mapped)),
        after=tuple(sorted(_referred(mapped))),
        tenant_expression=_tenant_expression(mapped),
        measures=tuple(measures_of(mapped)),
        attach=attach_extra,
        remainder=remainder_of,
        unique=tables.UNIQUE.get(mapped.tables[0], ()),
        reference_paths=frozenset(field.path for field in mapped.fields if field.converter == "reference"),
        known=frozenset(_known(mapped)),
    )


def _references(mapped: Mapped) -> Iterator[Reference]:
    for field in mapped.fields:
        if field.converter != "reference":
            continue
        names = tuple(field.path.split("."))
        for column in field.columns:
            table, name = tables.split(column)
            yield Reference(
                record=tables.TABLES[table],
                column=name,
                target=tables.TABLES[tables.TARGETS[name]],
                required=name in tables.needed_columns(table),
                collection=field.collection,
                named=partial(_named, names=names),
            )


def _named(document: Document, names: Sequence[str]) -> str | None:
    value: object = document
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return None if value is None else identity.source_id(value)


def _tenant_expression(mapped: Mapped) -> Any:  # noqa: ANN401 - a MongoDB expression
    field = next((field for field in mapped.fields if field.converter == "tenant"), None)
    return None if field is None else aggregates.tenant(field=f"${field.path}")


def _known(mapped: Mapped) -> Iterator[str]:
    yield "_id"
    for field in mapped.fields:
        names = field.path.split(".")
        yield from (".".join(names[:count]) for count in range(1, len(names) + 1))
        if field.converter == "texts":
            yield f"{field.path}[]"


def first_feeding(mapping: SourceMapping, table: str) -> str:
    """Return the first collection that feeds a table: its documents keep the UUIDs of their ``_id``."""
    return next((one.name for one in mapping.collections if table in one.tables), "")


def _parent_id(mapping: SourceMapping, step: _Step) -> Callable[[str, Any], Any]:
    """Return the function from a tenant and a reference to the id of the row that is referred to."""
    field = step.field
    table = tables.TARGETS[step.first[1]]
    keep_uuid = first_feeding(mapping, table) == field.collection

    def parent_id(tenant: str, value: object) -> Any:  # noqa: ANN401 - a UUID
        if isinstance(value, list):
            raise Rejected("wrong-type", field.path, "the _id of a document")
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
        *parents, name = field.path.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = field
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
