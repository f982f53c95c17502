"""Operations on jobs by hand (``migrator jobs``): which jobs are meant, who may change them, and a result for each.

A job is a schedule with its triggers. Each operation is a call of the client (``Scheduler``), and a transaction of its
own. What a dry run says is what the same checks say of the job now. No operation writes to a database that is not the
active backend, nor to documents of another application.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial, reduce
from itertools import groupby
from operator import or_
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable
from uuid import UUID, uuid4

import msgspec

from migrator import states
from migrator.config import Settings
from migrator.errors import (
    BackendMovedError,
    ConflictError,
    CopyError,
    MigratorError,
    NotFoundError,
    OvertakenError,
    RefusedError,
    TransitionError,
    UsageError,
)
from migrator.exit_status import DIFFERENT, DONE
from migrator.records import Run, Schedule
from migrator.scheduler import commands, creation, firing, health, queries
from migrator.scheduler.client import Scheduler
from migrator.scheduler.metrics import known_tenants
from migrator.scheduler.models import Job, ScheduleRequest
from migrator.scheduler.retention import Removal
from migrator.scheduler.worker import EpochStore, own_workers, worker_scope
from migrator.sources.store_documents.names import NAME as OWN_SPELLING
from migrator.store import open_backend, open_side, prepare
from migrator.store.conflicts import repeat_session
from migrator.store.protocols import ScheduleQuery, Session, Store
from migrator.store.queue import served_tenants

Side: TypeAlias = Literal["mongo", "postgres"]
Action: TypeAlias = Literal["pause", "resume", "trigger", "cancel", "retry", "delete"]
Outcome: TypeAlias = Literal["done", "allowed", "refused", "failed", "not tried"]

DATABASES: Final[Mapping[str, str]] = {"mongo": "MongoDB", "postgres": "PostgreSQL"}
NEXT_FIRES: Final = 5
LAST_RUNS: Final = 5
NAMED: Final = 5
"""So many jobs are named one by one in a message; more are counted."""
NAMED_ALIKE: Final = 50
"""The same of jobs that have one name, of which the caller chooses one."""

_ALL: Final = 2**31 - 1
"""A limit that no tenant's jobs reach."""
_TOGETHER: Final = 200
"""So many jobs are checked in one session."""
_ENDED: Final = tuple(state for state in states.RUN if states.is_terminal(states.RUN, state))


@runtime_checkable
class CarriedStore(Protocol):
    """A store whose changes may be carried to another one."""

    def is_in_rollback_window(self) -> bool:
        """Return whether what is written here is carried to MongoDB, so that a rollback loses nothing."""


@runtime_checkable
class CopyStore(Protocol):
    """A store whose database may be a copy."""

    def copied_from(self) -> str | None:
        """Return the source of a copy that no cutover has made active; None for any other database."""

    def is_rehearsal(self) -> bool:
        """Return whether the copy may be changed."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are chosen; what is empty chooses all."""

    tenants: tuple[str, ...] = ()
    name: str | None = None
    """A pattern: ``*`` is any text, ``?`` any character, ``[ab]`` one of them."""
    tags: tuple[str, ...] = ()
    """All of them."""
    states: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    """Names of handlers, one of which the job calls."""

    @property
    def of_jobs(self) -> bool:
        """Return whether more than tenants are named."""
        return bool(self.name or self.tags or self.states or self.handlers)

    @property
    def asks_runs(self) -> bool:
        """Return whether runs decide who passes: of running and queued, which are one status, one is chosen."""
        return ("running" in self.states) != (states.SCHEDULE_QUEUED in self.states)


class ListedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a list."""

    job: Job
    last_run: Run | None
    """The newest run that has ended."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list, by tenant and name."""

    backend: str
    jobs: tuple[ListedJob, ...]
    total: int
    """How many pass the filter, on all pages."""
    offset: int


class JobDetails(ListedJob, frozen=True, kw_only=True):
    """A job with what became of it."""

    runs: tuple[Run, ...]
    """The newest ones, newest first."""
    stats: queries.Stats
    next_fires: tuple[datetime, ...]
    """Empty while the job is paused, disabled or ended."""


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a job, newest first."""

    id: UUID
    tenant: str
    runs: tuple[Run, ...]
    more: bool
    """Whether older runs follow."""


class JobTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation changes: a job, or for a retry one run of it."""

    schedule: Schedule
    run: Run | None = None

    @property
    def tenant(self) -> str:
        """Return the tenant of the job."""
        return self.schedule.tenant_id

    @property
    def words(self) -> str:
        """Return the tenant, the name and the id."""
        return f"{self.tenant}/{self.schedule.name} ({self.schedule.id})"


class OperationResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job."""

    id: UUID
    tenant: str
    name: str
    outcome: Outcome
    """``allowed`` in a dry run only: it would be done. ``not tried``: an error ended the operation before."""
    state: str | None = None
    """Of the job, afterwards; None if it was deleted or was not changed."""
    run: UUID | None = None
    """The run that was queued."""
    message: str | None = None
    """Why it was refused or failed."""
    exit_status: int = DONE
    """The bits that it sets."""


class OperationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all jobs."""

    action: Action
    backend: str
    dry_run: bool
    who: str
    reason: str
    counts: Mapping[str, int]
    """By outcome."""
    jobs: tuple[OperationResult, ...]
    exit_status: int
    """1 if a job was refused; the bits of the error that ended the operation."""


def operation_report(
    action: Action, backend: str, results: Sequence[OperationResult], *, dry_run: bool, who: str, reason: str
) -> OperationReport:
    """Return the report of results."""
    return OperationReport(
        action=action,
        backend=backend,
        dry_run=dry_run,
        who=who,
        reason=reason,
        counts=Counter(one.outcome for one in results),
        jobs=tuple(results),
        exit_status=reduce(or_, (one.exit_status for one in results), DONE),
    )


@contextmanager
def open_jobs(settings: Settings, backend: Side | None, *, writing: bool) -> Iterator["Jobs"]:
    """Open the jobs of a backend; if omitted: the one that ``[persistence] scheduler`` names.

    For ``writing``, raises ``RefusedError`` if it is not the active backend. Raises as ``open_store`` does.
    """
    side: Side = settings.persistence.scheduler if backend is None else backend
    if not writing:
        with open_side(settings, side) as store:
            yield Jobs(store, settings)
        return
    chosen = msgspec.structs.replace(settings.persistence, scheduler=side, shadow="off")
    try:
        opened = open_backend(msgspec.structs.replace(settings, persistence=chosen), side)
    except CopyError as error:
        with open_side(settings, side) as store:
            jobs = Jobs(store, settings)
        raise RefusedError(f"{jobs.inactive or error}: {jobs.remedy}") from None
    except BackendMovedError:
        raise RefusedError(f"{_moved_words(side)}: call it with --backend {_other(side)}") from None
    with opened as store:
        jobs = Jobs(store, settings)
        if jobs.inactive is not None:
            raise RefusedError(f"{jobs.inactive}: {jobs.remedy}")
        yield jobs


def _other(side: str) -> str:
    return "mongo" if side == "postgres" else "postgres"


def _moved_words(side: str) -> str:
    active = DATABASES[_other(side)]
    return f"{DATABASES[side]} is not the active backend: {active} holds the data since the last cutover or rollback"


