"""What every document has: an ``_id``, mostly an ``id`` and a schemaVersion; ids and references to others."""

from functools import lru_cache
from uuid import UUID

from migrator.sources.profile import Note
from migrator.sources.store_documents import names
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


@lru_cache(maxsize=16_384)
def schedule_id(tenant: str, text: str) -> UUID:
    """Return the id of the schedule that a document names."""
    return identity.row_id("schedules", tenant, names.SCHEDULES, identity.source_id(text))


def trigger_id(tenant: str, text: str) -> UUID:
    """Return the id of the trigger that a document names."""
    return identity.row_id("triggers", tenant, names.TRIGGERS, identity.source_id(text))


def graph_job_id(tenant: str, text: str) -> UUID:
    """Return the id of the graph job that a document names."""
    return identity.row_id("graph_jobs", tenant, names.GRAPH_JOBS, identity.source_id(text))


def trigger_text(value: UUID) -> str:
    """Return the canonical text of a trigger's id; what the source spelled otherwise is remainder."""
    return names.TRIGGER_PREFIX + identity.hex_of(value)
