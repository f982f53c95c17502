"""The scratch tenants of one check: ``~verify-<hex>`` has the lock that says whose they are, ``.a`` and ``.b`` rows.

The lock is the first thing written and the last one removed, and nobody but a living verification holds it: where it is
free, or over, the verification was killed, and the next one removes what it left. On PostgreSQL the lock ends with the
process, on MongoDB an hour later.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final, cast

import msgspec

from migrator.config import Settings
from migrator.errors import ConfigurationError
from migrator.store.ports import SchedulerStore
from migrator.store.work import SCRATCH
from migrator.telemetry import logger
from migrator.verify.behaviour.craft import Craft, Delegate
from migrator.verify.behaviour.fenced import Fence, FencedStore

RESOURCE: Final = "verification"
HELD: Final = timedelta(hours=1)
PARTS: Final = (".a", ".b")
_KEY: Final = re.compile(rf"({SCRATCH}[0-9a-f]{{12}})(?:\.[ab])?/")


class Scratch(msgspec.Struct, frozen=True):
    """The tenants, and the store within their fence."""

    settings: Settings
    backend: str
    base: str
    fence: Fence
    store: SchedulerStore
    craft: Craft

    @property
    def tenants(self) -> tuple[str, str]:
        """Return the two tenants that rows may be in."""
        return self.base + PARTS[0], self.base + PARTS[1]

    def clear(self) -> None:
        """Remove every row, for the next script."""
        _remove(inner_store(self.store), self.base, keep=True)


def open_store(settings: Settings, backend: str) -> SchedulerStore:
    """Open a backend as a tool does: what the switch says of PostgreSQL does not concern it.

    MongoDB is opened as the settings have it: its indexes are made only where it is the chosen one.
    """
    if backend == "mongo":
        from migrator.store.mongo.store import MongoStore  # noqa: PLC0415 - a driver, only where asked for

        return MongoStore(settings)
    if backend == "postgres":
        from migrator.store.postgres.store import PostgresStore  # noqa: PLC0415 - as above

        persistence = msgspec.structs.replace(settings.persistence, scheduler="mongo", shadow="off")
        return PostgresStore(msgspec.structs.replace(settings, persistence=persistence))
    raise ConfigurationError(f"the behaviour of {backend!r} is not known; known: mongo, postgres")


@contextmanager
def scratch(settings: Settings, backend: str, craft: Craft, name: str) -> Iterator[Scratch]:
    """Lend scratch tenants of one backend, removed afterwards in every case; first remove what killed ones left.

    ``name`` is the base tenant (``fresh``). Raises ``RefusedError`` before anything is written where it could not be
    removed again.
    """
    from structlog.contextvars import bound_contextvars  # noqa: PLC0415 - only where the scheduler is driven

    with ExitStack() as closing:
        closing.enter_context(bound_contextvars(verification=name))  # nobody takes its lines for a live scheduler's
        store = open_store(settings, backend)
        closing.callback(store.close)
        _remove(store, name)  # nothing is there; but where it may not, this says so
        remove_leftovers(store)
        handle = store.locks.acquire(name, RESOURCE, ttl=HELD, holder="migrator verify")
        if handle is None:
            raise ConfigurationError(f"the scratch tenant {name} is another's")  # pragma: no cover - 48 random bits
        closing.callback(handle.release)
        closing.callback(_remove, store, name)
        fence = Fence(name, [name + part for part in PARTS])
        within = cast("SchedulerStore", FencedStore(store, fence))
        yield Scratch(settings, backend, name, fence, craft.store(within), craft)


def fresh() -> str:
    """Return the name of a scratch tenant that nobody has used."""
    return SCRATCH + secrets.token_hex(6)


def remove_leftovers(store: SchedulerStore) -> list[str]:
    """Remove what killed verifications left; return their tenants."""
    removed = []
    for name in left(store):
        handle = store.locks.acquire(name, RESOURCE, ttl=HELD, holder="migrator verify: removal")
        if handle is None:
            continue  # it is alive
        try:
            _remove(store, name)
        finally:
            handle.release()
        removed.append(name)
        logger().warning("removed what a killed verification left", tenant=name, backend=store.backend)
    return removed


def left(store: SchedulerStore) -> list[str]:
    """Return the base tenants of verifications of which a lock row, or a worker, is there; alive or not."""
    found = {match[1] for key in _lock_keys(store) if (match := _KEY.match(key))}
    named = {one.hostname for one in store.workers.list() if one.hostname is not None}
    return sorted(found | {name for name in named if _KEY.match(name + "/")})


def _lock_keys(store: SchedulerStore) -> list[str]:
    inner: Any = store
    if store.backend == "mongo":
        from migrator.sources.stellaops import names  # noqa: PLC0415 - only where asked for

        found = inner.database[names.LOCKS].find({"_id": {"$regex": f"^{re.escape(SCRATCH)}"}}, {"_id": 1})
        return [str(one["_id"]) for one in found]
    with inner.pool.transaction(tenant=None) as (connection, _):
        rows = connection.execute("SELECT key FROM scheduler.locks WHERE starts_with(key, %s)", (SCRATCH,)).fetchall()
    return [row[0] for row in rows]


def _remove(store: SchedulerStore, base: str, *, keep: bool = False) -> None:
    """Remove everything of one verification; ``keep``: but its lock."""
    for worker in store.workers.list():
        if worker.hostname == base:
            store.workers.stop(worker.id)
            store.workers.remove(worker.id)
    for part in PARTS:
        store.purge(base + part)
    if not keep:
        store.purge(base)


def inner_store(store: SchedulerStore) -> SchedulerStore:
    """Return the store itself, out of whatever wraps it."""
    while isinstance(store, Delegate):
        store = store.inner
    return store
