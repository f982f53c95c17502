"""A process's connections to both sides, opened once and replaced when they break; retries of transient failures."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import ClassVar, TypeVar

import psycopg
from pymongo.errors import PyMongoError

from migrator.config import Settings
from migrator.connections import mongo, postgres, table_locks
from migrator.connections.mongo import MongoDatabase, committed, leave_monitors, open_source
from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import Connection, open_login, open_target, translate_errors
from migrator.connections.retries import retry
from migrator.connections.table_locks import holders_named
from migrator.errors import LockedError, MigratorError, RefusedError, UnreachableError
from migrator.pipeline import ledger
from migrator.pipeline.extract import MongoReader, SourceCollection, SourceReader
from migrator.pipeline.references import TargetResolver
from migrator.pipeline.tables import NOT_FOLLOWED, TableReader
from migrator.pipeline.target import target_tables
from migrator.schema.revisions import require_known
from migrator.sources import profile_of
from migrator.sources.profile import Profile

Result = TypeVar("Result")


def _reader(settings: Settings, profile: Profile) -> SourceReader:
    if settings.source.in_postgres:
        return TableReader(settings, profile)
    leave_monitors()
    return MongoReader(committed(open_source(settings)), settings.source.collections)


class SourceSessions:
    """The profile and the source."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.profile = profile_of(settings.source, settings.target)
        self.reader: SourceReader = _reader(settings, self.profile)

    @property
    def source(self) -> MongoDatabase:
        """Return the database of MongoDB; raise ``RefusedError`` if the source is tables of PostgreSQL."""
        if isinstance(self.reader, MongoReader):
            return self.reader.source
        raise RefusedError(NOT_FOLLOWED)

    @property
    def tables(self) -> TableReader | None:
        """Return the reader of tables, if the source is tables of PostgreSQL."""
        return self.reader if isinstance(self.reader, TableReader) else None

    def survey(self) -> tuple[list[SourceCollection], tuple[str, ...]]:
        """Return the profile's collections that exist, and the names of those that it does not know."""
        found, unknown = self.reader.survey(self.profile)
        decided = {self.settings.source.collections.get(name, name) for name in self.profile.left_out}
        return found, tuple(name for name in unknown if name not in decided)

    def name_of(self, collection: str) -> str:
        """Return the name of a collection of the profile in the source."""
        return self.reader.name_of(self.profile.by_name()[collection])

    def close(self) -> None:
        """Close what is open."""
        self.reader.close()


class Sessions(SourceSessions):
    """The profile, the source, the target, and what is known of the target's rows."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.target_tables = target_tables(settings)
        """What is special to the target."""
        try:
            self.open_target()
            with translate_errors("the target"), holders_named(self.target):
                self._require_ready()
        except BaseException:
            self.reader.close()
            if hasattr(self, "target"):
                self.target.close()
            raise

    def _require_ready(self) -> None:
        """Raise ``RefusedError`` if rows cannot be written or compared."""
        self.target_tables.require_ready(self.target)

    def open_target(self) -> None:
        """Connect to the target, and forget what was known of its rows."""
        self.target: Connection = open_target(self.settings, autocommit=True)
        self.quarantined = ledger.QuarantinedIds()
        self.forget()

    def forget(self) -> None:
        """Forget what was known of the target's rows."""
        self.resolver = TargetResolver(self.target)

    def close(self) -> None:
        """Close both connections."""
        super().close()
        self.target.close()


class JobSessions(Sessions):
    """Those of a job: who sent it has just asked whether the target is ready, but not in this version of the tool."""

    def _require_ready(self) -> None:
        require_known(self.target)


Kind = TypeVar("Kind", bound=SourceSessions)

_cached: dict[int, SourceSessions] = {}
"""The connections of each thread of this process that has any, by the thread's identifier."""


def run_with_sessions(
    settings: Settings, work: Callable[[Sessions], Result], kind: type[Sessions] = Sessions
) -> Result:
    """Run ``work`` with this thread's connections to both sides, as ``retry_transient`` does."""
    with translate_errors("the target"), translate_source_errors("the source"):
        return retry_transient(settings, lambda: _with_sessions(settings, kind, work))


def prepare_job(settings: Settings) -> None:
    """Connect this thread to both sides for its first job; what fails is for the job to tell."""
    with suppress(MigratorError, psycopg.Error, PyMongoError, OSError):
        _with_sessions(settings, JobSessions, lambda _: None)


