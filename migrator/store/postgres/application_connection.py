"""Sessions within a transaction that an application has begun on a connection of its own.

Each session is a savepoint of that transaction. It acts in the service role and for one tenant, with the settings of
the store's own connections, and puts back what the application had set; an error undoes only what the session did. So
it can see and do what a session of the pool can, and the application's next statement runs as if there had been none.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from threading import Lock
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from migrator.connections.postgres import PINNED, translate_errors
from migrator.connections.table_locks import holders_named
from migrator.errors import UnreachableError, UsageError
from migrator.store import validation
from migrator.store.postgres.connections import SessionConnection, SessionPool, overtaken
from migrator.store.postgres.rows import register_json_loaders

WHAT = "the application's connection"

_SET = ("role", "app.tenant_id", "lock_timeout", *PINNED)
"""What ``SessionPool.enter`` sets until the end of the transaction, which is the application's."""
_ASK = "SELECT " + ", ".join(f"coalesce(current_setting('{name}', true), '')" for name in _SET)
_PUT_BACK = "SELECT " + ", ".join(f"set_config('{name}', %s, true)" for name in _SET)


class ApplicationConnection(SessionConnection):
    """The store's own view of an application's connection: the same session of the server, other converters of values.

    It prepares no statement, because the application's connection numbers those of the session.
    """

    @classmethod
    def of(cls, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> "ApplicationConnection":
        """Return the view of a connection, whose own handlers of notices stay."""
        pgconn = connection.pgconn
        notice, notify = pgconn.notice_handler, pgconn.notify_handler
        made = cls(pgconn)
        pgconn.notice_handler, pgconn.notify_handler = notice, notify
        made.prepare_threshold = None
        register_json_loaders(made)
        return made

    def __del__(self, *_: object) -> None:
        """Do nothing: the application closes its connection."""

    def commit(self) -> None:
        """Keep what the session did, if the application commits."""
        self.execute("RELEASE SAVEPOINT migrator_session")

    def rollback(self) -> None:
        """Undo what the session did, and no more."""
        self.execute("ROLLBACK TO SAVEPOINT migrator_session")


class ApplicationTransactions:
    """The transactions that an application begins on one connection, as ``SessionPool`` offers its own."""

    def __init__(self, pool: SessionPool, connection: object) -> None:
        """Take a connection of psycopg 3, synchronous or asynchronous; ``UsageError`` for anything else."""
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise UsageError(f"connection must be a connection of psycopg 3, not {kind}")
        if connection.closed:
            raise UnreachableError(f"{WHAT} is closed")
        self._pool, self._connection = pool, connection
        self._own = ApplicationConnection.of(connection)
        self._one = Lock()

    @contextmanager
    def transaction(
        self, *, tenant: str, now: datetime | None = None
    ) -> Iterator[tuple[psycopg.Connection[tuple[Any, ...]], datetime]]:
        """Open a savepoint for a tenant in the service role; raises as ``SessionPool.transaction`` does.

        A connection that is not in autocommit begins its transaction now, if it has none, as any statement of the
        application would.
        """
        validation.check_tenant(tenant)
        own, theirs, named = self._own, self._connection, validation.checked_time(now)
        # A thread that executes a statement of the application meanwhile waits, as on any connection of psycopg.
        waiting = theirs.lock if isinstance(theirs, psycopg.Connection) else nullcontext()
        with self._one, waiting, translate_errors(WHAT):
            self._require_transaction()
            own.execute("SAVEPOINT migrator_session")
            try:
                with holders_named(own), overtaken():
                    before = own.execute(_ASK).fetchone()
                    clock = self._pool.enter(own, tenant)
                    yield own, named or clock
                    own.execute(_PUT_BACK, before)
            except BaseException:
                with suppress(psycopg.Error):  # it broke: nothing of the transaction is left
                    own.rollback()
                    own.commit()
                raise
            own.commit()

    def _require_transaction(self) -> None:
        """Raise ``UsageError`` unless the application's transaction can take part, or begins with this statement."""
        own, theirs = self._own, self._connection
        if own.pgconn.pipeline_status != PipelineStatus.OFF:
            raise UsageError(f"{WHAT} is in pipeline mode: call it outside of the pipeline")
        match own.pgconn.transaction_status:
            case TransactionStatus.INERROR:
                raise UsageError(f"the transaction of {WHAT} has failed: roll it back first")
            case TransactionStatus.IDLE if theirs.autocommit:
                raise UsageError(f"{WHAT} is in autocommit and has begun no transaction: begin one first")
            case TransactionStatus.IDLE:
                own.isolation_level, own.read_only = theirs.isolation_level, theirs.read_only
                own.deferrable = theirs.deferrable
            case _:
                pass
