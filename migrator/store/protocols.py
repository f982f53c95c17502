"""The protocols of a store: what an application may call on its scheduler's data, on either backend.

A ``Store`` opens sessions. A session is one transaction, bound to one tenant, and has a repository for each table.
Calls that belong to no single tenant (firing, claiming, workers, locks) are in ``store.queue``, ``store.workers`` and
``store.locks``; a store without them is a ``SessionStore``. Every statement that needs the time takes the session's
``now``: the database's clock, unless a test passed another one. Rows are records (``migrator.records``). A row written
here has ``source`` and ``source_id`` null on PostgreSQL. On MongoDB every row is a document of the source's profile: it
has both.

A row of another tenant is as if it did not exist: it is not found, not listed, not changed. Its id cannot be used again
(``ConflictError``). All tenants see the rows of the global tenant ``*``, and no session writes them: ``get`` finds
them; lists hold the tenant's own rows only, unless they say otherwise. Lists are in the stated order, then by id
(ascending, whatever the direction); texts are ordered by code point, as in Python.

These rules hold for every write (``store.validation`` and ``store.transitions``, pure functions that all backends
call):

- A refused call (any ``StoreError`` or ``UsageError``) changes nothing, and the session may continue. Only if two
  sessions write the same row at the same moment may a backend end the transaction: then it raises ``OvertakenError``,
  at the latest when the session ends, and nothing of the session is kept; the session may be repeated. MongoDB also
  ends a transaction that uses a collection which is created, or whose index is created, at that moment.
- ``UsageError``: a record of another tenant or of ``*``, a word that its column does not know, a limit below 1, a
  negative offset, a NUL in a text, a time without zone, what the table's CHECKs refuse; on MongoDB also what the
  profile would not read back as it was given (a stats member that is no whole number, a blank text).
- ``NotFoundError``: a reference (schedule, trigger, run, job) to a row that this tenant cannot see. Runs may refer to a
  schedule and a trigger of ``*``; all other references are to the tenant's own rows.
- Times are cut to whole milliseconds. A run's duration_ms follows from started_at and finished_at: null if they
  contradict each other. ``source`` and ``source_id`` are never written from a record: they and ``extra`` stay as they
  are stored. ``created_at`` stays too, once written. If it is absent, it and ``updated_at`` become now on an insert, if
  the column may be null.

One behavioural suite (``tests/contract``) runs unchanged against each implementation.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable
from uuid import UUID

import msgspec

from migrator.records import (
    AuditEntry,
    ExecutionLog,
    GraphJob,
    GraphJobEvent,
    Handler,
    ImpactSnapshot,
    PolicyJob,
    Run,
    RunSummary,
    Schedule,
    Trigger,
)
from migrator.store.locks import Locks
from migrator.store.queue import Queue
from migrator.store.statistics import Statistics
from migrator.store.wakeups import Wakeups
from migrator.store.workers import Workers

__all__ = [
    "Audit",
    "Backend",
    "ExecutionLogs",
    "GraphJobs",
    "GraphType",
    "Handlers",
    "ImpactSnapshots",
    "PolicyJobs",
    "RunPage",
    "RunQuery",
    "RunSummaries",
    "Runs",
    "ScheduleQuery",
    "Schedules",
    "Session",
    "SessionStore",
    "SortKey",
    "Statistics",
    "Store",
    "Triggers",
]

SortKey: TypeAlias = Literal["created_at", "next_fire_at", "name", "priority"]
GraphType: TypeAlias = Literal["build", "overlay"]


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a list of schedules; None and empty: no filter. ``limit`` below 1 raises ``UsageError``."""

    statuses: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of its triggers."""
    handlers: tuple[str, ...] = ()
    """Names of handlers, one of which it calls."""
    enabled: bool | None = None
    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    created_after: datetime | None = None
    """Exclusive, as all bounds here."""
    created_before: datetime | None = None
    next_fire_after: datetime | None = None
    """A schedule's next fire is the earliest ``next_fire_at`` of its enabled triggers."""
    next_fire_before: datetime | None = None
    name_contains: str | None = None
    """Regardless of case (ASCII letters and those that ``str.lower`` folds)."""
    created_by: str | None = None
    include_global: bool = False
    limit: int = 50
    offset: int = 0
    sort_by: SortKey = "created_at"
    """Schedules without a value come last in both directions; a null priority counts as 50."""
    descending: bool = True


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of ``Runs.list``. Pages are by key: pass the last run's ``cursor`` to get the next page."""

    schedule_id: UUID | None = None
    states: tuple[str, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    trace_id: str | None = None
    cursor: tuple[datetime, UUID] | None = None
    """(created_at, id) of the last run of the page before."""
    limit: int = 50
    offset: int = 0
    """Runs to skip, after the cursor; a page by key is faster."""
    descending: bool = True
    """Newest first, else oldest first."""


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by created_at, then id, and the cursor of the next page (None: this was the last)."""

    runs: tuple[Run, ...]
    cursor: tuple[datetime, UUID] | None


class GraphJobs(Protocol):
    """Graph jobs of the session's tenant. A call for one type never returns jobs of the other."""

    def insert(self, job: GraphJob) -> None:
        """Insert; raises ``ConflictError`` for an id that exists."""

    def try_replace(self, job: GraphJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now (a word of ``states.GRAPH_JOB``) and the type is the same.

        Writes an event with the new status in the same transaction: its time is now, its payload the source's envelope
        (``transitions.graph_event``). Raises ``TransitionError`` for an illegal pair, the same status included.
        """

    def get(self, kind: GraphType, job_id: UUID) -> GraphJob | None:
        """Return the job of this type."""

    def list(self, kind: GraphType, status: str | None, limit: int) -> Sequence[GraphJob]:
        """Return jobs of this type, newest first; an unknown type or status raises ``UsageError``."""

    def append_event(self, event: GraphJobEvent) -> GraphJobEvent:
        """Append; the id is assigned here. Raises ``NotFoundError`` if there is no such job."""

    def events(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        """Return a job's events in the order in which they were appended."""


class PolicyJobs(Protocol):
    """Policy jobs of the session's tenant."""

    def insert(self, job: PolicyJob) -> None:
        """Insert; raises ``ConflictError`` for an id or a run id that exists."""

    def get(self, job_id: UUID) -> PolicyJob | None:
        """Return the job."""

    def by_run_id(self, run_id: str) -> PolicyJob | None:
        """Return the job with this idempotency key: of several sources, the one with source null, else by source."""

    def list(self, status: str | None, limit: int) -> Sequence[PolicyJob]:
        """Return jobs, highest rank first, then by queued time (null last)."""

    def try_replace(self, job: PolicyJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now; raises ``TransitionError`` for an illegal pair.

        The run id stays. The same status is an illegal pair.
        """

    def lease(self, owner: str, limit: int, lease: timedelta) -> Sequence[PolicyJob]:
        """Take pending jobs that are available: they are dispatching, leased to ``owner``, one attempt more.

        In the order of ``list``; ``last_attempt_at``, ``updated_at`` are now. Jobs that another session is taking are
        skipped (MongoDB: if two sessions begin to take one job at the same moment, one may end with ``ConflictError``).
        A lease not above zero raises ``UsageError``.
        """


Backend: TypeAlias = Literal["mongo", "postgres", "memory"]


class Schedules(Protocol):
    """Schedules of the session's tenant. Softly deleted ones are not visible."""

    def get(self, schedule_id: UUID) -> Schedule | None:
        """Return the schedule."""

    def by_name(self, name: str) -> Schedule | None:
        """Return the tenant's schedule of this name: one with source null, else that with the lowest id; else of ``*``.

        On MongoDB all are alike.
        """

    def called(self, text: str) -> Sequence[Schedule]:
        """Return the tenant's own schedules with this exact name or source id, by id."""

    def list(self, query: ScheduleQuery) -> Sequence[Schedule]:
        """Return the schedules that pass every filter; an unknown word raises ``UsageError``."""

    def count(self, query: ScheduleQuery) -> int:
        """Return the number of schedules that pass every filter, whatever ``limit`` and ``offset``."""

    def upsert(self, schedule: Schedule) -> Schedule:
        """Insert, or replace all columns of the one with this id; raises ``ConflictError`` for a name that is taken.

        A deleted schedule's id stays taken. ``deleted_at`` and ``deleted_by`` belong to ``soft_delete``: given here,
        they raise ``UsageError``. The status is written as it is given: ``change_status`` is the guarded way.
        """

    def change_status(self, schedule_id: UUID, expected: str, status: str, **changes: Any) -> Schedule | None:  # noqa: ANN401 - columns have all types
        """Compare-and-set: write the status (and ``changes``) if it is ``expected`` now; None if it is not.

        ``changes`` are columns; ``updated_at`` becomes now unless it is among them. Raises ``TransitionError`` for an
        illegal pair (also if there is no such schedule), ``UsageError`` for an unknown column or one that may not
        change (id, tenant, source, extra, creation, deletion).
        """

    def change(self, schedule_id: UUID, **changes: Any) -> Schedule | None:  # noqa: ANN401 - as above
        """Write these columns and no other, whatever the status; None if there is no such schedule.

        ``changes`` may hold what ``change_status`` takes. Raises ``ConflictError`` for a name that is taken.
        """

    def soft_delete(self, schedule_id: UUID, by: str) -> bool:
        """Mark the schedule deleted, and disable its triggers; false if there is none, or if it was deleted before.

        Writes ``deleted_at``, ``deleted_by`` and the triggers' ``enabled``, nothing else. Runs stay as they are.
        """

    def due(self, limit: int) -> Sequence[Schedule]:
        """Return enabled schedules in status scheduled with an enabled trigger whose next fire is not after now.

        In order of that fire; the tenant's own only; each once, by its earliest such trigger.
        """


class Triggers(Protocol):
    """Triggers of the session's tenant."""

    def get(self, trigger_id: UUID) -> Trigger | None:
        """Return the trigger."""

    def of_schedule(self, schedule_id: UUID) -> Sequence[Trigger]:
        """Return a schedule's triggers, by id."""

    def held(self, schedule_id: UUID) -> Sequence[Trigger]:
        """Return the tenant's own triggers of a schedule, by id; no other session writes them before this one ends."""

    def of_schedules(self, schedule_ids: Sequence[UUID]) -> Sequence[Trigger]:
        """Return the triggers of several schedules at once, by schedule, then by id."""

    def of_event(self, event: str) -> Sequence[Trigger]:
        """Return enabled event triggers of this tenant and of ``*`` for an event, of schedules that may run.

        In order of the schedule's priority, highest first (null is 50). A schedule may run when it is enabled, not
        deleted, and its status is pending, scheduled or running.
        """

    def upsert(self, trigger: Trigger) -> Trigger:
        """Insert, or replace all columns of the one with this id; it stays with its schedule (else ``UsageError``).

        Exactly the columns of its kind must be set; an interval is above zero, ``end_at`` after ``start_at``.
        """

    def move(self, trigger_id: UUID, expected: datetime | None, next_fire_at: datetime | None) -> bool:
        """Compare-and-set: write the next fire, and nothing else, if it is ``expected`` now; false if it is not.

        False also if there is no such trigger. A trigger of kind event raises ``UsageError``.
        """

    def delete_of_schedule(self, schedule_id: UUID) -> int:
        """Delete a schedule's triggers; return how many. Runs stay, without the trigger."""


class Runs(Protocol):
    """Runs of the session's tenant."""

    def get(self, run_id: UUID) -> Run | None:
        """Return the run."""

    def list(self, query: RunQuery) -> RunPage:
        """Return one page."""

    def create(self, run: Run) -> Run:
        """Insert; ``run_number`` is assigned here: one more than the schedule ever had, also after retention.

        The counter is ``lastRunNumber`` in the counters of the schedule's summary, which the first run creates. The
        number is one more than the counter or the highest number that exists. A run without a schedule, or of a
        schedule of ``*``, has none. ``attempt`` becomes 1 if trigger and slot are given and it is not. Raises
        ``ConflictError`` if the id, the slot or the dedupe key of its trigger is taken.
        """

    def update(self, run: Run, expected: str) -> bool:
        """Replace all columns if the state is ``expected`` now; started_at, finished_at and stats follow rules.

        Raises ``TransitionError`` for an illegal pair (also if there is no such run). ``expected`` itself is legal
        while the run is live: then only other columns change. started_at: the stored value, else the given one, else
        now when running. finished_at: the given value, else now, if the state is terminal; else null. duration_ms
        follows from the two. Of each number in stats the greater of stored and given is kept, and none is lost.
        run_number stays; updated_at is now. See ``transitions.advanced_run``.
        """

    def pending(self, limit: int) -> Sequence[Run]:
        """Return planning and queued runs, oldest first."""

    def of_schedule(self, schedule_id: UUID, limit: int) -> Sequence[Run]:
        """Return the tenant's newest runs of a schedule, newest first."""

    def newest_of(self, schedule_ids: Sequence[UUID], states: Sequence[str]) -> Sequence[Run]:
        """Return the tenant's newest run of each schedule in one of these states, in the order of the schedules.

        A schedule without such a run is left out.
        """

    def repeats(self, run_id: UUID) -> Sequence[Run]:
        """Return the tenant's runs that name this one in ``retry_of``, oldest first."""

    def cancel(self, run_id: UUID, reason: str) -> Run | None:
        """Make a live run cancelled, whichever worker holds it; None if it is not live.

        finished_at and updated_at are now, duration_ms follows, ``error`` is the reason, the lease ends; worker and
        fence stay.
        """

    def cancel_of_schedule(self, schedule_id: UUID, reason: str) -> int:
        """Cancel all live runs of a schedule in the same way; return how many."""

    def beyond(self, keep: int, before: datetime, limit: int) -> Sequence[Run]:
        """Return ended runs that retention may remove, oldest first: neither young nor among the newest.

        Created before ``before``, and not one of the ``keep`` (at least 0) newest runs, live ones counted, of their
        schedule. Runs without a schedule count as those of one schedule.
        """

    def held(self, run_ids: Sequence[UUID]) -> Sequence[Run]:
        """Return those of these runs that ended, oldest first; no other session writes them before this one ends.

        No other session appends lines of their logs either. On MongoDB this session's ``remove`` of a run that another
        one writes raises ``OvertakenError``, a line that another one appends stays, and ``extra`` has what no column
        holds. Raises ``StoreError`` for a document that cannot be read whole.
        """

    def remove(self, run_ids: Sequence[UUID]) -> int:
        """Delete runs that ended, with their logs; skip live and unknown ones. Return how many.

        Snapshots, and retries of them, stay without the reference.
        """


class ImpactSnapshots(Protocol):
    """Impact snapshots of the session's tenant."""

    def insert(self, snapshot: ImpactSnapshot) -> None:
        """Insert; raises ``ConflictError`` for an id that exists."""

    def get(self, snapshot_id: UUID) -> ImpactSnapshot | None:
        """Return the snapshot."""

    def of_run(self, run_id: UUID) -> Sequence[ImpactSnapshot]:
        """Return a run's snapshots, newest first (without a time last)."""


class ExecutionLogs(Protocol):
    """Log lines of the session's tenant."""

    def append(self, lines: Sequence[ExecutionLog]) -> None:
        """Append all or none; raises ``ConflictError`` for an id that exists."""

    def of_run(self, run_id: UUID, limit: int = 1000) -> Sequence[ExecutionLog]:
        """Return a run's lines in time order."""

    def of_runs(self, run_ids: Sequence[UUID]) -> Sequence[ExecutionLog]:
        """Return all lines of these runs, by run, then in time order: exactly those that ``Runs.remove`` deletes.

        ``extra`` is as in ``Runs.held``. Raises ``StoreError`` if one of them cannot be read as a row.
        """


class RunSummaries(Protocol):
    """Run summaries of the session's tenant."""

    def get(self, schedule_id: UUID) -> RunSummary | None:
        """Return a schedule's summary; the first run with a number creates one that holds the counter only."""

    def recompute(self, schedule_id: UUID, recent: int = 20) -> RunSummary:
        """Compute the summary from the runs, and store it (``transitions.summary``); ``lastRunNumber`` never goes back.

        Raises ``NotFoundError`` for a schedule that the tenant cannot see, and of which it has no runs.
        """


class Audit(Protocol):
    """The tenant's audit trail; append only."""

    def append(self, entry: AuditEntry) -> None:
        """Append; raises ``ConflictError`` for an id that exists."""

    def list(self, limit: int, *, schedule_id: UUID | None = None, action: str | None = None) -> Sequence[AuditEntry]:
        """Return entries, newest first."""


class Handlers(Protocol):
    """Handlers of the session's tenant and of ``*``."""

    def get(self, name: str) -> Handler | None:
        """Return the tenant's handler, else the global one."""

    def upsert(self, handler: Handler) -> Handler:
        """Insert, or replace the one with this name; raises ``ConflictError`` if a system handler would change.

        The id of the first stays. A system handler that is given unchanged is no change. A tenant's handler hides the
        global one of its name from that tenant.
        """

    def list(self) -> Sequence[Handler]:
        """Return the handlers by name, each name once."""

    def delete(self, name: str) -> bool:
        """Delete the tenant's own; false if there is none; raises ``ConflictError`` for a system handler."""


class Session(Protocol):
    """One transaction of one tenant: all of it or nothing."""

    @property
    def tenant(self) -> str:
        """The tenant."""

    @property
    def now(self) -> datetime:
        """The time of this transaction (aware, UTC, whole milliseconds)."""

    @property
    def schedules(self) -> Schedules: ...  # noqa: D102 - named after its type, as all below

    @property
    def triggers(self) -> Triggers: ...  # noqa: D102 - as above

    @property
    def runs(self) -> Runs: ...  # noqa: D102 - as above

    @property
    def graph_jobs(self) -> GraphJobs: ...  # noqa: D102 - as above

    @property
    def policy_jobs(self) -> PolicyJobs: ...  # noqa: D102 - as above

    @property
    def impact_snapshots(self) -> ImpactSnapshots: ...  # noqa: D102 - as above

    @property
    def execution_logs(self) -> ExecutionLogs: ...  # noqa: D102 - as above

    @property
    def run_summaries(self) -> RunSummaries: ...  # noqa: D102 - as above

    @property
    def audit(self) -> Audit: ...  # noqa: D102 - as above

    @property
    def handlers(self) -> Handlers: ...  # noqa: D102 - as above

    @property
    def statistics(self) -> Statistics: ...  # noqa: D102 - as above


class SessionStore(Protocol):
    """A scheduler's data on one backend."""

    @property
    def backend(self) -> Backend:
        """The backend."""

    def session(self, tenant: str, *, now: datetime | None = None) -> AbstractContextManager[Session]:
        """Open a transaction of one tenant; raises ``UsageError`` for an empty tenant."""

    def now(self) -> datetime:
        """Return the database's clock (aware, UTC, whole milliseconds)."""

    def ping(self) -> timedelta:
        """Return how long the backend takes to answer; raises ``UnreachableError``."""

    def connections(self) -> int | None:
        """Return how many connections are open to the database (MongoDB: to the server); None: the user may not ask."""

    def purge(self, tenant: str) -> Mapping[str, int]:
        """Delete every row of a tenant, its locks and its audit trail included; return table to rows deleted.

        All in one transaction; no row of another tenant is changed. Raises ``UsageError`` for no tenant and for ``*``,
        ``RefusedError`` if the user may not act as the owner of the tables.
        """

    def close(self) -> None:
        """Close every connection. On PostgreSQL, locks that are held become free."""

    def __enter__(self) -> Self:
        """Return the store."""

    def __exit__(self, *error: object) -> None:
        """Close the store."""


class PsycopgConnection(Protocol):
    """A connection of psycopg 3 that an application has opened: ``psycopg.Connection``, ``psycopg.AsyncConnection``."""

    @property
    def pgconn(self) -> Any:  # noqa: ANN401 - libpq's connection; an application on MongoDB does not have the driver
        """The driver's connection."""


class Store(SessionStore, Protocol):
    """A scheduler's data on one backend: sessions of one tenant, and what crosses tenants (queue, workers, locks)."""

    @property
    def queue(self) -> Queue:
        """Firing and claiming."""

    @property
    def workers(self) -> Workers:
        """Worker and scheduler processes."""

    @property
    def locks(self) -> Locks:
        """Mutual exclusion between processes."""

    @property
    def wakeups(self) -> Wakeups:
        """Wake-ups of processes that wait for work."""


@runtime_checkable
class Preparable(Protocol):
    """A backend whose collections need something before the first write (MongoDB)."""

    def prepare(self) -> Mapping[str, Sequence[str]]:
        """Create the indexes that are missing; return collection to the indexes that were created."""

    def create_missing_triggers(self, covers: Callable[[Schedule], bool]) -> int:
        """Write the triggers that schedule documents state themselves; return how many."""

    def copy_priorities(self, covers: Callable[[Schedule], bool]) -> int:
        """Write the schedule's priority into triggers and queued runs that state another one; return how many."""


@runtime_checkable
class Transactional(Protocol):
    """A backend whose sessions can be part of a transaction that an application has begun (PostgreSQL)."""

    def using(self, connection: PsycopgConnection) -> Store:
        """Return a store whose sessions are savepoints in the transaction of an application's connection.

        What belongs to no tenant (queue, workers, locks, ``now``, ``purge``) is refused with ``UsageError``.
        """
