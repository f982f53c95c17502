"""A store with a faulty queue, at the top level of a module, so that other processes find it."""

import itertools
import os
import signal
from collections.abc import Sequence
from typing import Any, cast

from migrator.scratch import Delegate
from migrator.store.protocols import Store
from migrator.store.queue import Claim, Queue


class _ClaimsTwice(Delegate[Queue]):
    """Returns the first run of each claim twice."""

    def claim(self, *given: Any, **which: Any) -> Sequence[Claim]:  # noqa: ANN401 - as the queue takes them
        found = self.inner.claim(*given, **which)
        return [*found, *found[:1]]


class _LosesEnds(Delegate[Queue]):
    """Does not end every second run, and says that it is no longer the caller's."""

    def __init__(self, inner: Queue) -> None:
        super().__init__(inner)
        self._ends = itertools.count()

    def finish(self, ends: Any, *given: Any) -> Sequence[Any]:  # noqa: ANN401 - as above
        return self.inner.finish([one for one in ends if next(self._ends) % 2], *given)


class _Dies(Delegate[Queue]):
    """Ends its process at the first claim, as ``kill -9`` does."""

    def claim(self, *_given: Any, **_which: Any) -> Sequence[Claim]:  # noqa: ANN401 - as above
        os.kill(os.getpid(), signal.SIGKILL)
        return []


class _Store(Delegate[Store]):
    def __init__(self, inner: Store, queue: Any) -> None:  # noqa: ANN401 - a queue that forwards the rest
        super().__init__(inner)
        self.queue = queue(inner.queue)


def claims_twice(store: Store) -> Store:
    return cast("Store", _Store(store, _ClaimsTwice))


def loses_ends(store: Store) -> Store:
    return cast("Store", _Store(store, _LosesEnds))


def dies_at_claim(store: Store) -> Store:
    return cast("Store", _Store(store, _Dies))
