"""Impact snapshots in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.records.impact_snapshot import ImpactSnapshot
from migrator.store import rules
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.repository import Repository


class PostgresImpactSnapshots(Repository[ImpactSnapshot]):
    """``ports.ImpactSnapshots``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(ImpactSnapshot, connection, tenant, now)

    def insert(self, snapshot: ImpactSnapshot) -> None:
        """Insert; raises ``ConflictError`` for an id that exists."""
        snapshot = rules.written(snapshot, self._tenant)
        self._require("runs", snapshot.run_id)
        self._insert(msgspec.structs.replace(snapshot, source=None, source_id=None))

    def get(self, snapshot_id: UUID) -> ImpactSnapshot | None:
        """Return the snapshot."""
        return self._visible(snapshot_id)

    def of_run(self, run_id: UUID) -> Sequence[ImpactSnapshot]:
        """Return a run's snapshots, newest first (without a time last)."""
        query = self._table.select + sql.SQL(
            "WHERE run_id = %s AND tenant_id = %s ORDER BY generated_at DESC NULLS LAST, id"
        )
        return self._many(query, (run_id, self._tenant))
