"""The converters of the mapping language, one class each."""

from collections.abc import Mapping
from typing import Any, Final

from migrator.sources.mapping.converters.base import Converter, Reader, Target, Writer
from migrator.sources.mapping.converters.binaries import Base64, Binary, JavaProperties, Refused, TextBytes
from migrator.sources.mapping.converters.celery import (
    CeleryEncoded,
    CeleryGroup,
    CeleryGroupPickle,
    CeleryJson,
    CeleryPickle,
    CeleryStamps,
    Serialized,
)
from migrator.sources.mapping.converters.documents import Column, Json, JsonText
from migrator.sources.mapping.converters.ids import IdText, OwnId, Reference, Tenant
from migrator.sources.mapping.converters.javascript import JavaScriptJson, ObjectIdUuid, TextOrNumber
from migrator.sources.mapping.converters.numbers import Double, Duration, Flag, Number, Period
from migrator.sources.mapping.converters.texts import (
    Cron,
    CronField,
    CronFields,
    NumberList,
    Text,
    Texts,
    Uuid,
    Version,
    Words,
    Zone,
)
from migrator.sources.mapping.converters.times import ClockEnd, ClockSpan, IdTime, Milliseconds, Time
from migrator.sources.mapping.converters.weekdays import Weekdays, WeekdayTime
from migrator.sources.mapping.language import Field

CONVERTERS: Final[Mapping[str, Converter]] = {
    converter.name: converter
    for converter in (
        Text(),
        Number(),
        Words(),
        Time(),
        Flag(),
        Duration(),
        Period(),
        Texts(),
        Json(),
        JsonText(),
        Reference(),
        Cron(),
        CronFields(),
        CronField(),
        Zone(),
        Tenant(),
        IdTime(),
        IdText(),
        OwnId(),
        Uuid(),
        Version(),
        Weekdays(),
        WeekdayTime(),
        Double(),
        Binary(),
        TextBytes(),
        Serialized(),
        CeleryEncoded(),
        CeleryJson(),
        CeleryStamps(),
        CeleryPickle(),
        CeleryGroup(),
        CeleryGroupPickle(),
        Base64(),
        JavaProperties(),
        Milliseconds(),
        NumberList(),
        ClockSpan(),
        ClockEnd(),
        Refused(),
        TextOrNumber(),
        JavaScriptJson(),
        ObjectIdUuid(),
        Column(),
    )
}
"""Name to converter. Of those that fill a type of column, a field that names none has the first."""


def shape_of(field: Field) -> Any:
    """Return the type of a field, as ``shapes.read`` checks it."""
    if field.shape is not None:
        return field.shape if field.required or field.shape is Any else field.shape | None
    shape = CONVERTERS[field.converter].shape(field)
    return str if field.required and shape == str | None else shape


def reader(field: Field, column: str, *, keeps_uuid: bool = False) -> Reader | None:
    """Return the function that reads a field for a column, as ``Converter.reader`` of ``Target``."""
    return CONVERTERS[field.converter].reader(Target(field, column, keeps_uuid))


def writer(field: Field) -> Writer | None:
    """Return the function that writes a field, as ``Converter.writer``."""
    return CONVERTERS[field.converter].writer(field)
