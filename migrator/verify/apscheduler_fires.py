"""The next fires of a trigger of APScheduler 3 or 4 that was read as data, by the rules of these libraries.

Version 3 asks a trigger for the fire after the last one, whichever member of a combination that came from. A trigger of
version 4 remembers where it stands, and so does each member of a combination. Jitter, which is random, is left out.

Times are kept as the clock of their zone shows them: both libraries compare two times of one zone by that, also where a
clock is set back, and an interval of version 4 is added to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import count, takewhile
from math import ceil
from typing import Any, Final, TypeAlias

import msgspec

from migrator import cron
from migrator.sources.apscheduler.jobs import state_of
from migrator.sources.apscheduler.triggers import DIALECT, keywords_of
from migrator.sources.apscheduler4 import payloads
from migrator.sources.pickled_values import instant_of, length_of, local_of, offset_text, zone_of
from migrator.sources.pickles import Made
from migrator.sources.profile import Document, Rejected
from migrator.targets.quartz_documents import Window

PATH: Final = "trigger"
MOST_STEPS: Final = 100_000
"""Fires before those of a window after which a trigger is given up."""
MOST_ROUNDS: Final = 2_000
"""Rounds in which members of version 3 agree on no fire, after which they are given up."""
_SECOND: Final = timedelta(seconds=1)
_HOUR: Final = timedelta(hours=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_SET_BACK: Final = timedelta(hours=3)
"""More than a clock is set forward or back."""
_DATE_BYTES: Final = 4


class UncomputableError(Exception):
    """The fires of a trigger are not computed here."""


class Cron(msgspec.Struct, frozen=True):
    """Keywords that must all match what the clock of a zone shows."""

    keywords: tuple[tuple[str, str], ...]
    zone: str
    """A name, or a distance from UTC."""
    place: tzinfo
    start: datetime | None
    end: datetime | None
    last: datetime | None


class Interval(msgspec.Struct, frozen=True):
    """A length of time from one fire to the next."""

    length: timedelta
    place: tzinfo | None
    start: datetime
    end: datetime | None
    last: datetime | None


class Calendar(msgspec.Struct, frozen=True):
    """Years, months and days from one date to the next, at a time of day."""

    years: int
    months: int
    days: int
    clock: time
    place: tzinfo
    start: date
    end: date | None
    last: date | None


class Once(msgspec.Struct, frozen=True):
    """One time."""

    at: datetime
    is_over: bool


class Combination(msgspec.Struct, frozen=True):
    """The fires of any of its members, or those on which all agree."""

    members: "tuple[Trigger, ...]"
    agreed: bool
    following: tuple[datetime | None, ...]
    """The next fires of the members that version 4 remembers."""
    threshold: timedelta
    """How far fires may be apart that agree, in version 4."""
    most: int
    """Rounds in which members may agree on none, in version 4."""


Trigger: TypeAlias = Cron | Interval | Calendar | Once | Combination


def job_fires(document: Document, windows: Sequence[Window], limit: int) -> list[list[datetime]]:
    """Return the first fires of a job of APScheduler 3 in each window, aware.

    Raises ``UncomputableError``, ``CronError`` and ``Rejected`` where they are not computed.
    """
    state = state_of(document["job_state"]).named()
    trigger = _read(state.get("trigger"))
    due = _moment(state.get("next_run_time")) if isinstance(trigger, Calendar | Combination) else None
    return _job_fires(trigger, due, tuple(windows), limit)


def schedule_fires(document: Document, windows: Sequence[Window], limit: int) -> list[list[datetime]]:
    """Return the fires of a schedule of APScheduler 4 that its trigger computes from where it stands; as ``job_fires``.

    ``windows``: the first one begins first.
    """
    trigger = _read(payloads.read_value(document.get("trigger"), PATH))
    if isinstance(trigger, Calendar | Combination):
        return _along(_unfolded(trigger), windows, limit)
    return [_along(_unfolded(trigger, window[0]), (window,), limit)[0] for window in windows]


# What a trigger says, as data


def _read(value: object) -> Trigger:
    kind, state = payloads.trigger_of(value)
    match kind:
        case "cron.CronTrigger":
            return _read_cron(state)
        case "interval.IntervalTrigger":
            return _read_interval(state)
        case "calendarinterval.CalendarIntervalTrigger":
            return _read_calendar(state)
        case "date.DateTrigger":
            at = _moment(state.get("run_time", state.get("run_date")))
            return Once(_required(at), state.get("completed") is True)
        case "combining.AndTrigger" | "combining.OrTrigger":
            return _read_combination(state, agreed=kind == "combining.AndTrigger")
    raise Rejected("wrong-type", PATH, "a trigger of APScheduler")


def _read_cron(state: Mapping[str, Any]) -> Cron:
    fields = state.get("fields")
    is_text = isinstance(fields, list) and all(isinstance(field, str) for field in fields)
    keywords = payloads.keywords_of(state) if is_text else keywords_of(fields)
    place = _place(state.get("timezone"))
    zone = str(place) if not isinstance(place, timezone) else offset_text(place.utcoffset(None))
    trigger = Cron(tuple(keywords.items()), zone, place, *_bounds(state), _moment(state.get("last_fire_time")))
    cron.validate(DIALECT, _line(trigger.keywords, zone), None)
    return trigger


def _read_interval(state: Mapping[str, Any]) -> Interval:
    parts, place = state.get("interval"), state.get("timezone")
    start, end = _bounds(state)
    length = payloads.interval_of(parts) if isinstance(parts, list) else length_of(parts, PATH)
    if length <= timedelta():
        raise UncomputableError
    last = _moment(state.get("last_fire_time"))
    return Interval(length, None if place is None else _place(place), _required(start), end, last)


def _read_calendar(state: Mapping[str, Any]) -> Calendar:
    match state.get("interval"), state.get("time"):
        case [int() as years, int() as months, int() as weeks, int() as days], [int() as hour, int() as minute, second]:
            steps, clock = (years, months, 7 * weeks + days), time(hour, minute, second)
        case _:
            raise Rejected("wrong-type", PATH, "a calendar interval of whole numbers")
    if min(steps) < 0 or not any(steps):
        raise UncomputableError
    start, end, last = (_date(state.get(name)) for name in ("start_date", "end_date", "last_fire_date"))
    return Calendar(*steps, clock, _place(state.get("timezone")), _required(start), end, last)


def _read_combination(state: Mapping[str, Any], *, agreed: bool) -> Combination:
    members, threshold = state.get("triggers"), state.get("threshold", 1)
    following, most = state.get("next_fire_times", []), state.get("max_iterations", MOST_STEPS)
    if not isinstance(members, list) or not members or not isinstance(following, list):
        raise Rejected("wrong-type", PATH, "a list of triggers")
    if type(most) is not int or len(following) not in (0, len(members)):
        raise UncomputableError
    apart = timedelta(seconds=threshold) if isinstance(threshold, int | float) else length_of(threshold, PATH)
    return Combination(tuple(map(_read, members)), agreed, tuple(map(_moment, following)), apart, most)


def _bounds(state: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Return start and end, which version 3 and version 4 name otherwise."""
    start, end = (state.get(f"{name}_time", state.get(f"{name}_date")) for name in ("start", "end"))
    return _moment(start), _moment(end)


