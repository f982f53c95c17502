"""Converters of bytes: binary values, and what a library keeps as bytes: texts, base64, Java's properties."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from migrator.sources.mapping.converters.base import (
    Aggregate,
    Converter,
    Operation,
    Reader,
    Target,
    Unplannable,
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
    options: tuple[str, ...] = ("also", "write_null")
    operation = no_operation

    def aggregate(self, field: Field, value: Any, sql: str, _default: Any, /) -> Aggregate | None:
        size = {"$cond": [{"$in": [{"$type": value}, ["binData", "string"]]}, {"$binarySize": value}, None]}
        return Aggregate(
            kind="sum",
            expression=size,
            sql=f"octet_length({column_name(field)})::numeric",
            source_sql=f"octet_length({sql})::numeric",
        )


def one_column(field: Field, operation: str) -> Operation:
    """Return an operation for a field of one column; raises ``Unplannable`` for one of several."""
    if len(field.columns) > 1:
        raise Unplannable("a binary value in several columns")
    return Operation(name=operation)


class Binary(BytesConverter):
    """A binary value; a subtype other than 0 is remainder."""

    name = "binary"
    shape = always(Any)  # bytes would take a text for base64

    def operation(self, field: Field, /) -> Operation:
        return one_column(field, "binary")

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


class Base64(BytesConverter):
    """A text in base64, of which the column holds the bytes; white space in it is remainder."""

    name = "base64"
    options = ("also", "write_null", "begins", "taken", "expected")
    shape = always(str | None)

    def reader(self, target: Target, /) -> Reader | None:
        path, begins = target.field.path, bytes.fromhex(target.field.begins)
        expected = "base64" + f" of bytes that begin with {begins.hex()}" * bool(begins)

        def read(value: str, _reading: Reading) -> bytes:
            try:
                held = base64.b64decode("".join(value.split()), validate=True)
            except (binascii.Error, ValueError):
                held = None
            if held is None or not held.startswith(begins):
                raise Rejected("unknown-value", path, expected)
            return held

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return lambda value: base64.b64encode(value).decode()

    def aggregate(self, _field: Field, _value: Any, _sql: str, _default: Any, /) -> Aggregate | None:
        return None  # MongoDB decodes no base64


class JavaProperties(BytesConverter):
    """An object of texts, of which the column holds the lines that ``java.util.Properties`` reads."""

    name = "java-properties"
    options = ("also", "write_null", "taken", "expected")
    shape = always(Any)

    def reader(self, target: Target, /) -> Reader | None:
        path = target.field.path

        def read(value: object, _reading: Reading) -> bytes:
            if not isinstance(value, dict):
                raise Rejected("wrong-type", path, "an object of texts")
            for name, held in value.items():
                if type(held) is not str:
                    raise Rejected("wrong-type", f"{path}.{name}", "string")
            lines = (f"{_escaped(name, spaces=True)}={_escaped(held)}\n" for name, held in value.items())
            return "".join(lines).encode("latin-1")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return lambda value: dict(_properties(value.decode("latin-1")))

    def aggregate(self, _field: Field, _value: Any, _sql: str, _default: Any, /) -> Aggregate | None:
        return None  # the lines are longer than the texts


class Refused(Converter):
    """A field that the target does not take: a document in which it holds something is quarantined."""

    name = "refused"
    column_types: frozenset[str] = frozenset()
    options: tuple[str, ...] = ("expected",)
    needed = ("expected",)
    place = "fields"
    shape = always(Any)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        path, expected = target.field.path, target.field.expected

        def read(_value: object, _reading: Reading) -> None:
            raise Rejected("unknown-value", path, expected)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return None

    def aggregate(self, _field: Field, _value: Any, _sql: str, _default: Any, /) -> Aggregate | None:
        return None


_PRINTED: Final[Mapping[str, str]] = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {
    sign: f"\\{sign}" for sign in "\\=:#!"
}
_READ: Final[Mapping[str, str]] = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_escapes = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_key_and_value = re.compile(r"[ \t\f]*((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", re.DOTALL)


def _escaped(value: str, *, spaces: bool = False) -> str:
    """Return a text as Java's properties spell it, in ASCII; ``spaces``: of a key, in which each space is escaped."""
    parts: list[str] = []
    for place, sign in enumerate(value):
        if sign == " ":
            parts.append("\\ " if spaces or place == 0 else " ")
        elif sign in _PRINTED:
            parts.append(_PRINTED[sign])
        elif " " < sign <= "~":
            parts.append(sign)
        else:
            units = sign.encode("utf-16-be", "surrogatepass").hex().upper()
            parts += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(parts)


def _properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the properties in a text, as Java reads it."""
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for first in lines:
        line = first.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        match = _key_and_value.fullmatch(line)
        if match is not None:
            yield _unescaped(match[1]), _unescaped(match[2])


def _unescaped(value: str) -> str:
    def sign(match: re.Match[str]) -> str:
        held = match[1]
        return chr(int(held[1:], 16)) if len(held) > 1 else _READ.get(held, held)

    units = _escapes.sub(sign, value)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