class Jobs:
    """The jobs of one backend, of all tenants; tenants of a verification only if they are named."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self._settings = store, settings
        self._not_active = self._inactive_words()
        rehearsal = isinstance(store, CopyStore) and store.is_rehearsal()
        self.inactive = None if rehearsal else self._not_active
        """Why nothing may be changed here: this is not the active backend; None if it is, or for a rehearsal."""

    def _inactive_words(self) -> str | None:
        side, told = self.store.backend, None
        if isinstance(self.store, EpochStore):
            told = self.store.epoch_backend()
        if told is not None:
            return None if told == side else _moved_words(side)
        source = self.store.copied_from() if isinstance(self.store, CopyStore) else None
        if source is None:
            return None
        return f"{DATABASES[side]} holds a copy of {source}, and no cutover has made it the active backend"

    @property
    def remedy(self) -> str:
        """Return where jobs are changed while this backend is a copy."""
        if self._settings.source.in_postgres:
            return f"change the job in {self._settings.source.profile} itself, or cut over first"
        return "MongoDB is the active backend: change the job there (--backend mongo), or cut over first"

    @property
    def foreign_words(self) -> str | None:
        """Return whose documents these commands never see on this backend; None if they see all."""
        source = self._settings.source
        if self.store.backend != "mongo" or (source.mapping is None and source.profile == OWN_SPELLING):
            return None
        whose = source.profile if source.mapping is None else "the mapping's scheduler"
        return (
            f"the documents of {whose} in MongoDB belong to that application, which alone lists and changes its jobs;"
            " after the copy, --backend postgres lists them"
        )

    # -- selection

    def select(self, texts: Sequence[str], chosen: JobFilter, *, runs: bool = False) -> tuple[JobTarget, ...]:
        """Return the jobs of a call: each text an id, a source id or an exact name of a job; else as a filter chooses.

        With ``runs`` a text may also be the id of a run. Raises ``UsageError`` if nothing is named, if a text or the
        filter finds no job, and for a name that several jobs have.
        """
        if not texts and not chosen.of_jobs and not chosen.tenants:
            raise UsageError("no job is named: name jobs, or choose them with --tenant, --name, --tag or --state")
        if texts and chosen.of_jobs:
            raise UsageError("name jobs, or choose them with --name, --tag and --state: not both")
        if texts:
            named = [self._named(text, chosen.tenants, runs=runs) for text in texts]
            return tuple({(one.schedule.id, one.run and one.run.id): one for one in named}.values())
        tenants = self._tenants(chosen.tenants)
        targets = tuple(JobTarget(schedule=one) for tenant in tenants for one in self._passing(tenant, chosen))
        if not targets:
            raise UsageError(self._with_owner("no job passes the filter"))
        return targets

    def find(self, text: str, tenants: Sequence[str] = ()) -> Job:
        """Return the job that a text names; raises ``UsageError`` as ``select``."""
        schedule = self._named(text, tenants).schedule
        return self._client(schedule.tenant_id).get(schedule.id) or Job(schedule=schedule, triggers=())

    def require_own(self, targets: Sequence[JobTarget]) -> None:
        """Raise ``RefusedError`` if a job is a document of another application in MongoDB.

        A document is of this tool's scheduler if it names a handler (``handlerName``, which only the client writes),
        or if a live worker has its handler.
        """
        if self.store.backend != "mongo":
            return
        is_foreign = self._foreignness()
        foreign = [one for one in targets if is_foreign(one.schedule)]
        if foreign:
            owner = (foreign[0].schedule.source or OWN_SPELLING).partition("/")[0]
            raise RefusedError(
                f"{len(foreign):,} of {len(targets):,} jobs are documents of another application ({owner}) in MongoDB,"
                f" which alone may change them, since no live worker of this tool has their handler:"
                f" {listed_words(foreign)}; change them in that application, or cut over first"
            )

    def retention_refusal(self, removals: Callable[[], Iterable[Removal]]) -> str | None:
        """Return why the runs that retention would remove here must stay; None if they may be removed.

        ``removals``: what it would remove, asked for only where another application may own some of it.
        """
        if self._not_active is not None:
            return self._not_active  # also in a rehearsal: the history is the source's
        if isinstance(self.store, CarriedStore) and self.store.is_in_rollback_window():
            return (
                "a rollback is still possible, and the reverse sync would remove them from MongoDB too: call migrator"
                " cutover finish first"
            )
        if self.store.backend != "mongo":
            return None
        is_foreign, foreign = self._foreignness(), 0
        for removal in removals():
            with self.store.session(removal.tenant) as session:
                found = {key: session.schedules.get(key) for key in removal.by_schedule if key is not None}
            owned = {key for key, schedule in found.items() if schedule is not None and is_foreign(schedule)}
            foreign += sum(count for key, count in removal.by_schedule.items() if key in owned)
        if not foreign:
            return None
        return f"{foreign:,} of the runs belong to jobs of another application in MongoDB, which alone may remove them"

    def _foreignness(self) -> Callable[[Schedule], bool]:
        """Return the function that tells, in MongoDB, whether a job is a document of another application."""
        alive = health.alive_workers([*own_workers(self.store)], self.store.now(), health.SILENT_FOR)
        scopes = [scope for scope in map(worker_scope, alive) if scope.handlers is not None]
        return lambda one: one.handler_name is None and not any(scope.covers(one) for scope in scopes)

    def _named(self, text: str, tenants: Sequence[str], *, runs: bool = False) -> JobTarget:
        among, identity = self._tenants(tenants), _uuid(text)
        if identity is not None:
            for tenant in among:
                job = self._client(tenant).get(identity)
                if job is not None and job.schedule.tenant_id == tenant:
                    return JobTarget(schedule=job.schedule)
                if runs and (target := self._run(tenant, identity)) is not None:
                    return target
        schedules = [one for tenant in among for one in self._called(tenant, text)]
        if not schedules:
            raise UsageError(self._with_owner(f"no job {text}: expected an id, a source id or an exact name"))
        if len(schedules) > 1:
            several = listed_words([JobTarget(schedule=one) for one in schedules], NAMED_ALIKE)
            raise UsageError(
                f"{len(schedules):,} jobs are called {text}: {several}; name one by its id, or add --tenant"
            )
        return JobTarget(schedule=schedules[0])

    def _run(self, tenant: str, identity: UUID) -> JobTarget | None:
        def ask(session: Session) -> JobTarget | None:
            run = session.runs.get(identity)
            if run is None or run.tenant_id != tenant or run.schedule_id is None:
                return None
            schedule = session.schedules.get(run.schedule_id)
            return None if schedule is None else JobTarget(schedule=schedule, run=run)

        return queries.read(self.store, tenant, None, ask)

    def _passing(self, tenant: str, chosen: JobFilter) -> list[Schedule]:
        """Return the tenant's jobs that pass the filter, by name."""
        found = self._scan(tenant, _query(chosen))
        named = [one for one in found if chosen.name is None or fnmatchcase(one.name, chosen.name)]
        if not chosen.asks_runs:
            return named
        waiting = queries.read(self.store, tenant, None, lambda session: queries.waiting_schedules(session, named))
        wanted = states.SCHEDULE_QUEUED in chosen.states
        return [one for one in named if one.status != "running" or (one.id in waiting) == wanted]

    def _called(self, tenant: str, text: str) -> Sequence[Schedule]:
        return queries.read(self.store, tenant, None, lambda session: session.schedules.called(text))

    def _scan(self, tenant: str, query: ScheduleQuery) -> Sequence[Schedule]:
        everything = msgspec.structs.replace(query, limit=_ALL)
        return queries.read(self.store, tenant, None, lambda session: session.schedules.list(everything))

    def _tenants(self, wanted: Sequence[str]) -> Sequence[str]:
        return known_tenants(self.store, wanted) or sorted(served_tenants(self.store.queue))

    def _client(self, tenant: str) -> Scheduler:
        return Scheduler(self.store, tenant)

    def _with_owner(self, words: str) -> str:
        return words if self.foreign_words is None else f"{words}; {self.foreign_words}"

    # -- reading

    def page(self, chosen: JobFilter, *, limit: int, offset: int) -> JobList:
        """Return a page of the jobs that pass the filter, by tenant and name."""
        listed: list[ListedJob] = []
        total = 0
        for tenant in self._tenants(chosen.tenants):
            skipped, room = max(0, offset - total), limit - len(listed)
            if chosen.name is not None or chosen.asks_runs:
                passing = self._passing(tenant, chosen)
                rows, count = passing[skipped : skipped + room], len(passing)
            else:
                query = msgspec.structs.replace(_query(chosen), limit=max(room, 1), offset=skipped)
                asked = self._client(tenant).list(query)
                rows, count = [job.schedule for job in asked.jobs[:room]], asked.total
            total += count
            if rows:
                listed += self._listed(tenant, rows)
        return JobList(backend=self.store.backend, jobs=tuple(listed), total=total, offset=offset)

    def show(self, job: Job) -> JobDetails:
        """Return a job with its triggers, its last runs, counts, and its next fires."""
        schedule, client = job.schedule, self._client(job.schedule.tenant_id)
        (listed,) = self._listed(schedule.tenant_id, [schedule])
        fires = schedule.enabled and schedule.status in states.SCHEDULE_FIRING
        slots = [slot for trigger in job.triggers for slot in firing.upcoming(trigger, NEXT_FIRES)] if fires else []
        return JobDetails(
            job=listed.job,
            last_run=listed.last_run,
            runs=tuple(one.run for one in client.history(job.id, limit=LAST_RUNS).executions),
            stats=client.stats(job.id),
            next_fires=tuple(sorted(slots)[:NEXT_FIRES]),
        )

    def history(
        self, text: str, tenants: Sequence[str], *, limit: int, since: datetime | None, run_states: Sequence[str]
    ) -> JobHistory:
        """Return runs of a job, newest first; also of a deleted one, which is named by its id."""
        tenant, identity = self._with_runs(text, tenants)
        found = self._client(tenant).history(identity, limit=limit, since=since, states=tuple(run_states))
        runs = tuple(one.run for one in found.executions)
        return JobHistory(id=identity, tenant=tenant, runs=runs, more=found.more)

    def _with_runs(self, text: str, tenants: Sequence[str]) -> tuple[str, UUID]:
        """Return the tenant and the id of a job; a deleted one is found by its runs."""
        try:
            schedule = self._named(text, tenants).schedule
        except UsageError:
            identity = _uuid(text)
            for tenant in self._tenants(tenants) if identity is not None else ():
                assert identity is not None  # noqa: S101 - else there is no tenant to ask
                if queries.read(self.store, tenant, None, lambda session: session.runs.of_schedule(identity, 1)):
                    return tenant, identity
            raise
        return schedule.tenant_id, schedule.id

    def _listed(self, tenant: str, schedules: Sequence[Schedule]) -> list[ListedJob]:
        def ask(session: Session) -> list[ListedJob]:
            ended = {run.schedule_id: run for run in session.runs.newest_of([one.id for one in schedules], _ENDED)}
            return [ListedJob(job=job, last_run=ended.get(job.id)) for job in queries.jobs_of(session, schedules)]

        return queries.read(self.store, tenant, None, ask)

    # -- changing

    def create(
        self, tenant: str, request: ScheduleRequest, *, once: bool, run_at: datetime | None, reason: str, dry_run: bool
    ) -> Job:
        """Create a job that recurs, or fires ``once`` (at once if ``run_at`` is omitted); raises as the client does.

        A dry run makes it in a transaction that is rolled back; returns what it would be, with an id that nothing has.
        """

        def make() -> Job:
            with self.store.session(tenant) as session:
                change = commands.Change(session, request.created_by, uuid4, reason or None)
                job = (
                    creation.create_once(change, request, run_at)
                    if once
                    else creation.create_recurring(change, request)
                )
                if dry_run:
                    raise _TriedOut(job)
            return job

        try:
            if not dry_run:
                prepare(self.store)  # else no index of MongoDB keeps a name unique
            return repeat_session(make)
        except _TriedOut as tried:
            return tried.job

    def try_out(self, action: Action, targets: Sequence[JobTarget]) -> Iterator[OperationResult]:
        """Say of each job whether the operation would be done now; write nothing."""
        for tenant, of_it in groupby(targets, key=lambda one: one.tenant):
            among = [*of_it]
            for first in range(0, len(among), _TOGETHER):
                some = among[first : first + _TOGETHER]
                yield from queries.read(self.store, tenant, None, partial(_tried_out, action, some))

    def carry_out(
        self, action: Action, targets: Sequence[JobTarget], *, who: str, reason: str
    ) -> Iterator[OperationResult]:
        """Do it to each job, one after the other; one that is refused does not stop the others.

        Another error (no server, the data moved) ends it: that job has failed, and the others were not tried. ``who``
        and ``reason`` are recorded in the audit trail.
        """
        failed = False
        for target in targets:
            if failed:
                yield _result(target, "not tried")
                continue
            try:
                yield _CALLS[action](self._client(target.tenant), target, who, reason or None)
            except _REFUSALS as error:
                yield _refused(target, error)
            except MigratorError as error:
                failed = True
                yield _result(target, "failed", message=str(error), exit_status=error.exit_status)


