"""One worker process for all copies and comparisons of a session, in place of a new one for each.

A worker takes longer to start than the few documents of most tests take to copy. Jobs and results go to another process
and back all the same, and each call finds the worker without connections and knowledge, as a new one is. Calls with
several workers, on Dask, or from a thread, and the commands that tests start, have processes of their own as ever.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context

from migrator.config import CopySettings
from migrator.errors import UnreachableError
from migrator.pipeline import executors, sessions


class KeptWorker:
    """Lends its process; ``executor`` takes the place of the pipeline's."""

    def __init__(self, original: Callable[[CopySettings], AbstractContextManager[Executor]]) -> None:
        self._original = original
        self._pool: ProcessPoolExecutor | None = None
        self._environment: dict[str, str] = {}

    @contextmanager
    def executor(self, settings: CopySettings) -> Iterator[Executor]:
        # a worker dies with the thread that started it
        mine = threading.current_thread() is threading.main_thread()
        if settings.workers != 1 or settings.executor != "local" or not mine:
            with self._original(settings) as pool:
                yield pool
            return
        pool = self._started()
        try:
            yield pool
            pool.submit(forget).result()
        except BrokenProcessPool as error:
            self.close()
            raise UnreachableError(executors.LOST_WORKER) from error
        except BaseException:
            self.close()
            raise

    def _started(self) -> ProcessPoolExecutor:
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        if environment != self._environment:  # a worker has that of its start
            self.close()
        if self._pool is None:
            initial = (os.getpid(),)
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), executors._start_worker, initial)
            self._environment = environment
        return self._pool

    def close(self) -> None:
        """End the process, after what it is doing."""
        pool, self._pool = self._pool, None  # first: the wait may be interrupted
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def forget() -> None:
    """Leave the worker as one that has just been started."""
    sessions.close_cached()
    sessions._RetryBudget.exhausted = False
