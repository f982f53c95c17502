"""Percentiles of what was measured."""

import math
import time
from collections.abc import Callable, Sequence


def percentile(values: Sequence[float], of: float) -> float:
    """Return the smallest value that ``of`` (0 to 1) of all are not above: a value that was measured."""
    ordered = sorted(values)
    return ordered[max(math.ceil(of * len(ordered)) - 1, 0)]


def repeated(times: int, work: Callable[[], object], *, warm: int = 2) -> list[float]:
    """Call ``work`` ``warm`` times, then ``times`` times; return the milliseconds of the latter."""
    for _ in range(warm):
        work()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return took
