"""Handlers by name: the registry, the contract of a handler, its context, and the handler of the action ``create_job``.

A handler is a standalone function that takes keywords only: the members of the schedule's payload, and ``context`` if
it asks for it. That contract is checked when it is registered, not when it first runs: a method, or a function that
wants a database session or a request, is refused there.
"""

import asyncio
import importlib
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import Event as Flag
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID, uuid5

import msgspec

from migrator import states
from migrator.argument_types import check_type, checked
from migrator.errors import UsageError
from migrator.records import Run, Schedule
from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome
from migrator.scheduler.models import ScheduleRequest
from migrator.store.queue import HandlerFilter, asked_of, handler_of

FORBIDDEN_PARAMETERS: Final = frozenset({"self", "cls", "db", "session", "request"})
"""Parameters that say that a function cannot stand alone (a handler with them fails only when it first runs)."""

EXTERNAL_TYPES: Final = frozenset({"agent", "workflow", "celery_task"})
"""Types of handlers that another system runs: it gets a request, and tells the outcome later."""

CONTEXT: Final = "context"


class Context:
    """What a handler knows of its run, and how it writes to the run's log.

    Attributes: ``run_id``, ``schedule_id``, ``tenant_id``, ``attempt`` (from 1), ``scheduled_at`` (the slot; None for a
    run by hand), ``queue``, ``trace_id``, ``span_id``, ``parent_span_id``, and ``asked``: a mapping with ``event``,
    ``eventId`` and ``payload`` of the event that queued the run, or ``arguments`` of ``trigger_now``; empty for a
    planned one.
    """

    def __init__(self, run: Run, schedule: Schedule | None, log: Callable[[str, str], None]) -> None:
        self.run_id: UUID = run.id
        self.schedule_id = run.schedule_id
        self.tenant_id = run.tenant_id
        self.attempt = run.attempt or 1
        self.scheduled_at = run.scheduled_at
        self.trace_id, self.span_id, self.parent_span_id = run.trace_id, run.span_id, run.parent_span_id
        self.queue = None if schedule is None else schedule.queue
        self.asked: Mapping[str, Any] = asked_of(run)
        """What came with the request for this run (``asked_of``)."""
        self._log = log
        self._cancelled = Flag()

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled, timed out or taken away: nothing it returns will count."""
        return self._cancelled.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for this long, or until the run is cancelled; return whether it is cancelled."""
        return self._cancelled.wait(seconds)

    def cancel(self) -> None:
        """Tell the handler to stop."""
        self._cancelled.set()

    def log(self, message: str, level: str = "info") -> None:
        """Add a line to the run's log; raises ``UsageError`` for an unknown level, or a message that is no text."""
        check_type("message", message, str)
        if level not in states.LOG_LEVELS:
            raise UsageError(f"unknown log level {level!r}; known: {', '.join(states.LOG_LEVELS)}")
        self._log(level, message)


class ArgumentsError(UsageError):
    """A handler does not take the arguments of a run: no retry would change that."""


Function: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Function)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What another system is asked to run."""

    run_id: UUID
    tenant_id: str
    handler_name: str
    handler_type: str
    queue: str | None
    arguments: Mapping[str, Any]
    asked: Mapping[str, Any]
    """What came with the request for this run (``asked_of``)."""
    attempt: int
    fence: int
    """Of the claim: with it the other system ends this run (``Scheduler.complete``), and not a later claim of it."""
    trace_id: str | None
    span_id: str | None


class ExternalSystem:
    """Another system that executes runs: a task queue, a workflow engine. A subclass says how runs get there.

    The outcome of a run comes back in one of two ways: a process of the other system calls ``Scheduler.complete``, or
    the worker that sent the run asks ``outcome``.
    """

    def send(self, request: Request) -> str:
        """Hand over a run without waiting for it; return the id that it goes by there (``external_task_id``).

        What is raised counts as the run's error. It is called again, with a higher fence, only if the run was queued
        again.
        """
        raise NotImplementedError

    def revoke(self, task_id: str) -> None:
        """Stop a run that was cancelled, timed out or taken away; nothing that comes back of it counts any more."""

    def outcome(self, task_id: str) -> Outcome | None:  # noqa: ARG002 - a subclass asks
        """Return how a run ended; None while it has not, and if ``Scheduler.complete`` tells it."""
        return None


class Registry:
    """The handlers of a worker: functions by name.

    A handler is a standalone function that takes keywords: the members of the schedule's payload, and ``context`` (a
    ``Context``) if it has such a parameter. It may be a coroutine function. What it returns is stored as the run's
    result, as JSON; what it raises makes the run fail.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self.idempotent: set[str] = set()
        """The handlers that may run twice: a parallel run calls them too."""
        self._systems: dict[str, ExternalSystem] = {}

    @checked
    def register(self, name: str, function: Function, *, idempotent: bool = False) -> Function:
        """Add a function; return it. ``UsageError`` if it cannot be a handler, or the name is taken.

        ``idempotent``: it may run twice for one slot, so it is called also while another scheduler runs the same jobs.
        """
        if not name:
            raise UsageError("a handler needs a name")
        if name in self._functions and self._functions[name] is not function:
            raise UsageError(f"two handlers have the name {name!r}")
        check_handler(name, function)
        self._functions[name] = function
        if idempotent:
            self.idempotent.add(name)
        return function

    def handler(self, name: str, *, idempotent: bool = False) -> Callable[[F], F]:
        """Return a decorator that registers a function; ``idempotent`` as of ``register``."""

        def register(function: F) -> F:
            self.register(name, function, idempotent=idempotent)
            return function

        return register

    def send_with(self, handler_type: str, system: ExternalSystem) -> None:
        """Hand runs of this type (agent, workflow, celery_task) to another system."""
        if handler_type not in EXTERNAL_TYPES:
            raise UsageError(f"handlers of type {handler_type!r} run here; others: {', '.join(sorted(EXTERNAL_TYPES))}")
        self._systems[handler_type] = system

    def create_jobs(self, name: str, client_of: Callable[[str], Scheduler]) -> None:
        """Register a handler that makes a one-time schedule of each run; ``client_of`` returns the client of a tenant.

        The member ``action_config`` of its payload says which: ``handler_name``, and if wanted ``name``, ``payload``,
        ``priority``, ``max_retries``, ``timeout_ms``, ``queue``, ``description``.
        """
        self.register(name, job_creator(client_of))

    def function(self, schedule: Schedule | None) -> Function | str:
        """Return the function or system that a run of the schedule calls, or the reason why there is none."""
        name = handler_of(schedule)
        if name is None:
            return "no handler: the run's schedule names none"
        found = self._functions.get(name)
        return f"unknown handler: {name}" if found is None else found

    def system(self, schedule: Schedule | None) -> ExternalSystem | None:
        """Return the system that executes the schedule's handler; None if this process does."""
        kind = None if schedule is None else schedule.handler_type
        return None if kind is None else self._systems.get(kind)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(sorted(self._functions))

    @property
    def filter(self) -> HandlerFilter:
        """What a process with these handlers fires and claims: their schedules, and no others."""
        return HandlerFilter(names=self.names, types=tuple(sorted(self._systems)))


