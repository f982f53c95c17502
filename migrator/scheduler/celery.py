"""Runs that Celery executes: each is a task with the name of its handler, in the queue of its schedule.

Needs the extra ``celery``. The worker sends the task, asks Celery's result backend how it ended, and revokes it if the
run is cancelled or times out. A task that never reports would time out, and be executed again: so the result is asked
for also where the task, or the application, ignores results. Tasks of an application without a result backend end their
runs by ``Scheduler.complete``: the header ``migrator`` of the task's request says which run it is.
"""

from typing import Any, Final
from uuid import uuid5

from migrator.errors import ConfigurationError, install_extra
from migrator.scheduler.completion import Outcome, storable_text
from migrator.scheduler.executor import completed_outcome
from migrator.scheduler.handlers import ExternalSystem, Request

try:
    from celery import Celery, states
    from celery.backends.base import DisabledBackend
except ImportError:
    raise ConfigurationError(f"Celery executes runs: install the extra, {install_extra('celery')}") from None

HEADER: Final = "migrator"
"""Header of a task. It holds ``runId``, ``tenantId``, ``fence``, ``attempt``, ``asked``, ``traceId`` and ``spanId``."""

_LONGEST_ERROR: Final = 2_000
_LONGEST_TRACEBACK: Final = 64_000


class CelerySystem(ExternalSystem):
    """A Celery application: ``registry.send_with("celery_task", CelerySystem(app))``."""

    def __init__(self, app: Celery, *, terminate: bool = False, tasks_report: bool = False) -> None:
        """``terminate``: a task that runs is killed when its run is cancelled or times out.

        If false, only a task that has not begun is given up; one that runs goes on, and its outcome does not count.
        ``tasks_report``: each task ends its run itself, by ``Scheduler.complete``. Raises ``ConfigurationError`` for an
        application without a result backend whose tasks do not.
        """
        self._app, self._terminate = app, terminate
        self._has_results = not isinstance(app.backend, DisabledBackend)
        if not self._has_results and not tasks_report:
            raise ConfigurationError(
                "the Celery application has no result backend: nobody would learn how a task ended, and its run would"
                " time out and be executed again; set result_backend, or give CelerySystem tasks_report=True if each"
                " task ends its run by Scheduler.complete"
            )

    def send(self, request: Request) -> str:
        """Send the task. Its id follows from run and fence: a claim that is handed over twice is one task."""
        task_id = str(uuid5(request.run_id, f"celery/{request.fence}"))
        run: dict[str, Any] = {
            "runId": str(request.run_id),
            "tenantId": request.tenant_id,
            "fence": request.fence,
            "attempt": request.attempt,
            "asked": dict(request.asked),
            "traceId": request.trace_id,
            "spanId": request.span_id,
        }
        self._app.send_task(
            request.handler_name,
            kwargs=dict(request.arguments),
            task_id=task_id,
            queue=request.queue,
            headers={HEADER: run},
            ignore_result=False,  # whatever the task and the worker's settings say
        )
        return task_id

    def revoke(self, task_id: str) -> None:
        """Revoke the task."""
        self._app.control.revoke(task_id, terminate=self._terminate)

    def outcome(self, task_id: str) -> Outcome | None:
        """Return how the task ended, by the result backend; None if there is no backend."""
        if not self._has_results:
            return None
        task = self._app.AsyncResult(task_id)
        match task.state:
            case states.SUCCESS:
                outcome = completed_outcome(task.result)
            case states.REVOKED:
                outcome = Outcome(state="cancelled", error="revoked in Celery")
            case states.FAILURE:
                outcome = Outcome(
                    state="error",
                    error=storable_text(f"{type(task.result).__name__}: {task.result}", _LONGEST_ERROR),
                    error_detail=storable_text(str(task.traceback), _LONGEST_TRACEBACK),
                )
            case _:
                return None
        return outcome
