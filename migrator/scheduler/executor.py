"""Executors hand a claimed run to its handler: in a thread of this process, or in another system.

While another scheduler runs the same jobs (a parallel run), ``ParallelRunExecutor`` hands over only runs whose handler
is marked idempotent. Any other run is claimed and ended without its handler, so that its slot, its claim and its end
are recorded and can be compared with what the other side fired.
"""

import traceback
from collections.abc import Callable, Collection, Sequence
from threading import Lock, Thread
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from migrator.errors import MigratorError
from migrator.log import logger
from migrator.scheduler import handlers
from migrator.scheduler.completion import Outcome, storable_text
from migrator.scheduler.handlers import ArgumentsError, Context, ExternalSystem, Function, Registry, Request
from migrator.scheduler.parallel_run import source_writes
from migrator.store.protocols import Store
from migrator.store.queue import Claim, asked_of, handler_of
from migrator.values import jsonb

_MAX_ERROR_CHARS = 2_000
_MAX_DETAIL_CHARS = 64_000
_MAX_RESULT_BYTES = 4 * 1024 * 1024
"""Bytes of JSON; it must fit into a MongoDB document with the other fields."""


class RunListener(Protocol):
    """Receives log lines and outcomes of runs; may be called from any thread, late, and more than once."""

    def ended(self, claim: Claim, outcome: Outcome) -> None:
        """Take the outcome of a submitted run; only the first outcome that comes in time counts."""

    def said(self, claim: Claim, level: str, message: str) -> None:
        """Take a line of a run's log."""


class Executor(Protocol):
    """Hands claimed runs to their handlers."""

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        """Start a run, without waiting for it; return its id in the other system, if another system runs it.

        What cannot be run at all is reported as an outcome, not raised. What is raised counts as the run's error.
        """

    def cancel(self, run_id: UUID) -> None:
        """Tell the run's handler, or the other system, to stop; nothing that it returns counts any more."""

    def forget(self, run_id: UUID) -> None:
        """Ask no more for the outcome of a run that another system executes."""

    def collect(self) -> None:
        """Ask other systems for outcomes, and report those that there are."""

    def close(self) -> None:
        """Tell all of them to stop."""


class _SentRun(NamedTuple):
    """A run that another system executes."""

    claim: Claim
    reports: RunListener
    system: ExternalSystem
    task_id: str


class InProcessExecutor:
    """Runs functions in threads of this process, one each, and hands the rest to the registry's other systems.

    The threads do not keep the process from ending: by then their runs were released, or their leases end.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = Lock()
        self._running: dict[UUID, Context] = {}
        self._sent: dict[UUID, _SentRun] = {}

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        """Start the run in a thread, or send it to another system."""
        system = self._registry.system(claim.schedule)
        if system is not None:
            task_id = system.send(_request(claim))
            with self._lock:
                self._sent[claim.run.id] = _SentRun(claim, reports, system, task_id)
            return task_id
        function = self._registry.function(claim.schedule)
        if isinstance(function, str):
            reports.ended(claim, Outcome(state="error", error=function, final=True))
            return None
        context = Context(claim.run, claim.schedule, lambda level, message: reports.said(claim, level, message))
        with self._lock:
            self._running[claim.run.id] = context
        work = (function, claim, context, reports)
        Thread(target=self._work, args=work, name=f"run {claim.run.id}", daemon=True).start()
        return None

    def cancel(self, run_id: UUID) -> None:
        """Tell the run's handler, or the other system, to stop."""
        with self._lock:
            sent = self._sent.pop(run_id, None)
            context = self._running.get(run_id)
        if context is not None:
            context.cancel()
        if sent is not None:
            _ask(sent, sent.system.revoke)

    def forget(self, run_id: UUID) -> None:
        """Ask no more for the outcome of a run that another system executes."""
        with self._lock:
            self._sent.pop(run_id, None)

    def collect(self) -> None:
        """Ask other systems for outcomes, and report those that there are."""
        with self._lock:
            sent: Sequence[_SentRun] = list(self._sent.values())
        for sending in sent:
            outcome = _ask(sending, sending.system.outcome)
            if outcome is not None:
                self.forget(sending.claim.run.id)
                sending.reports.ended(sending.claim, outcome)

    def close(self) -> None:
        """Tell all handlers of this process to stop; what other systems execute goes on there."""
        with self._lock:
            running = list(self._running)
            self._sent.clear()
        for run_id in running:
            self.cancel(run_id)

    def _work(self, function: Function, claim: Claim, context: Context, reports: RunListener) -> None:
        outcome = _call(function, claim, context)
        with self._lock:
            self._running.pop(claim.run.id, None)
        reports.ended(claim, outcome)


def _ask(sent: _SentRun, question: Callable[[str], Outcome | None]) -> Outcome | None:
    """Ask another system; one that cannot answer now is asked again later."""
    try:
        return question(sent.task_id)
    except Exception as error:  # noqa: BLE001 - whatever another system's client raises
        logger().warning("another system does not answer", task=sent.task_id, reason=type(error).__name__)
        return None


