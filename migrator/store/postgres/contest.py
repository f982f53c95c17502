"""How a lock is won: in turn, by an advisory lock that waits; decided by the row."""

from datetime import datetime, timedelta
from threading import Event
from time import monotonic
from typing import NamedTuple

from migrator.store.locking import Patience
from migrator.store.postgres.lock_rows import LockRow, State
from migrator.store.postgres.lock_session import LockSession

STEP = 1.0
"""Seconds for which one who is between two steps of acquiring or giving back is waited for."""

POLL = 0.05
"""Seconds between two looks at a lock that goes by its row alone, since nothing wakes who waits for it."""

TRIES = 10
"""How often a single try looks again when what it met was gone a moment later."""


class Won(NamedTuple):
    """The outcome for the winner."""

    fence: int
    since: float
    """Local time at which the winning attempt began."""
    by_session: bool
    """Whether the session has the advisory lock; else the lock goes by its row alone."""


class Contest:
    """One who wants a lock. The session holds nothing afterwards, unless it won by it."""

    def __init__(
        self, row: LockRow, session: LockSession, patience: Patience, *, ttl: timedelta, now: datetime | None
    ) -> None:
        self._row, self._session, self._patience, self._ttl, self._now = row, session, patience, ttl, now
        self._since = monotonic()
        self._unclear = 0.0
        """Seconds spent waiting for somebody who is between two steps."""

    def run(self) -> Won | None:
        """Return the fence, or none when patience is at its end."""
        tries = 0
        while True:
            self._since = monotonic()
            if self._session.attempt(self._row.lock_id):
                won = self._decide()
                if won is not None:
                    return won
                pause = POLL  # its holder goes by the row, or a guarded session keeps it
            else:
                outcome = self._meet()
                if isinstance(outcome, Won):
                    return outcome
                pause = outcome
            tries += 1
            if self._patience.over() and (pause > 0 or tries >= TRIES):
                return None
            if pause > 0:
                won = self._wait(pause)
                if won is not None:
                    return won

    def _decide(self) -> Won | None:
        """Take the row with the advisory lock in hand; give that back where the row is another's."""
        fence = self._row.take(self._session.rows, self._now, self._ttl, self._session.pid)
        if fence is not None:
            return Won(fence, self._since, by_session=True)
        self._session.unlock(self._row.lock_id)
        return None

    def _meet(self) -> Won | float:
        """Look who has the advisory lock; return the outcome, or how long to wait (0: look again at once)."""
        state = self._row.read(self._session.rows, self._now)
        if state is not None and state.live:
            self._unclear = 0.0
            longest = POLL if state.session == 0 else float("inf")
            return min(longest, state.left if state.left is not None and self._now is None else longest)
        if state is None or not state.held:
            alone = (state is not None and state.session == 0) or self._unclear >= STEP
            return (self._alone() if alone else None) or STEP
        return self._overdue(state)

    def _overdue(self, state: State) -> Won | float:
        """End the session of a holder that is over, and yet keeps others waiting (stopped, or cut off)."""
        has = self._session.holder(self._row.lock_id)
        if has is None:
            return 0
        if has == state.session and self._session.terminate(has):
            return 0
        if has == state.session or not state.session or self._unclear >= STEP:
            return self._alone() or POLL
        return STEP

    def _alone(self) -> Won | None:
        fence = self._row.take(self._session.rows, self._now, self._ttl, None)
        return None if fence is None else Won(fence, self._since, by_session=False)

    def _wait(self, longest: float) -> Won | None:
        """Wait in turn, for so long or until patience ends; return the outcome where that was our turn."""
        left = self._patience.left()
        seconds = longest if left is None else min(longest, left)
        began = monotonic()
        had = self._session.wait(self._row.lock_id, None if seconds == float("inf") else max(seconds, 0.001))
        if not had:
            self._unclear += monotonic() - began if longest == STEP else 0.0
            return None
        self._since = monotonic()
        won = self._decide()
        if won is None:
            Event().wait(min(POLL, self._patience.left() or POLL))
        return won
