"""The rate from which the write pause of a cutover is expected."""

import pytest

from migrator.cutover.write_pause import ASSUMED_RATE, comparison_rate


@pytest.mark.parametrize(
    ("documents", "seconds", "rate", "measured"),
    [
        (14, 6.0, ASSUMED_RATE, False),
        (0, 3.0, ASSUMED_RATE, False),
        (0, 0.0, ASSUMED_RATE, False),
        (999, 59.9, ASSUMED_RATE, False),
        (500, 0.25, 2_000.0, False),
        (1_000, 50.0, 20.0, True),
        (1_000_000, 100.0, 10_000.0, True),
        (20, 60.0, 1.0, True),
        (90, 60.0, 1.5, True),
    ],
)
def test_a_rate_is_that_of_a_check_that_is_large_enough(
    documents: int, seconds: float, rate: float, *, measured: bool
) -> None:
    assert comparison_rate(documents, seconds) == (rate, measured)
