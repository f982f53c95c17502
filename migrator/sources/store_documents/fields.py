"""Fields as this source writes them: columns in camelCase, ISO 8601 times, references as the text of an ``_id``.

No public source describes MongoDB collections ``triggers``, ``workers``, ``execution_logs`` or ``handlers``, nor what
our own store adds to schedules, runs and work items; so the shape of those fields is ours: BSON dates, and values of
the types of their columns.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from migrator import constraints
from migrator.sources.mapping import tables
from migrator.sources.mapping.language import Field
from migrator.sources.store_documents import names

ID: Final = Field(path="id", converter="own-id")
TENANT: Final = Field(path="tenantId", converter="tenant")

_REFERENCES: Final[Mapping[str, tuple[str, str]]] = {
    "schedule_id": (names.SCHEDULES, names.SCHEDULE_PREFIX),
    "trigger_id": (names.TRIGGERS, names.TRIGGER_PREFIX),
    "run_id": (names.RUNS, names.RUN_PREFIX),
    "retry_of": (names.RUNS, names.RUN_PREFIX),
}
"""Column to the collection that it refers to, and the prefix of ids there."""


def snake(name: str) -> str:
    """Return the name of a column by that of its field."""
    return re.sub(r"[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def field(place: str, converter: str, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field at ``table.name``; its column is the name in snake_case. ``path``: if the field has another."""
    table, name = tables.split(place)
    return Field(path=path or name, columns=(f"{table}.{snake(name)}",), converter=converter, **options)


def text(place: str, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a text as the source's model keeps it: trimmed, blank is none."""
    return field(place, "text", path, trim=True, **options)


def time(place: str, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a time, written as ISO 8601 text."""
    return field(place, "time", path, **{"encoding": "iso", **options})


def json(place: str, shape: Any, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - a type; of ``Field``
    """Return the field of a document, or a list of documents, of a shape."""
    return field(place, "json", path, shape=shape, **options)


def version(table: str, expected: str) -> Field:
    """Return the field of the version of a document's form."""
    return field(f"{table}.schemaVersion", "version", expected=expected)


def reference(place: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a reference, by the text of an ``_id``."""
    collection, prefix = _REFERENCES[snake(tables.split(place)[1])]
    return field(place, "reference", collection=collection, prefix=prefix, **{"trim": True, "shape": str, **options})


def own(
    table: str,
    paths: Iterable[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    spellings: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Field, ...]:
    """Return the fields of our own store for columns of a table, in the order in which they are written.

    ``options``: path to options of its field; ``spellings``: path to further spellings of its words.
    """
    fields = []
    for path in paths:
        place, given = f"{table}.{path}", (options or {}).get(path, {})
        column = f"{table}.{snake(path)}"
        if snake(path) in _REFERENCES and tables.type_of(column) == "uuid":
            fields.append(reference(place, **{"trim": False, "shape": None, **given}))
        else:
            known = {word: word for word in constraints.WORDS.get(column, ())}
            fields.append(field(place, "column", words=(spellings or {}).get(path, known), **given))
    return tuple(fields)
