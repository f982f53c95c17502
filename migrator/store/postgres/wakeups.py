"""Wake-ups in PostgreSQL: NOTIFY in the transaction that queues work, LISTEN on a session of its own.

The server sends a notification when its transaction commits, and none after a rollback, also if the transaction is an
application's own. Equal notifications of one transaction are one.
"""

import select
import socket
from collections.abc import Callable
from threading import Event
from typing import Any, Final
from uuid import UUID

import psycopg

from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import Connection, connect_arguments, not_a_dsn, translate_errors
from migrator.errors import RefusedError
from migrator.store.postgres.connections import KEEPALIVES, DispatcherPool, LockSession, backend_pid, is_pooled
from migrator.store.wakeups import ListenerThread, Subscription

CHANNEL: Final = "migrator_work"
NOTIFY: Final = f"SELECT pg_notify('{CHANNEL}', '')"
WHAT: Final = "the connection for wake-ups"
POOLED: Final = "postgres.dsn leads through a pooler in transaction mode, which gives each transaction another session"


class Written:
    """What a session wrote that is looked at when it ends."""

    def __init__(self) -> None:
        self.stated: set[UUID] = set()
        """Schedules whose definition or rule it has written."""
        self.work = False
        """Whether a process has something to do now."""

    def notify(self, connection: Connection) -> None:
        """Wake the processes when the transaction commits, if there is work."""
        if self.work:
            connection.execute(NOTIFY)


class PostgresWakeups:
    """``wakeups.Wakeups``."""

    def __init__(self, settings: Settings, pool: DispatcherPool) -> None:
        self._settings, self._pool = settings, pool

    def subscribe(self, ring: Callable[[], None], report: Callable[[str], None]) -> Subscription:
        ours, theirs = socket.socketpair()

        def receive(began: Callable[[], None], stopped: Event) -> None:
            with translate_errors(WHAT), listening(self._settings) as connection:
                began()
                while not stopped.is_set():
                    ready, _, _ = select.select([connection.fileno(), theirs.fileno()], [], [])
                    if connection.fileno() in ready:
                        for _ in connection.notifies(timeout=0):
                            ring()

        return ListenerThread(receive, ring, report, ours.close, theirs.close)

    def wake(self) -> None:
        self._pool.rows(NOTIFY, ())


def listening(settings: Settings) -> psycopg.Connection[Any]:
    """Return a connection that receives the notifications; raises the driver's errors.

    Raises ``RefusedError`` behind a pooler in transaction mode: nothing may have been set on the session before.
    """
    try:
        connection = psycopg.connect(
            postgres_dsn(settings),
            autocommit=True,
            **connect_arguments(settings.postgres.timeout, "migrator wake-ups"),
            **KEEPALIVES,
        )
    except psycopg.ProgrammingError as error:
        raise not_a_dsn(error) from None
    try:
        if backend_pid(connection) != connection.info.backend_pid:
            _require_session(settings)
        connection.execute(f"LISTEN {CHANNEL}")
    except BaseException:
        connection.close()
        raise
    return connection


def _require_session(settings: Settings) -> None:
    """Raise ``RefusedError`` unless the pooler gives a session to one client until it leaves."""
    session = LockSession(settings)
    try:
        is_pooled(session, settings)
    except RefusedError:
        raise RefusedError(POOLED) from None
    finally:
        session.close()
