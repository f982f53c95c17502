"""Worker and scheduler processes: who is registered, alive, dead.

Each call is a transaction of its own. ``now`` is for tests; if omitted, it is the database's clock.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from migrator.records import WorkerRecord


class Workers(Protocol):
    """Worker and scheduler processes; they live under the tenant ``*``. The database's clock judges."""

    def register(self, worker: WorkerRecord, now: datetime | None = None) -> WorkerRecord:
        """Insert, or bring up to date the one with this id: active, heartbeat now (never backwards).

        ``registered_at`` is that of the first time, now where it is not given. Raises ``UsageError`` for a tenant other
        than ``*``.
        """

    def heartbeat(self, worker_id: UUID, now: datetime | None = None) -> bool:
        """Stamp, never backwards; false when it was declared dead or stopped: the process must stop working.

        False also for one that nobody registered.
        """

    def stop(self, worker_id: UUID, now: datetime | None = None) -> bool:
        """Mark stopped; false when it is dead, stopped or unknown."""

    def list(self) -> Sequence[WorkerRecord]:
        """Return all, by registration time, then id."""

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        """Mark dead whoever was silent for longer; each is returned to one caller only.

        The leases of the runs that it holds (``worker_id`` is the id's text) end now, in the same transaction, so that
        ``Queue.expired`` finds them; one that ended before stays. ``among``: only these; none: all. Silent is who is
        active or draining and spoke last before now less ``silent_for``, or never. Not above zero: ``UsageError``.
        """

    def remove(self, worker_id: UUID) -> bool:
        """Forget one that is stopped or dead; false when there is none such."""
