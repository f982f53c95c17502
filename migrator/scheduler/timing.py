"""When a process does what: the settings as lengths of time, and beats that neither drift nor pile up."""

from datetime import timedelta

import msgspec

from migrator.config import SchedulerSettings
from migrator.errors import ConfigurationError

_MILLISECOND = timedelta(milliseconds=1)


class Beat:
    """Comes at whole multiples of its interval since its start; what was missed is passed over, not made up for."""

    def __init__(self, every: timedelta, now: float, *, at_once: bool = True) -> None:
        """``now`` is by the monotonic clock, in seconds; ``at_once``: the first beat is now."""
        self._every = every.total_seconds()
        self._start, self._count = now, 0 if at_once else 1

    def due(self, now: float) -> bool:
        """Tell whether it is time, and look forward to the next one then."""
        if now < self.next_at:
            return False
        self._count = int((now - self._start) // self._every) + 1
        return True

    @property
    def next_at(self) -> float:
        """When the next beat comes."""
        return self._start + self._count * self._every


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The lengths of time of ``[scheduler]``."""

    poll: timedelta
    lease: timedelta
    heartbeat: timedelta
    dead_after: timedelta
    leader_ttl: timedelta
    sweep: timedelta
    metrics: timedelta
    stop_within: timedelta
    retention: timedelta | None


def timing_of(settings: SchedulerSettings) -> Timing:
    """Return the lengths of time; raises ``ConfigurationError`` where one leaves another no room."""
    for name, length in (("lease_ms", settings.lease_ms), ("dead_after_ms", settings.dead_after_ms)):
        if length < 2 * settings.heartbeat_ms:
            raise ConfigurationError(
                f"scheduler.{name} is {length} and must be at least twice scheduler.heartbeat_ms"
                f" ({settings.heartbeat_ms}): one late heartbeat would cost the runs"
            )
    every = settings.retention_every_ms
    return Timing(
        poll=settings.poll_ms * _MILLISECOND,
        lease=settings.lease_ms * _MILLISECOND,
        heartbeat=settings.heartbeat_ms * _MILLISECOND,
        dead_after=settings.dead_after_ms * _MILLISECOND,
        leader_ttl=settings.leader_ttl_ms * _MILLISECOND,
        sweep=settings.sweep_ms * _MILLISECOND,
        metrics=settings.metrics_ms * _MILLISECOND,
        stop_within=settings.stop_within_ms * _MILLISECOND,
        retention=every * _MILLISECOND if every else None,
    )
