"""Retries of work that a server let fail for the moment: stamina waits between them, and each wait is reported.

The store's conflicts between sessions, which end within milliseconds and are nobody's business, are another concept:
``store.conflicts``.
"""

from collections.abc import Callable
from typing import TypeVar

import psycopg
import stamina
from pymongo.errors import PyMongoError

from migrator.connections import mongo, postgres
from migrator.errors import MigratorError, UnreachableError
from migrator.telemetry import waiting

Result = TypeVar("Result")

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0


def retry(work: Callable[[], Result], again: Callable[[Exception], bool | float]) -> Result:
    """Run ``work`` until it returns, and return what it returns; report each wait on standard error.

    ``again`` decides after an error: false raises the error as it is; true runs ``work`` again after a wait, which
    grows from ``FIRST_WAIT_S`` to ``LONGEST_WAIT_S`` with some jitter; a number is the seconds to wait.
    """
    stamina.instrumentation.set_on_retry_hooks([_report])
    for attempt in stamina.retry_context(
        on=again, attempts=None, timeout=None, wait_initial=FIRST_WAIT_S, wait_max=LONGEST_WAIT_S
    ):
        with attempt:
            return work()
    raise AssertionError("retry_context ends with a result or an error")


def is_transient(error: BaseException | None) -> bool:
    """Tell whether another attempt may pass: of a driver's error, or of the tool's error that it caused."""
    if isinstance(error, psycopg.Error):
        return postgres.is_transient(error)
    if isinstance(error, PyMongoError):
        return mongo.is_transient(error)
    return (
        isinstance(error, UnreachableError)
        and isinstance(error.__cause__, psycopg.Error | PyMongoError)
        and is_transient(error.__cause__)
    )


def reason_of(error: Exception) -> str:
    """Return one of the drivers' errors, or of the tool's, as a sentence without credentials."""
    try:
        with postgres.translate_errors("the target"), mongo.translate_errors("the source"):
            raise error
    except MigratorError as translated:
        return str(translated)


def _report(details: stamina.instrumentation.RetryDetails) -> None:
    """Say why nothing moves; in place of stamina's own line, which would go to standard output."""
    waiting(f"{reason_of(details.caused_by)}; trying again in {details.wait_for:.1f} s")
