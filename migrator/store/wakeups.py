"""Wake-ups: how a process that waits for its next poll learns that work has come.

Nothing rests on them. The poll finds all work, so a wake-up that is lost costs at most one poll interval.
"""

from collections.abc import Callable
from datetime import datetime
from threading import Event, Thread
from typing import Final, Protocol

from migrator.errors import MigratorError, RefusedError
from migrator.records import Run, Schedule, Trigger


class Subscription(Protocol):
    """Wake-ups that a process receives."""

    def close(self) -> None:
        """End them; a second call does nothing."""


class Wakeups(Protocol):
    """Wake-ups across tenants.

    A session that is committed wakes the processes if it wrote a run that may be claimed now, a trigger that is due, or
    a schedule that is no longer paused or disabled. Work that is planned for later wakes nobody.
    """

    def subscribe(self, ring: Callable[[], None], report: Callable[[str], None]) -> Subscription:
        """Call ``ring``, from any thread, each time work may have come, and once when this begins to be noticed.

        Raises nothing: if the backend cannot wake a process, ``report`` is called with the reason, and the poll finds
        the work.
        """

    def wake(self) -> None:
        """Wake the processes for runs that were queued by the queue, not by a session. May raise what a call raises."""


def is_ready(run: Run, now: datetime) -> bool:
    """Whether a run may be claimed now, as far as the run itself says."""
    return run.state == "queued" and (run.available_at is None or run.available_at <= now)


def is_due(trigger: Trigger, now: datetime) -> bool:
    """Whether a trigger fires now, as far as the trigger itself says."""
    return trigger.enabled and trigger.next_fire_at is not None and trigger.next_fire_at <= now


def is_let_go(before: Schedule, after: Schedule) -> bool:
    """Whether a schedule was paused or disabled, and is neither any more: runs of it may have waited."""
    held = not before.enabled or before.status == "paused"
    return held and after.enabled and after.status != "paused"


RETRY_S: Final = 5.0
"""Seconds until a subscription that broke is begun again."""


class ListenerThread:
    """A subscription that a thread receives (``Subscription``).

    ``receive`` is given ``ring`` and the event that tells it to return. If it raises ``RefusedError``, the backend
    cannot wake this process, and the thread ends. After any other error it is called again.
    """

    def __init__(
        self,
        receive: Callable[[Callable[[], None], Event], None],
        ring: Callable[[], None],
        report: Callable[[str], None],
        interrupt: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """``interrupt`` makes ``receive`` look at the event; the thread calls ``ended`` last."""
        self._receive, self._ring, self._report = receive, ring, report
        self._interrupt, self._ended = interrupt, ended
        self._stopped = Event()
        self._reason: str | None = None
        self._thread = Thread(target=self._run, name="migrator wake-ups", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the subscription."""
        self._stopped.set()
        self._interrupt()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._repeat()
        finally:
            self._ended()

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            try:
                self._receive(self._begun, self._stopped)
            except RefusedError as error:
                self._say(str(error))
                return
            except MigratorError as error:
                if not self._stopped.is_set():
                    self._say(str(error))
            self._stopped.wait(RETRY_S)

    def _begun(self) -> None:
        self._reason = None
        self._ring()

    def _say(self, reason: str) -> None:
        """Say once why this process is not woken."""
        if reason != self._reason:
            self._report(reason)
        self._reason = reason
