"""When something fires, as a value; and how a source's own document states it, read without the profile's ``decode``.

A codec fault that is symmetric passes every round trip. So the rule of a ``stellaops`` document is read here a second
time, by code of its own; the rules of other profiles come from their ``decode``, and the check says so.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from migrator import states
from migrator.records import Schedule, Trigger
from migrator.sources.profile import Rows
from migrator.sources.stellaops.own import is_copy

DIALECT: Final = "cronos"
"""The library that evaluates the cron texts of ``stellaops``."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a trigger fire; times are aware and UTC."""

    kind: str
    live: bool
    """Trigger and schedule are enabled, and nobody has deleted, paused or ended the schedule."""
    dialect: str | None = None
    expression: str | None = None
    zone: str | None = None
    """As the side spells it: an IANA name, or a Windows one in the source."""
    interval_ms: int | None = None
    run_at: datetime | None = None
    event: str | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None


def stored_rule(trigger: Trigger, *, live: bool) -> Rule:
    """Return the rule of a stored (or decoded) trigger."""
    return Rule(
        kind=trigger.kind,
        live=live,
        dialect=trigger.cron_dialect,
        expression=trigger.cron_expression,
        zone=trigger.timezone,
        interval_ms=trigger.interval_ms,
        run_at=trigger.run_at,
        event=trigger.event_name,
        start_at=trigger.start_at,
        end_at=trigger.end_at,
    )


def is_live(*, enabled: bool, status: str, deleted: bool) -> bool:
    """Tell whether a schedule of this state goes on firing."""
    return enabled and status in states.SCHEDULE_FIRING and not deleted


def decoded_rule(rows: Rows) -> Rule | None:
    """Return the rule that a document decodes to; none where it makes no trigger."""
    trigger = next((row for row in rows if isinstance(row, Trigger)), None)
    schedule = next((row for row in rows if isinstance(row, Schedule)), None)
    if trigger is None:
        return None
    live = trigger.enabled and (
        schedule is None
        or is_live(enabled=schedule.enabled, status=schedule.status, deleted=schedule.deleted_at is not None)
    )
    return stored_rule(trigger, live=live)


def stellaops_live(document: Mapping[str, Any]) -> bool:
    """Tell whether a schedule document goes on firing; without a status of its own, ``enabled`` implies it."""
    enabled = document.get("enabled") is not False
    status = document.get("status") or ("scheduled" if enabled else "paused")
    if enabled and document.get("toolEnabled") is True:
        status = "scheduled"  # it was held by its status, and the old application has switched it on since
    return is_live(enabled=enabled, status=str(status), deleted=document.get("deletedAt") is not None)


def stellaops_schedule(document: Mapping[str, Any]) -> Rule | None:
    """Return the rule of a document of ``schedules``."""
    line = document.get("cronExpression")
    if line is None:
        line = document.get("whenCron")
    if not isinstance(line, str) or not line.strip():
        return None
    zone = document.get("timezone")
    return Rule(
        kind="cron",
        live=stellaops_live(document),
        dialect=DIALECT,
        expression=line,
        zone=zone if isinstance(zone, str) and zone.strip() else None,
    )


def stellaops_trigger(document: Mapping[str, Any]) -> Rule | None:
    """Return the rule of a document of ``triggers`` (our own shape); whether its schedule lives is not in it.

    None for one that our store keeps as its own copy of a schedule's rule: the schedule is what asks for that trigger.
    """
    kind = document.get("kind")
    if kind not in states.TRIGGER_KINDS or is_copy(dict(document)):
        return None
    return Rule(
        kind=str(kind),
        live=document.get("enabled") is not False,
        dialect=(document.get("cronDialect") or DIALECT) if kind == "cron" else None,
        expression=document.get("cronExpression"),
        zone=document.get("timezone") or None,
        interval_ms=document.get("intervalMs"),
        run_at=_aware(document.get("runAt")),
        event=document.get("eventName"),
        start_at=_aware(document.get("startAt")),
        end_at=_aware(document.get("endAt")),
    )


def _aware(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


Reader = Callable[[Mapping[str, Any]], Rule | None]

READERS: Final[Mapping[str, Reader]] = {
    "stellaops/schedules": stellaops_schedule,
    "stellaops/triggers": stellaops_trigger,
}
"""Collections whose rules are read apart from ``decode``, by ``<profile>/<collection>``."""
