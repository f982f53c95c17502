"""Fields as this source writes them: camelCase of the columns, ISO 8601 times, references as the text of an ``_id``.

No public source describes MongoDB collections ``triggers``, ``workers``, ``execution_logs`` or ``handlers``, nor what
our own store adds to schedules, runs and work items; so the shape of those fields is ours: BSON dates, and values of
the types of their columns.
"""

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


def camel(column: str) -> str:
    """Return the field name of a column."""
    head, *rest = column.split("_")
    return head + "".join(word.capitalize() for word in rest)


def field(column: str, converter: str, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of ``table.column``; its path is the column's name in camelCase unless another is given."""
    return Field(path=path or camel(tables.split(column)[1]), columns=(column,), converter=converter, **options)


def text(column: str, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a text as the source's model keeps it: trimmed, blank is none."""
    return field(column, "text", path, trim=True, **options)


def time(column: str, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a time, written as ISO 8601 text."""
    return field(column, "time", path, **{"encoding": "iso", **options})


def json(column: str, shape: Any, path: str = "", **options: Any) -> Field:  # noqa: ANN401 - a type; of ``Field``
    """Return the field of a document, or a list of documents, of a shape."""
    return field(column, "json", path, shape=shape, **options)


def version(table: str, expected: str) -> Field:
    """Return the field of the version of a document's form."""
    return field(f"{table}.schema_version", "version", expected=expected)


def reference(column: str, **options: Any) -> Field:  # noqa: ANN401 - of ``Field``
    """Return the field of a reference, by the text of an ``_id``."""
    collection, prefix = _REFERENCES[tables.split(column)[1]]
    return field(column, "reference", collection=collection, prefix=prefix, **{"trim": True, "shape": str, **options})


def own(
    table: str,
    columns: Iterable[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    spellings: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Field, ...]:
    """Return the fields of our own store for columns of a table, in the order in which they are written.

    ``options``: column to options of its field; ``words``: column to further spellings of its words.
    """
    fields = []
    for name in columns:
        column, given = f"{table}.{name}", (options or {}).get(name, {})
        if name in _REFERENCES and tables.type_of(column) == "uuid":
            fields.append(reference(column, **{"trim": False, "shape": None, **given}))
        else:
            known = {word: word for word in constraints.WORDS.get(column, ())}
            fields.append(field(column, "column", words=(spellings or {}).get(name, known), **given))
    return tuple(fields)
