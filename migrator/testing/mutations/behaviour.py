"""Mutations of behaviour: faulty components of a scheduler, each of which does one thing wrong.

No stored row shows them; the checks that drive the scheduler do. The components are top-level classes and functions, so
that the processes of a verification find them too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Unpack, cast
from uuid import UUID, uuid4

import msgspec

from migrator.errors import TransitionError
from migrator.records import Schedule, Trigger
from migrator.scheduler.client import Scheduler
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.models import Changes, Job, JobPage
from migrator.scheduler.queries import Metrics
from migrator.scheduler.sweeper import Sweeper
from migrator.scratch import Components, Delegate, inner_store
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import ScheduleQuery, Store
from migrator.store.queue import Finish, Fire, FirePlan
from migrator.testing.mutations.mutation import Mutation, ddl

_CENTURY = timedelta(days=36_500)


def _replaced(store: Store, /, **parts: Callable[[Any], Any]) -> Store:
    changed = Delegate(store)
    for name, faulty in parts.items():
        setattr(changed, name, faulty(getattr(store, name)))
    return cast("Store", changed)


def _with(**parts: Callable[[Any], Any]) -> Components:
    """Return components whose store has faulty parts."""
    return Components(store=partial(_replaced, **parts))


# -- firing


class _Planning(Delegate[Any]):
    """A queue whose plans are spoilt."""

    def before(self, trigger: Trigger) -> Trigger:
        return trigger

    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        del trigger
        return fire

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        **which: Any,  # noqa: ANN401 - as the queue takes them
    ) -> Any:  # noqa: ANN401 - runs
        def spoilt(schedule: Schedule, trigger: Trigger, live_runs: int, at: datetime) -> Fire:
            return self.after(trigger, plan(schedule, self.before(trigger), live_runs, at))

        return self.inner.fire_due(spoilt, limit, now, tenants, **which)


class _OnceMore(_Planning):
    """Fires once more than a schedule may."""

    def before(self, trigger: Trigger) -> Trigger:
        more = None if trigger.max_fires is None else trigger.max_fires + 1
        return msgspec.structs.replace(trigger, max_fires=more)

    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        bound = msgspec.structs.replace(fire.trigger, max_fires=trigger.max_fires)
        return msgspec.structs.replace(fire, trigger=bound)


class _CompletedAtOnce(_Planning):
    """Calls a single fire completed when it is queued."""

    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        done = trigger.kind == "one_time" and fire.schedule_status == "running"
        return msgspec.structs.replace(fire, schedule_status="completed") if done else fire


class _AnHourLate(_Planning):
    """Plans what a cron line makes fire an hour late."""

    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        following = fire.trigger.next_fire_at
        if trigger.kind != "cron" or following is None:
            return fire
        delayed = msgspec.structs.replace(fire.trigger, next_fire_at=following + timedelta(hours=1))
        return msgspec.structs.replace(fire, trigger=delayed)


class _AnotherName(_Planning):
    """Gives each fire of a slot another id and attempt, so that nothing keeps it from running twice."""

    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        del trigger
        again = (msgspec.structs.replace(one, id=uuid4(), attempt=1 + uuid4().int % 1_000_000) for one in fire.runs)
        return msgspec.structs.replace(fire, runs=tuple(again))


# -- ends of runs


class _LateRetry(Delegate[Any]):
    """Writes repetitions that nobody will ever begin."""

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Any:  # noqa: ANN401 - ids
        return self.inner.finish([self._spoilt(end) for end in ends], now)

    def _spoilt(self, end: Finish) -> Finish:
        if end.retry is None or end.retry.available_at is None:
            return end
        never = msgspec.structs.replace(end.retry, available_at=end.retry.available_at + _CENTURY)
        return msgspec.structs.replace(end, retry=never)


class _NoRetryOfSlots(_LateRetry):
    """Loses the repetition of what fired by itself."""

    def _spoilt(self, end: Finish) -> Finish:
        slot = end.retry is not None and end.retry.trigger_id is not None
        return msgspec.structs.replace(end, retry=None) if slot else end


class _LastWriterWins(Delegate[Any]):
    """Writes every outcome, whatever state the run has."""

    def __init__(self, inner: Any, store: Store) -> None:  # noqa: ANN401 - a queue
        super().__init__(inner)
        self._store = store

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Any:  # noqa: ANN401 - ids
        written = list(self.inner.finish(ends, now))
        for end in ends:
            if end.run_id not in written and isinstance(self._store, PostgresStore):
                with self._store.pool.transaction(tenant=end.tenant_id) as (connection, _):
                    connection.execute(
                        "UPDATE scheduler.runs SET state = %s, error = %s WHERE id = %s",
                        (end.state, end.error, end.run_id),
                    )
                written.append(end.run_id)
        return written


def _last_writer_wins(store: Store) -> Store:
    return _replaced(store, queue=partial(_LastWriterWins, store=inner_store(store)))


# -- workers, states


class _Hasty(Delegate[Any]):
    """Declares dead who is alive."""

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Any:  # noqa: ANN401 - ids
        return self.inner.declare_dead(silent_for, None if now is None else now + 2 * silent_for, among)


class _Yielding(Delegate[Any]):
    """A repository that answers forbidden steps as done."""

    def change_status(self, schedule_id: UUID, expected: str, status: str, **changes: Any) -> Any:  # noqa: ANN401 - as the port
        try:
            return self.inner.change_status(schedule_id, expected, status, **changes)
        except TransitionError:
            return self.inner.change(schedule_id, description="it was forced")

    def update(self, row: Any, expected: str) -> bool:  # noqa: ANN401 - a run
        return self._forced("update", row, expected)

    def try_replace(self, row: Any, expected: str) -> bool:  # noqa: ANN401 - a job
        return self._forced("try_replace", row, expected)

    def _forced(self, name: str, row: Any, expected: str) -> bool:  # noqa: ANN401 - as above
        try:
            return bool(getattr(self.inner, name)(row, expected))
        except TransitionError:
            return True


class _Speechless(Delegate[Any]):
    """Loses the lines of every log."""

    def append(self, lines: Any) -> None:  # noqa: ANN401 - lines of a log
        del lines


class _Sessions(Delegate[Any]):
    """A store in whose sessions some repositories are others."""

    def __init__(self, inner: Store, repositories: Mapping[str, type[Delegate[Any]]]) -> None:
        super().__init__(inner)
        self._repositories = repositories

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[Any]:
        with self.inner.session(tenant, now=now) as session:
            changed = Delegate(session)
            for name, spoilt in self._repositories.items():
                vars(changed)[name] = spoilt(getattr(session, name))
            yield changed


def _with_repositories(**repositories: type[Delegate[Any]]) -> Components:
    """Return components in whose sessions some repositories are faulty."""
    return Components(store=cast("Any", partial(_Sessions, repositories=repositories)))


# -- locks and leaders


class _Handle(Delegate[Any]):
    def __init__(self, inner: Any, current: dict[str, Any]) -> None:  # noqa: ANN401 - a handle
        super().__init__(inner)
        self._current = current
        current[inner.key] = inner

    def release(self, *, now: datetime | None = None) -> Any:  # noqa: ANN401 - whether it was held
        return self._current[self.inner.key].release(now=now)


class _Generous(Delegate[Any]):
    """Releases a lock, whatever process holds it now."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - locks
        super().__init__(inner)
        self._current: dict[str, Any] = {}

    def acquire(self, tenant: str, resource: str, **more: Any) -> Any:  # noqa: ANN401 - as the port
        handle = self.inner.acquire(tenant, resource, **more)
        return None if handle is None else _Handle(handle, self._current)