def _required(value: Any) -> Any:  # noqa: ANN401 - a time or a date
    if value is None:
        raise Rejected("missing-field", PATH, "a time")
    return value


def _moment(value: object) -> datetime | None:
    """Return a time as the clock of the zone shows it that the time names."""
    if value is None:
        return None
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise Rejected("bad-date", PATH, "an ISO 8601 time that names its offset")
        return moment
    instant, (shown, place) = instant_of(value, PATH), local_of(value, PATH)
    zone = _place(place)
    is_normal = isinstance(place, Made) and place.name.startswith("pytz.")  # it says which offset the clock has
    return instant.astimezone(zone) if is_normal else shown.replace(tzinfo=zone)


def _date(value: object) -> date | None:
    """Return a date, also of a time."""
    match value:
        case None:
            return None
        case str():
            return datetime.fromisoformat(value).date()
        case Made(name="datetime.date", arguments=(bytes() | str() as packed,)) if len(packed) == _DATE_BYTES:
            high, low, month, day = packed if isinstance(packed, bytes) else packed.encode("latin-1")
            return date(high << 8 | low, month, day)
    return local_of(value, PATH)[0].date()


def _place(value: object) -> tzinfo:
    """Return the zone of a name, or of a record; the same object for the same name."""
    if isinstance(value, str):
        return cron.zone(value)[0]
    zone = zone_of(value, PATH)
    return cron.zone(zone.name)[0] if zone.name is not None else timezone(zone.offset or timedelta())


