"""A zone as stretches of constant offset, and the fires of an expression on them; seconds since 1970.

``zoneinfo`` does not tell its transitions. They are found by looking at the offset every three days and halving
between two that differ: no zone has had two transitions within a week since 1970, which a test reads from the
database's own files.

Within a stretch of constant offset a wall-clock time is one instant. Where two stretches meet, the policy of the
expression decides: what the clock skips is dropped or moved, what it repeats is taken once or twice.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from migrator.cron.expression import Expression, Fold, Gap
from migrator.cron.zones import zone

_PROBE = 3 * 86400
BEGINNING = int(datetime.min.replace(tzinfo=UTC).timestamp())
"""The first instant of dates, in seconds since 1970."""
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
    for year in range(max(year_of(instant), FIRST_YEAR), min(last_year, LAST_YEAR) + 1):
        for stretch in stretches(name, year):
            if stretch.end > instant:
                yield stretch


@lru_cache(maxsize=8192)
def stretches(name: str, year: int) -> tuple[Stretch, ...]:
    """Return the stretches of one UTC year; a change of year that is no transition has ``before == offset``."""
    start, end = _first_instant(year), _first_instant(year + 1)
    place, _ = zone(name)
    edges = [(start, _offset(place, start)), *_transitions(place, start, end), (end, _offset(place, end))]
    spans = []
    before = _offset(place, start - 1)
    for (instant, offset), (until, following) in pairwise(edges):
        spans.append(Stretch(instant, until, offset, before, following))
        before = offset
    return tuple(spans)


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


def year_of(instant: int) -> int:
    """Return the year (UTC) of an instant, or the first or last year of dates for one outside of them."""
    return datetime.fromtimestamp(min(max(instant, BEGINNING), _END), UTC).year


class _StretchFires(NamedTuple):
    """What a stretch contributes: fires moved to its start, and the instants between which its own times count."""

    moved: tuple[int, ...]
    start: int
    end: int


def fires_after(expression: Expression, zone: str, instant: int, last_year: int) -> Iterator[int]:
    """Yield the fires later than ``instant`` (seconds since 1970), ascending, up to the end of ``last_year``."""
    for stretch in forward(zone, instant + 1, last_year):
        part = _part(expression, stretch)
        for fire in part.moved:
            if fire > instant:
                yield fire
        walls = _walls(expression, max(instant + 1, part.start) + stretch.offset, part.end + stretch.offset)
        yield from (wall - stretch.offset for wall in walls)


def _part(expression: Expression, stretch: Stretch) -> _StretchFires:
    end = stretch.end
    repeated = stretch.offset - stretch.after
    if repeated > 0 and _fires_second(expression.fold, stretch.after):
        end = max(end - repeated, stretch.start)
    skipped = stretch.offset - stretch.before
    if skipped > 0:
        moved, start = _moved(expression, stretch, skipped)
        return _StretchFires(moved, start, end)
    second_only = _fires_second(expression.fold, stretch.offset)
    if skipped == 0 or expression.fold is Fold.TWICE or second_only:
        return _StretchFires((), stretch.start, end)
    return _StretchFires((), stretch.start - skipped, end)


def _fires_second(fold: Fold, later_offset: int) -> bool:
    """Whether of two times in a fold the second one alone fires."""
    return fold is Fold.SECOND or (fold is Fold.ONCE_BY_OFFSET and later_offset >= 0)


def _moved(expression: Expression, stretch: Stretch, skipped: int) -> tuple[tuple[int, ...], int]:
    """Return the fires moved out of the gap before a stretch, and the instant from which its own times count."""
    if expression.gap is Gap.SKIP:
        return (), stretch.start
    gap_start, gap_end = stretch.start + stretch.before, stretch.start + stretch.offset
    first = expression.at_or_after(gap_start, gap_end)
    if first is None:
        return (), stretch.start
    if expression.gap is Gap.END:
        return (stretch.start,), stretch.start + 1
    if expression.gap is Gap.FIRST:
        fire = first - stretch.before
        return (fire,), fire + 1
    fires = {wall - stretch.before for wall in _walls(expression, gap_start, gap_end)}
    fires.update(wall - stretch.offset for wall in _walls(expression, gap_end, gap_end + skipped))
    return tuple(sorted(fires)), stretch.start + skipped


def _walls(expression: Expression, start: int, end: int) -> Iterator[int]:
    wall = start
    while (found := expression.at_or_after(wall, end)) is not None:
        yield found
        wall = found + 1
