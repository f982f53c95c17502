"""Which workers are processes of this scheduler, and for which schedules each of them works.

A process states both in its row of ``workers``: the queues in their column, the rest in ``metadata``. Rows that do not
say so are another scheduler's, and nothing here declares them dead or ends what they hold. In PostgreSQL so are rows
that were copied, until a cutover has moved the scheduler there: before it their processes live beside MongoDB, and
their heartbeats do not reach the copy.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from migrator.records import Schedule, WorkerRecord
from migrator.store.protocols import Store
from migrator.store.queue import HandlerFilter, is_served
from migrator.values import jsonb

SCHEDULER: Final = "migrator"
"""What ``metadata.scheduler`` says in the row of a process of this scheduler."""


@runtime_checkable
class Switchable(Protocol):
    """A store whose backend knows the persistence epoch."""

    def switched_to(self) -> str | None:
        """Return the backend that the epoch names; none: there was never a cutover."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that a process works for."""

    queues: tuple[str, ...] | None = None
    """None: of all queues, and of none."""
    handlers: HandlerFilter | None = None
    """None: whatever their handler is."""

    def covers(self, schedule: Schedule) -> bool:
        """Tell whether a schedule is one of them."""
        return is_served(schedule, self.queues, self.handlers)


def metadata_of(scope: Scope) -> bytes:
    """Return the metadata of the row of a process with this scope, as JSON."""
    stated: dict[str, Any] = {"scheduler": SCHEDULER}
    if scope.handlers is not None:
        stated |= {"handlers": list(scope.handlers.names), "handlerTypes": list(scope.handlers.types)}
    return jsonb.encode(stated)


def is_own(worker: WorkerRecord) -> bool:
    """Tell whether a row of ``workers`` is that of a process of this scheduler."""
    return _stated(worker).get("scheduler") == SCHEDULER


def scope_of(worker: WorkerRecord) -> Scope:
    """Return the scope that a process of this scheduler stated."""
    stated = _stated(worker)
    names, types = stated.get("handlers"), stated.get("handlerTypes")
    handlers = None
    if isinstance(names, list) and isinstance(types, list):
        handlers = HandlerFilter(names=tuple(map(str, names)), types=tuple(map(str, types)))
    return Scope(queues=worker.queues or None, handlers=handlers)


def own(store: Store) -> Sequence[WorkerRecord]:
    """Return the processes of this scheduler that were registered here, or came here with a cutover."""
    found = [one for one in store.workers.list() if is_own(one)]
    if store.backend == "postgres" and any(one.source is not None for one in found):
        moved = isinstance(store, Switchable) and store.switched_to() == store.backend
        found = [one for one in found if moved or one.source is None]
    return found


def _stated(worker: WorkerRecord) -> dict[str, Any]:
    stated: Any = None if worker.metadata is None else jsonb.decode(worker.metadata)
    return stated if isinstance(stated, dict) else {}
