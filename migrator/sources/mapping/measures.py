"""The aggregates of a mapping: what MongoDB and PostgreSQL count, each without any code of the codec.

The expressions follow from the same description as the codec, so they do not find a mapping that names the wrong
column. They find a value that was read or written wrongly.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from migrator.sources import aggregates
from migrator.sources.mapping import sql, tables
from migrator.sources.mapping.converters import CONVERTERS
from migrator.sources.mapping.language import Case, Field, Mapped
from migrator.sources.profile import Measure
from migrator.sources.tenants import BLANK


def tenant_sql(fields: Iterable[Field]) -> str:
    """Return the SQL of the tenant of a row of a source in PostgreSQL; empty if no field holds it."""
    field = next((field for field in fields if field.converter == "tenant"), None)
    if field is None:
        return ""
    texts = [f"({sql.value_at(path)})::text" for path in (field.path, *field.also)]
    blank = sql.quoted(BLANK)
    said = [f"CASE WHEN btrim({text}, {blank}) <> '' THEN {text} END" for text in texts]
    return f"coalesce({', '.join(said)})"


def measures_of(mapped: Mapped) -> Iterator[Measure]:
    """Yield the aggregates of a collection: words, flags, sums of numbers, first and last times.

    Left out are tables whose rows depend on more than their own fields (``present``, a cron line, a default), and
    locks: expired ones are left out by a rule, and MongoDB deletes them while they are counted.
    """
    owner = mapped.tables[0]
    conditional = {*mapped.rows, *(mapped.tables[1:] if mapped.derive is not None else ())}
    conditional |= {
        tables.split(field.columns[0])[0]
        for field in mapped.fields
        if field.columns and CONVERTERS[field.converter].may_unmake
    }
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
    paths = (field.path, *field.also)
    mongo: list[Any] = [f"${path}" for path in paths]
    value = mongo[0] if len(mongo) == 1 else {"$ifNull": mongo}
    texts = [sql.value_at(path) for path in paths]
    text = texts[0] if len(texts) == 1 else f"coalesce({', '.join(texts)})"
    if field.null_value is not None:
        text = f"nullif(({text})::numeric, {field.null_value})"
    aggregate = CONVERTERS[field.converter].aggregate(field, value, text, default)
    if aggregate is None:
        return None
    expression, source_sql = aggregate.expression, "" if "_id" in paths else aggregate.source_sql
    if field.null_value is not None:
        expression = {"$cond": [{"$eq": [value, field.null_value]}, None, expression]}
    if default is not None and not aggregate.has_default:
        expression = {"$cond": [{"$eq": [{"$ifNull": [value, None]}, None]}, default, expression]}
        source_sql = source_sql and f"coalesce({source_sql}, {sql.literal(default)})"
    table = tables.split(field.columns[0])[0]
    is_stated = len(paths) == 1 and (
        aggregate.kind == "group" or (aggregate.kind == "time" and expression == aggregates.milliseconds(value))
    )
    return Measure(
        name=field.path,
        kind=aggregate.kind,
        expression=expression,
        sql=_sql(aggregate.sql, table, owner),
        source_sql=source_sql,
        reading=aggregate.reading,
        field=field.path if is_stated else "",
    )


def _chosen(cases: Sequence[Case]) -> Any:  # noqa: ANN401 - a MongoDB expression
    branches = [{"case": _holds(one), "then": {"$literal": one.value}} for one in cases]
    return {"$switch": {"branches": branches, "default": None}}


def _holds(case: Case) -> Any:  # noqa: ANN401 - a MongoDB expression
    if not case.field:
        return True
    if case.equals is not None:
        return {"$eq": [f"${case.field}", {"$literal": case.equals}]}
    return {"$ne": [{"$ifNull": [f"${case.field}", None]}, None]}


def _default_of(table: str, column: str) -> Any:  # noqa: ANN401 - a value of the column
    """Return the value of a column for which nothing is given."""
    field = next(one for one in tables.fields_of(tables.record_of(table)) if one.name == column)
    return None if field.required or field.default is msgspec.NODEFAULT else field.default


def _sql(expression: str, table: str, owner: str) -> str:
    """Return SQL over the row of the first table, for a column of any table of the document."""
    if table == owner:
        return expression
    alias = tables.alias(owner)
    return (
        f"(SELECT {expression} FROM {tables.sql_name(table)} further"  # noqa: S608 - names of tables
        f" WHERE further.source = {alias}.source AND further.source_id = {alias}.source_id"
        f" AND further.tenant_id = {alias}.tenant_id)"
    )
