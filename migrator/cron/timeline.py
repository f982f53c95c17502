"""A zone as stretches of constant offset, in whole seconds since 1970.

``zoneinfo`` does not tell its transitions. They are found by looking at the offset every three days and halving
between two that differ: no zone has had two transitions within a week since 1970, which a test reads from the
database's own files.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from migrator.cron.zones import zone

_PROBE = 3 * 86400
_BEGINNING = int(datetime.min.replace(tzinfo=UTC).timestamp())
_END = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp())
FIRST_YEAR = 2
LAST_YEAR = 9998


class Stretch(NamedTuple):
    """Instants ``start`` (included) to ``end`` (excluded) with one offset; all in seconds.

    Wall-clock seconds are ``instant + offset``. ``before`` is the offset just before ``start`` (smaller at a gap,
    greater at a fold), ``after`` the one from ``end`` on.
    """

    start: int
    end: int
    offset: int
    before: int
    after: int


def forward(name: str, instant: int, last_year: int) -> Iterator[Stretch]:
    """Yield the stretches from the one that holds ``instant`` up to the end of ``last_year`` (UTC)."""
    for year in range(max(_year(instant), FIRST_YEAR), min(last_year, LAST_YEAR) + 1):
        for stretch in stretches(name, year):
            if stretch.end > instant:
                yield stretch


def backward(name: str, instant: int, first_year: int) -> Iterator[Stretch]:
    """Yield the stretches from the one that holds ``instant`` back to the start of ``first_year`` (UTC)."""
    for year in range(min(_year(instant), LAST_YEAR), max(first_year, FIRST_YEAR) - 1, -1):
        for stretch in reversed(stretches(name, year)):
            if stretch.start <= instant:
                yield stretch


@lru_cache(maxsize=8192)
def stretches(name: str, year: int) -> tuple[Stretch, ...]:
    """Return the stretches of one UTC year; a change of year that is no transition has ``before == offset``."""
    start, end = _first_instant(year), _first_instant(year + 1)
    place, _ = zone(name)
    edges = [(start, _offset(place, start)), *_transitions(place, start, end), (end, _offset(place, end))]
    found = []
    before = _offset(place, start - 1)
    for (instant, offset), (until, following) in pairwise(edges):
        found.append(Stretch(instant, until, offset, before, following))
        before = offset
    return tuple(found)


def _transitions(place: ZoneInfo, start: int, end: int) -> Iterator[tuple[int, int]]:
    low, offset = start, _offset(place, start)
    while low < end - 1:
        high = min(low + _PROBE, end - 1)
        if _offset(place, high) == offset:
            low = high
            continue
        left, right = low, high
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if _offset(place, middle) == offset else (left, middle)
        low, offset = right, _offset(place, right)
        yield low, offset


def _offset(place: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, place).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _first_instant(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def _year(instant: int) -> int:
    return datetime.fromtimestamp(min(max(instant, _BEGINNING), _END), UTC).year
