"""A Dask cluster as an executor of chunks; needs the extra ``dask``."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import Any

import distributed

from migrator.config import CopySettings
from migrator.errors import ConfigurationError, UnreachableError
from migrator.pipeline.executors import LOST_WORKER, interruption_blocked, workers

ANY_PORT = "127.0.0.1:0"
"""Dask's web server runs in any case; not on its usual port, which may be taken."""

# distributed has no type information
_open_client: Any = distributed.Client
_open_cluster: Any = distributed.LocalCluster


def threads(pool: Executor) -> int:
    """Return how many jobs the cluster of an executor works on at the same time."""
    own: Any = pool
    counts: dict[str, int] = own._client.nthreads()  # noqa: SLF001 - the executor does not say
    return max(1, sum(counts.values()))


@contextmanager
def cluster(settings: CopySettings) -> Iterator[Executor]:
    """Yield the cluster whose address is configured, or one of this machine's processes."""
    with ExitStack() as stack:
        place: Any = settings.dask_scheduler
        if place is None:
            with interruption_blocked():
                own = _open_cluster(n_workers=workers(settings), threads_per_worker=1, dashboard_address=ANY_PORT)
            place = stack.enter_context(own)
        try:
            client = stack.enter_context(_open_client(place))
        except ValueError:
            raise ConfigurationError(f"copy.dask_scheduler: {place} is no address of a Dask scheduler") from None
        except OSError as error:
            raise UnreachableError(f"no Dask scheduler answers at {place}: {type(error).__name__}") from error
        try:
            yield client.get_executor(retries=0, pure=False)  # two equal jobs are two jobs
        except distributed.KilledWorker as error:
            raise UnreachableError(LOST_WORKER) from error
