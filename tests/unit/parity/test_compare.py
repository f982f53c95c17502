"""Documents that are compared one by one are compared many at a time, also those of several batches."""

from types import SimpleNamespace
from typing import Any

import pytest

from migrator.parity import compare
from migrator.pipeline.extract import BATCH_BYTES


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1_000, [250, 250, 100]), (BATCH_BYTES // 4, [10] * 60), (BATCH_BYTES // 40 + 1, [40] * 15)],
)
def test_as_many_are_compared_together_as_memory_holds(size: int, expected: list[int]) -> None:
    small: list[Any] = [[SimpleNamespace(raw=bytes(size)) for _ in range(10)] for _ in range(60)]
    together = [len(documents) for documents in compare._fetched_together(iter(small))]
    assert together == expected
