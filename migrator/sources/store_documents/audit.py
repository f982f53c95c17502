"""``audit``: who did what."""

from migrator.sources import aggregates
from migrator.sources.mapping.language import Mapped
from migrator.sources.shapes import Shape
from migrator.sources.store_documents import names
from migrator.sources.store_documents.fields import ID, TENANT, field, json, reference, text, time


class Actor(Shape):
    """Who acted."""

    actor_id: str | None = None
    display_name: str | None = None
    kind: str | None = None


AUDIT = Mapped(
    name=names.AUDIT,
    tables=("audit",),
    fields=(
        ID,
        TENANT,
        field("audit.category", "text", required=True),
        field("audit.action", "text", required=True),
        time("audit.occurredAt", required=True),
        json("audit.actor", Actor),
        text("audit.entityId"),
        # What an entry tells of may be gone long since: the columns hold the ids that the texts compute to.
        reference("audit.scheduleId", loose=True),
        reference("audit.runId", loose=True),
        text("audit.correlationId"),
        json("audit.metadata", dict[str, str]),
        text("audit.message"),
    ),
    measures=(
        aggregates.free_words("category", "$category"),
        aggregates.free_words("action", "$action"),
        aggregates.span("occurredAt", "occurred_at"),
    ),
)
