"""What the fields of the old application state of a schedule that our own store keeps.

Our own store has a document for each row, so nothing is lost. But the old application reads the documents of schedules
alone, and fires the cron line in them.
"""

from collections.abc import Iterable, Sequence

from migrator.records import Schedule, Trigger
from migrator.sources.store_documents import names
from migrator.sources.store_documents.schedules import is_carried


def stated_trigger(triggers: Iterable[Trigger]) -> Trigger | None:
    """Return the one trigger of a schedule that its own document states; None if it can state none.

    The trigger that the document stated before comes first, then those created on PostgreSQL. A trigger that has a
    document of its own in the source stays there.
    """
    own = names.source(names.SCHEDULES)
    able = [one for one in triggers if one.source in (None, own) and is_carried(one)]
    return min(able, key=lambda one: (one.source is None, not one.enabled, one.id), default=None)


def unstated(schedule: Schedule, triggers: Sequence[Trigger]) -> tuple[str, ...]:
    """Return why the old application would not fire a schedule as PostgreSQL does; empty if it would."""
    own = names.source(names.TRIGGERS)
    stated = stated_trigger(triggers)
    # A trigger that came from a document of its own was never fired by the old application. As a plain cron line it
    # would look as if it were.
    rest = [one for one in triggers if one is not stated and (one.source != own or is_carried(one))]
    reasons = sorted({_reason(one) for one in rest})
    if stated is not None and (schedule.source is None or schedule.handler_name is not None):
        # else it is the old application's own schedule, unchanged
        absent = [name for name in ("mode", "selection") if getattr(schedule, name) is None]
        reasons += [f"would have no {name}, which the old application needs" for name in absent]
    return tuple(reasons)


def _reason(trigger: Trigger) -> str:
    if trigger.source == names.source(names.TRIGGERS):
        return "would not fire for a cron line whose trigger has a document of its own: the old one does not read it"
    if trigger.kind != "cron":
        return f"would not fire for a trigger of kind {trigger.kind}: its fields state cron lines only"
    if trigger.max_fires is not None or trigger.start_at is not None or trigger.end_at is not None:
        return "would not fire for a cron line with bounds: its fields state none"
    return "would not fire for a cron line that its dialect reads otherwise, or that is not the schedule's first"
