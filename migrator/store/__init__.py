"""What an application uses to reach its scheduler's data, on either backend."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from migrator.config import Settings
from migrator.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from migrator.records import Schedule
    from migrator.store.protocols import Store


def open_store(settings: Settings) -> "Store":
    """Open the store that ``[persistence] scheduler`` names, with shadow reads if ``shadow`` is ``read``.

    A store is a context manager; ``close`` closes it too. It may be used by any number of threads. Opening it creates
    nothing in the database (``prepare`` does), and does not import the other database's driver, unless shadow reads
    need it.

    Raises ``ConfigurationError``, ``UnreachableError`` or ``RefusedError`` if the backend cannot be used; the other
    backend of shadow reads is opened later, and its errors are not raised.
    """
    chosen, shadow = settings.persistence.scheduler, settings.persistence.shadow
    if shadow not in ("off", "read"):
        raise ConfigurationError(f"persistence.shadow is {shadow!r}; known: off, read")
    store = _open(settings, chosen)
    if shadow == "off":
        return store
    from migrator.store.shadow_reads import ShadowedStore  # noqa: PLC0415 - rarely asked for

    other = "mongo" if chosen == "postgres" else "postgres"
    return ShadowedStore(store, lambda: _open(settings, other))


def open_scheduler_store(settings: Settings) -> "Store":
    """Open the chosen backend's store with its queue, workers and locks; shadow reads are for sessions alone.

    Raises as ``open_store`` does.
    """
    return _open(settings, settings.persistence.scheduler)


def open_side(settings: Settings, backend: Literal["mongo", "postgres"]) -> "Store":
    """Open one backend's store as a tool does, whichever holds the data: the epoch does not concern it.

    Nothing is written by opening it, indexes included. Raises as ``open_store`` does.
    """
    other: Literal["mongo", "postgres"] = "mongo" if backend == "postgres" else "postgres"
    tools = msgspec.structs.replace(settings.persistence, scheduler=other, shadow="off")
    return _open(msgspec.structs.replace(settings, persistence=tools), backend)


@runtime_checkable
class Preparable(Protocol):
    """A backend whose collections need something before the first write (MongoDB)."""

    def prepare(self) -> Mapping[str, Sequence[str]]:
        """Create the indexes that are missing; return collection to the indexes that were created."""

    def adopt_triggers(self, covers: "Callable[[Schedule], bool]") -> int:
        """Write the triggers that schedule documents state themselves; return how many."""

    def adopt_priorities(self, covers: "Callable[[Schedule], bool]") -> int:
        """Write the schedule's priority into triggers and queued runs that state another one; return how many."""


def prepare(store: "Store", covers: "Callable[[Schedule], bool] | None" = None) -> Sequence[str]:
    """Create what a store needs before the first write; return what was created, in words.

    In PostgreSQL that is nothing: ``migrator schema upgrade`` makes the tables. In MongoDB it is the indexes that are
    missing, and, for a process that executes runs, the triggers of the schedules that it works for (``covers``), and
    their priority in triggers and queued runs.
    """
    if not isinstance(store, Preparable):
        return []
    created = [f"created in {name}: {', '.join(indexes)}" for name, indexes in store.prepare().items()]
    if covers is None:
        return created
    made, changed = store.adopt_triggers(covers), store.adopt_priorities(covers)
    created += [f"created {made:,} triggers from the cron lines of schedules"] if made else []
    return created + ([f"wrote the schedule's priority into {changed:,} documents"] if changed else [])


def _open(settings: Settings, backend: str) -> "Store":
    if backend == "postgres":
        from migrator.store.postgres.store import PostgresStore  # noqa: PLC0415 - the backend not chosen stays out

        return PostgresStore(settings)
    if backend == "mongo":
        from migrator.store.mongo.store import MongoStore  # noqa: PLC0415 - as above

        return MongoStore(settings)
    raise ConfigurationError(f"persistence.scheduler is {backend!r}; known: mongo, postgres")
