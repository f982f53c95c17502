"""``EventHandler``: a schedule whose trigger is an event."""

from typing import Any, Final

from migrator.records import Schedule, Trigger
from migrator.sources.orchestrator import names
from migrator.sources.orchestrator.origin import PLATFORM, origin_of, platform_of
from migrator.sources.orchestrator.shapes import EventHandler
from migrator.sources.profile import Context, Decoded, Note, Rows
from migrator.sources.rows import (
    Row,
    collection_of,
    counted,
    naive,
    read_row,
    spanned,
    summed,
    text_of_key,
    the,
    utc,
)
from migrator.sources.shapes import choice, indexed
from migrator.values import jsonb

_TOP: Final = 100


def decode(row: Row, _context: Context) -> Decoded:
    """Return the schedule and its trigger."""
    handler = read_row(row, EventHandler)
    # Jobs come first: they keep their UUIDs, and a handler may have one of theirs.
    origin = origin_of(handler.id, handler.platform_id, names.EVENT_HANDLERS, keep_uuid=False)
    notes: list[Note] = []
    priority = max(0, min(_TOP, handler.priority))
    if priority != handler.priority:
        notes.append(Note("clamped-priority", "priority"))
    schedule = Schedule(
        **origin.columns(Schedule),
        name=indexed(f"{handler.event_name}:{handler.handler_name}", "event_name"),
        enabled=handler.enabled,
        status="scheduled",
        handler_name=handler.handler_name,
        handler_type=choice(handler.handler_type, names.EVENT_HANDLER_TYPES, "handler_type"),
        payload=_action(handler),
        priority=priority,
        created_at=utc(handler.created_at, "created_at"),
    )
    trigger = Trigger(
        **origin.columns(Trigger),
        schedule_id=schedule.id,
        kind="event",
        event_name=handler.event_name,
        fire_count=handler.trigger_count,
        enabled=handler.enabled,
        last_fire_at=utc(handler.last_triggered, "last_triggered"),
    )
    return Decoded((schedule, trigger), tuple(notes))


def encode(rows: Rows) -> Row:
    """Return the row as far as the records carry it; the counts of success and failure are remainder."""
    schedule, trigger = the(rows, Schedule), the(rows, Trigger)
    action: dict[str, Any] = {} if schedule.payload is None else jsonb.decode(schedule.payload)
    return {
        "id": text_of_key(schedule),
        "event_name": trigger.event_name,
        "handler_name": schedule.handler_name,
        "handler_type": schedule.handler_type,
        "enabled": trigger.enabled,
        "priority": schedule.priority,
        "action_type": action.get("action_type"),
        "action_config": action.get("action_config"),
        "platform_id": platform_of(schedule.tenant_id),
        "trigger_count": trigger.fire_count,
        "created_at": naive(schedule.created_at),
        "last_triggered": naive(trigger.last_fire_at),
    }


def _action(handler: EventHandler) -> bytes | None:
    """Return what the handler is to do, for those that do more than call a function."""
    if handler.action_type is not None:
        choice(handler.action_type, names.ACTION_TYPES, "action_type")
    action = {"action_type": handler.action_type, "action_config": handler.action_config}
    action = {name: value for name, value in action.items() if value is not None}
    return jsonb.encode(action) if action else None


COLLECTION: Final = collection_of(
    names.EVENT_HANDLERS,
    EventHandler,
    (Schedule, Trigger),
    decode,
    encode,
    tenant_sql=PLATFORM,
    measures=(
        counted("handler_type", "this.handler_type::text"),
        summed("priority", f"greatest(0, least({_TOP}, this.priority))"),
        spanned("created_at", "this.created_at AT TIME ZONE 'UTC'"),
    ),
)
