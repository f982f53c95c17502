"""A process's connections to both sides: opened once, replaced when they break; and retries of transient failures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

import psycopg
import stamina
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from migrator.config import Settings
from migrator.connections.mongo import MongoDatabase, committed, open_source
from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import Connection, open_login, open_target, translate_errors
from migrator.errors import LockedError, MigratorError, UnreachableError
from migrator.pipeline.references import TargetResolver
from migrator.schema import table_locks
from migrator.sources import profile_of
from migrator.telemetry import waiting

Result = TypeVar("Result")

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0
TRANSIENT_SQLSTATES = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03")
"""Connection lost, serialization, deadlock, too many connections, a lock that somebody else holds, shut down, starting
up: another try may pass."""
TRANSIENT_CODES = (43, 175, 237)
"""MongoDB's cursor not found, query plan killed, cursor killed: a new cursor may pass."""

TRANSIENT_LABELS = ("RetryableWriteError", "TransientTransactionError")


class SourceSessions:
    """The profile and the source."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.profile = profile_of(settings.source)
        self.source: MongoDatabase = committed(open_source(settings))

    def name_of(self, collection: str) -> str:
        """Return what the source calls a collection of the profile."""
        return self.settings.source.collections.get(collection, collection)

    def close(self) -> None:
        """Close what is open."""
        self.source.client.close()


class Sessions(SourceSessions):
    """The profile, the source, the target, and what is known of the target's rows."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        try:
            self.open_target()
        except BaseException:
            self.source.client.close()
            raise

    def open_target(self) -> None:
        """Connect to the target, and forget what was known of its rows."""
        self.target: Connection = open_target(self.settings, autocommit=True)
        self.forget()

    def forget(self) -> None:
        """Forget what was known of the target's rows."""
        self.resolver = TargetResolver(self.target)

    def close(self) -> None:
        """Close both connections."""
        super().close()
        self.target.close()


Kind = TypeVar("Kind", bound=SourceSessions)

_cached: list[SourceSessions] = []
"""This process's connections: one set, or none."""


def run_with_sessions(settings: Settings, work: Callable[[Sessions], Result]) -> Result:
    """Run ``work`` with this process's connections to both sides, as ``waited_out`` says."""
    with translate_errors("the target"), translate_source_errors("the source"):
        return retry_transient(settings, lambda: _with_sessions(settings, Sessions, work))


def run_with_source(settings: Settings, work: Callable[[SourceSessions], Result]) -> Result:
    """Run ``work`` with this process's connection to the source, as ``waited_out`` says."""
    with translate_source_errors("the source"):
        return retry_transient(settings, lambda: _with_sessions(settings, SourceSessions, work))


def retry_transient(settings: Settings, work: Callable[[], Result]) -> Result:
    """Run ``work``; on a transient failure say why, wait, and run it again, for ``copy.patience_s`` from the first one.

    ``work`` must be a whole transaction, and connect anew by itself. The last failure is raised as it is.
    """
    stamina.instrumentation.set_on_retry_hooks([_report_retry])
    for attempt in stamina.retry_context(
        on=_RetryBudget(settings.copy.patience_s),
        attempts=None,
        timeout=None,
        wait_initial=FIRST_WAIT_S,
        wait_max=LONGEST_WAIT_S,
    ):
        with attempt:
            with lock_holders_named(settings):
                result = work()
            _RetryBudget.exhausted = False
            return result
    raise AssertionError("retry_context ends with a result or an error")


@contextmanager
def lock_holders_named(settings: Settings) -> Iterator[None]:
    """Say who holds the lock that was waited for in vain; raises ``LockedError``."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        with open_login(settings) as connection:
            words = table_locks.describe_holders(connection)
        raise LockedError(words) from error


class _RetryBudget:
    """Tells whether to try again: after a transient failure, for so many seconds from the first one."""

    exhausted: ClassVar[bool] = False
    """This process has waited in vain: its next chunks do not wait as long again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def __call__(self, error: Exception) -> bool:
        if not is_transient(error):
            return False
        now = time.monotonic()
        if self._until is None:
            self._until = now if _RetryBudget.exhausted else now + self._seconds
        _RetryBudget.exhausted = now >= self._until
        return not _RetryBudget.exhausted


def _report_retry(details: stamina.instrumentation.RetryDetails) -> None:
    """Say why nothing moves; in place of stamina's own line, which would go to standard output."""
    waiting(f"{reason_of(details.caused_by)}; trying again in {details.wait_for:.1f} s")


def reason_of(error: Exception) -> str:
    """Return one of the drivers' errors, or of the tool's, as a sentence without credentials."""
    try:
        with translate_errors("the target"), translate_source_errors("the source"):
            raise error
    except MigratorError as translated:
        return str(translated)


def is_transient(error: Exception) -> bool:
    """Tell whether another attempt may pass."""
    if isinstance(error, psycopg.Error):
        state = error.sqlstate
        if state is None:
            return isinstance(error, psycopg.OperationalError)
        return state.startswith(TRANSIENT_SQLSTATES)
    if isinstance(error, OperationFailure) and error.code in TRANSIENT_CODES:
        return True
    if isinstance(error, PyMongoError):
        return isinstance(error, AutoReconnect) or any(map(error.has_error_label, TRANSIENT_LABELS))
    return isinstance(error, UnreachableError) and is_transient_cause(error.__cause__)


def is_transient_cause(cause: BaseException | None) -> bool:
    """Tell the same of the driver's error that caused one of the tool's."""
    return isinstance(cause, psycopg.Error | PyMongoError) and is_transient(cause)


def close_cached() -> None:
    """Close this process's connections, if there are any."""
    while _cached:
        _cached.pop().close()


def _with_sessions(settings: Settings, kind: type[Kind], work: Callable[[Kind], Result]) -> Result:
    if _cached and (_cached[0].settings != settings or type(_cached[0]) is not kind):
        close_cached()
    if not _cached:
        _cached.append(kind(settings))
    sessions = _cached[0]
    assert isinstance(sessions, kind)  # noqa: S101 - made so just above
    try:
        return work(sessions)
    except psycopg.errors.UniqueViolation:
        raise
    except (psycopg.Error, PyMongoError):
        close_cached()
        raise
