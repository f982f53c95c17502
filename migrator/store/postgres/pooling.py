"""Telling a pooler in transaction mode from a session of one's own.

Behind such a pooler two clients take the same advisory lock (they have the same session of the server, in which it may
be taken twice), and it stays when both are gone.
"""

from migrator.config import Settings
from migrator.errors import RefusedError
from migrator.store.postgres.lock_session import LockSession

ROUNDS = 5

REASON = (
    "postgres.dsn leads through a pooler in transaction mode: a lock belongs to a session of the server, and there each"
    " transaction may have another one, so two holders would not exclude each other; let postgres.dsn reach the server"
    " itself, or a pool in session mode"
)


def is_direct(session: LockSession) -> bool:
    """Tell whether nothing is between us and the server: a pooler announces a process of its own."""
    return session.announced == session.pid


def require_session(one: LockSession, other: LockSession) -> None:
    """Refuse sessions that are shared: raises ``RefusedError`` with the reason.

    Both are of the same pooler. While the other one has a transaction open, a session of one's own stays what it was;
    a shared one is either what the other is using, or somebody else's now.
    """
    for _ in range(ROUNDS):
        before = one.backend()
        with other.transaction():
            used = other.backend()
            after = one.backend()
        if before == used or before != after:
            raise RefusedError(REASON)


def found(settings: Settings) -> str:
    """Say what lies between us and the server; raises ``RefusedError`` for a pooler in transaction mode."""
    session = LockSession(settings)
    try:
        if is_direct(session):
            return "nothing lies between the tool and the server"
        other = LockSession(settings)
        try:
            require_session(session, other)
        finally:
            other.close()
    finally:
        session.close()
    return "a pool in session mode lies between the tool and the server"
