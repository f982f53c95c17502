"""The write pause: how long it will be, how long it may be, and the alarm that ends it.

The limit reaches every call that the tool makes meanwhile: a lock or a server that is waited for, a comparison that
computes, worker processes, a hook. At the limit a signal interrupts the main thread as Ctrl-C does, which every part of
the tool already bears at any moment: the driver of PostgreSQL cancels the statement, and worker processes are ended.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import FrameType
from typing import Final

import msgspec

from migrator.connections.mongo import committed_time
from migrator.connections.postgres import Connection
from migrator.cutover import outbox, reverse_sync
from migrator.errors import MigratorError, RefusedError
from migrator.parity import recheck, recorded_check
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import positions

FENCE_S: Final = 0.3
STEPS_S: Final = 0.7
"""Seconds that the fence, and the steps that do not depend on the amount of data, take (measured on the small demo)."""
AGAIN_S: Final = 10.0
"""Seconds after which the alarm interrupts again what has not ended."""


MEASURED_DOCUMENTS: Final = 1_000
MEASURED_S: Final = 60.0
"""A parity check of fewer documents, in less time, does not say how fast documents are compared: its time is that of
processes and connections."""
ASSUMED_RATE: Final = 100.0
"""Documents that are compared in a second, unless a check has measured it; a smaller one may have been faster."""


class PauseExpired(KeyboardInterrupt):
    """The write pause has reached its limit. Like Ctrl-C it is no error: nothing that handles errors handles it."""


class WritePause:
    """Measures how long writers have been stopped, and interrupts what the tool does when that is too long."""

    def __init__(self, limit: timedelta) -> None:
        self._limit = limit.total_seconds()
        self._began: float | None = None
        self._armed = False
        self._ended = threading.Event()
        self._watch: threading.Thread | None = None

    @property
    def words(self) -> str:
        """Say that the limit is reached."""
        return f"the write pause would exceed its limit of {self._limit:g} s (cutover.max_pause)"

    def begin(self) -> None:
        """Start measuring: writers are stopped from now on."""
        self._began = time.monotonic()
        if self._armed:
            self._watch = threading.Thread(target=self._interrupt, name="write pause", daemon=True)
            self._watch.start()

    def end(self) -> None:
        """Interrupt nothing any more."""
        self._armed = False
        self._ended.set()

    def left(self) -> float:
        """Return the seconds that are left of the limit."""
        return self._limit - (0.0 if self._began is None else time.monotonic() - self._began)

    def check(self) -> None:
        """Raise ``RefusedError`` if the pause has lasted too long."""
        if self.left() < 0:
            raise RefusedError(self.words)

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """End the body at the limit, whatever it waits for, with ``RefusedError``; measured from `begin` on.

        Python interrupts the main thread alone. Called in another thread, nothing is interrupted, and `check` holds.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._raise)
        self._armed = True
        try:
            try:
                yield
            finally:
                self.end()
        except PauseExpired:
            raise RefusedError(self.words) from None
        finally:
            if self._watch is not None:
                self._watch.join()
            signal.signal(signal.SIGALRM, before)

    def _interrupt(self) -> None:
        seconds = max(0.0, self.left())
        while not self._ended.wait(seconds):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            seconds = AGAIN_S

    def _raise(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's signature
        if self._armed:
            raise PauseExpired(self.words)


class ExpectedPause(msgspec.Struct, frozen=True, kw_only=True):
    """How long a cutover would stop the writers."""

    seconds: float | None = None
    """None: no complete parity check is recorded, or no tail has run."""
    changed: int | None = None
    """Documents that changed since the last complete parity check; None: everything would be compared."""
    assumed: str = ""
    """Words for a rate that no check has measured; empty if it was measured, or is not used."""


def expected_pause(sessions: Sessions) -> ExpectedPause:
    """Return the expected write pause, from the last complete parity check and what changed since then."""
    last = recorded_check.last_check(sessions.target)
    tail_state = positions.tail_state(sessions.target, sessions.profile.name)
    if last is None or tail_state is None:
        return ExpectedPause()
    try:
        changed = recheck.changed_since(sessions, last.position, committed_time(sessions.source))
    except MigratorError:
        changed = None
    if changed is None:
        return ExpectedPause(seconds=FENCE_S + STEPS_S + last.seconds)
    count = sum(map(len, changed.values()))
    rate, measured = comparison_rate(last.documents, last.seconds)
    return ExpectedPause(
        seconds=round(FENCE_S + STEPS_S + count / rate, 2),
        changed=count,
        assumed=""
        if measured
        else f"at {rate:,.0f} documents a second, a rate that is assumed: the last check compared"
        f" {last.documents:,} alone",
    )


def expected_rollback_pause(compared_s: float) -> float:
    """Return for how many seconds a rollback stops PostgreSQL's writers.

    ``compared_s``: what the comparison that it makes meanwhile took just now, without a fence.
    """
    return round(FENCE_S + STEPS_S + compared_s, 2)


def expected_restore_pause(target: Connection, since: datetime, restored: int) -> tuple[float | None, int]:
    """Return for how many seconds a restore stops PostgreSQL's writers, and the rows written since the cutover.

    ``restored``: documents of the backup. None: no parity check was recorded, whose rate is the measure.
    """
    rows = reverse_sync.count_written(target, since) + outbox.backlog(target)[0]
    last = recorded_check.last_check(target)
    if last is None:
        return None, rows
    return round(FENCE_S + STEPS_S + (rows + restored) / comparison_rate(last.documents, last.seconds)[0], 2), rows


def comparison_rate(documents: int, seconds: float) -> tuple[float, bool]:
    """Return how many documents are compared in a second, and whether a check that took so long has measured it. Pure.

    The time of a check that is too small is more than that of its documents: ``ASSUMED_RATE`` is the least then.
    """
    measured = documents >= MEASURED_DOCUMENTS or seconds >= MEASURED_S
    rate = documents / seconds if seconds > 0 else ASSUMED_RATE
    return max(rate, 1.0 if measured else ASSUMED_RATE), measured
