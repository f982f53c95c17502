"""Converters of bytes: binary values, and texts that a library keeps as their bytes."""

from typing import Any

from migrator.sources.mapping.converters.base import (
    Aggregate,
    Converter,
    Reader,
    Target,
    Writer,
    always,
    column_name,
    no_operation,
)
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Rejected
from migrator.sources.shapes import plain


class BytesConverter(Converter):
    """A value of which the column holds the bytes; both sides count them."""

    column_types = frozenset({"bytea"})
    options = ("also", "nulls")
    operation = no_operation

    def aggregate(self, field: Field, value: Any, sql: str, _default: Any, /) -> Aggregate | None:
        size = {"$cond": [{"$in": [{"$type": value}, ["binData", "string"]]}, {"$binarySize": value}, None]}
        return Aggregate(
            kind="sum",
            expression=size,
            sql=f"octet_length({column_name(field)})::numeric",
            source_sql=f"octet_length({sql})::numeric",
        )


class Binary(BytesConverter):
    """A binary value; a subtype other than 0 is remainder."""

    name = "binary"
    shape = always(Any)  # bytes would take a text for base64

    def reader(self, target: Target, /) -> Reader | None:
        path = target.field.path

        def read(value: object, _reading: Reading) -> bytes:
            if not isinstance(value, bytes):
                raise Rejected("wrong-type", path, "a binary value")
            return bytes(value)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return None


class TextBytes(BytesConverter):
    """A text, of which the column holds the bytes in UTF-8."""

    name = "text-bytes"
    shape = always(str | None)

    def reader(self, target: Target, /) -> Reader | None:
        path = target.field.path
        return lambda value, _reading: plain(value, path).encode()

    def writer(self, _field: Field, /) -> Writer | None:
        return bytes.decode