def _call(function: Function, claim: Claim, context: Context) -> Outcome:
    try:
        answer = handlers.call_handler(function, claim.arguments, context)
    except ArgumentsError as error:
        return Outcome(state="error", error=storable_text(str(error), _MAX_ERROR_CHARS), final=True)
    except BaseException as error:  # noqa: BLE001 - whatever ends a handler is the run's error, not the process's
        return failure_outcome(error)
    return completed_outcome(answer)


def completed_outcome(answer: object) -> Outcome:
    """Return the outcome of a run whose handler returned a value: an error if that is no JSON, or too large."""
    if answer is None:
        return Outcome(state="completed")
    try:
        result = jsonb.encode(answer)
    except Exception as error:  # noqa: BLE001 - whatever keeps a value from being written is the run's error
        return Outcome(state="error", error=f"the result is no JSON: {type(error).__name__}", final=True)
    if len(result) > _MAX_RESULT_BYTES:
        return Outcome(state="error", error=f"the result is larger than {_MAX_RESULT_BYTES} bytes", final=True)
    return Outcome(state="completed", result=result)


def failure_outcome(error: BaseException) -> Outcome:
    """Return an exception as the outcome of a run: its type, its message, and the traceback."""
    message = "".join(traceback.format_exception_only(error)).strip()
    detail = "".join(traceback.format_exception(error))
    return Outcome(
        state="error",
        error=storable_text(message, _MAX_ERROR_CHARS),
        error_detail=storable_text(detail, _MAX_DETAIL_CHARS),
    )


def _request(claim: Claim) -> Request:
    schedule, run = claim.schedule, claim.run
    assert schedule is not None  # noqa: S101 - its type of handler was asked for
    return Request(
        run_id=run.id,
        tenant_id=run.tenant_id,
        handler_name=handler_of(schedule) or "",
        handler_type=schedule.handler_type or "",
        queue=schedule.queue,
        arguments=claim.arguments,
        asked=asked_of(run),
        attempt=run.attempt or 1,
        fence=claim.fence,
        trace_id=run.trace_id,
        span_id=run.span_id,
    )


DRY_RUN: Final = b'{"dry_run":true}'
"""The result of a run whose handler was not called."""


class RunReleasedError(MigratorError):
    """The executor does not take the run now: it is to be released, and claimed again."""


class ParallelRunExecutor:
    """During a parallel run, executes only runs that may run twice; the others end as completed without their handler.

    ``look`` asks the store whether a parallel run is in progress; outside of one every run is executed.
    """

    def __init__(self, inner: Executor, idempotent: Collection[str] = ()) -> None:
        """``idempotent``: the handlers that were registered as such; those that are stored as such count too."""
        self._inner, self._idempotent = inner, idempotent
        self._parallel_store: Store | None = None
        """The store that says which handlers are idempotent; None outside of a parallel run."""

    def look(self, store: Store) -> None:
        """Ask the store whether a parallel run is in progress; the answer holds until the next call."""
        parallel = source_writes(store)
        if parallel != (self._parallel_store is not None):
            said = "only handlers marked idempotent run" if parallel else "every handler runs"
            logger().info(
                f"another scheduler {'runs' if parallel else 'no longer runs'} in parallel with this one: {said}"
            )
        self._parallel_store = store if parallel else None

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        """Execute the run, or end it as completed.

        Raises ``RunReleasedError`` if the parallel run has ended since ``look``. Whether the run was claimed before or
        after that is not known, and only what was claimed before may end without its handler.
        """
        if (
            self._parallel_store is None
            or handler_of(claim.schedule) in self._idempotent
            or _may_run_twice(self._parallel_store, claim)
        ):
            return self._inner.submit(claim, reports)
        if not source_writes(self._parallel_store):
            raise RunReleasedError("the parallel run has ended: the run is claimed again")
        reports.said(claim, "info", "dry run: the other scheduler runs it")
        reports.ended(claim, Outcome(state="completed", result=DRY_RUN))
        return None

    def cancel(self, run_id: UUID) -> None:
        """Tell the run's handler, or the other system, to stop."""
        self._inner.cancel(run_id)

    def forget(self, run_id: UUID) -> None:
        """Ask no more for the outcome of a run that another system executes."""
        self._inner.forget(run_id)

    def collect(self) -> None:
        """Ask other systems for outcomes, and report those that there are."""
        self._inner.collect()

    def close(self) -> None:
        """Tell all of them to stop."""
        self._inner.close()


def _may_run_twice(store: Store, claim: Claim) -> bool:
    """Whether the run's handler is marked idempotent; a handler that is not stored is not."""
    name = handler_of(claim.schedule)
    if name is None:
        return False
    with store.session(claim.run.tenant_id) as session:
        found = session.handlers.get(name)
    return found is not None and found.idempotent
