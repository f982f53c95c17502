"""Keeping both sides equal: the tail before a cutover, the reverse sync after it. ``migrator tail`` runs this."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import target_connection
from migrator.cutover import outbox, reverse_sync
from migrator.cutover.epoch import is_in_target
from migrator.cutover.journal import REVERSE_STOPPED, Journal, latest
from migrator.cutover.reverse_encoding import ReverseSyncError
from migrator.cutover.reverse_sync import ReverseSyncResult
from migrator.errors import BackendMovedError, LostLockError, RefusedError
from migrator.interruption import counted
from migrator.parity.repair import apply_repair
from migrator.pipeline.plan import Scope
from migrator.pipeline.tail.backlog import PendingChanges, pending_changes
from migrator.pipeline.tail.loop import Tail, TailResult, Until
from migrator.pipeline.tail.positions import AlarmError
from migrator.schema.decisions import Approval
from migrator.telemetry import say, waiting

POLL_S = 1.0


def follow(settings: Settings, *, until: Until, metrics_file: Path | None) -> TailResult | ReverseSyncResult | None:
    """Replicate in the direction of the persistence epoch: from MongoDB before a cutover, to MongoDB after it.

    Returns None when the cutover is finished: then there is nothing to replicate in either direction. Raises what
    ``Tail.run`` and ``reverse_sync.run`` raise, also at a second alarm of one call.
    """
    say_wait = _changed(waiting)
    with _stop_event() as stop:
        while True:
            try:
                return _tail(settings, until, metrics_file, stop)
            except BackendMovedError:
                say("tail: the data is in PostgreSQL since the cutover: reverse sync to MongoDB")
            try:
                _record_stop(settings, "")
                return reverse_sync.run(settings, noted_by_now=until is not None, stop=stop)
            # when a cutover is finished or rolled back, its session and its collection in the source are removed
            except (LostLockError, RefusedError) as refusal:
                if is_in_target(settings):
                    if _is_finished(settings):
                        return None
                    if isinstance(refusal, LostLockError) or until is not None or not reverse_sync.is_open(settings):
                        raise
                    say_wait(str(refusal))
                    stop.wait(POLL_S)  # another process, such as a rollback, carries the rows
                    continue
                say("tail: the cutover was rolled back: following the source again")
            except ReverseSyncError as error:
                _record_stop(settings, str(error))
                raise


def _changed(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that tells a text unless it is the one that it told last."""
    told = ""

    def once(text: str) -> None:
        nonlocal told
        if text != told:
            told = text
            tell(text)

    return once


class PendingWriteBack(msgspec.Struct, frozen=True, kw_only=True):
    """What the reverse sync would write to MongoDB."""

    rows: int
    """Changed rows whose documents would be written."""
    oldest_s: float


def pending(settings: Settings) -> PendingChanges | PendingWriteBack | None:
    """Return the changes that ``follow`` would write now, and write nothing; None when the cutover is finished.

    Raises as ``pending_changes`` does.
    """
    try:
        return pending_changes(settings)
    except BackendMovedError:
        if _is_finished(settings):
            return None
    with target_connection(settings) as target:
        rows, oldest_s = outbox.backlog(target)
    return PendingWriteBack(rows=rows, oldest_s=oldest_s)


def _is_finished(settings: Settings) -> bool:
    """Return whether the last cutover was finished, so that there is nothing to replicate."""
    with target_connection(settings) as target:
        found = latest(target)
    return found is not None and found.state == "finished"


def _record_stop(settings: Settings, why: str) -> None:
    """Record for ``cutover status`` why the reverse sync stopped; empty: it continues."""
    with target_connection(settings) as target:
        found = latest(target)
        if found is not None and found.detail.get(REVERSE_STOPPED, "") != why:
            Journal(target, found).note(**{REVERSE_STOPPED: why})


def _tail(settings: Settings, until: Until, metrics_file: Path | None, stop: threading.Event) -> TailResult:
    """Run the tail; answer an alarm once, by a parity check with repair, from a position taken before it."""
    with Tail(settings, metrics_file=metrics_file, can_be_paused=True) as tail:
        try:
            return tail.run(until, stop)
        except AlarmError as alarm:
            say(f"ALARM: {alarm}; a parity check now compares and repairs everything", level="warning")
            repaired = apply_repair(settings, Scope(), Approval("migrator tail", str(alarm)))
            documents = sum(len(ids) for ids in repaired.documents.values())
            say(f"tail: repaired {documents:,} documents, and continues from the position taken before")
            return tail.run(until, stop)


@contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set. The running transaction ends; a second signal interrupts it."""
    stop = threading.Event()

    @counted
    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        if stop.is_set():
            raise KeyboardInterrupt
        say("tail: ending at the next commit")
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