# Cron lines, which ``migrator.cron`` evaluates, and calendar intervals, of both versions


@lru_cache(maxsize=4_096)
def _line(keywords: tuple[tuple[str, str], ...], zone: str) -> str:
    return msgspec.json.encode({"or": [{**dict(keywords), "timezone": zone}]}).decode()


def _cron_fires(trigger: Cron, after: datetime) -> Iterator[datetime]:
    """Yield the fires of a line after an instant in whole seconds, without its bounds."""
    line = _line(trigger.keywords, trigger.zone)
    return (_as_set(trigger, fire) for fire in cron.fires_after(DIALECT, line, None, after))


def _as_set(trigger: Cron, fire: datetime) -> datetime:
    """Return a fire as the libraries show it: a time that the clock skips stands as they have set it.

    A search that comes from a fire in the hour before goes on after the gap, and sets nothing in it.
    """
    shown = fire.astimezone(trigger.place)
    before, after = ((at.astimezone(trigger.place).utcoffset() or timedelta()) for at in (fire - _SET_BACK, fire))
    forward = after - before
    if forward <= timedelta() or (fire - forward).astimezone(trigger.place).utcoffset() != before:
        return shown

    def first_from(begin: datetime, zone: str) -> datetime | None:
        return cron.next_fire(DIALECT, _line(trigger.keywords, zone), None, begin - _SECOND)

    is_skipped, is_shown = (first_from(fire, offset_text(offset)) == fire for offset in (before, after))
    if not is_skipped or (is_shown and first_from(fire - _HOUR, trigger.zone) != fire):
        return shown
    return (shown.replace(tzinfo=None) - forward).replace(tzinfo=trigger.place)


def _calendar_fire(trigger: Calendar, previous: date | None) -> tuple[date, datetime] | None:
    """Return the date after another one, and the fire on it; the first date if there is no other.

    A date on which the clock skips the time of day is passed over. Of a time that is repeated the first one counts.
    """
    while True:
        day = trigger.start if previous is None else _later(trigger, previous)
        if trigger.end is not None and day > trigger.end:
            return None
        instant = datetime.combine(day, trigger.clock, trigger.place).astimezone(UTC)
        fire = instant.astimezone(trigger.place)
        if fire.time() == trigger.clock:
            return day, fire
        previous = fire.date()


def _later(trigger: Calendar, previous: date) -> date:
    """Return the date after another one: years and months are added until the month has the day, then the days."""
    year, month = previous.year, previous.month
    while year <= date.max.year:
        years, month = divmod(month + trigger.months - 1, 12)
        year, month = year + trigger.years + years, month + 1
        try:
            return date(year, month, previous.day) + timedelta(trigger.days)
        except ValueError:
            continue
        except OverflowError:
            break
    raise UncomputableError  # the libraries search without end


# Version 3


