"""Running beside another scheduler that runs the same jobs: what may run twice runs, the rest is only recorded.

Source document 004 lets both sides run everything for a day or two and accepts the duplicates. Here a job runs on the
new side only if its handler is marked idempotent; any other is claimed, found to be shadowed, and ended, so that its
slot, its claim and its end are on record and can be compared with what the other side fired.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from migrator.scheduler.handing import Dispatcher, Reports
from migrator.scheduler.handlers import Outcome
from migrator.store.work import Claim

SHADOWED: Final = b'{"shadowed":true}'
"""The result of a run that was not handed over."""


class ShadowDispatcher:
    """``Dispatcher``: hands over what may run twice, and ends the rest as done without doing it."""

    def __init__(self, inner: Dispatcher, may_run_twice: Callable[[Claim], bool]) -> None:
        """Stand before ``inner``; ``may_run_twice`` tells whether a run's handler is marked idempotent."""
        self._inner, self._may_run_twice = inner, may_run_twice

    def submit(self, claim: Claim, reports: Reports) -> str | None:
        """Hand the run over, or end it; see ``Dispatcher``."""
        if self._may_run_twice(claim):
            return self._inner.submit(claim, reports)
        reports.said(claim, "info", "shadowed: the other scheduler runs it")
        reports.ended(claim, Outcome(state="completed", result=SHADOWED))
        return None

    def cancel(self, run_id: UUID) -> None:
        """Tell the run's handler to stop, if it is here."""
        self._inner.cancel(run_id)

    def close(self) -> None:
        """Tell all of them to stop."""
        self._inner.close()
