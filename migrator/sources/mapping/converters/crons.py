"""Converters of cron lines."""

from typing import Any

import msgspec

from migrator.sources.mapping.converters.base import Operation, Reader, Target, Uncounted, Writer
from migrator.sources.mapping.converters.numbers import members
from migrator.sources.mapping.converters.texts import TEXT, Text
from migrator.sources.mapping.language import Field, Reading


class Cron(Text):
    """A cron line, which makes a trigger if its dialect can evaluate it."""

    name = "cron"
    options = ("also", "dialect", "local", "nulls")
    may_unmake = True

    def operation(self, field: Field, /) -> Operation:
        operation = super().operation(field)
        return msgspec.structs.replace(operation, options=operation.options | {"dialect"})


class CronFields(Uncounted):
    """A document that holds the fields of a cron line."""

    name = "cron-fields"
    column_types = TEXT
    options = ("members", "dialect", "local", "fixed")
    needed = ("members",)
    place = "fields"
    may_unmake = True

    def shape(self, field: Field, /) -> Any:
        return members(dict.fromkeys(field.members, str | int | None)) | None

    def reader(self, _target: Target, /) -> Reader | None:
        def read(value: Any, _reading: Reading) -> str | None:
            held = msgspec.structs.astuple(value)
            if all(one is None for one in held):
                return None
            parts = ("*" if one is None else "".join(str(one).split()) for one in held)
            return " ".join(part or "*" for part in parts)

        return read

    def writer(self, field: Field, /) -> Writer | None:
        def write(value: str) -> dict[str, str] | None:
            parts = value.split()
            if len(parts) != len(field.members):
                return None
            return {**field.fixed, **dict(zip(field.members, parts, strict=True))}

        return write

    def operation(self, _field: Field, /) -> Operation:
        return Operation(name="memo", options=frozenset({"members", "fixed", "dialect", "shape"}))
