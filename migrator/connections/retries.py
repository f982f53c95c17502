"""Retries of work that a server let fail for the moment: stamina waits between them, and each wait is reported.

The store's conflicts between sessions, which end within milliseconds and are nobody's business, are another concept:
``store.conflicts``.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from migrator.telemetry import waiting

if TYPE_CHECKING:
    from stamina.instrumentation import RetryDetails

Result = TypeVar("Result")

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0


def retry(
    work: Callable[[], Result],
    again: Callable[[Exception], bool | float],
    reason: Callable[[Exception], str] = str,
) -> Result:
    """Run ``work`` until it returns, and return what it returns; report each wait on standard error.

    ``again`` decides after an error: false raises the error as it is; true runs ``work`` again after a wait, which
    grows from ``FIRST_WAIT_S`` to ``LONGEST_WAIT_S`` with some jitter; a number is the seconds to wait. ``reason`` says
    the error in words.
    """
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - ``again`` decides which of them ends it
        failures = [error]
    import stamina  # noqa: PLC0415 - it takes as long to import as a small copy; most work does not fail

    stamina.instrumentation.set_on_retry_hooks([partial(_report, reason)])
    for attempt in stamina.retry_context(
        on=again, attempts=None, timeout=None, wait_initial=FIRST_WAIT_S, wait_max=LONGEST_WAIT_S
    ):
        with attempt:
            if failures:
                raise failures.pop()  # of the first call, which is the first attempt
            return work()
    raise AssertionError("retry_context ends with a result or an error")


def _report(reason: Callable[[Exception], str], details: "RetryDetails") -> None:
    """Say why nothing moves; in place of stamina's own line, which would go to standard output."""
    waiting(f"{reason(details.caused_by)}; trying again in {details.wait_for:.1f} s")
