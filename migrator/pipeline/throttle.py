"""The throttle: when the next chunk of a copy, a census or a parity check may begin.

One process decides it for all workers, because it alone hands chunks out. So the rate is that of all workers together,
on this machine or in a cluster, and a wait holds neither a transaction nor a cursor: chunks that have begun end.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from migrator import fault_points
from migrator.config import Settings
from migrator.pipeline import control
from migrator.pipeline.control import READ_EVERY_S, Control, Limits
from migrator.pipeline.sessions import Sessions, SourceSessions, retry_transient
from migrator.pipeline.source_load import replication_lag, source_load
from migrator.telemetry import has_display, waiting

SAID_EVERY_S: Final = 10.0
"""Seconds after which the reason of a wait is said again."""
LONGEST_S: Final = 1.0
"""The longest wait after which the caller asks again: what is set may have changed."""


WORDS: Final[Mapping[str, str]] = {
    "max_replication_lag": "replication lag {:,.0f} s, limit {:,g} s",
    "max_source_load": "load of the source {:,.0f} clients, limit {:,.0f}",
}
Measures: TypeAlias = Mapping[str, Callable[[], float]]
"""Name of a limit → what measures the source for it."""


def measured(limits: Limits) -> dict[str, float]:
    """Return the limits in force that the source is measured for."""
    return {name: limit for name in WORDS if (limit := getattr(limits, name))}


class Pace:
    """Documents that were begun, against a rate. It may be ahead by the one chunk that began last."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._at = 0.0

    def wait_s(self, rate: float, now: float) -> float:
        """Return the seconds after which a chunk may begin; ``rate`` in documents a second, 0: no limit."""
        self._ahead = max(0.0, self._ahead - rate * (now - self._at)) if rate else 0.0
        self._at = now
        return self._ahead / rate if rate else 0.0

    def begin(self, documents: int) -> None:
        """Count the documents of a chunk that begins."""
        self._ahead += documents


class Throttle:
    """Tells when the next chunk may begin, and says why not."""

    def __init__(
        self,
        settings: Settings,
        read_control: Callable[[], Control],
        measures: Measures,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Measure the source once for each limit in force; raise the tool's error for what cannot be measured."""
        self._settings = settings
        self._read_control = read_control
        self._measures = measures
        self._clock = clock
        self._pace = Pace()
        self._control = read_control()
        self._busy = ""
        """Why the source is too busy; empty: it is not."""
        self._read_at = self._said_at = float("-inf")
        self._said = ""
        for name in measured(self.limits):
            measures[name]()

    @property
    def limits(self) -> Limits:
        """Return the limits in force, as they were read last."""
        return self._control.limits(self._settings.copy)

    def wait_s(self, documents: int) -> float:
        """Return 0, and count the documents, if a chunk may begin; else the seconds after which to ask again."""
        now = self._clock()
        if now - self._read_at >= READ_EVERY_S:
            self._read_at = now
            self._control = self._read_control()
            self._busy = self._too_busy()
        kind, reason, seconds = self._reason(now)
        if not seconds:
            self._said = ""
            self._pace.begin(documents)
            return 0.0
        self._say(kind, reason, now)
        fault_points.reach(fault_points.THROTTLED)
        return min(seconds, LONGEST_S)

    def _reason(self, now: float) -> tuple[str, str, float]:
        """Return the kind of the wait, its reason, and its length in seconds; 0: no wait."""
        rate = self.limits.max_rate
        seconds = self._pace.wait_s(rate, now)
        if self._control.pause is not None:
            return "pause", f"paused {self._control.pause.words}: migrator control resume", LONGEST_S
        if self._busy:
            return "busy", self._busy, LONGEST_S
        return "rate", f"limit of {rate:,.0f} documents a second", seconds

    def _too_busy(self) -> str:
        for name, limit in measured(self.limits).items():
            found = self._measures[name]()
            if found > limit:
                return WORDS[name].format(found, limit)
        return ""

    def _say(self, kind: str, reason: str, now: float) -> None:
        """Say why: at once when the kind of the reason changes. The rate is said on a terminal only, where bars are."""
        if kind == "rate" and not has_display():
            return
        if kind != self._said or now - self._said_at >= SAID_EVERY_S:
            self._said, self._said_at = kind, now
            waiting(reason)


def require_measurable(sessions: SourceSessions, names: Iterable[str]) -> None:
    """Raise the tool's error if one of these limits cannot be measured."""
    measures = _measures(sessions)
    for name in names:
        measures[name]()


def throttle_of(sessions: Sessions, *, refresh: Callable[[Sessions], None]) -> Throttle:
    """Return the throttle of a command that has both sides; ``refresh`` connects to the target again if it was lost."""
    settings = sessions.settings

    def read_control() -> Control:
        def once() -> Control:
            refresh(sessions)
            return control.read(sessions.target)

        return retry_transient(settings, once)

    return Throttle(settings, read_control, _measures(sessions))


def throttle_without_target(sessions: SourceSessions) -> Throttle:
    """Return the throttle of a command that has no target: the limits of the configuration hold."""
    return Throttle(sessions.settings, Control, _measures(sessions))


def _measures(sessions: SourceSessions) -> Measures:
    found = {"max_replication_lag": replication_lag, "max_source_load": source_load}
    return {name: partial(retry_transient, sessions.settings, partial(ask, sessions)) for name, ask in found.items()}
