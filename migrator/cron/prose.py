"""A cron line in words: what its dialect takes it to mean, so that a shifted weekday or an "and" for an "or" shows."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from migrator.cron.dialects import parse
from migrator.cron.expression import CronError, Days, Expression, Last, Nearest, Rule, Term, Weekday

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_POSITIONS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}
_TIME_AND_DAY = 2
_FEW_TIMES = 4
_FEW_VALUES = 3
_MINUTES, _HOURS, _ALL_DAYS, _ALL_MONTHS = 60, 24, 31, 12


def describe(dialect: str, expression: str) -> str:
    """Return what a line means, such as ``at 02:30 on Monday to Friday``.

    Raises ``CronError``, also for a dialect that its own library evaluates: what that takes a line to mean is not known
    here.
    """
    parsed = parse(dialect, expression)
    if not isinstance(parsed, Expression):
        raise CronError(f"cron dialect: expected one that is evaluated without its library, not {dialect}")
    words = [_time(parsed), *_day(parsed.days), *_when(parsed.days)]
    if len(words) == _TIME_AND_DAY and words[1] == "every day" and " every" in f" {words[0]}":
        words.pop()
    if parsed.zone is not None:
        words.append(f"in {parsed.zone}")
    return " ".join(words)


def _time(parsed: Expression) -> str:
    times = len(parsed.hours) * len(parsed.minutes) * len(parsed.seconds)
    if times <= _FEW_TIMES:
        return "at " + _listed([_clock(time, parsed.seconds != (0,)) for time in parsed.times()])
    words = _seconds(parsed.seconds)
    minutes = parsed.minutes
    if len(minutes) == _MINUTES:
        words += "every minute" if parsed.seconds == (0,) else "of every minute"
    elif _step(minutes, _MINUTES):
        words += f"every {_step(minutes, _MINUTES)} minutes"
    elif minutes == (0,):
        words += "on the hour"
    else:
        words += f"at minute {_ranges(minutes)}"
    hours = parsed.hours
    if len(hours) == _HOURS:
        return words + ("" if len(minutes) == _MINUTES or _step(minutes, _MINUTES) else " of every hour")
    step = _step(hours, _HOURS)
    return words + (f" of every {step}. hour" if step else f" of hour {_ranges(hours)}")


def _seconds(seconds: tuple[int, ...]) -> str:
    if seconds == (0,):
        return ""
    return "every second " if len(seconds) == _MINUTES else f"at second {_ranges(seconds)} "


def _day(days: Days) -> Iterable[str]:
    month = "" if _whole(days.month_days, _ALL_DAYS) else _month_days(days.month_days or ())
    week = "" if _whole(days.week_days, len(_WEEKDAYS)) else _week_days(days.week_days or ())
    either = days.rule is Rule.OR and days.month_days is not None and days.week_days is not None
    if month and week:
        yield f"on {month}, {'and on' if either else 'if it is'} {week}"
    elif either or not (month or week):
        yield "every day"
    else:
        yield f"on {month or week}"


def _whole(terms: frozenset[Term] | frozenset[Weekday] | None, size: int) -> bool:
    """Return whether a day field restricts nothing."""
    return terms is None or sum(1 for term in terms if isinstance(term, int) or _every(term)) == size


def _every(term: Term) -> bool:
    return isinstance(term, Weekday) and term.nth == 0


def _month_days(terms: Iterable[Term]) -> str:
    plain = sorted(term for term in terms if isinstance(term, int))
    words = [f"day {_ranges(plain)} of the month"] if plain else []
    for term in sorted((term for term in terms if not isinstance(term, int)), key=repr):
        if isinstance(term, Last):
            words.append("the last day of the month" + (f" less {term.before}" if term.before else ""))
        elif isinstance(term, Nearest):
            day = "the last day of the month" if term.day is None else f"day {term.day} of the month"
            words.append(f"the working day nearest to {day}" + (f" less {term.before}" if term.before else ""))
        else:
            words.append(_weekday(term))
    return _listed(words)


def _week_days(terms: Iterable[Weekday]) -> str:
    plain = sorted(term.weekday for term in terms if term.nth == 0)
    words = []
    if len(plain) > _FEW_VALUES - 1 and plain[-1] - plain[0] == len(plain) - 1:
        words.append(f"{_WEEKDAYS[plain[0]]} to {_WEEKDAYS[plain[-1]]}")
    else:
        words += [_WEEKDAYS[weekday] for weekday in plain]
    words += [_weekday(term) for term in sorted(terms, key=lambda term: (term.nth, term.weekday)) if term.nth]
    return _listed(words)


def _weekday(term: Weekday) -> str:
    name = _WEEKDAYS[term.weekday]
    return f"the {_POSITIONS[term.nth]} {name} of the month" if term.nth else name


def _when(days: Days) -> Iterable[str]:
    if days.weeks is not None:
        yield f"in week {_ranges(sorted(days.weeks))}"
    if len(days.months) < _ALL_MONTHS:
        yield "in " + _listed([_MONTHS[month - 1] for month in sorted(days.months)])
    if days.years is not None:
        yield f"in {_ranges(sorted(days.years))}"


def _clock(time: int, with_seconds: bool) -> str:  # noqa: FBT001 - private
    clock = f"{time // 3600:02}:{time // 60 % 60:02}"
    return f"{clock}:{time % 60:02}" if with_seconds else clock


def _step(values: Sequence[int], whole: int) -> int | None:
    """Return the step if the values divide the whole evenly from 0."""
    gaps = {later - earlier for earlier, later in pairwise([*values, whole])}
    return gaps.pop() if values[0] == 0 and len(gaps) == 1 and len(values) > 1 else None


def _ranges(values: Sequence[int]) -> str:
    words: list[str] = []
    start = previous = values[0]
    for value in [*values[1:], None]:
        if value is not None and value == previous + 1:
            previous = value
            continue
        words += [f"{start}-{previous}"] if previous - start > 1 else [str(each) for each in range(start, previous + 1)]
        if value is not None:
            start = previous = value
    return _listed(words)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
