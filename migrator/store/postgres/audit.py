"""The audit trail in PostgreSQL."""

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

from migrator.records import AuditEntry
from migrator.store import validation
from migrator.store.postgres.repository import Repository


class PostgresAudit(Repository[AuditEntry]):
    """``protocols.Audit``."""

    _record = AuditEntry

    def append(self, entry: AuditEntry) -> None:
        self._insert(validation.checked_record(entry, self._tenant))

    def list(self, limit: int, *, schedule_id: UUID | None = None, action: str | None = None) -> Sequence[AuditEntry]:
        validation.check_page(limit)
        where: LiteralString = "WHERE tenant_id = %(tenant)s"
        if schedule_id is not None:
            where += " AND schedule_id = %(schedule)s"
        if action is not None:
            where += " AND action = %(action)s"
        where += " ORDER BY occurred_at DESC, id LIMIT %(limit)s"
        return self._select(where, {"tenant": self._tenant, "schedule": schedule_id, "action": action, "limit": limit})