def run_with_source(settings: Settings, work: Callable[[SourceSessions], Result]) -> Result:
    """Run ``work`` with this thread's connection to the source, as ``retry_transient`` does."""
    with translate_source_errors("the source"):
        return retry_transient(settings, lambda: _with_sessions(settings, SourceSessions, work))


def retry_transient(settings: Settings, work: Callable[[], Result]) -> Result:
    """Run ``work``; after a transient failure log why, wait, and repeat it, for ``copy.patience`` from the first one.

    ``work`` must be a whole transaction, and connect again by itself. The last failure is raised as it is.
    """

    def once() -> Result:
        with lock_holders_named(settings):
            result = work()
        _RetryBudget.exhausted = False
        return result

    return retry(once, _RetryBudget(settings.copy.patience.total_seconds()), reason_of)


def is_transient(error: BaseException | None) -> bool:
    """Whether another attempt may pass: of a driver's error, or of the tool's error that it caused."""
    if isinstance(error, psycopg.Error):
        return postgres.is_transient(error)
    if isinstance(error, PyMongoError):
        return mongo.is_transient(error)
    return (
        isinstance(error, UnreachableError)
        and isinstance(error.__cause__, psycopg.Error | PyMongoError)
        and is_transient(error.__cause__)
    )


def reason_of(error: Exception) -> str:
    """Return one of the drivers' errors, or of the tool's, as a sentence without credentials."""
    try:
        with translate_errors("the target"), translate_source_errors("the source"):
            raise error
    except MigratorError as translated:
        return str(translated)


@contextmanager
def lock_holders_named(settings: Settings) -> Iterator[None]:
    """Name the session that holds the lock for which this one waited; raises ``LockedError``."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        with open_login(settings) as connection:
            words = table_locks.describe_holders(connection)
        raise LockedError(words) from error


@contextmanager
def translate_server_errors(settings: Settings) -> Iterator[None]:
    """Raise the drivers' errors as the tool's: they name the side, and who holds a lock that was waited for in vain."""
    with translate_errors("the target"), translate_source_errors("the source"), lock_holders_named(settings):
        yield


@contextmanager
def open_sessions(settings: Settings) -> Iterator[Sessions]:
    """Open both sides, and close them at the end; the drivers' errors become those of ``translate_server_errors``."""
    with closing(Sessions(settings)) as sessions, translate_server_errors(settings):
        yield sessions


class _RetryBudget:
    """Decides whether to retry: after a transient failure, for so many seconds from the first one."""

    exhausted: ClassVar[bool] = False
    """This process has waited to the end of its patience: its next chunks do not wait as long again."""

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


def close_cached() -> None:
    """Close the connections of all threads of this process, if there are any."""
    while _cached:
        _cached.popitem()[1].close()


@contextmanager
def thread_executor() -> Iterator[Executor]:
    """Yield an executor that is one thread of this process; its connections end with the block.

    An interruption cancels jobs that wait, and the statements of threads: the executor waits for its own thread, which
    may wait for a lock.
    """
    try:
        with ThreadPoolExecutor(1, "chunks") as pool:
            try:
                yield pool
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                _cancel_statements()
                raise
    finally:
        close_cached()


def _with_sessions(settings: Settings, kind: type[Kind], work: Callable[[Kind], Result]) -> Result:
    """Run ``work`` with the connections of this thread alone: one that was left behind must not close another's."""
    thread = threading.get_ident()
    sessions = _cached.get(thread)
    if sessions is not None and (sessions.settings != settings or type(sessions) is not kind):
        _close_of(thread)
        sessions = None
    if sessions is None:
        sessions = _cached[thread] = kind(settings)
    assert isinstance(sessions, kind)  # noqa: S101 - made so just above
    try:
        return work(sessions)
    except psycopg.errors.UniqueViolation:
        raise
    except (psycopg.Error, PyMongoError, UnreachableError):
        _close_of(thread)
        raise


def _cancel_statements() -> None:
    for sessions in list(_cached.values()):
        if isinstance(sessions, Sessions):
            with suppress(psycopg.Error):
                sessions.target.cancel_safe()


def _close_of(thread: int) -> None:
    sessions = _cached.pop(thread, None)
    if sessions is not None:
        sessions.close()
