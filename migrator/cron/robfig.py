"""robfig/cron v3 (Go), five fields without macros, as the source ``crawler`` configures it.

Weekdays 0-6. If either day field has a star (a step above 1 takes it away) both must match, otherwise either. It
walks real instants: what the clock skips does not run, what it repeats runs twice. ``TZ=`` or ``CRON_TZ=`` before the
line names its zone. It gives up after five years. Source: robfig/cron v3.0.1, ``parser.go``, ``spec.go``.
"""

from migrator.cron import zones
from migrator.cron.expression import (
    HOUR,
    MINUTE,
    MONTH,
    MONTH_DAY,
    WEEKDAY,
    CronError,
    Days,
    Expression,
    Field,
    Fold,
    Gap,
    Rule,
    Weekday,
    ordered,
    split,
)

_SUNDAY_FIRST = Field(WEEKDAY.name, 0, 6, WEEKDAY.names)


def parse(text: str) -> Expression:
    """Parse a line; raises ``CronError``, or ``ZoneError`` for a zone named in it."""
    zone: str | None = None
    if text.startswith(("TZ=", "CRON_TZ=")):
        named, _, text = text.partition(" ")
        zone = zones.zone(named.partition("=")[2])[0].key
    minute, hour, month_day, month, weekday = split(text, (5,))
    month_days, star = _values(month_day, MONTH_DAY)
    weekdays, week_star = _values(weekday, _SUNDAY_FIRST)
    return Expression(
        minutes=ordered(_values(minute, MINUTE)[0]),
        hours=ordered(_values(hour, HOUR)[0]),
        days=Days(
            month_days=frozenset(month_days),
            week_days=frozenset(map(Weekday, weekdays)),
            months=frozenset(_values(month, MONTH)[0]),
            rule=Rule.AND if star or week_star else Rule.OR,
        ),
        gap=Gap.SKIP,
        fold=Fold.TWICE,
        years_searched=5,
        zone=zone,
    )


def _values(text: str, field: Field) -> tuple[set[int], bool]:
    values: set[int] = set()
    star = False
    for item in filter(None, text.split(",")):
        base, slash, step_text = item.partition("/")
        step = field.step(step_text) if slash else 1
        low, dash, high = base.partition("-")
        if low in ("*", "?"):
            first, last = field.low, field.high
            star = star or step == 1
        else:
            first = field.value(low)
            last = field.value(high) if dash else field.high if slash else first
        if first > last:
            raise field.error("a range that ascends")
        values.update(range(first, last + 1, step))
    if not values:
        raise CronError(f"{field.name}: expected a value")
    return values, star