class _Impatient(Delegate[Any]):
    """Takes every lock for one that is over."""

    def acquire(self, tenant: str, resource: str, *, now: datetime | None = None, **more: Any) -> Any:  # noqa: ANN401 - as the port
        later = None if now is None else now + timedelta(hours=1)
        return self.inner.acquire(tenant, resource, now=later, **more)


class _SelfAppointed(Leadership):
    """Leads whether it was elected or not."""

    def acquire(self) -> int | None:
        return super().acquire() or 1


class _Undeposed(Leadership):
    """Writes on when its term is over."""

    def guard(self, session: Any) -> None:  # noqa: ANN401 - a session
        """Let everything commit."""
        del session


# -- the facade and the sweeper


def _pushed(service: Scheduler, job: Job, to: datetime, now: datetime | None) -> Job:
    with service.store.session(service.tenant, now=now) as session:
        for trigger in session.triggers.held(job.id):
            if trigger.kind != "event":
                session.triggers.move(trigger.id, trigger.next_fire_at, to)
    return service.get(job.id, now=now) or job


class _FiresOnResume(Scheduler):
    """Fires at once when resumed."""

    def resume(
        self, schedule_id: UUID, *, by: str = "api", reason: str | None = None, now: datetime | None = None
    ) -> Job:
        return _pushed(self, super().resume(schedule_id, by=by, reason=reason, now=now), now or self.store.now(), now)