@lru_cache(maxsize=4_096)
def _job_fires(trigger: Trigger, due: datetime | None, windows: tuple[Window, ...], limit: int) -> list[list[datetime]]:
    """Return the fires of a job of version 3; ``due``: its next run, from which some triggers go on."""
    firsts = [_first(trigger, due, begin) for begin, _ in windows]
    listed: list[list[datetime]] = [[] for _ in windows]
    for first in dict.fromkeys(firsts):
        numbers = [number for number, other in enumerate(firsts) if other == first]
        fires = _along(_chain(trigger, first), [windows[number] for number in numbers], limit)
        for number, within in zip(numbers, fires, strict=True):
            listed[number] = within
    return listed


def _chain(trigger: Trigger, fire: datetime | None) -> Iterator[datetime]:
    """Yield a fire and those after it, up to one that is no later."""
    while fire is not None:
        yield fire
        previous, fire = fire, _following(trigger, fire, fire)
        if fire is not None and fire.timestamp() <= previous.timestamp():
            return


def _first(trigger: Trigger, due: datetime | None, begin: datetime) -> datetime | None:
    """Return the fire from which the probe lists: see ``first_of`` in ``migrator/targets/probes/apscheduler3.py``."""
    if due is not None and (isinstance(trigger, Calendar) or (isinstance(trigger, Combination) and trigger.agreed)):
        return due
    fire = _following(trigger, None, begin)
    return due if due is not None and fire is not None and fire < begin else fire


def _following(trigger: Trigger, previous: datetime | None, now: datetime) -> datetime | None:
    """Return the fire after the previous one, or the first one at an instant or after it; None: it has ended."""
    match trigger:
        case Once():
            return trigger.at if previous is None else None
        case Calendar():
            dated = _calendar_fire(trigger, None if previous is None else previous.date())
            return None if dated is None else dated[1]
        case Interval():
            return _interval_fire(trigger, previous, now)
        case Cron():
            return _cron_fire(trigger, previous, now)
        case Combination():
            return _combined_fire(trigger, previous, now)


def _interval_fire(trigger: Interval, previous: datetime | None, now: datetime) -> datetime | None:
    """Return a fire of an interval, in doubles as the library counts them."""
    start, length = trigger.start.timestamp(), trigger.length.total_seconds()
    if previous is not None:
        seconds = previous.timestamp() + length
    elif trigger.start > now:
        seconds = start
    else:
        seconds = start + length * ceil((now.timestamp() - start) / length)
    if trigger.end is not None and seconds > trigger.end.timestamp():
        return None
    return datetime.fromtimestamp(seconds, trigger.place or trigger.start.tzinfo)


def _cron_fire(trigger: Cron, previous: datetime | None, now: datetime) -> datetime | None:
    """Return a fire of a line, which heeds its start only as long as there is no previous fire."""
    if previous is not None:
        begin = previous.astimezone(UTC) + _MICROSECOND
    else:
        begin = (now if trigger.start is None else max(now, trigger.start)).astimezone(UTC)
    whole = begin.replace(microsecond=0) + (_SECOND if begin.microsecond else timedelta())
    fire = next(_cron_fires(trigger, whole - _SECOND), None)
    return None if fire is None or (trigger.end is not None and fire > trigger.end) else fire


def _combined_fire(trigger: Combination, previous: datetime | None, now: datetime) -> datetime | None:
    """Return the first fire of a member, or that on which all members agree."""
    known: list[datetime] = []
    for _ in range(MOST_ROUNDS):
        answers = [_following(member, previous, now) for member in trigger.members]
        fires = [fire for fire in answers if fire is not None]
        if not trigger.agreed:
            return min(fires, default=None)
        if len(fires) < len(answers):
            return None
        if min(fires) == max(fires):
            return fires[0]
        if fires == known:
            break
        known, now = fires, max(fires)
    raise UncomputableError  # the library searches without end


# Version 4


def _unfolded(trigger: Trigger, begin: datetime | None = None) -> Iterator[datetime]:
    """Yield the fires of a trigger of version 4 after those that it remembers.

    ``begin``: those of a line or of an interval that lie well before it may be left out.
    """
    match trigger:
        case Once():
            return iter(() if trigger.is_over else (trigger.at,))
        case Calendar():
            return _calendar_fires(trigger)
        case Interval():
            return _interval_fires(trigger, begin)
        case Cron():
            return _line_fires(trigger, begin)
        case Combination():
            return _agreed(trigger) if trigger.agreed else _any(trigger)


