"""When a trigger fires, as a value; how a source's own document states it; and the next fires of two rules compared.

A codec fault that is symmetric passes every round trip. So the rule of a ``stellaops`` document is read here a second
time, without the profile's ``decode``; the rules of other profiles come from their ``decode``, and the check says so.

Fires are compared from one instant on, and on both sides of every change of a clock. Instants are compared, not
spellings: a Windows zone name fires as its IANA name does. Fires are computed once per rule, since schedules repeat few
lines.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator import cron, states
from migrator.cron import timeline
from migrator.cron.dialects import parse, zone_key
from migrator.cron.expression import CronError
from migrator.records import Schedule, Trigger
from migrator.sources.profile import Rows
from migrator.sources.store_documents.own import is_copy

DIALECT: Final = "cronos"
"""The library that evaluates the cron texts of ``stellaops``."""


class FiringRule(msgspec.Struct, frozen=True, kw_only=True):
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


def stored_rule(trigger: Trigger, *, live: bool) -> FiringRule:
    """Return the rule of a stored (or decoded) trigger."""
    return FiringRule(
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
    """Whether a schedule of this state goes on firing."""
    return enabled and status in states.SCHEDULE_FIRING and not deleted


def decoded_rule(rows: Rows) -> FiringRule | None:
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
    """Whether a schedule document goes on firing; without a status of its own, ``enabled`` implies it."""
    enabled = document.get("enabled") is not False
    status = document.get("status") or ("scheduled" if enabled else "paused")
    if enabled and document.get("toolEnabled") is True:
        status = "scheduled"  # it was held by its status, and the old application has enabled it since
    return is_live(enabled=enabled, status=str(status), deleted=document.get("deletedAt") is not None)


def stellaops_schedule(document: Mapping[str, Any]) -> FiringRule | None:
    """Return the rule of a document of ``schedules``."""
    line = document.get("cronExpression")
    if line is None:
        line = document.get("whenCron")
    if not isinstance(line, str) or not line.strip():
        return None
    zone = document.get("timezone")
    return FiringRule(
        kind="cron",
        live=stellaops_live(document),
        dialect=DIALECT,
        expression=line,
        zone=zone if isinstance(zone, str) and zone.strip() else None,
    )


def stellaops_trigger(document: Mapping[str, Any]) -> FiringRule | None:
    """Return the rule of a document of ``triggers`` (our own shape); whether its schedule lives is not in it.

    None for one that our store keeps as its own copy of a schedule's rule: the schedule is what asks for that trigger.
    """
    kind = document.get("kind")
    if kind not in states.TRIGGER_KINDS or is_copy(dict(document)):
        return None
    return FiringRule(
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


RuleReader = Callable[[Mapping[str, Any]], FiringRule | None]

READERS: Final[Mapping[str, RuleReader]] = {
    "stellaops/schedules": stellaops_schedule,
    "stellaops/triggers": stellaops_trigger,
}
"""Collections whose rules are read apart from ``decode``, by ``<profile>/<collection>``."""


FIRES_COMPARED: Final = 12
"""Fires compared from each instant on."""
HORIZON: Final = timedelta(days=366)
"""Changes of the clock within this time are crossed."""
BEFORE_A_CHANGE: Final = timedelta(hours=30)
"""How long before a clock change the comparison of fires begins again."""

FiresDifference: TypeAlias = Literal[
    "never-fires",
    "fires-unasked",
    "no-trigger",
    "trigger-unasked",
    "another-kind",
    "interval-factor",
    "weekday-shift",
    "zone-shift",
    "day-fields",
    "other-fires",
]
"""How the fires of two rules differ; stable codes."""

DIFFERENCE_TEXTS: Final[dict[FiresDifference, tuple[str, str]]] = {
    "never-fires": ("the source fires, the target never does", "look for who disabled the trigger or its schedule"),
    "fires-unasked": ("the target fires what is disabled in the source", "look for who enabled it"),
    "no-trigger": ("a rule of the source without a trigger", "run backfill again: it writes the rows that are missing"),
    "trigger-unasked": ("a trigger of this source that no document asks for", "find out who wrote it, and remove it"),
    "another-kind": (
        "cron turned into an interval, or another change of kind, that does not fire at the same times",
        "keep the line with its dialect; an interval is not a cron line",
    ),
    "interval-factor": (
        "an interval that is a multiple of the source's, or a part of it",
        "look for a unit that was applied twice: interval_ms is the only unit",
    ),
    "weekday-shift": ("the same times on other days", "look for a weekday counted from another day: see docs/cron.md"),
    "zone-shift": (
        "the same times, shifted by whole quarters of an hour",
        "look for a local time that was read as UTC, and for a zone that was lost",
    ),
    "day-fields": (
        "more, or fewer, of the same fires",
        "look for day fields joined by the other word (and, or), that is for another dialect",
    ),
    "other-fires": ("other next fires", "compare expression, dialect and zone with the source's document"),
}

_DAY = timedelta(days=1)
_QUARTER = timedelta(minutes=15)
_WIDEST = timedelta(hours=26)

Fires: TypeAlias = tuple[datetime, ...]


class FiresComparison(msgspec.Struct, frozen=True):
    """What two rules have shown."""

    fires: int
    """Fires of the source that were compared."""
    changes: int
    """Changes of a clock that lie between them."""
    apart: FiresDifference | None = None
    """How they differ; none when they are equal."""


def usable(rule: FiringRule | None) -> FiringRule | None:
    """Return the rule if it can be evaluated: a line that no dialect takes makes no trigger."""
    if rule is None or rule.kind != "cron":
        return rule
    try:
        cron.validate(rule.dialect or "", rule.expression or "", rule.zone)
    except CronError:
        return None
    return rule


def compare_fires(source: FiringRule | None, target: FiringRule | None, since: datetime) -> FiresComparison:
    """Compare what a source's document asks for with what its stored trigger does, from ``since`` on.

    Both may be none (no rule, no trigger). A rule that cannot be evaluated never fires, on either side.
    """
    source, fires = usable(source), usable(target)
    if source is None or fires is None:
        missing: FiresDifference | None = None
        if source is not None:
            missing = "no-trigger" if target is None else "never-fires"
        elif fires is not None:
            missing = "trigger-unasked"
        return FiresComparison(0, 0, missing)
    return _compare_rules(source, fires, since)


@lru_cache(maxsize=8_192)
def _compare_rules(source: FiringRule, target: FiringRule, since: datetime) -> FiresComparison:
    starts = sorted({since, *_before_changes(source, since), *_before_changes(target, since)})
    wanted = [_fires(source, start) for start in starts]
    count = sum(map(len, wanted)) + (source.kind == "event" and source.live)
    if source.live != target.live:
        return FiresComparison(count, len(starts) - 1, "never-fires" if source.live else "fires-unasked")
    found = [_fires(target, start) for start in starts]
    same = wanted == found and (source.event == target.event)
    apart = None if same else _kind_of_difference(source, target, wanted, found)
    return FiresComparison(count, len(starts) - 1, apart)


def _fires(rule: FiringRule, start: datetime) -> Fires:
    """Return the next fires strictly after ``start``; an interval is counted from there."""
    fires: Iterator[datetime]
    if not rule.live:
        fires = iter(())
    elif rule.kind == "cron":
        fires = iter(cron.next_fires(rule.dialect or "", rule.expression or "", rule.zone, start, FIRES_COMPARED))
    elif rule.kind == "interval":
        step = timedelta(milliseconds=rule.interval_ms or 0)
        fires = (start + step * number for number in range(1, FIRES_COMPARED + 1))
    else:
        fires = iter(() if rule.run_at is None else (rule.run_at,))
    first, last = rule.start_at, rule.end_at
    return tuple(one for one in fires if (first is None or one >= first) and (last is None or one <= last))


def _before_changes(rule: FiringRule, since: datetime) -> Iterator[datetime]:
    """Yield an instant before each change of the clock of a cron rule's zone, within the horizon."""
    if rule.kind != "cron" or not rule.live:
        return
    zone = zone_key(parse(rule.dialect or "", rule.expression or ""), rule.zone)
    begin, end = int(since.timestamp()), int((since + HORIZON).timestamp())
    for stretch in timeline.forward(zone, begin, (since + HORIZON).year):
        if begin < stretch.start <= end and stretch.before != stretch.offset:
            yield datetime.fromtimestamp(stretch.start, UTC) - BEFORE_A_CHANGE