def check_handler(name: str, function: Function) -> None:
    """Raise ``UsageError`` where a function cannot be a handler."""
    if not callable(function):
        raise UsageError(f"the handler {name!r} cannot be called")
    if inspect.ismethod(function):
        raise UsageError(f"the handler {name!r} is a method; a handler is a standalone function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UsageError(f"the handler {name!r} does not say what it takes") from None
    for parameter in parameters:
        if parameter.name in FORBIDDEN_PARAMETERS:
            raise UsageError(f"the handler {name!r} wants {parameter.name!r}: a handler is given its payload alone")
        if parameter.kind is parameter.POSITIONAL_ONLY or parameter.kind is parameter.VAR_POSITIONAL:
            raise UsageError(f"the handler {name!r} takes positional arguments; a handler is given keywords")


def load_registry(path: str) -> Registry:
    """Import ``module:name``, a ``Registry`` or a mapping of names to functions.

    Raises ``UsageError`` where there is no such thing, or a function in it breaks the contract.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise UsageError(f"the handlers (scheduler.handlers, --handlers) are named as module:name, not {path}")
    try:
        loaded: Any = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"the module {module} of the handlers (scheduler.handlers, --handlers) cannot be imported: {error}"
        ) from None
    except Exception as error:
        raise UsageError(
            f"the module {module} of the handlers (scheduler.handlers, --handlers) fails while it is imported:"
            f" {type(error).__name__}"
        ) from error
    for part in name.split("."):
        if not hasattr(loaded, part):
            raise UsageError(f"the module {module} of the handlers (scheduler.handlers, --handlers) has no {name}")
        loaded = getattr(loaded, part)
    if isinstance(loaded, Registry):
        return loaded
    if isinstance(loaded, Mapping):
        registry = Registry()
        for key, function in loaded.items():
            registry.register(key, function)
        return registry
    raise UsageError(f"{path} is neither a registry nor a mapping of names to functions")


def call_handler(function: Function, arguments: Mapping[str, Any], context: Context) -> Any:  # noqa: ANN401 - what it returns
    """Call a handler, and run what it returns to its end where it is a coroutine.

    Raises ``ArgumentsError`` if it does not take these arguments, before it is called.
    """
    named = dict(arguments)
    signature = inspect.signature(function)
    if CONTEXT in signature.parameters:
        named[CONTEXT] = context
    try:
        signature.bind(**named)
    except TypeError as error:
        raise ArgumentsError(f"the handler does not take the arguments of the run: {error}") from None
    answer = function(**named)
    if inspect.iscoroutine(answer):
        return asyncio.run(answer)
    return answer


_JOB_FIELDS = frozenset({"name", "payload", "priority", "max_retries", "queue", "description"})


def job_creator(service_of: Callable[[str], Scheduler]) -> Function:
    """Return the function to register under the names of such handlers; ``service_of`` returns the client of a tenant.

    The id of the job is that of its run: a run that is delivered twice makes one job. It raises ``UsageError`` for a
    config that is not valid, which makes the run fail.
    """

    def create_job(*, action_config: Mapping[str, Any], context: Context, action_type: str = "create_job") -> str:
        if action_type != "create_job":
            raise UsageError("the action is not create_job")
        handler = action_config.get("handler_name")
        if not isinstance(handler, str):
            raise UsageError("the config of create_job names no handler_name")
        service = service_of(context.tenant_id)
        identity = uuid5(context.run_id, "job")
        if service.get(identity) is None:
            named = {name: value for name, value in action_config.items() if name in _JOB_FIELDS}
            limit = action_config.get("timeout_ms")
            named["timeout"] = timedelta(milliseconds=limit) if isinstance(limit, int | float) else limit
            named.setdefault("name", f"{handler}:{context.run_id}")
            service.schedule_once(
                ScheduleRequest(
                    id=identity,
                    handler_name=handler,
                    created_by="create_job",
                    metadata=dict(context.asked) or None,
                    **named,
                )
            )
        return str(identity)

    return create_job
