"""The queue: firing due triggers and claiming runs, across tenants.

Each call is a transaction of its own. ``now`` is for tests; if omitted, it is the database's clock. It is cut to whole
milliseconds, as all times written here; one without zone raises ``UsageError``. A refused call changes nothing. Lists
of ids have no order, and name each id once.

A slot is due at its very instant; a lease or a timeout is over at its very instant. Each change of a run makes its
``updated_at`` now. A run inserted here (fired, or a retry) follows the rules of ``Runs.create``: numbered, attempt 1 if
trigger and slot are given and it is not; only its references are not looked up again. Rows of ``*`` are served like
others: their runs belong to ``*``, and have no number.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol
from uuid import UUID

import msgspec

from migrator.records import Run, Schedule, Trigger
from migrator.store.validation import GLOBAL
from migrator.values import jsonb

SCRATCH: Final = "~verify-"
"""Prefix of a verification's tenants. They are served only if named, so that no live scheduler serves them."""


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """What firing a trigger leads to, decided by a pure function (``scheduler.firing.plan``)."""

    runs: tuple[Run, ...]
    """Runs to be inserted as they are, in this order; one whose slot or dedupe key is taken already is skipped."""
    trigger: Trigger
    """The trigger afterwards: the same id, else ``UsageError``."""
    schedule_status: str | None = None
    """A status for the schedule (completed, if nothing will fire any more); None leaves it unchanged.

    Written if the transitions lead there from its status now, by way of running if need be; else it stays.
    ``updated_at`` becomes now, and ``completed_at`` with completed.
    """


