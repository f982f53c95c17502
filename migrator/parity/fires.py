"""The next fires of two rules, side by side: from one instant on, and on both sides of every change of a clock.

What is compared is instants, not spellings: a Windows zone name fires as its IANA name does. Fires are computed once
per rule, since schedules repeat few lines.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from migrator import cron
from migrator.cron import timeline
from migrator.cron.dialects import parse, zone_key
from migrator.cron.errors import CronError
from migrator.parity.rules import Rule

NEXT: Final = 12
"""Fires compared from each instant on."""
HORIZON: Final = timedelta(days=366)
"""Changes of the clock within this time are crossed."""
BEFORE_A_CHANGE: Final = timedelta(hours=30)
"""How long before a change of the clock the comparison begins again."""

Apart: TypeAlias = Literal[
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

WORDS: Final[dict[Apart, tuple[str, str]]] = {
    "never-fires": ("the source fires, the target never does", "look for who disabled the trigger or its schedule"),
    "fires-unasked": ("the target fires what the source has switched off", "look for who enabled it"),
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


class Comparison(msgspec.Struct, frozen=True):
    """What two rules have shown."""

    fires: int
    """Fires of the source that were compared."""
    changes: int
    """Changes of a clock that lie between them."""
    apart: Apart | None = None
    """How they differ; none when they are equal."""


def usable(rule: Rule | None) -> Rule | None:
    """Return the rule if it can be evaluated: a line that no dialect takes makes no trigger (schema.md, rulings)."""
    if rule is None or rule.kind != "cron":
        return rule
    try:
        cron.validate(rule.dialect or "", rule.expression or "", rule.zone)
    except CronError:
        return None
    return rule


def compare(source: Rule | None, target: Rule | None, since: datetime) -> Comparison:
    """Compare what a source's document asks for with what its stored trigger does, from ``since`` on.

    Both may be none (no rule, no trigger). A rule that cannot be evaluated never fires, on either side.
    """
    source, fires = usable(source), usable(target)
    if source is None or fires is None:
        missing: Apart | None = None
        if source is not None:
            missing = "no-trigger" if target is None else "never-fires"
        elif fires is not None:
            missing = "trigger-unasked"
        return Comparison(0, 0, missing)
    return _compare(source, fires, since)


@lru_cache(maxsize=8_192)
def _compare(source: Rule, target: Rule, since: datetime) -> Comparison:
    starts = sorted({since, *_before_changes(source, since), *_before_changes(target, since)})
    wanted = [_fires(source, start) for start in starts]
    count = sum(map(len, wanted)) + (source.kind == "event" and source.live)
    if source.live != target.live:
        return Comparison(count, len(starts) - 1, "never-fires" if source.live else "fires-unasked")
    found = [_fires(target, start) for start in starts]
    same = wanted == found and (source.event == target.event)
    apart = None if same else _how(source, target, wanted, found)
    return Comparison(count, len(starts) - 1, apart)


def _fires(rule: Rule, start: datetime) -> Fires:
    """Return the next fires strictly after ``start``; an interval is counted from there."""
    found: Iterator[datetime]
    if not rule.live:
        found = iter(())
    elif rule.kind == "cron":
        found = iter(cron.next_fires(rule.dialect or "", rule.expression or "", rule.zone, start, NEXT))
    elif rule.kind == "interval":
        step = timedelta(milliseconds=rule.interval_ms or 0)
        found = (start + step * number for number in range(1, NEXT + 1))
    else:
        found = iter(() if rule.run_at is None else (rule.run_at,))
    first, last = rule.start_at, rule.end_at
    return tuple(one for one in found if (first is None or one >= first) and (last is None or one <= last))


def _before_changes(rule: Rule, since: datetime) -> Iterator[datetime]:
    """Yield an instant before each change of the clock of a cron rule's zone, within the horizon."""
    if rule.kind != "cron" or not rule.live:
        return
    zone = zone_key(parse(rule.dialect or "", rule.expression or ""), rule.zone)
    begin, end = int(since.timestamp()), int((since + HORIZON).timestamp())
    for stretch in timeline.forward(zone, begin, (since + HORIZON).year):
        if begin < stretch.start <= end and stretch.before != stretch.offset:
            yield datetime.fromtimestamp(stretch.start, UTC) - BEFORE_A_CHANGE


def _how(source: Rule, target: Rule, wanted: list[Fires], found: list[Fires]) -> Apart:
    if source.kind != target.kind:
        return "another-kind"
    if source.kind == "interval":
        less, more = sorted((source.interval_ms or 1, target.interval_ms or 1))
        return "other-fires" if more % less else "interval-factor"
    steps = {
        ours - theirs
        for one, other in zip(wanted, found, strict=True)
        for ours, theirs in zip(one, other, strict=False)
    }
    if source.kind == "cron" and steps and all(not step % _DAY for step in steps):
        return "day-fields" if _one_holds_the_other(wanted, found) else "weekday-shift"
    if steps and all(not step % _QUARTER and abs(step) <= _WIDEST for step in steps):
        return "zone-shift"
    return "day-fields" if _one_holds_the_other(wanted, found) else "other-fires"


def _one_holds_the_other(wanted: list[Fires], found: list[Fires]) -> bool:
    """Tell whether, as far as both were followed, all fires of one side are fires of the other too."""
    return any(
        any(fewer) and all(_held(few, some) for few, some in zip(fewer, more, strict=True))
        for fewer, more in ((wanted, found), (found, wanted))
    )


def _held(few: Fires, some: Fires) -> bool:
    return set(some).issuperset(one for one in few if some and one <= some[-1])
