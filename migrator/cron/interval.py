"""Whether a cron line is nothing but a constant interval: a statement for the report, never a conversion.

Examined in UTC from 2026 to the end of 2037 under today's zone rules: the same gap between all fires, across every
change of the clock.
"""

from datetime import date, timedelta
from itertools import islice, pairwise

from migrator.cron import timeline
from migrator.cron.dialects import parse, zone_key
from migrator.cron.expression import Expression

_FIRST_YEAR, _LAST_YEAR = 2026, 2037
_DAY = 86400
_ENOUGH_DAYS = 100  # 29 February is even for a while, until 2100
_AROUND = 3  # fires looked at on either side of a change of the clock


def constant_interval(dialect: str, expression: str, timezone: str | None) -> timedelta | None:
    """Return the gap if it is the same between all fires of the years looked at, else None.

    The phase is lost with the line: an interval says nothing of the minute at which it fires. None also for a dialect
    that its own library evaluates, whose fires of all these years are not looked at. Raises ``CronError`` and
    ``ZoneError``.
    """
    parsed = parse(dialect, expression)
    zone = zone_key(parsed, timezone)
    if not isinstance(parsed, Expression):
        return None
    step = _wall_step(parsed)
    if step is None:
        return None
    for year in range(_FIRST_YEAR, _LAST_YEAR + 1):
        for stretch in timeline.stretches(zone, year):
            if stretch.before != stretch.offset and not _steady(parsed, zone, stretch.start, step):
                return None
    return timedelta(seconds=step)


def _wall_step(parsed: Expression) -> int | None:
    """Return the gap of a clock that never changes, if it is constant."""
    days = [
        date(year, month, day).toordinal()
        for year in range(_FIRST_YEAR, _LAST_YEAR + 1)
        for month in range(1, 13)
        for day in parsed.days.of(year, month)
    ]
    between_days = {later - earlier for earlier, later in pairwise(days)}
    if len(between_days) != 1 or len(days) < _ENOUGH_DAYS:
        return None
    span = between_days.pop() * _DAY
    if len(parsed.hours) * len(parsed.minutes) * len(parsed.seconds) == 1:
        return span
    first, second = islice(parsed.times(), 2)
    step = second - first
    gaps = {later - earlier for earlier, later in pairwise([*parsed.times(), span + first])}
    return step if gaps == {step} else None


def _steady(parsed: Expression, zone: str, change: int, step: int) -> bool:
    fires = list(islice(timeline.fires_after(parsed, zone, change - _AROUND * step, _LAST_YEAR + 1), 2 * _AROUND))
    return all(after - before == step for before, after in pairwise(fires))
