"""Processes of their own that contend for a lock: what only shows between processes."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from migrator.config import Settings
from migrator.errors import MigratorError
from migrator.store.ports import SchedulerStore
from migrator.store.scratch import PARTS
from migrator.verify.behaviour.craft import Craft
from migrator.verify.behaviour.fenced import Fence, FencedStore
from migrator.verify.behaviour.notes import could_not_tell
from migrator.verify.behaviour.scratch import open_store

COUNTER: Final = "counter"
HOLD: Final = "hold"
LEADER: Final = "leader"
TTL: Final = timedelta(seconds=30)
PATIENCE: Final = timedelta(seconds=60)
_ANSWER_S: Final = 120.0
_UNUSABLE: Final = "a process of the verification ended before it answered"


class ContenderError(MigratorError):
    """A process did not do what it was told to: what the scheduler must not do, not what could not be told."""


class Orders(msgspec.Struct, frozen=True):
    """What a contender needs."""

    settings: Settings
    backend: str
    base: str
    craft: Craft
    counter: UUID
    """The schedule whose description is counted up."""
    rounds: int


class Turn(msgspec.Struct, frozen=True):
    """One time that a contender had the lock; seconds by the machine's monotonic clock."""

    fence: int
    asked: float
    had: float
    gave: float


class Contender:
    """A process, and what it is told."""

    def __init__(self, orders: Orders) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(orders, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def tell(self, word: str) -> None:
        """Give an order; raises ``ContenderError`` where the process is gone."""
        try:
            self._pipe.send(word)
        except OSError:
            raise ContenderError(_UNUSABLE) from None

    def hear(self) -> Any:  # noqa: ANN401 - whatever the order is answered by
        """Return the next answer; raises ``ContenderError`` where none comes, and what told nothing in the process."""
        try:
            if not self._pipe.poll(_ANSWER_S):
                raise ContenderError("a process of the verification did not answer")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise ContenderError(_UNUSABLE) from None
        if isinstance(answer, MigratorError):
            if could_not_tell(answer):
                raise answer
            raise ContenderError(f"a process of the verification ended: {type(answer).__name__}: {answer}")
        return answer

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextmanager
def contenders(count: int, orders: Orders) -> Iterator[list[Contender]]:
    """Start processes, and end them in every case."""
    born: list[Contender] = []
    try:
        for _ in range(count):
            born.append(Contender(orders))  # noqa: PERF401 - those that were started are ended
        for one in born:
            one.hear()
        yield born
    finally:
        for one in born:
            one.kill()


def _work(orders: Orders, pipe: Connection) -> None:
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            inner = open_store(orders.settings, orders.backend)
            try:
                fence = Fence(orders.base, [orders.base + part for part in PARTS])
                _obey(orders, orders.craft.store(cast("SchedulerStore", FencedStore(inner, fence))), pipe)
            finally:
                inner.close()
        except MigratorError as error:
            pipe.send(error)


def _obey(orders: Orders, store: SchedulerStore, pipe: Connection) -> None:
    tenant = orders.base + PARTS[0]
    leadership = orders.craft.leadership(store, ttl=TTL, holder="contender", resource=LEADER, tenant=tenant)
    held = []
    pipe.send(())
    while True:
        word = pipe.recv()
        if word == COUNTER:
            pipe.send([_count(orders, store, tenant) for _ in range(orders.rounds)])
        elif word == HOLD:
            held.append(store.locks.acquire(tenant, HOLD, ttl=TTL))
            pipe.send(0 if held[-1] is None else held[-1].fence)
        elif word == "stand":
            pipe.send((leadership.stand(),))
        elif word == "resign":
            pipe.send((leadership.resign(),))


def _count(orders: Orders, store: SchedulerStore, tenant: str) -> Turn:
    """Count one further under the lock: read in one transaction, write in another one."""
    asked = time.monotonic()
    handle = store.locks.acquire(tenant, COUNTER, ttl=TTL, timeout=PATIENCE, holder="contender")
    had = time.monotonic()
    if handle is None:
        raise ContenderError("the lock was not had within a minute")
    with store.session(tenant) as session:
        found = session.schedules.get(orders.counter)
    seen = int((found.description if found is not None else None) or 0)
    with store.session(tenant) as session:
        session.schedules.change(orders.counter, description=str(seen + 1))
    gave = time.monotonic()
    handle.release()
    return Turn(handle.fence, asked, had, gave)