class _TriedOut(Exception):  # noqa: N818 - no error: it ends a session that keeps nothing
    """Carries a job out of a session that is rolled back."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job


def listed_words(targets: Sequence[JobTarget], most: int = NAMED) -> str:
    """Return the first of them by tenant, name and id, and how many others there are."""
    named = ", ".join(one.words for one in targets[:most])
    return named if len(targets) <= most else f"{named} and {len(targets) - most:,} others"


_REFUSALS: Final = (TransitionError, ConflictError, NotFoundError, UsageError)
"""What the state of a job, or another session, refuses. Nothing was changed."""


def _last_run(session: Session, schedule: Schedule) -> Run:
    """Return the newest run of a job, if it failed; raises ``TransitionError``."""
    newest = session.runs.of_schedule(schedule.id, 1)
    if not newest:
        raise TransitionError("the job has no run: nothing to retry")
    if newest[0].state not in states.RUN_FAILED:
        raise TransitionError(f"the last run is {newest[0].state}: nothing to retry")
    return newest[0]


def _check_retry(target: JobTarget, session: Session) -> object:
    if target.run is not None:
        return commands.check_retry_run(session, target.run.id)
    if target.schedule.status == "failed":
        return commands.check_retry_schedule(session, target.schedule.id)
    return commands.check_retry_run(session, _last_run(session, target.schedule).id)


_CHECKS: Final[Mapping[Action, Callable[[JobTarget, Session], object]]] = {
    "pause": lambda target, session: commands.check_transition(session, target.schedule.id, "pause"),
    "resume": lambda target, session: commands.check_transition(session, target.schedule.id, "resume"),
    "cancel": lambda target, session: commands.check_transition(session, target.schedule.id, "cancel"),
    "trigger": lambda target, session: commands.check_trigger_now(session, target.schedule.id),
    "retry": _check_retry,
    "delete": lambda target, session: commands.check_unschedule(session, target.schedule.id),
}
"""What each call would refuse, by the checks of the call itself."""


def _pause(client: Scheduler, target: JobTarget, who: str, reason: str | None) -> OperationResult:
    job = client.pause(target.schedule.id, by=who, reason=reason)
    return _result(target, "done", state=job.state)


def _resume(client: Scheduler, target: JobTarget, who: str, reason: str | None) -> OperationResult:
    job = client.resume(target.schedule.id, by=who, reason=reason)
    return _result(target, "done", state=job.state)


def _cancel(client: Scheduler, target: JobTarget, who: str, reason: str | None) -> OperationResult:
    job = client.cancel(target.schedule.id, by=who, reason=reason or "cancelled")
    return _result(target, "done", state=job.state)


def _trigger(client: Scheduler, target: JobTarget, who: str, reason: str | None) -> OperationResult:
    run = client.trigger_now(target.schedule.id, by=who, reason=reason)
    job = client.get(target.schedule.id)
    return _result(target, "done", state=None if job is None else job.state, run=run.id)


def _retry(client: Scheduler, target: JobTarget, who: str, reason: str | None) -> OperationResult:
    schedule = target.schedule
    if target.run is not None:
        run = client.retry(target.run.id, by=who, reason=reason)
    elif schedule.status == "failed":
        run = client.retry_schedule(schedule.id, by=who, reason=reason)
    else:
        failed = queries.read(client.store, target.tenant, None, lambda session: _last_run(session, schedule))
        run = client.retry(failed.id, by=who, reason=reason)
    job = client.get(schedule.id)
    return _result(target, "done", state=None if job is None else job.state, run=run.id)


def _delete(client: Scheduler, target: JobTarget, who: str, reason: str | None) -> OperationResult:
    client.unschedule(target.schedule.id, by=who, reason=reason)
    return _result(target, "done")


_CALLS: Final[Mapping[Action, Callable[[Scheduler, JobTarget, str, str | None], OperationResult]]] = {
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
    "trigger": _trigger,
    "retry": _retry,
    "delete": _delete,
}


def _result(
    target: JobTarget,
    outcome: Outcome,
    *,
    state: str | None = None,
    run: UUID | None = None,
    message: str | None = None,
    exit_status: int = DONE,
) -> OperationResult:
    schedule = target.schedule
    return OperationResult(
        id=schedule.id,
        tenant=schedule.tenant_id,
        name=schedule.name,
        outcome=outcome,
        state=state,
        run=run,
        message=message,
        exit_status=exit_status,
    )


def _tried_out(action: Action, targets: Sequence[JobTarget], session: Session) -> list[OperationResult]:
    results = []
    waiting = queries.waiting_schedules(session, [target.schedule for target in targets])
    for target in targets:
        schedule = target.schedule
        try:
            _CHECKS[action](target, session)
        except OvertakenError:
            raise
        except _REFUSALS as error:
            results.append(_refused(target, error))
        else:
            state = states.SCHEDULE_QUEUED if schedule.id in waiting else schedule.status
            results.append(_result(target, "allowed", state=state))
    return results


def _refused(target: JobTarget, error: MigratorError) -> OperationResult:
    return _result(target, "refused", message=str(error), exit_status=DIFFERENT)


def _query(chosen: JobFilter) -> ScheduleQuery:
    statuses = dict.fromkeys("running" if state == states.SCHEDULE_QUEUED else state for state in chosen.states)
    return ScheduleQuery(
        statuses=(*statuses,), handlers=chosen.handlers, tags_all=chosen.tags, sort_by="name", descending=False
    )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
