"""``EventHandler``: a schedule whose trigger is an event."""

from typing import Final

from migrator.sources import table_columns
from migrator.sources.mapping.language import Mapped, Reading
from migrator.sources.orchestrator import names, platforms
from migrator.sources.profile import Context, Document, Note
from migrator.sources.shapes import Int32, choice, indexed
from migrator.sources.table_columns import Count, column, counted, given, number, spanned, summed, text, utc

_TOP: Final = 100


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Name the schedule after the event and the handler; bring the priority into its bounds."""
    schedule = reading.columns["schedules"]
    schedule["name"] = indexed(f"{document['event_name']}:{document['handler_name']}", "event_name")
    stated = schedule.get("priority", 0)
    if not 0 <= stated <= _TOP:
        schedule["priority"] = max(0, min(_TOP, stated))
        reading.notes.append(Note("clamped-priority", "priority"))
    if document.get("action_type") is not None:
        choice(document["action_type"], names.ACTION_TYPES, "action_type")


EVENT_HANDLERS: Final = Mapped(
    name=names.EVENT_HANDLERS,
    tables=("schedules", "triggers"),
    fields=(
        text("event_name", "triggers.event_name", required=True),
        text("handler_name", "schedules.handler_name", required=True),
        table_columns.words("handler_type", "schedules.handler_type", names.EVENT_HANDLER_TYPES, default="function"),
        column("enabled", "triggers.enabled", "schedules.enabled", converter="flag", **given(bool, default=True)),
        number("priority", "schedules.priority", **given(Int32, default=5)),
        text("action_type", "schedules.payload.action_type"),
        table_columns.json("action_config", "schedules.payload.action_config"),
        platforms.FIELD,
        number("trigger_count", "triggers.fire_count", **given(Count, default=0)),
        utc("created_at", "schedules.created_at", required=True),
        utc("last_triggered", "triggers.last_fire_at"),
        # These counts are remainder.
        number("success_count", **given(Count, default=0)),
        number("failure_count", **given(Count, default=0)),
    ),
    constants={"schedules.status": "scheduled"},
    admit=table_columns.key(table_columns.Key),
    derive=_derive,
    tenant=platforms.tenant_of,
    tenant_sql=platforms.TENANT_SQL,
    measures=(
        counted("handler_type", "this.handler_type::text"),
        summed("priority", "greatest(0, least(100, this.priority))"),
        spanned("created_at", "this.created_at AT TIME ZONE 'UTC'"),
    ),
)
