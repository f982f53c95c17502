"""The tail's metrics, the file that Prometheus reads them from, and its lag over time, for the report.

The lag is a sample every ten seconds, in the row of this call of the tool. The samples of one call are bounded: where
there are too many, those of the older half are joined in pairs, each of which keeps its larger lag. So a peak stays,
and the last hour is as it was measured.
"""

import itertools
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

import msgspec
from psycopg.types.json import Jsonb

from migrator import __version__
from migrator.config import Settings
from migrator.connections.postgres import Connection
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
        tail = copy_status(settings).tail
    except MigratorError:
        return None  # the scheduler's metrics do not depend on a target that does not exist, or is not migrated
    if tail is None:
        return None
    return TailMetrics(
        **totals_of(tail),
        lag_s=tail.lag_s,
        delay_ms=None,
        rate=tail.rate if tail.follows else 0.0,
        owed=tail.owed,
        position_s=int(tail.position_at.timestamp()),
        alarm=tail.alarm is not None,
    )


def samples(metrics: TailMetrics) -> list[Sample]:
    """Return the metrics as samples; the delay of one event only where it is known."""
    delay_s = None if metrics.delay_ms is None else metrics.delay_ms / 1000
    listed: tuple[tuple[str, Literal["gauge", "counter"], str, float | None], ...] = (
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
        for name, kind, words, value in listed
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


COMMAND: Final = "tail"
EVERY_S: Final = 10.0
MOST: Final = 720
"""Samples of one call."""
_CALLS: Final = 200
"""Calls of the tail that are read, the newest ones."""
_WRITE: Final = (
    "INSERT INTO migration.tool_runs (id, command, started_at, finished_at, tool_version, host, settings)"
    " VALUES (%(id)s, %(command)s, clock_timestamp(), clock_timestamp(), %(version)s, %(host)s, %(detail)s)"
    " ON CONFLICT (id) DO UPDATE SET finished_at = EXCLUDED.finished_at, settings = EXCLUDED.settings"
)
_READ: Final = (
    "SELECT (settings -> 'lag')::text FROM migration.tool_runs WHERE command = %s AND finished_at >= %s"
    " AND settings ? 'lag' ORDER BY started_at DESC LIMIT %s"
)


class LagSample(msgspec.Struct, frozen=True, array_like=True):
    """The lag at one moment."""

    at_s: int
    """Seconds since 1970, by the target's clock."""
    lag_s: int

    @property
    def at(self) -> datetime:
        """The moment."""
        return datetime.fromtimestamp(self.at_s, UTC)


def thinned(samples: list[LagSample], most: int = MOST) -> list[LagSample]:
    """Return at most as many samples as allowed; of a pair that is joined, the sample with the larger lag stays."""
    while len(samples) > most:
        half = len(samples) // 2 // 2 * 2
        pairs = zip(samples[:half:2], samples[1:half:2], strict=True)
        samples = [*(max(pair, key=lambda one: one.lag_s) for pair in pairs), *samples[half:]]
    return samples


class LagHistory:
    """Takes the samples of one call of the tail, and stores them."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._id, self._taken = uuid4(), time.monotonic()
        self._samples: list[LagSample] = []

    def observe(self, target: Connection, lag_s: int) -> None:
        """Store the lag if the last sample is old enough; one statement, which commits by itself."""
        now = time.monotonic()
        if now - self._taken < self._every_s:
            return
        self._taken = now
        row = target.execute("SELECT extract(epoch FROM clock_timestamp())::bigint").fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        self._samples = thinned([*self._samples, LagSample(int(row[0]), lag_s)])
        given: dict[str, Any] = {"id": self._id, "command": COMMAND, "version": __version__}
        detail = Jsonb({"lag": msgspec.to_builtins(self._samples)})
        target.execute(_WRITE, given | {"host": socket.gethostname(), "detail": detail})


def lag_history(target: Connection, since: datetime, until: datetime | None = None) -> list[LagSample]:
    """Return the samples of all calls from ``since`` on, up to ``until`` if it is given, the oldest first."""
    rows = target.execute(_READ, (COMMAND, since, _CALLS)).fetchall()
    found = itertools.chain.from_iterable(msgspec.json.decode(lag, type=list[LagSample]) for (lag,) in rows)
    samples = [one for one in found if one.at >= since and (until is None or one.at <= until)]
    return sorted(samples, key=lambda one: one.at_s)
