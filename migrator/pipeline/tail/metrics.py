"""The tail's metrics, and the file that Prometheus reads them from."""

import os
from pathlib import Path
from typing import Literal

from migrator.config import Settings
from migrator.errors import MigratorError, UsageError
from migrator.pipeline.status import copy_status
from migrator.pipeline.tail.positions import TailTotals, totals_of
from migrator.prometheus import Sample, prometheus_text


class TailMetrics(TailTotals, frozen=True, kw_only=True):
    """The metrics of the tail; totals since its first call."""

    lag_s: float
    delay_ms: float | None
    rate: float
    owed: int
    position_s: int
    alarm: bool


def stored_metrics(settings: Settings) -> TailMetrics | None:
    """Return the metrics that the ledger has; None if no tail ever ran, or if there is no target.

    The lag is from the position to the target's clock. Only a running tail knows the delay of one event.
    """
    try:
        found = copy_status(settings).tail
    except MigratorError:
        return None  # the scheduler's metrics do not depend on a target that does not exist, or is not migrated
    if found is None:
        return None
    return TailMetrics(
        **totals_of(found),
        lag_s=found.lag_s,
        delay_ms=None,
        rate=found.rate if found.follows else 0.0,
        owed=found.owed,
        position_s=int(found.position_at.timestamp()),
        alarm=found.alarm is not None,
    )


def samples(metrics: TailMetrics) -> list[Sample]:
    """Return the metrics as samples; the delay of one event only where it is known."""
    delay_s = None if metrics.delay_ms is None else metrics.delay_ms / 1000
    found: tuple[tuple[str, Literal["gauge", "counter"], str, float | None], ...] = (
        ("events_total", "counter", "events seen", metrics.events),
        ("documents_total", "counter", "documents applied", metrics.documents),
        ("rows_written_total", "counter", "rows inserted or changed", metrics.written),
        ("rows_removed_total", "counter", "rows removed", metrics.removed),
        ("events_per_second", "gauge", "events seen per second, recently", metrics.rate),
        ("lag_seconds", "gauge", "from the position to the source's present, by its clock", metrics.lag_s),
        ("delay_seconds", "gauge", "from the last event to its commit", delay_s),
        ("documents_owed", "gauge", "documents still to be read again", metrics.owed),
        ("position_timestamp_seconds", "gauge", "cluster time of the position", metrics.position_s),
        ("alarm", "gauge", "1 when the position cannot be trusted", int(metrics.alarm)),
    )
    return [
        Sample(name=f"tail_{name}", kind=kind, help=words, value=value)
        for name, kind, words, value in found
        if value is not None
    ]


def write_metrics(path: Path, metrics: TailMetrics) -> None:
    """Write the metrics at once: a reader sees the old file or the new one.

    Raises ``UsageError`` if the file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        with beside.open("x", encoding="utf-8") as file:  # never through a link that another user has put there
            file.write(prometheus_text(samples(metrics)))
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write the metrics file {path}: {error.strerror or type(error).__name__}") from None


def require_writable(path: Path) -> None:
    """Raise ``UsageError`` if a metrics file could not be written: no such folder, or no right to write into it."""
    try:
        wrong = not os.access(path.parent, os.W_OK | os.X_OK) or path.is_dir()
    except (OSError, ValueError):  # a name that the file system does not take
        wrong = True
    if wrong:
        raise UsageError(
            f"cannot write the metrics file {path}: its folder is missing or may not be written, or it is one"
        )
