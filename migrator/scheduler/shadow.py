"""Running beside another scheduler that runs the same jobs: what may run twice runs, the rest is only recorded.

Source document 004 lets both sides run everything for a day or two and accepts the duplicates. Here a job runs on the
new side only if its handler is marked idempotent; any other is claimed, found to be shadowed, and ended, so that its
slot, its claim and its end are on record and can be compared with what the other side fired.
"""

from typing import Final, Protocol, runtime_checkable
from uuid import UUID

from migrator.scheduler.ending import Outcome
from migrator.scheduler.handing import Dispatcher, Reports
from migrator.store.protocols import Store
from migrator.store.queue import Claim, handler_of
from migrator.telemetry import logger

SHADOWED: Final = b'{"shadowed":true}'
"""The result of a run that was not handed over."""


@runtime_checkable
class NewSide(Protocol):
    """A store beside which another scheduler may run; the old side's runs everything, and is none."""

    def runs_beside(self) -> bool:
        """Tell whether another scheduler runs the same jobs now."""


class ShadowDispatcher:
    """``Dispatcher``: hands over what may run twice, and ends the rest as done without doing it.

    That holds while another scheduler runs, which it is told by ``look``; else everything is handed over.
    """

    def __init__(self, inner: Dispatcher) -> None:
        self._inner = inner
        self._beside: Store | None = None
        """Where the handlers' marks are; none: nobody runs beside."""

    def look(self, store: Store) -> None:
        """Ask whether another scheduler runs; what is handed over from now on goes by the answer."""
        beside = isinstance(store, NewSide) and store.runs_beside()
        if beside != (self._beside is not None):
            said = "only handlers marked idempotent run" if beside else "every handler runs"
            logger().info(f"another scheduler {'runs' if beside else 'no longer runs'} beside this one: {said}")
        self._beside = store if beside else None

    def submit(self, claim: Claim, reports: Reports) -> str | None:
        """Hand the run over, or end it; see ``Dispatcher``."""
        if self._beside is None or _may_run_twice(self._beside, claim):
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


def _may_run_twice(store: Store, claim: Claim) -> bool:
    """Tell whether the run's handler is marked idempotent; one that nobody has put on record is not."""
    name = handler_of(claim.schedule)
    if name is None:
        return False
    with store.session(claim.run.tenant_id) as session:
        found = session.handlers.get(name)
    return found is not None and found.idempotent
