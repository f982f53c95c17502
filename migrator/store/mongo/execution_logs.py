"""Log lines in MongoDB."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from migrator.errors import ConflictError
from migrator.records.execution_log import ExecutionLog
from migrator.records.run import Run
from migrator.store import rules
from migrator.store.mongo.repository import Repository, Strangers
from migrator.store.mongo.transaction import Transaction


class MongoExecutionLogs(Repository[ExecutionLog]):
    """``ports.ExecutionLogs``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(ExecutionLog, transaction, strangers, tenant, now)

    def append(self, lines: Sequence[ExecutionLog]) -> None:
        """Append all or none; raises ``ConflictError`` for an id that exists."""
        written = [rules.written(line, self._tenant) for line in lines]
        for run_id in dict.fromkeys(line.run_id for line in written):
            self._require(Run, run_id)
        documents = [self._new(line)[0] for line in written]
        if len({line.id for line in written}) < len(written):
            raise ConflictError(f"the id is taken ({self._name})")
        if documents:
            self._transaction.insert(self._name, documents)

    def of_run(self, run_id: UUID, limit: int = 1000) -> Sequence[ExecutionLog]:
        """Return a run's lines in time order."""
        rules.page(limit)
        return self._rows({"runId": self._refers(Run, run_id)}, limit, sort=(("loggedAt", 1), ("_id", 1)))