def _calendar_fires(trigger: Calendar) -> Iterator[datetime]:
    last = trigger.last
    while (dated := _calendar_fire(trigger, last)) is not None:
        last, fire = dated
        yield fire


def _interval_fires(trigger: Interval, begin: datetime | None) -> Iterator[datetime]:
    """Yield the instants a number of steps after the last one by the clock of its zone."""
    last, first = (trigger.start, 0) if trigger.last is None else (trigger.last, 1)
    if begin is not None:
        elapsed = begin.astimezone(last.tzinfo) - last  # by that clock too
        first = max(first, (elapsed - _SET_BACK) // trigger.length)
    fires = (last + trigger.length * number for number in count(first))
    end = trigger.end
    return fires if end is None else takewhile(lambda fire: fire <= end, fires)


def _line_fires(trigger: Cron, begin: datetime | None) -> Iterator[datetime]:
    """Yield the fires of a line, which searches from a second after its last one on, or from its start.

    What a start or a last fire has beyond whole seconds stays while each second is a fire.
    """
    if trigger.last is not None:
        search = trigger.last.astimezone(UTC) + _SECOND
    elif trigger.start is None or trigger.start.utcoffset() != trigger.start.astimezone(trigger.place).utcoffset():
        raise UncomputableError  # the library reads the line by another clock at first
    else:
        search = trigger.start.astimezone(UTC)
    part = timedelta(microseconds=search.microsecond)
    expected = search - part
    if begin is not None and not part:
        expected = max(expected, begin)
    for fire in _cron_fires(trigger, expected - _SECOND):
        expected, part = fire.astimezone(UTC) + _SECOND, part if fire.astimezone(UTC) == expected else timedelta()
        shown = fire + part if part else fire  # what is added to forgets that the clock repeats it
        if trigger.end is not None and shown > trigger.end:
            return
        yield shown


def _any(trigger: Combination) -> Iterator[datetime]:
    """Yield each fire of each member, one that several have once."""
    members = [*map(_unfolded, trigger.members)]
    following = list(trigger.following) or [next(member, None) for member in members]
    while (earliest := min((fire for fire in following if fire is not None), default=None)) is not None:
        yield earliest
        following = [
            next(member, None) if fire == earliest else fire for member, fire in zip(members, following, strict=True)
        ]


def _agreed(trigger: Combination) -> Iterator[datetime]:
    """Yield the earliest of the fires of all members, where they are no further apart than the threshold."""
    members = [*map(_unfolded, trigger.members)]
    following = list(trigger.following) or [next(member, None) for member in members]
    rounds = 0
    while None not in following:
        fires = [fire for fire in following if fire is not None]
        earliest, latest = min(fires), max(fires)
        following = [
            next(member, None) if fire - earliest <= trigger.threshold else fire
            for member, fire in zip(members, fires, strict=True)
        ]
        rounds += 1
        if latest - earliest <= trigger.threshold:
            yield earliest
            rounds = 0
        elif rounds >= min(trigger.most, MOST_STEPS):
            raise UncomputableError  # the library gives up


def _along(fires: Iterator[datetime], windows: Sequence[Window], limit: int) -> list[list[datetime]]:
    """Return the first of the fires in each window; the trigger is asked once for all of them."""
    listed: list[list[datetime]] = [[] for _ in windows]
    for number, fire in enumerate(fires):
        is_done = True
        for (begin, end), within in zip(windows, listed, strict=True):
            if begin <= fire < end and len(within) < limit:
                within.append(fire)
            is_done = is_done and (fire >= end or len(within) == limit)
        if is_done:
            return listed
        if number == MOST_STEPS:
            raise UncomputableError
    return listed
