"""Handlers in MongoDB, in a collection of our own."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from migrator.errors import ConflictError
from migrator.records.handler import Handler
from migrator.store import rules
from migrator.store.mongo.repository import Repository, Stored, Strangers
from migrator.store.mongo.transaction import Transaction


class MongoHandlers(Repository[Handler]):
    """``ports.Handlers``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(Handler, transaction, strangers, tenant, now)

    def get(self, name: str) -> Handler | None:
        """Return the tenant's handler, else the global one."""
        found = [one.row for one in self._each({"name": name}, shared=True)]
        return min(found, key=lambda row: row.tenant_id == rules.GLOBAL, default=None)

    def upsert(self, handler: Handler) -> Handler:
        """Insert, or replace the one with this name; raises ``ConflictError`` where a system handler would change."""
        handler = rules.written(handler, self._tenant)
        stored = self._held(handler.name)
        if stored is None:
            return self._insert(handler)
        row = stored.row
        kept = msgspec.structs.replace(handler, id=row.id, source=row.source, source_id=row.source_id, extra=row.extra)
        if row.is_system:
            if kept != row:
                raise ConflictError("a system handler does not change")
            return row
        return self._replace(stored, kept)

    def list(self) -> Sequence[Handler]:
        """Return them by name, a name once."""
        rows = [one.row for one in self._each({}, shared=True)]
        rows.sort(key=lambda row: (row.name, row.tenant_id == rules.GLOBAL))
        return list({row.name: row for row in reversed(rows)}.values())[::-1]

    def delete(self, name: str) -> bool:
        """Remove the tenant's own; false when there is none; raises ``ConflictError`` for a system handler."""
        stored = self._held(name)
        if stored is None:
            return False
        if stored.row.is_system:
            raise ConflictError("a system handler is not deleted")
        self._transaction.delete(self._name, {"_id": stored.document["_id"]})
        return True

    def _held(self, name: str) -> Stored[Handler] | None:
        return next(self._each({"name": name}), None)
