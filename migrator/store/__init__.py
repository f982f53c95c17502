"""Opening a store: how an application reaches its scheduler's data, on either backend."""

from collections.abc import Callable, Sequence
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Final, Literal

import msgspec

from migrator.argument_types import checked
from migrator.config import Settings
from migrator.errors import ConfigurationError, CopyError
from migrator.records import Schedule
from migrator.store.protocols import Preparable, Store

_BACKENDS: Final = MappingProxyType(
    {"mongo": "migrator.store.mongo.store", "postgres": "migrator.store.postgres.store"}
)
"""Backend → its module, which alone is imported, and with it the driver of that database alone."""


@checked
def open_store(settings: Settings) -> Store:
    """Open the store that ``[persistence] scheduler`` names, with shadow reads if ``shadow`` is ``read``.

    A store is a context manager; ``close`` closes it too. It may be used by any number of threads. Opening it creates
    nothing in the database (``prepare`` does), and does not import the other database's driver, unless shadow reads
    need it.

    Raises ``ConfigurationError``, ``UnreachableError`` or ``RefusedError`` if the backend cannot be used,
    ``BackendMovedError`` if the data is on the other side, ``CopyError`` for a copy that no cutover has made active.
    The other backend of shadow reads is opened later; its errors are not raised.
    """
    chosen, shadow = settings.persistence.scheduler, settings.persistence.shadow
    if shadow not in ("off", "read"):
        raise ConfigurationError(f"persistence.shadow is {shadow!r}; known: off, read")
    store = open_backend(settings, chosen)
    if shadow == "off":
        return store
    other = "mongo" if chosen == "postgres" else "postgres"
    # imported now: what a copy needs of this package shadows nothing, and needs no log
    shadowed: Store = import_module("migrator.store.shadow_reads").ShadowedStore(
        store, lambda: open_backend(settings, other)
    )
    return shadowed


def open_scheduler_store(settings: Settings) -> Store:
    """Open the store that ``[persistence] scheduler`` names without shadow reads, for a process that executes runs.

    Shadow reads compare what an application reads; a process would compare its own polls. Raises as ``open_store``
    does.
    """
    return open_backend(settings, settings.persistence.scheduler)


def open_readable_store(settings: Settings) -> Store:
    """Open the store that ``open_scheduler_store`` opens, and also a copy, for a command that only reads.

    Raises as ``open_store`` does, except ``CopyError``.
    """
    # reading declares no rehearsal
    reading = msgspec.structs.replace(settings.persistence, copy="refused")
    try:
        return open_scheduler_store(msgspec.structs.replace(settings, persistence=reading))
    except CopyError:
        return open_side(settings, settings.persistence.scheduler)


def open_side(settings: Settings, backend: str) -> Store:
    """Open the store of ``backend`` (``mongo`` or ``postgres``) for the tool, whichever holds the data.

    The epoch is not looked at, and no index is created. Raises as ``open_store`` does.
    """
    other: Literal["mongo", "postgres"] = "mongo" if backend == "postgres" else "postgres"
    tools = msgspec.structs.replace(settings.persistence, scheduler=other, shadow="off")
    return open_backend(msgspec.structs.replace(settings, persistence=tools), backend)


def prepare(store: Store, covers: Callable[[Schedule], bool] | None = None) -> Sequence[str]:
    """Create what a store needs before the first write; return what was created, in words.

    In PostgreSQL that is nothing: ``migrator schema upgrade`` creates the tables. In MongoDB it is the missing indexes.
    For a process that executes runs it is also the triggers of the schedules that it works for (``covers``), and their
    priority in triggers and queued runs.
    """
    if not isinstance(store, Preparable):
        return []
    created = [f"created in {name}: {', '.join(indexes)}" for name, indexes in store.prepare().items()]
    if covers is None:
        return created
    made, changed = store.create_missing_triggers(covers), store.copy_priorities(covers)
    created += [f"created {made:,} triggers from the cron lines of schedules"] if made else []
    return created + ([f"wrote the schedule's priority into {changed:,} documents"] if changed else [])


def open_backend(settings: Settings, backend: str) -> Store:
    """Open one backend's store with the settings as they are, without shadow reads; raises as ``open_store`` does."""
    opened: Store = backend_module(backend).open_store(settings)
    return opened


def backend_module(backend: str) -> ModuleType:
    """Return the module of a backend; raises ``ConfigurationError`` for one that does not exist."""
    if backend not in _BACKENDS:
        raise ConfigurationError(f"persistence.scheduler is {backend!r}; known: {', '.join(_BACKENDS)}")
    return import_module(_BACKENDS[backend])
