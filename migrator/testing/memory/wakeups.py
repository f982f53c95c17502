"""Wake-ups in the model: each session that is committed is looked at, in the thread that committed it."""

from collections.abc import Callable
from datetime import datetime

from migrator.records import Run, Schedule, Trigger
from migrator.store.wakeups import Subscription, is_due, is_let_go, is_ready
from migrator.testing.memory.table import Tables


class MemorySubscription:
    """``wakeups.Subscription``."""

    def __init__(self, rings: list[Callable[[], None]], ring: Callable[[], None]) -> None:
        self._rings, self._ring = rings, ring
        rings.append(ring)

    def close(self) -> None:
        if self._ring in self._rings:
            self._rings.remove(self._ring)


class MemoryWakeups:
    """``wakeups.Wakeups``."""

    def __init__(self) -> None:
        self._rings: list[Callable[[], None]] = []

    def subscribe(self, ring: Callable[[], None], report: Callable[[str], None]) -> Subscription:  # noqa: ARG002 - of the protocol
        ring()
        return MemorySubscription(self._rings, ring)

    def wake(self) -> None:
        for ring in list(self._rings):
            ring()

    def committed(self, before: Tables, after: Tables, now: datetime) -> None:
        """Wake the processes if a session that wrote these tables wrote work."""
        if self._rings and has_work(before, after, now):
            self.wake()


def has_work(before: Tables, after: Tables, now: datetime) -> bool:
    """Whether rows that a session wrote are work that can be done now."""

    def written(record: type[Run | Trigger | Schedule]) -> list[tuple[object, object]]:
        known = before[record]
        return [(known.get(key), row) for key, row in after[record].items() if known.get(key) is not row]

    return (
        any(isinstance(row, Run) and is_ready(row, now) for _, row in written(Run))
        or any(isinstance(row, Trigger) and is_due(row, now) for _, row in written(Trigger))
        or any(
            isinstance(old, Schedule) and isinstance(row, Schedule) and is_let_go(old, row)
            for old, row in written(Schedule)
        )
    )
