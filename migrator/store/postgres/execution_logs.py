"""Log lines in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.records.execution_log import ExecutionLog
from migrator.store import rules
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.repository import Repository


class PostgresExecutionLogs(Repository[ExecutionLog]):
    """``ports.ExecutionLogs``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(ExecutionLog, connection, tenant, now)

    def append(self, lines: Sequence[ExecutionLog]) -> None:
        """Append all or none; raises ``ConflictError`` for an id that exists."""
        written = [
            msgspec.structs.replace(rules.written(line, self._tenant), source=None, source_id=None) for line in lines
        ]
        for run_id in dict.fromkeys(line.run_id for line in written):
            self._require("runs", run_id)
        with self.refusing(), self._connection.cursor() as cursor:
            cursor.executemany(self._table.insert, [self._table.values(line) for line in written])

    def of_run(self, run_id: UUID, limit: int = 1000) -> Sequence[ExecutionLog]:
        """Return a run's lines in time order."""
        rules.page(limit)
        query = self._table.select + sql.SQL("WHERE run_id = %s AND tenant_id = %s ORDER BY logged_at, id LIMIT %s")
        return self._many(query, (run_id, self._tenant, limit))
