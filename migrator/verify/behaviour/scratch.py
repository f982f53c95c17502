"""The scratch tenants of one check, and the store within their fence (``store.scratch`` says whose they are)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import msgspec

from migrator.config import Settings
from migrator.errors import ConfigurationError, DeniedError, RefusedError
from migrator.store.ports import SchedulerStore
from migrator.store.scratch import PARTS, lent, remove
from migrator.verify.behaviour.craft import Craft, Delegate
from migrator.verify.behaviour.fenced import Fence, FencedStore


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
        remove(inner_store(self.store), self.base, keep=True)


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
        try:
            store = open_store(settings, backend)
            closing.callback(store.close)
            closing.enter_context(lent(store, name, "migrator verify"))
        except DeniedError as error:
            if backend != "mongo":
                raise
            raise _may_not_write(settings) from error
        fence = Fence(name, [name + part for part in PARTS])
        within = cast("SchedulerStore", FencedStore(store, fence))
        yield Scratch(settings, backend, name, fence, craft.store(within), craft)


def _may_not_write(settings: Settings) -> RefusedError:
    from migrator.store.mongo.client import grant_of, open_source  # noqa: PLC0415 - a driver, only where asked for

    source = open_source(settings)
    with source.client:
        return RefusedError(
            f"MongoDB lets this user write no scratch tenants into {source.name}; an administrator calls",
            grant=grant_of(source, "readWrite", source.name),
        )


def inner_store(store: SchedulerStore) -> SchedulerStore:
    """Return the store itself, out of whatever wraps it."""
    while isinstance(store, Delegate):
        store = store.inner
    return store
