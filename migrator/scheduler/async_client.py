"""The client for asynchronous applications: the methods of ``Scheduler``, awaited.

Each call runs in a thread of a bounded pool, since the store's connections block the thread that uses them. docs/api.md
states what a call costs in comparison with the drivers' own asynchronous connections, and why this way was chosen.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from migrator.scheduler.client import Scheduler

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Scheduler, P], T],
) -> Callable[Concatenate["AsyncScheduler", P], Coroutine[Any, Any, T]]:
    """Return the method that calls ``method`` in a thread; it has the same parameters, result and errors."""

    @wraps(method)
    async def call(client: "AsyncScheduler", /, *arguments: P.args, **named: P.kwargs) -> T:
        work = partial(contextvars.copy_context().run, method, client.scheduler, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(client.threads, work)

    return call


class AsyncScheduler:
    """The client of one tenant for asynchronous applications: every method of ``Scheduler``, as a coroutine.

    A call that is cancelled while it waits for a thread does nothing. One that has begun is carried out to its end, and
    its result is lost: a change that has begun is committed, unless it is refused.
    """

    def __init__(self, scheduler: Scheduler, threads: ThreadPoolExecutor | None = None) -> None:
        """``threads`` bounds how many calls run at the same time; if omitted: the event loop's own pool.

        More threads than ``postgres.pool_size`` wait for each other. Clients of several tenants may share one pool,
        and one store. The caller closes both.
        """
        self.scheduler, self.threads = scheduler, threads

    schedule = _awaited(Scheduler.schedule)
    schedule_once = _awaited(Scheduler.schedule_once)
    ensure = _awaited(Scheduler.ensure)
    on_event = _awaited(Scheduler.on_event)
    reschedule = _awaited(Scheduler.reschedule)
    unschedule = _awaited(Scheduler.unschedule)
    pause = _awaited(Scheduler.pause)
    resume = _awaited(Scheduler.resume)
    cancel = _awaited(Scheduler.cancel)
    toggle = _awaited(Scheduler.toggle)
    update = _awaited(Scheduler.update)
    trigger_event = _awaited(Scheduler.trigger_event)
    trigger_now = _awaited(Scheduler.trigger_now)
    retry = _awaited(Scheduler.retry)
    retry_schedule = _awaited(Scheduler.retry_schedule)
    claim = _awaited(Scheduler.claim)
    finish = _awaited(Scheduler.finish)
    lost = _awaited(Scheduler.lost)
    rescue = _awaited(Scheduler.rescue)
    complete = _awaited(Scheduler.complete)
    heartbeat = _awaited(Scheduler.heartbeat)
    get = _awaited(Scheduler.get)
    get_by_name = _awaited(Scheduler.get_by_name)
    list = _awaited(Scheduler.list)
    history = _awaited(Scheduler.history)
    get_execution = _awaited(Scheduler.get_execution)
    metrics = _awaited(Scheduler.metrics)
    stats = _awaited(Scheduler.stats)
    health = _awaited(Scheduler.health)
    status = _awaited(Scheduler.status)
    seed_handlers = _awaited(Scheduler.seed_handlers)
    purge = _awaited(Scheduler.purge)