class FirePlan(Protocol):
    """Decides what a due trigger leads to; called inside the transaction that has locked its row."""

    def __call__(self, schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
        """Return the decision; ``live_runs`` are the schedule's queued and running ones."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a worker holds; ``fence`` and ``worker_id`` must match for anything it writes."""

    run: Run
    schedule: Schedule | None

    @property
    def fence(self) -> int:
        """The run's fence at the time it was claimed."""
        return self.run.fence or 0

    @property
    def arguments(self) -> dict[str, Any]:
        """The keywords of the handler: the members of the schedule's payload, and those that ``trigger_now`` was given.

        A payload that is no object is the keyword ``payload``.
        """
        stored = None if self.schedule is None else self.schedule.payload
        payload: Any = None if stored is None else jsonb.decode(stored)
        given = payload if isinstance(payload, dict) else {} if payload is None else {"payload": payload}
        more: Any = asked_of(self.run).get(ARGUMENTS)
        return {**given, **more} if isinstance(more, dict) else dict(given)


class HandlerFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers that a caller has registered: only their schedules are fired, and only their runs are claimed."""

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    """Types of handlers (agent, workflow, celery_task) that the caller runs in another system, whatever their name."""


ARGUMENTS: Final = "arguments"
"""The member of a run's metadata that has the keywords of one run alone."""


def asked_of(run: Run) -> dict[str, Any]:
    """Return the members of the request for a run: ``event``, ``eventId`` and ``payload``, or ``arguments``.

    Empty for a planned run.
    """
    metadata: Any = None if run.metadata is None else jsonb.decode(run.metadata)
    return dict(metadata) if isinstance(metadata, dict) else {}


def handler_of(schedule: Schedule | None) -> str | None:
    """Return the name of a schedule's handler: the one it states, else its mode (StellaOps schedules have one)."""
    return None if schedule is None else schedule.handler_name or schedule.mode


def is_served(schedule: Schedule | None, queues: Sequence[str] | None, handlers: HandlerFilter | None) -> bool:
    """Return whether a caller with these queues and handlers works for a schedule; None is no condition."""
    if schedule is None:
        return queues is None and handlers is None
    if queues is not None and schedule.queue not in queues:
        return False
    return handlers is None or handler_of(schedule) in handlers.names or schedule.handler_type in handlers.types


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """How a claimed run ends."""

    run_id: UUID
    tenant_id: str
    worker_id: str
    fence: int
    state: Literal["completed", "error", "cancelled", "timeout"]
    """Any other state raises ``TransitionError``, an unknown word ``UsageError``."""
    result: bytes | None = None
    error: str | None = None
    error_detail: str | None = None
    retry: Run | None = None
    """The queued run that repeats it, inserted in the same transaction if the write succeeds.

    It is skipped if its slot or dedupe key is taken; the run ends all the same. It has no trigger if the run that ends
    has none any more (deleted since it was claimed). One of another tenant raises ``UsageError``.
    """
    schedule_status: str | None = None
    """A status for a schedule that is running now, and not deleted; None leaves it. It must be able to follow running.

    ``updated_at`` becomes now, and ``completed_at`` with completed.
    """


class Queue(Protocol):
    """Firing and claiming, across tenants.

    ``tenants`` None: all tenants but those that begin with ``SCRATCH``; else exactly these. A limit below 1, or a lease
    not above zero, raises ``UsageError``.
    """

    def tenants(self) -> Sequence[str]:
        """Return the tenants with runs, or with schedules that are not deleted, by name; ``*`` and scratch ones too."""

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
    ) -> Sequence[Run]:
        """Fire due triggers: lock them (skipping locked ones), insert runs, advance; return the runs inserted.

        Due are enabled triggers whose next fire is not after now, of enabled, not deleted schedules in status pending,
        scheduled or running; by the schedule's priority, highest first (null is 50), then by that fire, then by id. If
        a slot has its run already (same trigger, slot and attempt), that run is not inserted, and the trigger advances.
        ``limit`` counts triggers. They are fired one after the other: the plan of a trigger sees what the ones before
        it changed (the status of the schedule that they share, its live runs). If the schedule may not run any more,
        the trigger is left as it is, and counts all the same. So is a trigger that cannot be read, and one whose plan
        or runs are refused: it is named in the log (``left_rows``), and hides none. The error is raised only if no
        trigger could be fired.

        ``queues`` and ``handlers`` as for ``claim``: triggers of other schedules stay as they are, and hide none.
        """

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
        tenants: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        """Take queued runs that are available, by the schedule's priority, then by when they became available, then id.

        ``queues``: only runs whose schedule names one of these; None: all. ``handlers``: only runs whose schedule's
        handler is one of these (``is_served``); None: all. A run without a schedule has priority 50, no queue and no
        handler. A run without ``available_at`` is available from ``created_at`` on: one key orders and bounds the
        queued runs.

        The runs are then running, with the worker's id, a fence one higher than before and a lease. A schedule never
        has more running runs than its ``max_concurrency``, whichever process claims. Runs of a disabled, paused or
        deleted schedule stay queued. Neither hides a run after them. ``started_at`` becomes now if there is none.
        """

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        """Extend the leases; return the ids of the runs that are still this worker's and running.

        A lease lasts from now, and never gets shorter. A lease that is over is extended too, if no process has ended
        the run for it.
        """

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End runs that are still running under the same worker and fence; return their ids.

        result, error and error_detail are replaced; finished_at is now, duration_ms follows; the lease ends, worker and
        fence stay. The worker of a run without one is the empty text, the fence of a run without one is 0.
        """

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        """Put unfinished runs back (shutdown): queued again, attempt unchanged; return the ids of those that were.

        Worker, lease and started_at become null (a timeout counts from the next start); the fence stays.
        """

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        workers: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        """Return running runs whose lease is over, or whose schedule's timeout is over; changes nothing.

        ``workers``: only runs that one of these holds (``worker_id``) under a fence; None: whichever worker holds them.

        By the lease's end (null last), then id. The timeout counts from started_at; a null lease or timeout is never
        over.
        """

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End such runs as ``finish`` does, if the lease or timeout is still over: a renewed one stays."""


def served_tenants(queue: Queue) -> list[str]:
    """Return the tenants that have schedules or runs, without ``*`` and those of verifications."""
    return [one for one in queue.tenants() if one != GLOBAL and not one.startswith(SCRATCH)]
