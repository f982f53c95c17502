"""What every document has: an ``_id``, mostly an ``id`` and a schemaVersion; ids and references to others."""

from collections.abc import Callable
from functools import lru_cache, partial
from uuid import UUID

from migrator.records import Record
from migrator.sources.profile import Document, Note, Reference
from migrator.sources.stellaops import names
from migrator.values import identity


def compare_ids(key: object, inner: object, notes: list[Note], path: str = "id") -> None:
    """Note an ``id`` that is not the ``_id``; a document may have none."""
    if inner is not None and inner != key:
        notes.append(Note("id-mismatch", path))


def version_of(value: str | None, known: str, notes: list[Note]) -> str | None:
    """Return the schemaVersion; old documents have none or a blank one, an unknown one is kept and noted."""
    if value == known:
        return known
    version = value.strip() if value else None
    if not version:
        return None
    if version != known:
        notes.append(Note("unknown-schema-version", "schemaVersion"))
    return version


def keys_of(source_id: str | None) -> tuple[object, str | None]:
    """Return the ``_id``, and the ``id`` that the source writes beside it where that is a text."""
    key = identity.parse_source_id(source_id or "")
    return key, key if type(key) is str else None


@lru_cache(maxsize=16_384)
def schedule_id(tenant: str, text: str) -> UUID:
    """Return the id of the schedule that a document names."""
    return identity.row_id("schedules", tenant, names.SCHEDULES, identity.source_id(text))


@lru_cache(maxsize=1_024)
def run_id(tenant: str, text: str) -> UUID:
    """Return the id of the run that a document names."""
    return identity.row_id("runs", tenant, names.RUNS, identity.source_id(text))


def trigger_id(tenant: str, text: str) -> UUID:
    """Return the id of the trigger that a document names."""
    return identity.row_id("triggers", tenant, names.TRIGGERS, identity.source_id(text))


def graph_job_id(tenant: str, text: str) -> UUID:
    """Return the id of the graph job that a document names."""
    return identity.row_id("graph_jobs", tenant, names.GRAPH_JOBS, identity.source_id(text))


def schedule_text(value: UUID | None) -> str | None:
    """Return the canonical text of a schedule's id; what the source spelled otherwise is remainder."""
    return None if value is None else names.SCHEDULE_PREFIX + identity.hex_of(value)


def run_text(value: UUID | None) -> str | None:
    """Return the canonical text of a run's id."""
    return None if value is None else names.RUN_PREFIX + identity.hex_of(value)


def trigger_text(value: UUID | None) -> str | None:
    """Return the canonical text of a trigger's id."""
    return None if value is None else names.TRIGGER_PREFIX + identity.hex_of(value)


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
