"""What runs leave behind in the model (snapshots, logs, the audit trail), and the handlers they call."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from migrator.errors import ConflictError
from migrator.records import AuditEntry, ExecutionLog, Handler, ImpactSnapshot, Run
from migrator.store import validation
from migrator.testing.memory.table import MemoryTable, newest_first


class MemoryImpactSnapshots(MemoryTable[ImpactSnapshot]):
    """``protocols.ImpactSnapshots``."""

    def insert(self, snapshot: ImpactSnapshot) -> None:
        snapshot = validation.checked_record(snapshot, self._tenant)
        self._require(Run, snapshot.run_id)
        self._insert(snapshot)

    def get(self, snapshot_id: UUID) -> ImpactSnapshot | None:
        return self._visible(snapshot_id)

    def of_run(self, run_id: UUID) -> Sequence[ImpactSnapshot]:
        return sorted((row for row in self._all() if row.run_id == run_id), key=newest_first("generated_at"))


class MemoryExecutionLogs(MemoryTable[ExecutionLog]):
    """``protocols.ExecutionLogs``."""

    def append(self, lines: Sequence[ExecutionLog]) -> None:
        written = [validation.checked_record(line, self._tenant) for line in lines]
        for line in written:
            self._require(Run, line.run_id)
        ids = [line.id for line in written]
        if len(set(ids)) < len(ids) or any(identity in self._rows for identity in ids):
            raise ConflictError("the id is taken")
        for line in written:
            self._insert(line)

    def of_run(self, run_id: UUID, limit: int = 1000) -> Sequence[ExecutionLog]:
        validation.check_page(limit)
        found = [row for row in self._all() if row.run_id == run_id]
        return sorted(found, key=lambda row: (row.logged_at, row.id))[:limit]

    def of_runs(self, run_ids: Sequence[UUID]) -> Sequence[ExecutionLog]:
        found = [row for row in self._all() if row.run_id in run_ids]
        return sorted(found, key=lambda row: (row.run_id, row.logged_at, row.id))


class MemoryAudit(MemoryTable[AuditEntry]):
    """``protocols.Audit``."""

    def append(self, entry: AuditEntry) -> None:
        self._insert(validation.checked_record(entry, self._tenant))

    def list(self, limit: int, *, schedule_id: UUID | None = None, action: str | None = None) -> Sequence[AuditEntry]:
        validation.check_page(limit)
        found = [row for row in self._all() if schedule_id in {None, row.schedule_id} and action in {None, row.action}]
        return sorted(found, key=newest_first("occurred_at"))[:limit]


class MemoryHandlers(MemoryTable[Handler]):
    """``protocols.Handlers``."""

    def get(self, name: str) -> Handler | None:
        found = [row for row in self._all(shared=True) if row.name == name]
        return min(found, key=lambda row: row.tenant_id == validation.GLOBAL, default=None)

    def upsert(self, handler: Handler) -> Handler:
        handler = validation.checked_record(handler, self._tenant)
        stored = self._named(handler.name)
        if stored is None:
            return self._insert(handler)
        kept = msgspec.structs.replace(
            handler, id=stored.id, source=stored.source, source_id=stored.source_id, extra=stored.extra
        )
        if stored.is_system and kept != stored:
            raise ConflictError("a system handler does not change")
        return self._replace(kept, stored)

    def list(self) -> Sequence[Handler]:
        names = {row.name for row in self._all(shared=True)}
        return [found for name in sorted(names) if (found := self.get(name)) is not None]

    def delete(self, name: str) -> bool:
        stored = self._named(name)
        if stored is None:
            return False
        if stored.is_system:
            raise ConflictError("a system handler is not deleted")
        del self._rows[stored.id]
        return True

    def _named(self, name: str) -> Handler | None:
        return next((row for row in self._all() if row.name == name), None)
