"""The dialects by name, and the calls that evaluate a line in one of them."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from importlib import import_module
from itertools import islice
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from migrator.cron import agenda, celery, croner, cronos, debian, quartz, robfig, timeline, zones
from migrator.cron.expression import CronError, Expression, UnavailableError
from migrator.errors import install_extra


class LibraryLine(Protocol):
    """A line that the dialect's own library has taken, and searches."""

    @property
    def zone(self) -> None:
        """No zone stands in a line of such a dialect."""

    def after(self, zone: str, instant: int) -> Iterator[int]:
        """Yield the fires later than ``instant`` (seconds since 1970), ascending, until the library finds none."""


Parsed: TypeAlias = Expression | LibraryLine
"""A line as it is evaluated: by the search here, or by the dialect's own library."""


_LIBRARIES: Final = MappingProxyType(
    {"apscheduler": install_extra("apscheduler"), "croniter": install_extra("croniter")}
)
"""Dialect that its own library evaluates → how that is installed; the dialect's module imports it."""


def _by_library(dialect: str, text: str) -> LibraryLine:
    """Parse a line of a dialect whose library is an extra; its module is imported with it, when it is asked for."""
    try:
        module = import_module(f"migrator.cron.{dialect}")
    except ImportError:
        raise UnavailableError(
            f"the cron dialect {dialect} is evaluated by its library: {_LIBRARIES[dialect]}"
        ) from None
    line: LibraryLine = module.Line(text)
    return line


DIALECTS: Final = MappingProxyType[str, Callable[[str], Parsed]](
    {
        "debian": debian.parse,
        "croniter": partial(_by_library, "croniter"),
        "croner": croner.parse,
        "robfig": robfig.parse,
        "apscheduler": partial(_by_library, "apscheduler"),
        "cronos": cronos.parse,
        "celery": celery.parse,
        "quartz": quartz.parse,
        "agenda": agenda.parse,
        "agenda-at": agenda.parse_at,
    },
)
"""Every dialect by the name stored with a trigger, and its parser; ``debian`` is the default of new triggers."""

_LONGEST_TEXT = 1024
_FIRST_SEARCHED: Final = timeline.BEGINNING + 2 * 86400
"""Of the first days of the year 1, some begin before the first date in a zone west of Greenwich."""


@lru_cache(maxsize=4096)
def parse(dialect: str, expression: str) -> Parsed:
    """Return the parsed line; raises ``CronError`` for an unknown dialect or a line the dialect does not take.

    Raises ``UnavailableError`` where the library that evaluates the dialect is not installed, as all calls here do.
    """
    parser = DIALECTS.get(dialect)
    if parser is None:
        raise CronError("cron dialect: expected one of " + ", ".join(DIALECTS))
    if len(expression) > _LONGEST_TEXT:
        raise CronError(f"cron line: expected at most {_LONGEST_TEXT} characters")
    if "\n" in expression or "\r" in expression:
        raise CronError("cron line: expected a single line")
    return parser(expression)


def validate(dialect: str, expression: str, timezone: str | None) -> None:
    """Return if the line can be evaluated in the zone; None is UTC.

    Raises ``CronError`` if the dialect does not take the line, ``ZoneError`` for an unknown zone. A line that is well
    formed but never fires (30 February) passes where its own engine lets it pass; ``next_fire`` then gives None.
    """
    zone_key(parse(dialect, expression), timezone)


def next_fires(dialect: str, expression: str, timezone: str | None, after: datetime, count: int) -> list[datetime]:
    """Return up to ``count`` fires strictly after ``after`` (aware), ascending, aware UTC.

    Fewer when the engine's search ends first. Raises ``CronError`` and ``ZoneError`` as ``validate`` does,
    ``ValueError`` for a naive ``after``.
    """
    return list(islice(fires_after(dialect, expression, timezone, after), count))


def next_fire(dialect: str, expression: str, timezone: str | None, after: datetime) -> datetime | None:
    """Return the first fire strictly after ``after``, or None; as ``next_fires``."""
    return next(fires_after(dialect, expression, timezone, after), None)


def fires_after(dialect: str, expression: str, timezone: str | None, after: datetime) -> Iterator[datetime]:
    """Yield the fires strictly after ``after``, each when it is asked for; as ``next_fires``."""
    parsed = parse(dialect, expression)
    zone, begin = zone_key(parsed, timezone), max(_microseconds(after) // 1_000_000, _FIRST_SEARCHED)
    for instant in _search(parsed, zone, begin) if isinstance(parsed, Expression) else parsed.after(zone, begin):
        yield datetime.fromtimestamp(instant, UTC)


def _search(parsed: Expression, zone: str, instant: int) -> Iterator[int]:
    latest: int | None = instant
    while latest is not None:
        # the years searched count from each fire, as in the engines: a line may rest for years between two
        start, latest = latest, None
        for latest in timeline.fires_after(parsed, zone, start, timeline.year_of(start) + parsed.years_searched):
            yield latest


def zone_key(parsed: Parsed, timezone: str | None) -> str:
    """Return the IANA name of the zone a line is evaluated in: the one in its text, else ``timezone``, else UTC."""
    key = zones.resolve("UTC" if timezone is None else timezone)
    return key if parsed.zone is None else parsed.zone


def _microseconds(moment: datetime) -> int:
    if moment.utcoffset() is None:
        raise ValueError("expected an aware datetime")
    distance = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (distance.days * 86400 + distance.seconds) * 1_000_000 + distance.microseconds


_SINCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(2028, 1, 1, tzinfo=UTC)
_FIRES: Final = 24
_BEFORE_A_CHANGE: Final = timedelta(hours=30)


@lru_cache(maxsize=4_096)
def fires_alike(dialect: str, other: str, line: str, zone: str | None) -> bool:
    """Whether a line fires in one dialect when it fires in another.

    Compared are the fires of two fixed years at their beginning and around each change of the zone's clock: not the
    clock, so that the answer never depends on the day.
    """
    if dialect == other:
        return True
    try:
        return all(
            next_fires(dialect, line, zone, start, _FIRES) == next_fires(other, line, zone, start, _FIRES)
            for start in (_SINCE, *_before_changes(zone))
        )
    except CronError:
        return False


def _before_changes(zone: str | None) -> Iterator[datetime]:
    for stretch in timeline.forward(zone or "UTC", int(_SINCE.timestamp()), _UNTIL.year - 1):
        if stretch.before != stretch.offset:
            yield datetime.fromtimestamp(stretch.start, UTC) - _BEFORE_A_CHANGE
