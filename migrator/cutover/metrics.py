"""The key figures before the cutover, at it, and now, side by side.

Those of before are taken ahead of the fence, those of the cutover when PostgreSQL is open: neither holds up a writer.
They are kept in the journal. A source whose documents our store does not read (profiles other than stellaops) is told
by its copy in PostgreSQL, which the tail keeps current; its connections are not known then.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import open_target, translate_errors
from migrator.cutover import epoch, journal
from migrator.errors import MigratorError
from migrator.scheduler import metrics
from migrator.scheduler.metrics import KEY_METRICS, KeyMetrics, Sample
from migrator.store import open_side
from migrator.store.protocols import Store
from migrator.telemetry import logger

MeasuredSide: TypeAlias = Literal["MongoDB", "its copy", "PostgreSQL"]
COLUMNS: Final = ("metric", "before", "at the cutover", "now", "expected")
PREFIX: Final = "cutover_"
"""Of the samples of before and of the cutover; those of now have none."""
WITHIN: Final = timedelta(seconds=30)
"""Who has very many tenants, or runs without an index by tenant, does not wait for figures at the cutover."""
_NONE: Final = "-"


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one moment, and who was asked."""

    asked: MeasuredSide
    figures: KeyMetrics


class CutoverMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of three moments; none: not taken, or not yet."""

    before: MetricsSnapshot | None = None
    cutover: MetricsSnapshot | None = None
    now: MetricsSnapshot | None = None


def open_measured_side(settings: Settings, *, switched: bool) -> tuple[MeasuredSide, Store]:
    """Open the store of one side, as a tool: the new one after the cutover, else the old one, or its copy."""
    if switched:
        return "PostgreSQL", open_side(settings, "postgres")
    if epoch.store_reads_source(settings):
        return "MongoDB", open_side(settings, "mongo")
    return "its copy", open_side(settings, "postgres")


def take_snapshot(settings: Settings, *, switched: bool) -> MetricsSnapshot | None:
    """Take the figures of this moment; none, and a line of the log, where they cannot be had: nothing rests on them."""
    try:
        asked, store = open_measured_side(settings, switched=switched)
        with closing(store):
            figures = metrics.take_key_metrics(store, within=WITHIN)
    except MigratorError as error:
        logger().warning("the key figures cannot be taken", why=str(error))
        return None
    if asked == "its copy":
        figures = msgspec.structs.replace(figures, connections=None)
    return MetricsSnapshot(asked=asked, figures=figures)


def journal_snapshot(settings: Settings, *, switched: bool) -> dict[str, Any] | None:
    """Take the figures of this moment, as the journal keeps them."""
    return msgspec.to_builtins(take_snapshot(settings, switched=switched))  # type: ignore[no-any-return] # of a struct, or none


def recorded(settings: Settings) -> CutoverMetrics:
    """Return the figures of the last cutover as the journal has them, and none of now; nothing where it cannot be read.

    The scheduler's own figures do not depend on a target that is not there, or not migrated.
    """
    try:
        with open_target(settings, autocommit=True) as target, translate_errors("the target"):
            return _from_journal(journal.latest(target))
    except MigratorError:
        return CutoverMetrics()


def collect(settings: Settings, *, fresh: bool = False) -> CutoverMetrics:
    """Return the figures of the last cutover, if there was one, and of now; ``fresh``: there is no old side."""
    with open_target(settings, autocommit=True) as target, translate_errors("the target"):
        found = _from_journal(journal.latest(target))
    switched = fresh or settings.persistence.scheduler == "postgres" or epoch.is_in_target(settings)
    return msgspec.structs.replace(found, now=take_snapshot(settings, switched=switched))


def _from_journal(last: journal.Cutover | None) -> CutoverMetrics:
    detail = {} if last is None else last.detail
    return CutoverMetrics(
        before=_snapshot(detail.get("figures_before")), cutover=_snapshot(detail.get("figures_switch"))
    )


def _snapshot(kept: dict[str, Any] | None) -> MetricsSnapshot | None:
    return None if kept is None else msgspec.convert(kept, MetricsSnapshot)


def rows(found: CutoverMetrics) -> tuple[tuple[str, ...], ...]:
    """Return the table under ``COLUMNS``: when and who, then the five."""
    three = (found.before, found.cutover, found.now)
    when = (_NONE if one is None else f"{one.figures.taken_at:%Y-%m-%d %H:%M:%S} UTC" for one in three)
    return (
        ("taken at", *when, ""),
        ("asked", *(_NONE if one is None else one.asked for one in three), ""),
        *((one.words, *(_cell(moment, one.field) for moment in three), one.wanted) for one in KEY_METRICS),
    )


def lines(found: CutoverMetrics) -> Iterator[str]:
    """Yield the table for a terminal."""
    table = (COLUMNS, *rows(found))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def samples(found: CutoverMetrics) -> Iterator[Sample]:
    """Yield the figures for Prometheus; those of now by their own names, so that thresholds look at them alone."""
    for when, one in (("before", found.before), ("cutover", found.cutover)):
        if one is not None:
            yield from metrics.key_samples(one.figures, prefix=PREFIX, when=when)
    if found.now is not None:
        yield from metrics.key_samples(found.now.figures)


def _cell(moment: MetricsSnapshot | None, field: str) -> str:
    value = None if moment is None else getattr(moment.figures, field)
    return _NONE if value is None else f"{value:,}"
