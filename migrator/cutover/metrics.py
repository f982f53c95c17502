"""Five metrics of the scheduler at three moments: before the cutover, after it, and now.

The first are taken before the fence, the second when PostgreSQL is open, so that neither delays a writer. Both are
stored in the journal. The store reads no documents of profiles other than stellaops. The metrics of such a source are
taken from its copy in PostgreSQL, which the tail keeps current, and its connections are not known.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import target_connection
from migrator.cutover import epoch, journal
from migrator.errors import MigratorError
from migrator.log import logger
from migrator.prometheus import Sample
from migrator.scheduler import metrics
from migrator.scheduler.metrics import KEY_METRICS, KeyMetrics
from migrator.store import open_side
from migrator.store.protocols import Store

MeasuredSide: TypeAlias = Literal["MongoDB", "its copy", "PostgreSQL"]
COLUMNS: Final = ("metric", "before", "at the cutover", "now", "expected")
PREFIX: Final = "cutover_"
"""Prefix of the samples of the first two moments. The samples of now have none."""
WITHIN: Final = timedelta(seconds=30)
"""Time limit: with very many tenants, or without an index by tenant, the cutover does not wait for metrics."""
_NONE: Final = "-"


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one moment, and the store that was asked."""

    asked: MeasuredSide
    metrics: KeyMetrics


class CutoverMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of three moments; null if they were not taken."""

    before: MetricsSnapshot | None = None
    cutover: MetricsSnapshot | None = None
    now: MetricsSnapshot | None = None


def open_measured_side(settings: Settings, *, cut_over: bool) -> tuple[MeasuredSide, Store]:
    """Open the store that is measured: PostgreSQL after the cutover; before it MongoDB, or its copy in PostgreSQL."""
    if cut_over:
        return "PostgreSQL", open_side(settings, "postgres")
    if epoch.store_reads_source(settings):
        return "MongoDB", open_side(settings, "mongo")
    return "its copy", open_side(settings, "postgres")


def take_snapshot(settings: Settings, *, cut_over: bool) -> MetricsSnapshot | None:
    """Return the metrics of this moment; None, and a line in the log, if they cannot be taken."""
    try:
        asked, store = open_measured_side(settings, cut_over=cut_over)
        with closing(store):
            key_metrics = metrics.take_key_metrics(store, within=WITHIN)
    except MigratorError as error:
        logger().warning("the key metrics cannot be collected", why=str(error))
        return None
    if asked == "its copy":
        key_metrics = msgspec.structs.replace(key_metrics, connections=None)
    return MetricsSnapshot(asked=asked, metrics=key_metrics)


def journal_snapshot(settings: Settings, *, cut_over: bool) -> dict[str, Any] | None:
    """Return the metrics of this moment as the journal stores them."""
    return msgspec.to_builtins(take_snapshot(settings, cut_over=cut_over))  # type: ignore[no-any-return] # a dict of a struct, or None


def recorded(settings: Settings) -> CutoverMetrics:
    """Return the metrics of the last cutover from the journal, without those of now.

    Nothing is returned if the target cannot be read: the scheduler's own metrics do not depend on it.
    """
    try:
        with target_connection(settings) as target:
            return _from_journal(journal.latest(target))
    except MigratorError:
        return CutoverMetrics()


def collect(settings: Settings, *, fresh_start: bool = False) -> CutoverMetrics:
    """Return the metrics of the last cutover, if there was one, and of now; ``fresh_start``: there is no MongoDB."""
    with target_connection(settings) as target:
        found = _from_journal(journal.latest(target))
    cut_over = fresh_start or settings.persistence.scheduler == "postgres" or epoch.is_in_target(settings)
    return msgspec.structs.replace(found, now=take_snapshot(settings, cut_over=cut_over))


def _from_journal(last: journal.Cutover | None) -> CutoverMetrics:
    detail = {} if last is None else last.detail
    return CutoverMetrics(
        before=_snapshot(detail.get("metrics_before")), cutover=_snapshot(detail.get("metrics_at_cutover"))
    )


def _snapshot(kept: dict[str, Any] | None) -> MetricsSnapshot | None:
    return None if kept is None else msgspec.convert(kept, MetricsSnapshot)


def rows(found: CutoverMetrics) -> tuple[tuple[str, ...], ...]:
    """Return the rows of the table with the header ``COLUMNS``: the time, the store, and the five metrics."""
    three = (found.before, found.cutover, found.now)
    when = (_NONE if one is None else f"{one.metrics.taken_at:%Y-%m-%d %H:%M:%S} UTC" for one in three)
    return (
        ("taken at", *when, ""),
        ("asked", *(_NONE if one is None else one.asked for one in three), ""),
        *((one.words, *(_cell(moment, one.field) for moment in three), one.wanted) for one in KEY_METRICS),
    )


def lines(found: CutoverMetrics) -> Iterator[str]:
    """Yield the lines of the table for a terminal."""
    table = (COLUMNS, *rows(found))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def samples(metrics_taken: CutoverMetrics) -> Iterator[Sample]:
    """Yield the samples for Prometheus; only those of now have no prefix, so that thresholds apply to them alone."""
    for when, one in (("before", metrics_taken.before), ("cutover", metrics_taken.cutover)):
        if one is not None:
            yield from metrics.key_samples(one.metrics, prefix=PREFIX, when=when)
    if metrics_taken.now is not None:
        yield from metrics.key_samples(metrics_taken.now.metrics)


def _cell(moment: MetricsSnapshot | None, field: str) -> str:
    value = None if moment is None else getattr(moment.metrics, field)
    return _NONE if value is None else f"{value:,}"
