"""A worker's connections: opened once per process, thrown away when they break, and the waiting in between."""

from collections.abc import Callable
from typing import TypeVar

import psycopg
import stamina
from pymongo.errors import AutoReconnect, PyMongoError

from migrator.config import Settings
from migrator.errors import UnreachableError
from migrator.pipeline.references import Resolver
from migrator.sources import load_profile
from migrator.store.mongo.client import Source, open_source
from migrator.store.mongo.client import speaking_of as speaking_of_source
from migrator.store.postgres.connection import Connection, open_target, translate
from migrator.telemetry import logger

Result = TypeVar("Result")

ATTEMPTS = 6
LONGEST_WAIT_S = 10.0
TRANSIENT_SQLSTATES = ("08", "40001", "40P01", "53300", "57P01", "57P02", "57P03")
"""Connection lost, serialization, deadlock, too many connections, shut down, starting up: another try may pass."""


class SourceSessions:
    """The profile and the source."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.profile = load_profile(settings.source.profile)
        self.source: Source = open_source(settings)

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
        self.target: Connection = open_target(settings, autocommit=True)
        self.resolver = Resolver(self.target)

    def close(self) -> None:
        """Close both connections."""
        super().close()
        self.target.close()


Kind = TypeVar("Kind", bound=SourceSessions)

_kept: list[SourceSessions] = []
"""This process's connections: one set, or none."""


def retrying(settings: Settings, work: Callable[[Sessions], Result]) -> Result:
    """Run ``work`` with this process's connections to both sides, as ``_retrying`` says."""
    return _retrying(settings, Sessions, work)


def retrying_source(settings: Settings, work: Callable[[SourceSessions], Result]) -> Result:
    """Run ``work`` with this process's connection to the source, as ``_retrying`` says."""
    return _retrying(settings, SourceSessions, work)


def _retrying(settings: Settings, kind: type[Kind], work: Callable[[Kind], Result]) -> Result:
    """Run ``work`` with this process's connections; on a transient failure, wait, connect anew and run it again.

    ``work`` must be a whole transaction. Raises ``UnreachableError`` when the attempts are used up or another attempt
    cannot help.
    """
    try:
        for attempt in stamina.retry_context(
            on=is_transient, attempts=ATTEMPTS, timeout=None, wait_initial=0.2, wait_max=LONGEST_WAIT_S
        ):
            with attempt:
                if attempt.num > 1:
                    logger().warning("chunk.retried", attempt=attempt.num)
                return _with_sessions(settings, kind, work)
    except psycopg.errors.UniqueViolation:
        raise
    except psycopg.Error as error:
        raise translate("the target", error) from error
    except PyMongoError:
        with speaking_of_source("the source"):
            raise
    raise AssertionError("retry_context ends with a result or an error")


def is_transient(error: Exception) -> bool:
    """Tell whether another attempt may pass (style, retry: a written list, nothing else)."""
    if isinstance(error, psycopg.Error):
        state = error.sqlstate
        if state is None:
            return isinstance(error, psycopg.OperationalError)
        return state.startswith(TRANSIENT_SQLSTATES)
    if isinstance(error, PyMongoError):
        return isinstance(error, AutoReconnect) or error.has_error_label("RetryableWriteError")
    return isinstance(error, UnreachableError) and is_transient_cause(error.__cause__)


def is_transient_cause(cause: BaseException | None) -> bool:
    """Tell the same of the driver's error behind one of the tool's."""
    return isinstance(cause, psycopg.Error | PyMongoError) and is_transient(cause)


def _with_sessions(settings: Settings, kind: type[Kind], work: Callable[[Kind], Result]) -> Result:
    if _kept and (_kept[0].settings != settings or type(_kept[0]) is not kind):
        _kept.pop().close()
    if not _kept:
        _kept.append(kind(settings))
    sessions = _kept[0]
    assert isinstance(sessions, kind)  # noqa: S101 - made so just above
    try:
        return work(sessions)
    except psycopg.errors.UniqueViolation:
        raise
    except (psycopg.Error, PyMongoError):
        _kept.pop().close()
        raise
