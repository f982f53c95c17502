"""How far the clocks of the source, the target and this machine are apart.

Leases, due times and ages are judged by the clock of the server that is asked: two that differ would fire a trigger
early, or a second time, when the data moves from one to the other.
"""

import time
from collections.abc import Callable
from datetime import UTC

import msgspec

from migrator.connections.mongo import MongoDatabase
from migrator.connections.postgres import Connection
from migrator.cutover.journal import database_time


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that each server is ahead of this machine; negative: behind it; None: it was not asked."""

    source: float | None = None
    target: float | None = None

    @property
    def apart(self) -> float:
        """How far the clocks are apart, in seconds."""
        found = (0.0, self.source or 0.0, self.target or 0.0)
        return max(found) - min(found)

    @property
    def words(self) -> str:
        """Say of each server how it stands."""
        asked = {"the source": self.source, "the target": self.target}
        sides = {side: by for side, by in asked.items() if by is not None}
        off = [
            f"{side} is {abs(by):,.1f} s {'ahead of' if by > 0 else 'behind'} this machine"
            for side, by in sides.items()
            if round(abs(by), 1)
        ]
        return ", ".join(off) or f"{', '.join(sides)} and this machine show the same time"


def ahead(server: float, began: float, ended: float) -> float:
    """Return how far a clock is ahead that was asked between two moments of this machine's. Pure."""
    return max(0.0, server - ended) + min(0.0, server - began)


def compared(source: MongoDatabase | None, target: Connection | None, clock: Callable[[], float] = time.time) -> Ahead:
    """Ask both servers; ``clock`` is this machine's, in seconds."""
    return Ahead(
        source=None if source is None else _asked(lambda: _source(source), clock),
        target=None if target is None else _asked(lambda: _target(target), clock),
    )


def _asked(ask: Callable[[], float], clock: Callable[[], float]) -> float:
    began = clock()
    found = ask()
    return ahead(found, began, clock())


def _source(source: MongoDatabase) -> float:
    at: float = source.client.admin.command("hello")["localTime"].replace(tzinfo=UTC).timestamp()
    return at


def _target(target: Connection) -> float:
    return database_time(target).timestamp()
