"""Impact snapshots in MongoDB."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from migrator.records.impact_snapshot import ImpactSnapshot
from migrator.records.run import Run
from migrator.store import rules
from migrator.store.mongo.repository import Repository, Strangers
from migrator.store.mongo.transaction import Transaction

_FIRST = datetime.min.replace(tzinfo=UTC)


class MongoImpactSnapshots(Repository[ImpactSnapshot]):
    """``ports.ImpactSnapshots``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(ImpactSnapshot, transaction, strangers, tenant, now)

    def insert(self, snapshot: ImpactSnapshot) -> None:
        """Insert; raises ``ConflictError`` for an id that exists."""
        snapshot = rules.written(snapshot, self._tenant)
        self._require(Run, snapshot.run_id)
        self._insert(snapshot)

    def get(self, snapshot_id: UUID) -> ImpactSnapshot | None:
        """Return the snapshot."""
        return self._visible(snapshot_id)

    def of_run(self, run_id: UUID) -> Sequence[ImpactSnapshot]:
        """Return a run's snapshots, newest first (without a time last)."""
        rows = [one.row for one in self._each({"runId": self._refers(Run, run_id)})]
        rows.sort(key=lambda row: row.id)
        return sorted(rows, key=lambda row: row.generated_at or _FIRST, reverse=True)