class _PushesOnUpdate(Scheduler):
    """Plans anew at every change."""

    def update(
        self, schedule_id: UUID, *, by: str = "api", now: datetime | None = None, **changes: Unpack[Changes]
    ) -> Job:
        at = (now or self.store.now()) + timedelta(minutes=30)
        return _pushed(self, super().update(schedule_id, by=by, now=now, **changes), at, now)


class _NeverOff(Scheduler):
    """Says that a schedule is disabled, and leaves it on."""

    def toggle(self, schedule_id: UUID, *, enabled: bool, by: str = "api", now: datetime | None = None) -> Job:
        del by
        job = self.get(schedule_id, now=now)
        assert job is not None  # noqa: S101 - the scripts toggle what is there
        return msgspec.structs.replace(job, schedule=msgspec.structs.replace(job.schedule, enabled=enabled))


class _OneShort(Scheduler):
    """Leaves out the last schedule of every page."""

    def list(self, query: ScheduleQuery | None = None, *, now: datetime | None = None) -> JobPage:
        page = super().list(query, now=now)
        return msgspec.structs.replace(page, jobs=page.jobs[:-1])


class _OpenDoor(Scheduler):
    """Shows a schedule of another tenant to a caller that knows its id."""

    def get(self, schedule_id: UUID, *, now: datetime | None = None) -> Job | None:
        others = {name for name in self.store.queue.tenants() if name != self.tenant}
        schedule = super().get(schedule_id, now=now)
        for name in sorted(others) if schedule is None else ():
            schedule = schedule or Scheduler(self.store, name).get(schedule_id, now=now)
        return schedule


class _AnotherRate(Scheduler):
    """Counts as success rate the share of all runs, in one of two places."""

    def metrics(self, *bounds: Any, **more: Any) -> Metrics:  # noqa: ANN401 - as the facade
        """Return statistics of another definition."""
        metrics = super().metrics(*bounds, **more)
        share = metrics.performance.completed_share
        return msgspec.structs.replace(
            metrics, performance=msgspec.structs.replace(metrics.performance, success_rate=share)
        )


class _Restarting(Sweeper):
    """Plans every interval anew when a process begins."""

    def give_missing_fires(self) -> int:
        now = self._now()
        for tenant in self._served():
            with self._store.session(tenant, now=now) as session:
                for schedule in session.schedules.list(ScheduleQuery(kinds=("interval",))):
                    for trigger in session.triggers.held(schedule.id):
                        wait = timedelta(milliseconds=trigger.interval_ms or 0)
                        session.triggers.move(trigger.id, trigger.next_fire_at, session.now + wait)
        return 0


def _mutation(
    name: str, components: Components, caught_by: str, fault: str = "", statements: Sequence[str] = ()
) -> Mutation:
    """Return a mutation by faulty components and changes of the schema; ``caught_by`` as in ``data``."""
    return Mutation(
        name=name,
        kind="behaviour",
        apply=ddl(*statements),
        components=components,
        caught_by=tuple(caught_by.split()),
        faults=(fault,) if fault else (),
    )


