"""APScheduler 3's ``CronTrigger``: a crontab line, or its keyword arguments as a JSON object; the library searches.

Weekdays count from 0 = Monday, also in a crontab line. All fields must match; keywords left out are ``*`` above the
least given one and their minimum below it. A time the clock skips fires as late after it, and what the clock repeats
fires twice. After a gap its search may pass over fires: a midnight becomes 01:00, and New York's ``0 0 1 * *`` skips
the first of April. ``next_fire`` shows what APScheduler would do.

A combination is a JSON object too: ``{"and": […]}`` or ``{"or": […]}`` of such objects, or of combinations. An object
in it may have a ``timezone`` of its own (a name, or an offset such as ``+05:30``), a ``start_date`` and an
``end_date``. ``and`` asks its members from the latest of their answers on until they agree, as the library does for the
first fire; the library's own loop does not end where they never agree, and this one gives up.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, Final, TypeAlias

from apscheduler.triggers.cron import CronTrigger

from migrator.cron.expression import CronError, ZoneError, split
from migrator.cron.zones import zone as zone_of

_KEYWORDS: Final = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_CRONTAB: Final = ("minute", "hour", "day", "month", "day_of_week")
_BOUNDS: Final = ("start_date", "end_date")
_SEARCHED: Final = timedelta(days=50 * 366)
"""How far it searches; the library itself would go on to the year 9999, which takes a second."""
_ROUNDS: Final = 2_000
"""How often the members of an ``and`` are asked for one fire."""
_DEEPEST: Final = 5

Search: TypeAlias = Callable[[tzinfo, datetime], datetime | None]
"""(zone of the trigger, instant) → the first fire at the instant or after it."""


class Line:
    """A line that the library has taken; it finds the fires itself."""

    zone: None = None
    """No zone stands in a line of this dialect."""

    def __init__(self, text: str) -> None:
        """Take a line; raises ``CronError`` if the library does not."""
        self._search = _search_of(_read(text), _DEEPEST, inside=False)

    def after(self, zone: str, instant: int) -> Iterator[int]:
        """Yield the fires later than ``instant`` (seconds since 1970), ascending, until its search ends."""
        place, _ = zone_of(zone)
        while (found := self._next(place, instant)) is not None:
            yield found
            instant = found

    def _next(self, place: tzinfo, instant: int) -> int | None:
        try:
            fire = self._search(place, datetime.fromtimestamp(instant + 1, place))
        except (ValueError, OverflowError):
            return None  # outside of the years that a date can have
        return None if fire is None else int(fire.timestamp())


def _read(text: str) -> Mapping[str, Any]:
    if not text.isascii():
        raise CronError("cron line: expected ASCII characters")
    if not text.lstrip().startswith("{"):
        return dict(zip(_CRONTAB, split(text, (5,)), strict=True))
    try:
        trigger = json.loads(text)
    except (ValueError, RecursionError):
        raise CronError("cron line: expected a JSON object of keywords") from None
    if not isinstance(trigger, dict):
        raise CronError("cron line: expected only the keywords " + ", ".join(_KEYWORDS))
    return trigger


def _search_of(trigger: Mapping[str, Any], deepest: int, *, inside: bool) -> Search:
    for word, combine in (("and", _agreed), ("or", _earliest)):
        if word in trigger:
            members = trigger[word]
            if len(trigger) > 1 or not isinstance(members, list) or not members or not deepest:
                raise CronError(f"cron line: expected {word} alone, with a list of triggers")
            if not all(isinstance(member, dict) for member in members):
                raise CronError(f"cron line: expected {word} with a list of JSON objects")
            return partial(combine, tuple(_search_of(member, deepest - 1, inside=True) for member in members))
    allowed = {*_KEYWORDS, "timezone", *_BOUNDS} if inside else {*_KEYWORDS}
    if not trigger.keys() <= allowed:
        raise CronError("cron line: expected only the keywords " + ", ".join(_KEYWORDS))
    return _Fields(trigger).first


def _agreed(members: tuple[Search, ...], place: tzinfo, start: datetime) -> datetime | None:
    """Return the first instant at which all members fire."""
    end = start + _SEARCHED
    for _ in range(_ROUNDS):
        fires = [fire for fire in (member(place, start) for member in members) if fire is not None]
        if len(fires) < len(members) or max(fires) > end:
            return None
        if min(fires) == max(fires):
            return fires[0]
        start = max(fires)
    return None


def _earliest(members: tuple[Search, ...], place: tzinfo, start: datetime) -> datetime | None:
    """Return the first instant at which a member fires."""
    return min((fire for fire in (member(place, start) for member in members) if fire is not None), default=None)


class _Fields:
    """The fields of one cron trigger."""

    def __init__(self, trigger: Mapping[str, Any]) -> None:
        self._keywords = {
            name: str(trigger[name]).strip() for name in _KEYWORDS if name in trigger and trigger[name] is not None
        }
        if not self._keywords:
            raise CronError("cron line: expected at least one keyword")
        for name, value in self._keywords.items():
            try:
                CronTrigger(**{name: value}, timezone=UTC)
            except Exception:  # noqa: BLE001 - whatever the library raises for a field is that it does not take it
                raise CronError(f"{name}: expected what APScheduler accepts") from None
        self._zone = None if trigger.get("timezone") is None else _zone(trigger["timezone"])
        self._start, self._end = (_bound(trigger.get(name), name) for name in _BOUNDS)
        self._triggers: dict[tzinfo, Any] = {}

    def first(self, place: tzinfo, start: datetime) -> datetime | None:
        """Return the first fire at an instant or after it."""
        place = self._zone or place
        known = self._triggers.get(place)
        if known is None:
            known = self._triggers[place] = CronTrigger(**self._keywords, timezone=place, start_date=self._start)
        trigger = copy(known)  # several threads ask
        end = start + _SEARCHED
        trigger.end_date = end if self._end is None else min(end, self._end)
        found: datetime | None = trigger.get_next_fire_time(None, start.astimezone(place))
        return found


def _zone(text: object) -> tzinfo:
    """Return the zone of that name, or of that distance from UTC."""
    if not isinstance(text, str):
        raise CronError("timezone: expected a text")
    try:
        return zone_of(text)[0]
    except ZoneError:
        moment = _bound(f"2000-01-01T00:00:00{text}", "timezone")
        assert moment is not None  # noqa: S101 - it was given
        assert moment.tzinfo is not None  # noqa: S101 - it names its offset
        return moment.tzinfo


def _bound(text: object, name: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CronError(f"{name}: expected ISO 8601 with an offset")
    return moment
