"""The aggregates of a mapping: what MongoDB and PostgreSQL count, each without any code of the codec.

The expressions follow from the same description as the codec, so they do not find a mapping that names the wrong
column. They find a value that was read or written wrongly.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from migrator.sources import aggregates
from migrator.sources.mapping import tables
from migrator.sources.mapping.language import MILLISECONDS, Field, Mapped
from migrator.sources.profile import Measure

_MICROSECONDS: Final[Mapping[str, int]] = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}


def measures_of(mapped: Mapped) -> Iterator[Measure]:
    """Yield the aggregates of a collection: words, flags, sums of numbers, first and last times.

    Left out are tables whose rows depend on more than their own fields (``present``, a cron line, a default), and
    locks: expired ones are left out by a rule, and MongoDB deletes them while they are counted.
    """
    conditional = {*mapped.present}
    conditional |= {tables.split(field.columns[0])[0] for field in mapped.fields if field.converter in ("cron", "zone")}
    owner = mapped.tables[0]
    for field in mapped.fields:
        if not field.columns:
            continue
        table, column = tables.split(field.columns[0])
        default = field.default if field.default is not None else _default_of(table, column)
        if table == "locks" or (table != owner and (table in conditional or default is not None)):
            continue
        measure = _measure(field, default, owner)
        if measure is not None:
            yield measure


def _measure(field: Field, default: Any, owner: str) -> Measure | None:  # noqa: ANN401 - a value of the column
    table, column = tables.split(field.columns[0])
    source = f"${field.path}"
    kind: Literal["group", "sum", "time"] = "sum"
    match field.converter:
        case "words":
            is_number = tables.type_of(field.columns[0]) != "text"
            given: dict[Any, Any] = dict(field.words)
            if field.type is not None:
                given = {int(old): new for old, new in given.items()}
            spelled = aggregates.words(source, {old: new for old, new in given.items() if old != new})
            expression = aggregates.number(spelled) if is_number else spelled
            kind, sql = ("sum", f"{column}::numeric") if is_number else ("group", column)
        case "flag":
            value = source if default is None else {"$ifNull": [source, default]}
            expression = {"$switch": {"branches": _flag_branches(value), "default": None}}
            kind, sql, default = "group", f"{column}::text", None
        case "number":
            expression, sql = aggregates.number(source), f"{column}::numeric"
        case "duration":
            scaled = {"$multiply": [aggregates.number(source), MILLISECONDS[field.unit]]}
            expression, sql = {"$round": [scaled, 0]}, f"{column}::numeric"
        case "time":
            kind, expression = "time", _milliseconds(field, source)
            sql = f"trunc(extract(epoch from {column}) * 1000)::bigint"
        case _:
            return None
    if default is not None:
        expression = {"$cond": [{"$eq": [{"$ifNull": [source, None]}, None]}, default, expression]}
    return Measure(field.path, kind, expression, _sql(sql, table, owner))


def _flag_branches(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - MongoDB expressions
    return [{"case": {"$eq": [value, flag]}, "then": str(flag).lower()} for flag in (True, False)]


def _milliseconds(field: Field, source: str) -> Any:  # noqa: ANN401 - a MongoDB expression
    """Return the expression of a time in whole milliseconds since 1970."""
    if field.encoding in ("date", "iso"):
        return aggregates.milliseconds(source)
    micros = {"$round": [{"$multiply": [aggregates.number(source), _MICROSECONDS[field.encoding]]}, 0]}
    return {"$toLong": {"$trunc": [{"$divide": [micros, 1_000]}, 0]}}


def _default_of(table: str, column: str) -> Any:  # noqa: ANN401 - a value of the column
    """Return what a column holds if nothing is given for it."""
    field = next(one for one in msgspec.structs.fields(tables.TABLES[table]) if one.name == column)
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
