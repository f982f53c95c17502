"""Removing a tenant from MongoDB: whatever names it, also documents that the copy would set aside."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from migrator import records
from migrator.records.lock import Lock
from migrator.records.worker import Worker
from migrator.sources.stellaops import names
from migrator.store.mongo.places import PLACES
from migrator.store.mongo.transaction import Transaction


def purge(transaction: Transaction, tenant: str) -> Mapping[str, int]:
    """Remove every document of a tenant; return table to documents removed."""
    removed = Counter({record.table: 0 for record in records.ALL})
    for record, places in PLACES.items():
        for place in places:
            removed[record.table] += transaction.delete(place.name, _of_tenant(place.tenants, tenant))
    mine: dict[str, Any] = {"tenantId": tenant}
    removed[Worker.table] += transaction.delete(names.WORKERS, mine)
    of_key = {"_id": {"$regex": f"^{re.escape(tenant)}/"}}
    removed[Lock.table] += transaction.delete(names.LOCKS, {"$or": [mine, of_key]})
    return dict(removed)


def _of_tenant(paths: Sequence[str], tenant: str) -> dict[str, Any]:
    """Return the filter of the documents whose tenant this is: the first of the paths that says anything counts."""
    choices = [dict.fromkeys(paths[:place]) | {path: tenant} for place, path in enumerate(paths)]
    return {"$or": choices}
