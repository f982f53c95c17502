"""From matching wall-clock times to instants: every fire of an expression in a zone, forwards or backwards.

Within a stretch of constant offset a wall-clock time is one instant. Where two stretches meet, the policy of the
expression decides: what the clock skips is dropped or moved, what it repeats is taken once or twice.
"""

from collections.abc import Iterator
from typing import NamedTuple

from migrator.cron import timeline
from migrator.cron.expression import Expression, Fold, Gap
from migrator.cron.timeline import Stretch


class _Part(NamedTuple):
    """What a stretch contributes: fires moved to its start, and the instants between which its own times count."""

    moved: tuple[int, ...]
    start: int
    end: int


def after(expression: Expression, zone: str, instant: int, last_year: int) -> Iterator[int]:
    """Yield the fires later than ``instant`` (seconds since 1970), ascending, up to the end of ``last_year``."""
    for stretch in timeline.forward(zone, instant + 1, last_year):
        part = _part(expression, stretch)
        for fire in part.moved:
            if fire > instant:
                yield fire
        wall = max(instant + 1, part.start) + stretch.offset
        end = part.end + stretch.offset
        while (found := expression.at_or_after(wall, end)) is not None:
            yield found - stretch.offset
            wall = found + 1


def before(expression: Expression, zone: str, instant: int, first_year: int) -> Iterator[int]:
    """Yield the fires earlier than ``instant``, descending, back to the start of ``first_year``."""
    for stretch in timeline.backward(zone, instant - 1, first_year):
        part = _part(expression, stretch)
        wall = min(instant, part.end) - 1 + stretch.offset
        start = part.start + stretch.offset
        while (found := expression.at_or_before(wall, start)) is not None:
            yield found - stretch.offset
            wall = found - 1
        for fire in reversed(part.moved):
            if fire < instant:
                yield fire


def _part(expression: Expression, stretch: Stretch) -> _Part:
    end = stretch.end
    repeated = stretch.offset - stretch.after
    if repeated > 0 and expression.fold is Fold.ONCE_BY_OFFSET and stretch.after >= 0:
        end = max(end - repeated, stretch.start)
    skipped = stretch.offset - stretch.before
    if skipped > 0:
        moved, start = _moved(expression, stretch, skipped)
        return _Part(moved, start, end)
    second_only = expression.fold is Fold.ONCE_BY_OFFSET and stretch.offset >= 0
    if skipped == 0 or expression.fold is Fold.TWICE or second_only:
        return _Part((), stretch.start, end)
    return _Part((), stretch.start - skipped, end)


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
    if expression.gap is not Gap.SHIFT:
        fire = stretch.start + first % 60 if expression.gap is Gap.END_KEEPING_SECONDS else first - stretch.before
        return (fire,), fire + 1
    fires = {wall - stretch.before for wall in _walls(expression, gap_start, gap_end)}
    fires.update(wall - stretch.offset for wall in _walls(expression, gap_end, gap_end + skipped))
    return tuple(sorted(fires)), stretch.start + skipped


def _walls(expression: Expression, start: int, end: int) -> Iterator[int]:
    wall = start
    while (found := expression.at_or_after(wall, end)) is not None:
        yield found
        wall = found + 1
