"""What is next, fetched in a thread while this is worked on: events, and documents.

The servers' time for the one and this process's time for the other pass together. Events that come while a batch is
applied are all one batch, up to a bound: the further behind the tail is, the more events a transaction holds, and the
more of them name the same document, which is read once.
"""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TypeVar

from migrator.pipeline.tail.events import Batch, Stream

Kind = TypeVar("Kind")

BATCH_EVENTS = 2_000
BATCH_S = 0.1
"""A transaction holds so many events, or those of so long: enough for a commit to cost little, too few to be late."""
MOST_EVENTS = 10_000
"""So many, when they have come while the one before was under way."""
GRACE_S = 1.0


class EventsAhead:
    """Takes events from a stream before they are asked for."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._wanted = threading.Event()
        self._closed = False
        self._taken: SimpleQueue[Batch | BaseException] = SimpleQueue()
        self._thread = _begin(self._gather)

    def take(self) -> Batch:
        """Return the next batch; after one that ``ended`` there is none. Raises what the stream raises."""
        self._wanted.set()
        return _unwrapped(self._taken.get())

    def close(self) -> None:
        """Close the stream; a server that does not answer is not waited for."""
        self._closed = True
        self._wanted.set()
        self._thread.join(GRACE_S)
        self._stream.close()

    def _gather(self) -> None:
        try:
            while not self._closed:
                batch = self._stream.take(BATCH_EVENTS, BATCH_S)
                while not self._wanted.is_set() and not batch.ended and batch.events < MOST_EVENTS:
                    batch.add(self._stream.take(BATCH_EVENTS, BATCH_S))
                self._wanted.wait()
                self._wanted.clear()
                self._taken.put(batch)
                if batch.ended:
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the batch is asked for
            self._taken.put(error)


def ahead(items: Iterator[Kind]) -> Iterator[Kind]:
    """Yield the items; each is fetched while the one before is worked on."""
    following: SimpleQueue[tuple[Kind] | BaseException | None] = SimpleQueue()

    def fetch() -> None:
        try:
            following.put(next(((item,) for item in items), None))
        except BaseException as error:  # noqa: BLE001 - raised where the item is asked for
            following.put(error)

    thread = _begin(fetch)
    while (found := _unwrapped(following.get())) is not None:
        thread = _begin(fetch)
        yield found[0]
    thread.join()


def _begin(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="tail", daemon=True)
    thread.start()
    return thread


def _unwrapped(found: Kind | BaseException) -> Kind:
    if isinstance(found, BaseException):
        raise found
    return found
