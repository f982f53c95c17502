"""The aggregates of a mapping: what MongoDB and PostgreSQL count, each without any code of the codec.

The expressions follow from the same description as the codec, so they do not find a mapping that names the wrong
column. They find a value that was read or written wrongly.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from migrator import constraints
from migrator.sources import aggregates
from migrator.sources.mapping import tables
from migrator.sources.mapping.language import MILLISECONDS, Case, Field, Mapped
from migrator.sources.mapping.table_measures import source_sql
from migrator.sources.profile import Measure

_OF_A_TRIGGER: Final = ("cron", "cron-fields", "zone")
"""Converters of fields that a trigger may fail for."""
_MICROSECONDS: Final[Mapping[str, int]] = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}


def measures_of(mapped: Mapped) -> Iterator[Measure]:
    """Yield the aggregates of a collection: words, flags, sums of numbers, first and last times.

    Left out are tables whose rows depend on more than their own fields (``present``, a cron line, a default), and
    locks: expired ones are left out by a rule, and MongoDB deletes them while they are counted.
    """
    owner = mapped.tables[0]
    conditional = {*mapped.present, *(mapped.tables[1:] if mapped.derive is not None else ())}
    conditional |= {tables.split(field.columns[0])[0] for field in mapped.fields if field.converter in _OF_A_TRIGGER}
    for field in mapped.fields:
        if not field.columns:
            continue
        table, column = tables.split(field.columns[0])
        if field.local or tables.member_of(field.columns[0]):
            continue
        default = field.default if field.default is not None else _default_of(table, column)
        if table == "locks" or (table != owner and (table in conditional or default is not None)):
            continue
        measure = _measure(field, default, owner)
        if measure is not None:
            yield measure
    for column, cases in mapped.choices.items():
        table, name = tables.split(column)
        if table == owner != "locks" and tables.type_of(column) == "text":
            yield Measure(column, "group", _chosen(cases), name)


def _measure(field: Field, default: Any, owner: str) -> Measure | None:  # noqa: ANN401 - a value of the column
    table, column = tables.split(field.columns[0])
    paths = [f"${path}" for path in (field.path, *field.also)]
    source: Any = paths[0] if len(paths) == 1 else {"$ifNull": paths}
    kind: Literal["group", "sum", "time"] = "sum"
    sql = f"{column}::numeric"
    match field.converter:
        case "words":
            given: dict[Any, Any] = dict(field.words)
            if field.type is not None:
                given = {int(old): new for old, new in given.items()}
            renamed = {old: new for old, new in given.items() if old != new}
            spelled = aggregates.words(source, renamed)
            if tables.type_of(field.columns[0]) != "text":
                expression = aggregates.number(spelled)
            else:
                kind, sql = "group", column
                expression = aggregates.free_words(column, source, renamed).expression if field.keep else spelled
        case "flag":
            value = source if default is None else {"$ifNull": [source, default]}
            expression = {"$switch": {"branches": _flag_branches(value), "default": None}}
            kind, sql, default = "group", f"{column}::text", None
        case "number":
            expression = _number(field, source)
        case "duration":
            scaled = {"$multiply": [aggregates.number(source), MILLISECONDS[field.unit]]}
            expression = {"$round": [scaled, 0]}
        case "period":
            expression = _period(field)
        case "time" | "id-time":
            kind, expression = "time", _milliseconds(field, source)
            sql = f"trunc(extract(epoch from {column}) * 1000)::bigint"
        case _:
            return None
    expression = _or_nothing(field, source, expression, default)
    return Measure(field.path, kind, expression, _sql(sql, table, owner), source_sql(field, default))


def _or_nothing(field: Field, source: Any, expression: Any, default: Any) -> Any:  # noqa: ANN401 - MongoDB expressions
    """Return the expression with what stands for none, and the default where the field holds nothing."""
    if field.none is not None:
        expression = {"$cond": [{"$eq": [source, field.none]}, None, expression]}
    if default is not None:
        expression = {"$cond": [{"$eq": [{"$ifNull": [source, None]}, None]}, default, expression]}
    return expression


def _number(field: Field, source: Any) -> Any:  # noqa: ANN401 - MongoDB expressions
    found = aggregates.number(source)
    if (field.factor, field.add) != (1, 0):
        found = {"$add": [{"$multiply": [found, field.factor]}, field.add]}
        found = {"$round": [found, 0]} if field.factor != 1 else found
    if not field.clamp:
        return found
    least, most = tables.bounds_of(field.columns[0])
    return {"$cond": [{"$isNumber": source}, {"$max": [least, {"$min": [most, found]}]}, None]}


def _period(field: Field) -> Any:  # noqa: ANN401 - a MongoDB expression
    number, unit = aggregates.number(f"${field.path}.{field.number}"), f"${field.path}.{field.unit_from}"
    branches = [{"case": {"$eq": [unit, word]}, "then": MILLISECONDS[name]} for word, name in field.words.items()]
    return {"$round": [{"$multiply": [number, {"$switch": {"branches": branches, "default": None}}]}, 0]}


def _chosen(cases: Sequence[Case]) -> Any:  # noqa: ANN401 - a MongoDB expression
    branches = [{"case": _holds(one), "then": {"$literal": one.value}} for one in cases]
    return {"$switch": {"branches": branches, "default": None}}


def _holds(case: Case) -> Any:  # noqa: ANN401 - a MongoDB expression
    if not case.field:
        return True
    if case.equals is not None:
        return {"$eq": [f"${case.field}", {"$literal": case.equals}]}
    return {"$ne": [{"$ifNull": [f"${case.field}", None]}, None]}


def _flag_branches(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - MongoDB expressions
    return [{"case": {"$eq": [value, flag]}, "then": str(flag).lower()} for flag in (True, False)]


def _milliseconds(field: Field, source: str) -> Any:  # noqa: ANN401 - a MongoDB expression
    """Return the expression of a time in whole milliseconds since 1970."""
    if field.converter == "id-time":
        return {"$cond": [{"$eq": [{"$type": source}, "objectId"]}, {"$toLong": {"$toDate": source}}, None]}
    if field.encoding == "milliseconds-text":
        other = aggregates.milliseconds(source)
        return {"$convert": {"input": source, "to": "long", "onError": other, "onNull": None}}
    if field.encoding in ("date", "iso", "iso-z", "timestamp", "timestamptz"):
        return aggregates.milliseconds(source)
    micros = {"$round": [{"$multiply": [aggregates.number(source), _MICROSECONDS[field.encoding]]}, 0]}
    return {"$toLong": {"$trunc": [{"$divide": [micros, 1_000]}, 0]}}


def _default_of(table: str, column: str) -> Any:  # noqa: ANN401 - a value of the column
    """Return what a column holds if nothing is given for it."""
    field = next(one for one in msgspec.structs.fields(constraints.RECORDS[table]) if one.name == column)
    return None if field.required or field.default is msgspec.NODEFAULT else field.default


def _sql(expression: str, table: str, owner: str) -> str:
    """Return SQL over the row of the first table, for a column of any table of the document."""
    if table == owner:
        return expression
    return (
        f"(SELECT {expression} FROM scheduler.{table} further"  # noqa: S608 - names of the schema
        f" WHERE further.source = {owner}.source AND further.source_id = {owner}.source_id"
        f" AND further.tenant_id = {owner}.tenant_id)"
    )
