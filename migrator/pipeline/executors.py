"""Where chunks run: worker processes of this machine, or a Dask cluster. Both are ``concurrent.futures`` executors."""

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from migrator.config import CopySettings
from migrator.errors import ConfigurationError

PR_SET_PDEATHSIG = 1


def workers(settings: CopySettings) -> int:
    """Return the number of worker processes."""
    return settings.workers or len(os.sched_getaffinity(0))


@contextmanager
def executor(settings: CopySettings) -> Iterator[Executor]:
    """Yield the executor of the configuration; its processes end with the block."""
    if settings.executor == "dask":
        with _dask(settings) as cluster:
            yield cluster
        return
    # spawn: MongoDB's driver has threads, which a forked process would not have
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers(settings), context, _start_worker, (os.getpid(),)) as pool:
        yield pool


@contextmanager
def _dask(settings: CopySettings) -> Iterator[Executor]:
    try:
        import distributed  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError("copy.executor is dask: install the extra, pip install 'migrator[dask]'") from None
    # distributed has no type information
    open_client: Any = distributed.Client
    open_cluster: Any = distributed.LocalCluster
    if settings.dask_scheduler is not None:
        with open_client(settings.dask_scheduler) as client:
            yield client.get_executor(retries=0)
        return
    with (
        open_cluster(n_workers=workers(settings), threads_per_worker=1, dashboard_address=None) as cluster,
        open_client(cluster) as client,
    ):
        yield client.get_executor(retries=0)


def _start_worker(parent: int) -> None:
    """Leave interruption to the parent, which lets chunks finish; die with a parent that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
