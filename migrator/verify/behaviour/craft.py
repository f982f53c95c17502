"""What the scripts drive: the store, the facade, a process's desk, the sweeper and the leadership, each replaceable.

A fault is planted by another one of them (``sensitivity.conduct``); in a verification all are the tool's own.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from migrator.scheduler.dispatcher import Desk
from migrator.scheduler.leader import Leadership
from migrator.scheduler.service import SchedulerService
from migrator.scheduler.sweeper import Sweeper
from migrator.store.ports import SchedulerStore


def as_it_is(store: SchedulerStore) -> SchedulerStore:
    """Return the store."""
    return store


class Craft(msgspec.Struct, frozen=True, kw_only=True):
    """The parts. All are named at the top level of a module, so that other processes find them."""

    store: Callable[[SchedulerStore], SchedulerStore] = as_it_is
    """Wraps the store that is driven; cleaning up goes around it."""
    service: type[SchedulerService] = SchedulerService
    desk: type[Desk] = Desk
    sweeper: type[Sweeper] = Sweeper
    leadership: type[Leadership] = Leadership


class Delegate:
    """Hands everything that it does not define itself to another object."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - a store, or a part of one
        self.inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        """Return what the other one has."""
        return getattr(self.inner, name)
