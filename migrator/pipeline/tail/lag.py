"""How far the tail is behind, and whether its position moves at all."""

import time
from collections.abc import Callable

from bson.timestamp import Timestamp

from migrator.pipeline.tail.alarms import PositionFrozenError
from migrator.pipeline.tail.positions import Position, as_datetime

FROZEN_S = 60.0
"""A position that stands still for so long, while the source moves on by as much, is frozen: even an idle source writes
a note into its oplog every 10 s."""
WINDOW_S = 2.0


class Rate:
    """Events per second, lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._events = 0
        self.value = 0.0

    def add(self, events: int) -> None:
        """Count events."""
        self._events += events
        now = self._clock()
        if now - self._since >= WINDOW_S:
            self.value = self._events / (now - self._since)
            self._since, self._events = now, 0


class Watch:
    """Compares the position with the source's own clock."""

    def __init__(self, frozen_s: float = FROZEN_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._frozen_s = frozen_s
        self._clock = clock
        self._position: Position | None = None
        self._since = clock()
        self.seconds = 0
        """How far the position is behind the source, in seconds of the source's clock."""

    def observe(self, position: Position, committed: Timestamp) -> None:
        """Take note of where the tail and the source are; raise ``PositionFrozenError`` when only the source moves."""
        now = self._clock()
        if position != self._position:
            self._position, self._since = position, now
        self.seconds = max(0, committed.time - position.time.time)
        if now - self._since > self._frozen_s < self.seconds:
            raise PositionFrozenError(
                f"the source is at {as_datetime(committed):%Y-%m-%d %H:%M:%S} UTC, and the position has stood at"
                f" {as_datetime(position.time):%Y-%m-%d %H:%M:%S} UTC for {now - self._since:.0f} s"
            )
