"""The lag of the tail over time, for the report: a sample every ten seconds, in the row of this call of the tool.

The samples of one call are bounded: where there are too many, those of the older half are joined in pairs, each of
which keeps its larger lag. So a peak stays, and the last hour is as it was measured.
"""

import itertools
import socket
import time
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import msgspec
from psycopg.types.json import Jsonb

from migrator import __version__
from migrator.connections.postgres import Connection

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
