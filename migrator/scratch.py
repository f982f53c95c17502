"""Scratch tenants, in which the tool tests a store: ``~verify-<hex>`` has their lock, ``.a`` and ``.b`` the rows.

The lock is written first and deleted last, and only the living process of the test holds it. If the lock is free or
expired, that process was killed, and the next test deletes what it left. On PostgreSQL the lock ends with the process,
on MongoDB an hour later.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final

from migrator.errors import ConfigurationError
from migrator.log import logger
from migrator.sources.stellaops import names
from migrator.store.protocols import Store
from migrator.store.queue import SCRATCH

RESOURCE: Final = "verification"
HELD: Final = timedelta(hours=1)
PARTS: Final = (".a", ".b")
_KEY: Final = re.compile(rf"({SCRATCH}[0-9a-f]{{12}})(?:\.[ab])?/")


def new_scratch_tenant() -> str:
    """Return the name of a scratch tenant that does not exist."""
    return SCRATCH + secrets.token_hex(6)


@contextmanager
def scratch_tenant(store: Store, base: str, holder: str) -> Iterator[None]:
    """Yield the tenants of ``base`` (``new_scratch_tenant``), and empty them afterwards.

    What killed processes left is deleted first. Raises ``RefusedError`` before anything is written
    if it could not be deleted again.
    """
    with ExitStack() as closing:
        remove(store, base)  # there is nothing to delete; a user without the right is refused here
        remove_leftovers(store)
        handle = store.locks.acquire(base, RESOURCE, ttl=HELD, holder=holder)
        if handle is None:
            raise ConfigurationError(f"the scratch tenant {base} is another's")  # pragma: no cover - 48 random bits
        closing.callback(handle.release)
        closing.callback(remove, store, base)
        yield


def remove_leftovers(store: Store) -> list[str]:
    """Delete what killed processes left; return their tenants."""
    removed = []
    for name in leftover_tenants(store):
        handle = store.locks.acquire(name, RESOURCE, ttl=HELD, holder="migrator: removal")
        if handle is None:
            continue  # its process is alive
        try:
            remove(store, name)
        finally:
            handle.release()
        removed.append(name)
        logger().warning("removed scratch data of a killed process", tenant=name, backend=store.backend)
    return removed


def leftover_tenants(store: Store) -> list[str]:
    """Return the base tenants with a lock row, or a worker, whether their process is alive or not."""
    found = {match[1] for key in _lock_keys(store) if (match := _KEY.match(key))}
    named = {one.hostname for one in store.workers.list() if one.hostname is not None}
    return sorted(found | {name for name in named if _KEY.match(name + "/")})


def remove(store: Store, base: str, *, keep: bool = False) -> None:
    """Delete everything of one base tenant; ``keep``: except its lock."""
    for worker in store.workers.list():
        if worker.hostname == base:
            store.workers.stop(worker.id)
            store.workers.remove(worker.id)
    for part in PARTS:
        store.purge(base + part)
    if not keep:
        store.purge(base)


def _lock_keys(store: Store) -> list[str]:
    inner: Any = store
    if store.backend == "mongo":
        found = inner.database[names.LOCKS].find({"_id": {"$regex": f"^{re.escape(SCRATCH)}"}}, {"_id": 1})
        return [str(one["_id"]) for one in found]
    with inner.pool.transaction(tenant=None) as (connection, _):
        rows = connection.execute("SELECT key FROM scheduler.locks WHERE starts_with(key, %s)", (SCRATCH,)).fetchall()
    return [row[0] for row in rows]
