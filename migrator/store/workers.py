"""Worker and scheduler processes: which are registered, alive, dead.

Each call is a transaction of its own. ``now`` is for tests; if omitted, it is the database's clock.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from migrator.records import WorkerRecord


class Workers(Protocol):
    """Worker and scheduler processes, in the tenant ``*``, by the database's clock."""

    def register(self, worker: WorkerRecord, now: datetime | None = None) -> WorkerRecord:
        """Insert, or update the one with this id: active, heartbeat now (never backwards).

        ``registered_at`` is that of the first time, or now if it is not given. Raises ``UsageError`` for a tenant other
        than ``*``.
        """

    def heartbeat(self, worker_id: UUID, now: datetime | None = None) -> bool:
        """Record a heartbeat, never backwards; false if the process is dead or stopped, and must stop working.

        False also for a process that is not registered.
        """

    def stop(self, worker_id: UUID, now: datetime | None = None) -> bool:
        """Mark stopped; false when it is dead, stopped or unknown."""

    def list(self) -> Sequence[WorkerRecord]:
        """Return all, by registration time, then id."""

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        """Mark processes dead that were silent for longer; each is returned to one caller only.

        The leases of the runs that it holds (``worker_id`` is the id's text) end now, in the same transaction, so that
        ``Queue.expired`` finds them; one that ended before stays. ``among``: only these; None: all. A process is silent
        if it is active or draining and its last heartbeat was before now minus ``silent_for``, or if it had none.
        ``silent_for`` not above zero raises ``UsageError``.
        """

    def remove(self, worker_id: UUID) -> bool:
        """Delete a process that is stopped or dead; false if there is no such process."""
