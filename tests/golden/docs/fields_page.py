"""docs/fields.md: which field of a document fills which column, from the descriptions in the mapping language."""

from collections.abc import Iterator
from importlib import import_module

from migrator.sources import NAMES, shipped_mapping
from migrator.sources.mapping.file import read_mapping
from migrator.sources.mapping.language import Case, Field, Mapped, SourceMapping, When

IN_PYTHON = ("stellaops", "agenda", "apscheduler4", "orchestrator", "crawler", "support_center")
"""Sources that are packages and have a ``MAPPING``."""

HEAD = """\
# Fields of the sources

Which field of a document fills which column of the schema `scheduler`. This page is made from the descriptions that the
copy itself follows ([mapping language](mapping.md)). A field that is not listed is kept in the
[remainder](glossary.md#remainder). A field that is absent or null gives a null column, unless its rules say otherwise.
`column` means: the value in the type of the column, as the tool's own store writes it. A field without a column is read
by a function of the source, because no rule of the language says what it means. The page of the source describes it.
`migrator source show NAME` prints the mapping of a source.

Not on this page: the two collections of graph jobs of `stellaops` ([page](sources-stellaops.md)), and `apscheduler`
([page](sources-apscheduler.md)).
"""


def fields_page(notice: str) -> str:
    """Return the page."""
    lines = [notice, *HEAD.splitlines()]
    for mapping in _mappings():
        lines += ["", f"## {mapping.name}"]
        for one in mapping.collections:
            lines += _collection(one)
    return "\n".join(lines) + "\n"


def _mappings() -> Iterator[SourceMapping]:
    for name in IN_PYTHON:
        yield import_module(f"migrator.sources.{name}").MAPPING
    for name in NAMES:
        if shipped_mapping(name).exists():
            yield read_mapping(shipped_mapping(name))


def _collection(one: Mapped) -> Iterator[str]:
    if not one.kinds:
        yield from _fields(one, f"### {one.name}")
        return
    for name, kind in one.kinds.items():
        heading = f"### {one.name}: {name}"
        if kind.skipped:
            yield from ("", heading, "", f"Documents where {_when(kind.when)}: skipped, and counted.")
        else:
            yield from _fields(kind, heading)


def _fields(one: Mapped, heading: str) -> Iterator[str]:
    yield from ("", heading, "")
    tables = ", ".join(f"`{table}`" for table in one.tables)
    applies = f"Documents where {_when(one.when)}. " if one.when is not None else ""
    yield f"{applies}Tables: {tables}."
    if one.inherited:
        yield f"Taken from rows that a row refers to: {', '.join(f'`{name}`' for name in one.inherited)}."
    if one.derive is not None:
        paths = f": {', '.join(f'`{path}`' for path in one.derived_paths)}" if one.derived_paths else ""
        yield f"Functions read further fields{paths}."
    yield from ("", "| field | columns | read as | rules |", "|---|---|---|---|")
    for field in one.all_fields:
        columns = ", ".join(f"`{column}`" for column in field.columns)
        yield f"| `{field.path}` | {columns} | {_read_as(field)} | {'; '.join(_rules(field))} |"
    for column, value in one.constants.items():
        yield f"| | `{column}` | constant | {_value(value)} |"
    for column, cases in one.choices.items():
        yield f"| | `{column}` | choice | {'; '.join(_case(case) for case in cases)} |"


def _when(when: When | None) -> str:
    if when is None:
        return "no kind above applies"
    if when.present is not None:
        return f"`{when.path}` is {'there' if when.present else 'absent or null'}"
    if when.begins:
        return f"`{when.path}` begins with {_value(when.begins)}"
    return f"`{when.path}` is {_value(when.equals)}"


def _read_as(field: Field) -> str:
    match field.converter:
        case "time":
            local = ", local time of the source" if field.local else ""
            return f"time ({field.encoding}{local})"
        case "duration":
            return f"duration ({field.unit})"
        case "cron" | "cron-fields":
            return f"{field.converter} ({field.dialect})"
        case "reference":
            return f"reference to `{field.collection}`"
        case "period":
            return f"period (`{field.number}`, `{field.unit_from}`)"
        case other:
            return other


def _rules(field: Field) -> Iterator[str]:
    rules = {
        "required": field.required,
        "also " + ", ".join(f"`{path}`" for path in field.also): field.also,
        _words(field): field.words,
        "written " + ", ".join(f"{_value(held)} → `{word}`" for held, word in field.write_as.items()): field.write_as,
        "another word is kept": field.allow_unknown,
        f"default {_value(field.default)}": field.default is not None,
        f"{field.factor:g} * value {'+' if field.add >= 0 else '-'} {abs(field.add):g}": field.factor != 1 or field.add,
        "clamped to the bounds of the column": field.clamp,
        f"{field.null_value} is none": field.null_value is not None,
        "trimmed, blank is none": field.trim,
        f"known is {_value(field.expected)}": field.expected,
        f"written as {_value(field.prefix)} and the 32 digits of the id": field.prefix,
        f"written as the id ({field.id_type})": field.id_type,
        "kept if no such row is stored": field.loose,
    }
    yield from (words for words, applies in rules.items() if applies)


def _words(field: Field) -> str:
    same = ", ".join(f"`{word}`" for word, target in field.words.items() if word == target)
    others = ", ".join(f"`{word}` → {_value(target)}" for word, target in field.words.items() if word != target)
    return "; ".join(part for part in (same, others) if part)


def _case(case: Case) -> str:
    if not case.field:
        return f"else {_value(case.value)}"
    holds = "is there" if case.equals is None else f"is {_value(case.equals)}"
    return f"{_value(case.value)} if `{case.field}` {holds}"


def _value(value: object) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
