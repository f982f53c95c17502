"""The audit trail in MongoDB."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from migrator.records import AuditEntry, Schedule
from migrator.store import validation
from migrator.store.mongo.repository import ForeignIds, Repository
from migrator.store.mongo.transaction import Transaction


class MongoAudit(Repository[AuditEntry]):
    """``protocols.Audit``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(AuditEntry, transaction, foreign_ids, tenant, now)

    def append(self, entry: AuditEntry) -> None:
        self._insert(validation.checked_record(entry, self._tenant))

    def list(self, limit: int, *, schedule_id: UUID | None = None, action: str | None = None) -> Sequence[AuditEntry]:
        validation.check_page(limit)
        where: dict[str, Any] = {}
        if schedule_id is not None:
            where["scheduleId"] = self._refers(Schedule, schedule_id)
        if action is not None:
            where["action"] = action
        return self._rows(where, limit, sort=(("occurredAt", -1), ("_id", 1)))
