"""The aggregates of a mapping over a table of PostgreSQL: SQL over a row ``this``, without any code of the codec."""

from collections.abc import Iterable
from typing import Any, Final

from migrator.sources.mapping import tables
from migrator.sources.mapping.language import MILLISECONDS, Field
from migrator.sources.tenants import BLANK

_PER_MICROSECOND: Final = {"seconds": "1000000", "milliseconds": "1000", "microseconds": "1"}


def tenant_sql(fields: Iterable[Field]) -> str:
    """Return the SQL of a row's tenant; empty if no field holds it."""
    field = next((field for field in fields if field.converter == "tenant"), None)
    if field is None:
        return ""
    texts = [f"({_value(path)})::text" for path in (field.path, *field.also)]
    blank = quoted(BLANK)
    said = [f"CASE WHEN btrim({text}, {blank}) <> '' THEN {text} END" for text in texts]
    return f"coalesce({', '.join(said)})"


def source_sql(field: Field, default: Any) -> str:  # noqa: ANN401 - a value of the column
    """Return what a field's aggregate adds up, counts or spans; empty if it is not computed over tables.

    ``default``: what the column holds if the field is null.
    """
    if "_id" in (field.path, *field.also):
        return ""
    values = [_value(path) for path in (field.path, *field.also)]
    value = values[0] if len(values) == 1 else f"coalesce({', '.join(values)})"
    if field.none is not None:
        value = f"nullif(({value})::numeric, {field.none})"
    match field.converter:
        case "words":
            found = _words(field, value)
        case "flag":
            found = f"({value})::bool"
        case "number":
            found = _number(field, value)
        case "duration":
            found = f"round(({value})::numeric * {MILLISECONDS[field.unit]})"
        case "time":
            return _milliseconds(field, value)
        case _:
            return ""
    if default is not None:
        found = f"coalesce({found}, {quoted(default) if isinstance(default, str) else default})"
    return f"({found})::text" if field.converter == "flag" else found


def _value(path: str) -> str:
    """Return the SQL of a path: a column, or a member of the JSON in it."""
    column, *members = path.split(".")
    found = f"this.{identifier(column)}"
    if not members:
        return found
    steps = ", ".join(map(quoted, members))
    return f"({found} #>> ARRAY[{steps}])"


def _words(field: Field, value: str) -> str:
    branches = "".join(f" WHEN {quoted(old)} THEN {_literal(new)}" for old, new in field.words.items())
    if not branches:
        return f"({value})::text"
    is_text = tables.type_of(field.columns[0]) == "text"
    return f"CASE ({value})::text{branches}{f' ELSE ({value})::text' if is_text else ''} END"


def _number(field: Field, value: str) -> str:
    found = f"({value})::numeric"
    if (field.factor, field.add) != (1, 0):
        found = f"({found} * {field.factor} + {field.add})"
        found = f"round({found})" if field.factor != 1 else found
    if not field.clamp:
        return found
    least, most = tables.bounds_of(field.columns[0])
    return f"greatest({least}, least({most}, {found}))"


def _milliseconds(field: Field, value: str) -> str:
    """Return the SQL of a time in whole milliseconds since 1970."""
    unit = _PER_MICROSECOND.get(field.encoding)
    if unit is not None:
        return f"trunc(round(({value})::numeric * {unit}) / 1000)::bigint"
    if field.encoding == "milliseconds-text":
        other = f"trunc(extract(epoch from nullif({value}, '')::timestamptz) * 1000)::bigint"
        return f"CASE WHEN ({value}) ~ '^-?[0-9]+$' THEN ({value})::bigint ELSE {other} END"
    zone = " AT TIME ZONE 'UTC'" if field.encoding == "timestamp" else "::timestamptz"
    return f"trunc(extract(epoch from ({value}){zone}) * 1000)::bigint"


def _literal(value: Any) -> str:  # noqa: ANN401 - a value of the column
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    doubled = text.replace("\\", "\\\\").replace("'", "''").replace("{", "\\x7b")  # a brace would name a table
    return f"E'{doubled}'"


def identifier(name: str) -> str:
    """Return a name as SQL writes it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
