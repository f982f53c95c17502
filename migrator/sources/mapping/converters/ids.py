"""Converters of ids: the ``_id`` of the document, that of another one, and the tenant."""

from functools import lru_cache
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary
from bson.objectid import ObjectId

from migrator.sources.mapping import tables
from migrator.sources.mapping.converters.base import (
    OfAnyId,
    Operation,
    Reader,
    Same,
    Target,
    Uncounted,
    Unplannable,
    Writer,
    always,
)
from migrator.sources.mapping.converters.texts import TEXT
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Note, Rejected
from migrator.sources.shapes import text
from migrator.values import identity


def named_by(collection: str, field: str) -> str:
    """Return the name of a collection in the ids of rows that follow from a field of its documents."""
    return f"{collection}\0{field}" if field else collection


class Reference(Uncounted):
    """The ``_id`` of a document of another collection."""

    name = "reference"
    column_types = frozenset({"uuid"})
    options = ("also", "collection", "by", "id_type")
    place = "fields"
    shape = always(Any)

    def reader(self, target: Target, /) -> Reader | None:
        """Return the function from a reference to the id of the row that is referred to."""
        field, keep_uuid = target.field, target.keeps_uuid and not target.field.by
        table, path = tables.referred_table(target.column), field.path
        collection = named_by(field.collection, field.by)

        @lru_cache(maxsize=16_384)
        def id_of(tenant: str, value: str) -> Any:
            return identity.row_id(table, tenant, collection, identity.source_id(value), keep_uuid=keep_uuid)

        def read_text(value: Any, reading: Reading) -> Any:
            if type(value) is not str:
                raise Rejected("wrong-type", path, "string" if field.shape is None else "text, not code")
            named = text(value, path) if field.trim else value
            return None if named is None else id_of(reading.tenant, named)

        def read_any(value: Any, reading: Reading) -> Any:
            if type(value) is str:
                return read_text(value, reading)
            if isinstance(value, list):
                raise Rejected("wrong-type", path, "the _id of a document")
            return identity.row_id(table, reading.tenant, collection, identity.source_id(value), keep_uuid=keep_uuid)

        return read_text if field.prefix else read_any

    def writer(self, field: Field, /) -> Writer | None:
        if field.id_type is not None:
            return str if field.id_type == "text" else lambda value: Binary(value.bytes, UUID_SUBTYPE)
        return lambda value: field.prefix + identity.hex_of(value)

    def operation(self, field: Field, /) -> Operation:
        """Take a reference whose text follows from the id of the row; of others the text is remainder."""
        if not field.prefix or len(field.columns) > 1:
            raise Unplannable("a reference that is not written")
        if not identity.keeps_uuid(f"{field.prefix}{'0' * 32}"):
            raise Unplannable("a reference whose id is not kept")
        return Operation(
            name="reference",
            options=frozenset({"collection", "prefix", "loose", "shared", "trim"}),
            shapes=(str,),
            step={"prefix": field.prefix.encode()},
        )


class Tenant(Same):
    """The tenant."""

    name = "tenant"
    column_types: frozenset[str] = frozenset()
    options = ("also",)
    place = "fields"
    shape = always(str | None)

    def reader(self, _target: Target, /) -> Reader | None:
        return None  # the codec reads it before all other fields

    def operation(self, _field: Field, /) -> Operation:
        return Operation(name="tenant", options=frozenset({"shape"}), step={"required": True})


class OwnId(Uncounted):
    """The ``_id`` once more."""

    name = "own-id"
    column_types: frozenset[str] = frozenset()
    options: tuple[str, ...] = ()
    place = "fields"
    shape = always(Any)

    def reader(self, target: Target, /) -> Reader | None:
        path = target.field.path

        def read(value: object, reading: Reading) -> None:
            if value != reading.document["_id"]:
                reading.notes.append(Note("id-mismatch", path))

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        """Write the ``_id`` from the source id if it is a text."""

        def write(source_id: str) -> str | None:
            if not source_id.startswith("{"):
                return source_id
            value = identity.parse_source_id(source_id)
            return value if type(value) is str else None

        return write

    def operation(self, _field: Field, /) -> Operation:
        return Operation(name="own-id")


class IdText(OfAnyId, Same):
    """The ``_id`` as a text; an ObjectId as its 24 digits."""

    name = "id-text"
    column_types = TEXT

    def reader(self, target: Target, /) -> Reader | None:
        checked, path = target.checked, target.field.path
        return lambda value, _reading: checked(
            str(value) if isinstance(value, ObjectId) else identity.source_id(value), path
        )

    def operation(self, _field: Field, /) -> Operation:
        return Operation(name="id-text")