_FORGET: Final = """
CREATE FUNCTION scheduler.forget_numbers() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN
    IF NEW.counters -> 'lastRunNumber' = OLD.counters -> 'lastRunNumber' THEN
        NEW.counters := NEW.counters || jsonb_build_object('lastRunNumber', coalesce(
            (SELECT max(run_number) FROM scheduler.runs WHERE schedule_id = NEW.schedule_id), 0));
    END IF;
    RETURN NEW;
END$$
"""
_FORGETFUL: Final = """
CREATE TRIGGER forget_numbers BEFORE UPDATE ON scheduler.run_summaries
FOR EACH ROW EXECUTE FUNCTION scheduler.forget_numbers()
"""
_LEAK: Final = "CREATE POLICY leak ON scheduler.runs FOR SELECT USING (true)"

BEHAVIOUR_MUTATIONS: Final[tuple[Mutation, ...]] = (
    _mutation("one extra fire", _with(queue=_OnceMore), "triggers.others", "max_executions+1"),
    _mutation(
        "a single fire is completed before it ran",
        _with(queue=_CompletedAtOnce),
        "triggers.others",
        "one_time marked completed before running",
    ),
    _mutation(
        "what is resumed fires at once",
        Components(service=_FiresOnResume),
        "triggers.steady",
        "resume fires immediately / resets phase unasked",
    ),
    _mutation(
        "a change of something else moves the next fire",
        Components(service=_PushesOnUpdate),
        "triggers.steady",
        "next fire pushed by unrelated update",
    ),
    _mutation(
        "each start of a process puts intervals off",
        Components(sweeper=_Restarting),
        "triggers.steady",
        "job starved by re-scheduling",
    ),
    _mutation(
        "what is disabled fires on",
        Components(service=_NeverOff),
        "triggers.steady execution.after-cutover",
        "disabled job keeps firing",
    ),
    _mutation(
        "a late failure overwrites a cancelled run",
        Components(store=_last_writer_wins),
        "execution.endings",
        "cancel overwritten by late failure",
    ),
    _mutation(
        "a repetition that nobody begins",
        _with(queue=_LateRetry),
        "execution.endings",
        "retry never re-dispatched",
    ),
    _mutation(
        "a single fire that failed is not repeated",
        _with(queue=_NoRetryOfSlots),
        "execution.endings",
        "one-off retry lost",
    ),
    _mutation(
        "a slot runs twice",
        _with(queue=_AnotherName),
        "execution.single",
        "duplicate (trigger, slot) run",
    ),
    _mutation(
        "numbers of runs begin anew after retention",
        Components(),
        "execution.single",
        "duplicate execution_number",
        statements=(_FORGET, _FORGETFUL),
    ),
    _mutation(
        "a lock is released by who lost it",
        _with(locks=_Generous),
        "locking.fences",
        "release of another owner's lock",
    ),
    _mutation(
        "a live holder's lock is cleared",
        _with(locks=_Impatient),
        "locking.fences",
        "lock cleared under a live worker",
    ),
    _mutation(
        "two lead at once",
        Components(leadership=_SelfAppointed),
        "locking.fences locking.processes",
        "two leaders",
    ),
    _mutation(
        "a leader writes on when its term is over",
        Components(leadership=_Undeposed),
        "locking.fences",
        "reaped leader continues",
    ),
    _mutation(
        "success has two definitions",
        Components(service=_AnotherRate),
        "crud.history",
        "success rate by two definitions",
    ),
    _mutation("a live worker is declared dead", _with(workers=_Hasty), "workers.heartbeats"),
    _mutation(
        "a forbidden step is answered as done",
        _with_repositories(schedules=_Yielding, runs=_Yielding, graph_jobs=_Yielding, policy_jobs=_Yielding),
        "transitions.schedule transitions.run transitions.jobs",
    ),
    _mutation("a page lacks its last schedule", Components(service=_OneShort), "crud.schedules"),
    _mutation("a cron line fires an hour late", _with(queue=_AnHourLate), "triggers.cron"),
    _mutation("the log of a run is lost", _with_repositories(execution_logs=_Speechless), "execution.whole"),
    _mutation("another tenant's schedule is shown", Components(service=_OpenDoor), "isolation.calls"),
    _mutation("a policy shows runs to every tenant", Components(), "isolation.rows", statements=(_LEAK,)),
)
