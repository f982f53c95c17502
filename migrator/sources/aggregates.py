"""The independent opinion: aggregates by MongoDB and by SQL that share no code and no table of aliases with the codec.

MongoDB has to read a time that may be a date or a text, in any of the spellings of the documents; times are compared in
whole milliseconds since 1970, because that is what a BSON date holds, cut towards 1970, because MongoDB cuts that way.
"""

from collections.abc import Mapping
from typing import Any, Final

from migrator.sources.profile import Measure
from migrator.sources.tenants import BLANK

READING: Final = "trunc(extract(epoch from {}) * 1000)::bigint"
"""SQL of a time in milliseconds; it keeps their order, so it is computed of the first and the last time only."""


def tenant(*fallbacks: str, field: str = "$tenantId") -> Any:  # noqa: ANN401 - a MongoDB expression
    """Return the expression of a document's tenant: the first of the fields that is a text with something in it."""
    expression: Any = None
    for candidate in reversed((field, *fallbacks)):
        blank = {"$eq": [{"$trim": {"input": candidate, "chars": BLANK}}, ""]}
        usable = {"$and": [{"$eq": [{"$type": candidate}, "string"]}, {"$not": [blank]}]}
        expression = {"$cond": [usable, candidate, expression]}
    return expression


def words(field: Any, spellings: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - MongoDB expressions
    """Return the expression of a word, older spellings replaced."""
    branches = [{"case": {"$eq": [field, old]}, "then": new} for old, new in spellings.items()]
    return {"$switch": {"branches": branches, "default": field}} if branches else field


def states(column: str, field: str, spellings: Mapping[str, str] | None = None) -> Measure:
    """Count documents by tenant and word."""
    return Measure(column, "group", words(field, spellings or {}), column, field=_name(field))


def free_words(column: str, field: str, spellings: Mapping[str, str] | None = None) -> Measure:
    """Count documents by tenant and a word that may be any text, which PostgreSQL stores without NUL."""
    stored = {"$replaceAll": {"input": field, "find": "\0", "replacement": "\N{REPLACEMENT CHARACTER}"}}
    text = {"$cond": [{"$eq": [{"$type": field}, "string"]}, stored, None]}
    branches = [{"case": {"$eq": [field, old]}, "then": new} for old, new in (spellings or {}).items()]
    expression = {"$switch": {"branches": branches, "default": text}} if branches else text
    return Measure(name=column, kind="group", expression=expression, sql=column, field=_name(field))


def _name(field: Any) -> str:  # noqa: ANN401 - a MongoDB expression
    return field.removeprefix("$") if isinstance(field, str) else ""


def coded(column: str, field: Any, spellings: Mapping[str, str], codes: Mapping[int, str]) -> Measure:  # noqa: ANN401 - a MongoDB expression
    """Count documents by tenant and word, where the column holds a code for it."""
    cases = " ".join(f"WHEN {code} THEN '{word}'" for code, word in codes.items())
    return Measure(name=column, kind="group", expression=words(field, spellings), sql=f"CASE {column} {cases} END")


def flag(column: str, field: Any, *, default: bool) -> Measure:  # noqa: ANN401 - a MongoDB expression
    """Count documents by tenant and a yes or no, which many documents leave to its default."""
    value = {"$cond": [{"$eq": [{"$ifNull": [field, default]}, True]}, "true", "false"]}
    stored = f"coalesce({column}, {default})::text"
    return Measure(name=column, kind="group", expression=value, sql=stored, field=_name(field))


def total(path: str, column: str, *, field: Any = None) -> Measure:  # noqa: ANN401 - a MongoDB expression
    """Add up a number of a jsonb column.

    ``path`` begins with the column's own name in the document; ``field`` says where a document has it otherwise.
    """
    steps = path.split(".")[1:]
    sql = column + "".join(f"->'{step}'" for step in steps[:-1]) + f"->>'{steps[-1]}'"
    return Measure(name=path, kind="sum", expression=number(field or f"${path}"), sql=f"({sql})::numeric")


def plain_total(path: str, column: str) -> Measure:
    """Add up a number that has a column."""
    return Measure(name=path, kind="sum", expression=number(f"${path}"), sql=f"{column}::numeric")


def length(path: str, column: str) -> Measure:
    """Add up the lengths of a list that is stored as jsonb."""
    size = {"$cond": [{"$isArray": f"${path}"}, {"$size": f"${path}"}, None]}
    sql = f"CASE jsonb_typeof({column}) WHEN 'array' THEN jsonb_array_length({column}) END::numeric"
    return Measure(name=f"{path}.length", kind="sum", expression=size, sql=sql)


def number(field: Any) -> Any:  # noqa: ANN401 - MongoDB expressions
    """Return the expression of a number, null where there is none."""
    return {"$cond": [{"$isNumber": field}, field, None]}


def span(path: str, column: str, *, field: Any = None) -> Measure:  # noqa: ANN401 - a MongoDB expression
    """Find the first and the last of a time; ``field`` says where a document has it, unless at ``path``."""
    value = field or f"${path}"
    return Measure(path, "time", milliseconds(value), column, reading=READING, field=_name(value))


def milliseconds(field: Any) -> Any:  # noqa: ANN401 - MongoDB expressions
    """Return the expression of a time, date or text, in milliseconds since 1970; null where it is neither."""
    parsed = {"$dateFromString": {"dateString": field, "onError": None, "onNull": None}}
    return {
        "$switch": {
            "branches": [
                {"case": {"$eq": [{"$type": field}, "string"]}, "then": {"$toLong": parsed}},
                {"case": {"$eq": [{"$type": field}, "date"]}, "then": {"$toLong": field}},
            ],
            "default": None,
        }
    }
