"""The connections of locks: one for each that is held or waited for, beside the pools, a few kept for the next."""

from threading import Lock

from migrator.config import Settings
from migrator.errors import UnreachableError
from migrator.store.postgres import pooling
from migrator.store.postgres.lock_session import LockSession

SPARE = 4
"""How many idle sessions are kept. They hold nothing."""


class LockSessions:
    """Hands out sessions, each to one at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._spare: list[LockSession] = []
        self._checked = False
        self._closed = False

    def take(self) -> LockSession:
        """Return a session that is nobody else's and holds nothing.

        Raises ``RefusedError`` behind a pooler in transaction mode, ``UnreachableError`` where none can be had.
        """
        while (session := self._pop()) is not None:
            if session.alive:
                return session
            session.close()
        session = LockSession(self._settings)
        try:
            if not self._checked:
                self._check(session)
            session.prepare()
        except BaseException:
            session.close()
            raise
        return session

    def give_back(self, session: LockSession) -> None:
        """Take a session back; one that is in doubt is closed."""
        try:
            if session.alive:
                session.free()
        except UnreachableError:
            session.close()
        with self._lock:
            if session.alive and len(self._spare) < SPARE and not self._closed:
                self._spare.append(session)
                return
        session.close()

    def close(self) -> None:
        """Close the idle sessions; others are closed when they are given back."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, []
        for session in spare:
            session.close()

    def _pop(self) -> LockSession | None:
        with self._lock:
            return self._spare.pop() if self._spare else None

    def _check(self, session: LockSession) -> None:
        """Before anything is set: behind a pooler in transaction mode it would be set for others."""
        if not pooling.is_direct(session):
            other = LockSession(self._settings)
            try:
                pooling.require_session(session, other)
            finally:
                other.close()
        self._checked = True