def _kind_of_difference(
    source: FiringRule, target: FiringRule, wanted: list[Fires], sides: list[Fires]
) -> FiresDifference:
    if source.kind != target.kind:
        return "another-kind"
    if source.kind == "interval":
        less, more = sorted((source.interval_ms or 1, target.interval_ms or 1))
        return "other-fires" if more % less else "interval-factor"
    steps = {
        ours - theirs
        for one, other in zip(wanted, sides, strict=True)
        for ours, theirs in zip(one, other, strict=False)
    }
    if source.kind == "cron" and steps and all(not step % _DAY for step in steps):
        return "day-fields" if _one_holds_the_other(wanted, sides) else "weekday-shift"
    if steps and all(not step % _QUARTER and abs(step) <= _WIDEST for step in steps):
        return "zone-shift"
    return "day-fields" if _one_holds_the_other(wanted, sides) else "other-fires"


def _one_holds_the_other(wanted: list[Fires], found: list[Fires]) -> bool:
    """Whether all fires of one side are fires of the other too, as far as both were followed."""
    return any(
        any(fewer) and all(_contains(few, some) for few, some in zip(fewer, more, strict=True))
        for fewer, more in ((wanted, found), (found, wanted))
    )


def _contains(few: Fires, some: Fires) -> bool:
    return set(some).issuperset(one for one in few if some and one <= some[-1])
