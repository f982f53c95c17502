"""Handlers in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from psycopg import sql

from migrator.errors import ConflictError
from migrator.records.handler import Handler
from migrator.store import rules
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.repository import Repository


class PostgresHandlers(Repository[Handler]):
    """``ports.Handlers``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(Handler, connection, tenant, now)

    def get(self, name: str) -> Handler | None:
        """Return the tenant's handler, else the global one."""
        query = self._table.select + sql.SQL(
            "WHERE tenant_id IN (%s, %s) AND name = %s ORDER BY tenant_id = %s LIMIT 1"
        )
        return self._one(query, (self._tenant, rules.GLOBAL, name, rules.GLOBAL))

    def upsert(self, handler: Handler) -> Handler:
        """Insert, or replace the one with this name; raises ``ConflictError`` where a system handler would change."""
        handler = rules.written(handler, self._tenant)
        stored = self._held_by_name(handler.name)
        if stored is None:
            return self._insert(msgspec.structs.replace(handler, source=None, source_id=None))
        kept = msgspec.structs.replace(
            handler, id=stored.id, source=stored.source, source_id=stored.source_id, extra=stored.extra
        )
        if stored.is_system:
            if kept != stored:
                raise ConflictError("a system handler does not change")
            return stored
        replaced = self._replace(kept)
        assert replaced is not None  # noqa: S101 - its row is locked
        return replaced

    def list(self) -> Sequence[Handler]:
        """Return them by name, a name once."""
        query = sql.SQL(
            'SELECT DISTINCT ON (name COLLATE "C") {} FROM scheduler.handlers WHERE tenant_id IN (%s, %s)'
            ' ORDER BY name COLLATE "C", tenant_id = %s'
        ).format(self._table.columns)
        return self._many(query, (self._tenant, rules.GLOBAL, rules.GLOBAL))

    def delete(self, name: str) -> bool:
        """Remove the tenant's own; false when there is none; raises ``ConflictError`` for a system handler."""
        stored = self._held_by_name(name)
        if stored is None:
            return False
        if stored.is_system:
            raise ConflictError("a system handler is not deleted")
        self._connection.execute("DELETE FROM scheduler.handlers WHERE id = %s", (stored.id,))
        return True

    def _held_by_name(self, name: str) -> Handler | None:
        query = self._table.select + sql.SQL("WHERE tenant_id = %s AND name = %s FOR UPDATE")
        return self._one(query, (self._tenant, name))
