"""croner (JavaScript), which the source ``orchestrator`` uses.

Five fields, or six with seconds first; macros; an ISO date for a single fire. Weekdays 0-7; if both day fields are
restricted either may match. It walks the wall clock: what a gap skips runs as late after it (03:30 for 02:30), the
first of several only; in a fold every line runs once, at the second passing where the later offset is not negative
(Europe), else at the first (America). Grammar of croner 9.1 with the ``W``, ``LW`` and ``5L`` of 10; DST as measured
with 9.1.0.
"""

import re
from datetime import UTC, datetime

from migrator.cron.expression import (
    ALL_MONTHS,
    HOUR,
    MACROS,
    MINUTE,
    MONTH,
    MONTH_DAY,
    SECOND,
    WEEKDAY,
    CronError,
    Days,
    Expression,
    Field,
    Fold,
    Gap,
    Last,
    Nearest,
    Rule,
    Term,
    Weekday,
    digits,
    ordered,
    split,
)

_MOST_NTH = 5


def parse(text: str) -> Expression:
    """Parse a line or an ISO date; raises ``CronError``."""
    line = text.strip()
    if ":" in line:
        return _once(line)
    parts = split(MACROS.get(line.lower(), line), (5, 6))
    if len(parts) == 5:  # noqa: PLR2004 - the fields of a crontab
        parts.insert(0, "0")
    second, minute, hour, month_day, month, weekday = parts
    return Expression(
        seconds=ordered(_values(second, SECOND)),
        minutes=ordered(_values(minute, MINUTE)),
        hours=ordered(_values(hour, HOUR)),
        days=Days(
            month_days=None if month_day == "*" else frozenset(_month_days(month_day)),
            week_days=None if weekday == "*" else frozenset(_weekdays(weekday)),
            months=frozenset(_values(month, MONTH)),
            rule=Rule.OR,
            spills=True,
        ),
        gap=Gap.FIRST,
        fold=Fold.ONCE_BY_OFFSET,
    )


def _once(text: str) -> Expression:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CronError("cron line: expected an ISO date and time") from None
    zone = None
    if moment.tzinfo is not None:
        moment, zone = moment.astimezone(UTC), "UTC"
    return Expression(
        seconds=(moment.second,),
        minutes=(moment.minute,),
        hours=(moment.hour,),
        days=Days(frozenset({moment.day}), None, ALL_MONTHS & {moment.month}, years=frozenset({moment.year})),
        gap=Gap.FIRST,
        fold=Fold.ONCE_BY_OFFSET,
        zone=zone,
    )


def _month_days(text: str) -> set[Term]:
    if text == "LW":
        return {Nearest(None)}
    terms: set[Term] = set()
    for item in text.split(","):
        if item == "L":
            terms.add(Last())
        elif item.endswith("W"):
            terms.add(Nearest(MONTH_DAY.value(item[:-1])))
        else:
            terms.update(_item(item, MONTH_DAY))
    return terms


def _weekdays(text: str) -> set[Weekday]:
    weekdays: set[Weekday] = set()
    # croner replaces names in the text; "-sun" becomes "-7" so that a range may end with it
    numbered = re.sub(r"-sun", "-7", text, flags=re.IGNORECASE)
    for item in numbered.split(","):
        base, hash_sign, nth = item.partition("#")
        if hash_sign:
            which = -1 if nth == "L" else digits(nth) or 0
            if which == 0 or which > _MOST_NTH:
                raise WEEKDAY.error("an occurrence from 1 to 5, or L")
        elif base.endswith("L"):
            base, which = base[:-1], -1
        else:
            which = 0
        weekdays.update(Weekday(value % 7, which) for value in _item(base, WEEKDAY))
    return weekdays


def _values(text: str, field: Field) -> set[int]:
    return {value for item in text.split(",") for value in _item(item, field)}


def _item(text: str, field: Field) -> range:
    high = 6 if field is WEEKDAY else field.high
    return field.item(text, ("*", "") if "/" in text else ("*",), high, high - field.low + 1)
