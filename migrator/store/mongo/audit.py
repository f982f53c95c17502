"""The audit trail in MongoDB."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from migrator.records.audit import AuditEntry
from migrator.records.schedule import Schedule
from migrator.store import rules
from migrator.store.mongo.repository import Repository, Strangers
from migrator.store.mongo.transaction import Transaction


class MongoAudit(Repository[AuditEntry]):
    """``ports.Audit``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(AuditEntry, transaction, strangers, tenant, now)

    def append(self, entry: AuditEntry) -> None:
        """Append; raises ``ConflictError`` for an id that exists."""
        self._insert(rules.written(entry, self._tenant))

    def list(self, limit: int, *, schedule_id: UUID | None = None, action: str | None = None) -> Sequence[AuditEntry]:
        """Return entries, newest first."""
        rules.page(limit)
        where: dict[str, Any] = {}
        if schedule_id is not None:
            where["scheduleId"] = self._refers(Schedule, schedule_id)
        if action is not None:
            where["action"] = action
        return self._rows(where, limit, sort=(("occurredAt", -1), ("_id", 1)))
