"""What this process has done so far: counters that threads may add to, and snapshots of them."""

from datetime import datetime
from threading import Lock
from typing import Final

import msgspec


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the process started, all taken at one moment."""

    fired: int = 0
    """Runs queued by triggers."""
    skipped: int = 0
    """Runs recorded as skipped."""
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    retried: int = 0
    lost: int = 0
    """Runs that were cancelled or taken away while they were worked on."""
    late: int = 0
    """Outcomes that came too late, or twice, and were ignored."""
    given_back: int = 0
    reclaimed: int = 0
    """Runs of others that the sweep ended."""
    running: int = 0
    duration_ms: int = 0
    """Of the completed ones, together."""
    last_tick_at: datetime | None = None

    @property
    def success_rate(self) -> float | None:
        """Return completed by completed and failed (timed out ones failed); none before the first."""
        ended = self.completed + self.failed + self.timed_out
        return self.completed / ended if ended else None

    @property
    def mean_duration_ms(self) -> float | None:
        """Return the mean duration of completed runs; none before the first."""
        return self.duration_ms / self.completed if self.completed else None


_COUNTS: Final = frozenset(Snapshot.__struct_fields__) - {"last_tick_at"}


class Gauges:
    """The counters; adding and taking a snapshot never see each other half done."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._now = Snapshot()

    def add(self, **counts: int) -> None:
        """Add to counters by name; those of one call are added together."""
        unknown = counts.keys() - _COUNTS
        if unknown:
            raise KeyError(min(unknown))
        with self._lock:
            grown = {name: getattr(self._now, name) + by for name, by in counts.items()}
            self._now = msgspec.structs.replace(self._now, **grown)

    def ticked(self, at: datetime) -> None:
        """Note when triggers were last looked at."""
        with self._lock:
            self._now = msgspec.structs.replace(self._now, last_tick_at=at)

    def snapshot(self) -> Snapshot:
        """Return the counters of this moment."""
        with self._lock:
            return self._now
