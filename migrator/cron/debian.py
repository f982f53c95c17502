"""Debian's cron, as cronsim evaluates it; the reference, and the default of new triggers.

Five fields, or six with seconds first. If a day field starts with a star both must match, otherwise either. A line
whose minute and hour do not start with a star runs at the first instant after a gap, and once in a fold; all others
follow the clock. Source: cronsim 2.8.
"""

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from migrator.cron.expression import (
    CronError,
    Days,
    Expression,
    Fold,
    Gap,
    Last,
    Nearest,
    Rule,
    Term,
    Weekday,
    ordered,
    split,
)

_ANY_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
_FIELDS = 5
_MONTH_DAY, _WEEKDAY = 3, 5  # places in a line of six fields


def parse(text: str) -> Expression:
    """Parse a line; raises ``CronError``."""
    split(text, (5, 6))
    try:
        line = CronSim(text, _ANY_INSTANT)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ").replace("-", " ")
        raise CronError(f"{field}: expected what Debian's cron accepts") from None
    except ValueError:  # a number of more digits than int() reads
        raise CronError("cron line: expected short numbers") from None
    fixed = len(text.split()) == _FIELDS and not any(part.startswith("*") for part in line.parts[1:3])
    return Expression(
        seconds=ordered(line.seconds),
        minutes=ordered(value for value in line.minutes if isinstance(value, int)),
        hours=ordered(value for value in line.hours if isinstance(value, int)),
        days=Days(
            month_days=None if line.parts[_MONTH_DAY] == "*" else frozenset(map(_month_day, line.days)),
            week_days=None if line.parts[_WEEKDAY] == "*" else frozenset(map(_weekday, line.weekdays)),
            months=frozenset(value for value in line.months if isinstance(value, int)),
            rule=Rule.AND if line.day_and else Rule.OR,
        ),
        gap=Gap.END if fixed else Gap.SKIP,
        fold=Fold.ONCE if fixed else Fold.TWICE,
    )


def _month_day(value: int | tuple[int, int]) -> Term:
    if value == CronSim.LAST:
        return Last()
    if value == CronSim.LAST_WEEKDAY:
        return Nearest(None)
    assert isinstance(value, int)  # noqa: S101 - only weekdays have pairs; told to the type checker
    return value


def _weekday(value: int | tuple[int, int]) -> Weekday:
    if isinstance(value, int):
        return Weekday(value % 7)
    weekday, nth = value
    return Weekday(weekday % 7, -1 if nth == CronSim.LAST else nth)
