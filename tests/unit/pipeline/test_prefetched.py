"""Reading ahead: the next batch is read while the caller has the last one; errors and early ends lose nothing."""

import threading
from collections.abc import Generator

import pytest

from migrator.pipeline.extract import prefetched


class Batches:
    """Three batches; ``read``: those that were begun, and ``closed``: whether the cursor was."""

    def __init__(self, fails_at: int = -1) -> None:
        self.read: list[int] = []
        self.closed = False
        self.second_is_read = threading.Event()
        self._fails_at = fails_at

    def __call__(self) -> Generator[bytes, None, None]:
        try:
            for number in range(3):
                self.read.append(number)
                if number == 1:
                    self.second_is_read.set()
                if number == self._fails_at:
                    raise ConnectionError("the server went away")
                yield bytes([number])
        finally:
            self.closed = True


def test_every_batch_comes_once_and_in_order() -> None:
    batches = Batches()
    assert list(prefetched(batches())) == [b"\0", b"\1", b"\2"]
    assert batches.closed


def test_the_next_batch_is_read_while_the_caller_has_the_last_one() -> None:
    batches = Batches()
    ahead = prefetched(batches())
    assert next(ahead) == b"\0"
    assert batches.second_is_read.wait(10)


def test_what_reading_raises_is_raised_after_the_batches_before_it() -> None:
    batches = Batches(fails_at=1)
    ahead = prefetched(batches())
    assert next(ahead) == b"\0"
    with pytest.raises(ConnectionError):
        next(ahead)
    assert batches.closed


def test_a_caller_that_ends_early_does_not_wait_and_no_further_batch_is_read() -> None:
    batches = Batches()
    ahead = prefetched(batches())
    next(ahead)
    assert batches.second_is_read.wait(10)
    del ahead
    for thread in threading.enumerate():
        if thread.name == "read ahead":
            thread.join()
    assert batches.read == [0, 1]
    assert batches.closed
