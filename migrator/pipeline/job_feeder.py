"""Handing jobs out to an executor: as many at a time as keep its workers busy, each when the throttle lets it begin."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from itertools import islice
from typing import Generic, TypeVar

from migrator import fault_points
from migrator.config import CopySettings
from migrator.pipeline.executors import interruption_blocked, jobs_at_a_time
from migrator.pipeline.throttle import Throttle

Job = TypeVar("Job")
Done = TypeVar("Done")


class JobFeeder(Generic[Job, Done]):
    """Jobs that do not depend on each other; iterate over it to run them: it yields each result with its job."""

    def __init__(
        self,
        pool: Executor,
        function: Callable[[Job], Done],
        jobs: Iterable[Job],
        settings: CopySettings,
        throttle: Throttle | None,
        documents: Callable[[Job], int],
        shared: Iterable[Job] = (),
    ) -> None:
        """Submit nothing yet. ``documents``: how many a job reads, about. Without ``throttle`` no job waits.

        ``jobs`` are asked for one by one, at most one before it can be submitted. ``shared`` are submitted after them,
        unless another thread takes them (``take_shared``).
        """
        self._pool = pool
        self._function = function
        self._jobs = iter(jobs)
        self._next: deque[Job] = deque()
        """The one that was asked for and is not submitted."""
        self._shared = deque(shared)
        self._throttle = throttle
        self._documents = documents
        self._at_a_time = jobs_at_a_time(pool, settings)
        self._running: dict[Future[Done], Job] = {}
        self._lock = threading.Lock()
        self._open = threading.Event()
        """Not set while jobs must wait."""
        self._filled = False

    def __iter__(self) -> Iterator[tuple[Job, Done]]:
        """Run the jobs. What a job raises is raised here."""
        try:
            while self._has_more() or self._running:
                seconds = self._submit()
                yield from self._ended(seconds)
        finally:
            self._open.set()

    def interrupt(self) -> Iterator[tuple[Job, Done]]:
        """Submit no more jobs, and take back those that no worker has begun; yield those that end without an error."""
        self._jobs = iter(())
        self._next.clear()
        with self._lock:
            self._shared.clear()
        self._open.set()
        begun = {future: job for future, job in self._running.items() if not future.cancel()}
        for future, job in begun.items():
            with suppress(Exception, KeyboardInterrupt):  # the call ends as interrupted anyway
                yield job, future.result()

    def take_shared(self) -> Job | None:
        """Take the last shared job that is not submitted, for the caller to do; wait as jobs must. None: no more.

        Another thread may call it.
        """
        self._open.wait()
        with self._lock:
            return self._shared.pop() if self._shared else None

    def _has_more(self) -> bool:
        """Whether a job is left that is not submitted."""
        if not self._next:
            self._next.extend(islice(self._jobs, 1))
        return bool(self._next or self._shared)

    def _submit(self) -> float | None:
        """Submit what may begin; return the seconds after which another one may, None: when one ends.

        Worker processes are started here, with Ctrl-C blocked: it goes to the whole process group, and the parent
        handles it, also while a worker is still importing.
        """
        seconds = 0.0
        while len(self._running) < self._at_a_time and self._has_more():
            with self._lock:
                waiting = self._next or self._shared
                if not waiting:
                    break
                if self._throttle is not None:
                    seconds = self._throttle.wait_s(self._documents(waiting[0]))
                if seconds:
                    self._open.clear()
                    break
                job = waiting.popleft()
            self._open.set()
            with interruption_blocked():
                self._running[self._pool.submit(self._function, job)] = job
        if not self._filled and self._running:
            self._filled = True
            with interruption_blocked():
                fault_points.reach(fault_points.AFTER_CHUNKS_SUBMITTED)
        return seconds or None

    def _ended(self, seconds: float | None) -> Iterator[tuple[Job, Done]]:
        """Yield the jobs that have ended within so many seconds."""
        if not self._running:
            if seconds is not None:
                time.sleep(seconds)
            return
        for future in wait(self._running, seconds, return_when=FIRST_COMPLETED).done:
            job = self._running.pop(future)
            yield job, future.result()
