"""References between documents: which field names which document."""

from collections.abc import Callable
from functools import partial

from migrator.records import Record
from migrator.sources.profile import Document, Reference
from migrator.sources.stellaops import names
from migrator.values import identity

COLLECTIONS = {
    "schedules": names.SCHEDULES,
    "triggers": names.TRIGGERS,
    "runs": names.RUNS,
    "graph_jobs": names.GRAPH_JOBS,
}
"""Table to the collection whose documents are referred to."""

PREFIXES = {
    "schedules": names.SCHEDULE_PREFIX,
    "triggers": names.TRIGGER_PREFIX,
    "runs": names.RUN_PREFIX,
}
"""Table to the prefix with which ``encode`` spells a row's id."""


def by_field(
    record: type[Record],
    column: str,
    target: type[Record],
    path: str,
    *,
    required: bool = False,
    shared: bool = False,
    unless: Callable[[Document], bool] | None = None,
) -> Reference:
    """Return the reference of a column; ``path`` is the field that holds the text.

    ``unless``: tells documents that name the row by its id alone, as those of our own store do with graph jobs.
    """
    return Reference(
        record,
        column,
        target,
        required=required,
        collection=COLLECTIONS[target.table],
        named=partial(_named, path=tuple(path.split(".")), unless=unless),
        shared=shared,
        prefix=PREFIXES.get(target.table, ""),
    )


def _named(document: Document, path: tuple[str, ...], unless: Callable[[Document], bool] | None) -> str | None:
    if unless is not None and unless(document):
        return None
    value: object = document
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return identity.source_id(value) if isinstance(value, str) else None
