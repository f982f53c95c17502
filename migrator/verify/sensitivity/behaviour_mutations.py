"""Mutations of behaviour: faulty components of a scheduler, each of which does one thing wrong.

No stored row shows them; the checks that drive the scheduler do. The components are top-level classes and functions, so
that the processes of a verification find them too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
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
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import ScheduleQuery, Store
from migrator.store.queue import Finish, Fire, FirePlan
from migrator.verify.behaviour.scratch_tenants import Components, Delegate, inner_store
from migrator.verify.sensitivity.mutation import Apply, Mutation, ScratchCopy, Undo

_CENTURY = timedelta(days=36_500)


def _with(store: Store, **parts: Any) -> Store:  # noqa: ANN401 - parts of a store
    """Return a store with some of its parts replaced."""
    changed = Delegate(store)
    for name, part in parts.items():
        setattr(changed, name, part)
    return cast("Store", changed)


# -- firing


class _Planning(Delegate):
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
    def before(self, trigger: Trigger) -> Trigger:
        more = None if trigger.max_fires is None else trigger.max_fires + 1
        return msgspec.structs.replace(trigger, max_fires=more)

    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        bound = msgspec.structs.replace(fire.trigger, max_fires=trigger.max_fires)
        return msgspec.structs.replace(fire, trigger=bound)


class _CompletedAtOnce(_Planning):
    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        done = trigger.kind == "one_time" and fire.schedule_status == "running"
        return msgspec.structs.replace(fire, schedule_status="completed") if done else fire


class _AnHourLate(_Planning):
    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        following = fire.trigger.next_fire_at
        if trigger.kind != "cron" or following is None:
            return fire
        late = msgspec.structs.replace(fire.trigger, next_fire_at=following + timedelta(hours=1))
        return msgspec.structs.replace(fire, trigger=late)


class _AnotherName(_Planning):
    def after(self, trigger: Trigger, fire: Fire) -> Fire:
        del trigger
        again = (msgspec.structs.replace(one, id=uuid4(), attempt=1 + uuid4().int % 1_000_000) for one in fire.runs)
        return msgspec.structs.replace(fire, runs=tuple(again))


def once_more(store: Store) -> Store:
    """Fire once more than a schedule may."""
    return _with(store, queue=_OnceMore(store.queue))


def completed_at_once(store: Store) -> Store:
    """Call a single fire completed when it is queued."""
    return _with(store, queue=_CompletedAtOnce(store.queue))


def an_hour_late(store: Store) -> Store:
    """Plan what a cron line makes fire an hour late."""
    return _with(store, queue=_AnHourLate(store.queue))


def another_name(store: Store) -> Store:
    """Give each fire of a slot another id and attempt, so that nothing keeps it from running twice."""
    return _with(store, queue=_AnotherName(store.queue))


# -- ends of runs


class _LateRetry(Delegate):
    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Any:  # noqa: ANN401 - ids
        return self.inner.finish([self._spoilt(end) for end in ends], now)

    def _spoilt(self, end: Finish) -> Finish:
        if end.retry is None or end.retry.available_at is None:
            return end
        never = msgspec.structs.replace(end.retry, available_at=end.retry.available_at + _CENTURY)
        return msgspec.structs.replace(end, retry=never)


class _NoRetryOfSlots(_LateRetry):
    def _spoilt(self, end: Finish) -> Finish:
        slot = end.retry is not None and end.retry.trigger_id is not None
        return msgspec.structs.replace(end, retry=None) if slot else end


class _LastWriterWins(Delegate):
    def __init__(self, inner: Any, store: Store) -> None:  # noqa: ANN401 - a queue
        super().__init__(inner)
        self._store = inner_store(store)

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


def retry_never_available(store: Store) -> Store:
    """Write repetitions that nobody will ever begin."""
    return _with(store, queue=_LateRetry(store.queue))


def no_retry_of_slots(store: Store) -> Store:
    """Lose the repetition of what fired by itself."""
    return _with(store, queue=_NoRetryOfSlots(store.queue))


def last_writer_wins(store: Store) -> Store:
    """Write every outcome, whatever state the run has."""
    return _with(store, queue=_LastWriterWins(store.queue, store))


# -- workers, states


class _Hasty(Delegate):
    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Any:  # noqa: ANN401 - ids
        return self.inner.declare_dead(silent_for, None if now is None else now + 2 * silent_for, among)


class _Yielding(Delegate):
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


class _Speechless(Delegate):
    def append(self, lines: Any) -> None:  # noqa: ANN401 - lines of a log
        del lines


class _Sessions(Delegate):
    """A store in whose sessions some repositories are others."""

    def __init__(self, inner: Store, spoilt: type[Delegate], names: Sequence[str]) -> None:
        super().__init__(inner)
        self._spoilt, self._names = spoilt, names

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[Any]:
        with self.inner.session(tenant, now=now) as session:
            changed = Delegate(session)
            for name in self._names:
                vars(changed)[name] = self._spoilt(getattr(session, name))
            yield changed


def hasty(store: Store) -> Store:
    """Declare dead who is alive."""
    return _with(store, workers=_Hasty(store.workers))


def yielding(store: Store) -> Store:
    """Answer steps as done that the machine forbids."""
    names = ("schedules", "runs", "graph_jobs", "policy_jobs")
    return cast("Store", _Sessions(store, _Yielding, names))


def speechless(store: Store) -> Store:
    """Lose the lines of every log."""
    return cast("Store", _Sessions(store, _Speechless, ("execution_logs",)))


# -- locks and leaders


class _Handle(Delegate):
    def __init__(self, inner: Any, current: dict[str, Any]) -> None:  # noqa: ANN401 - a handle
        super().__init__(inner)
        self._current = current
        current[inner.key] = inner

    def release(self, *, now: datetime | None = None) -> Any:  # noqa: ANN401 - whether it was held
        return self._current[self.inner.key].release(now=now)


class _Generous(Delegate):
    """Releases a lock, whatever process holds it now."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - locks
        super().__init__(inner)
        self._current: dict[str, Any] = {}

    def acquire(self, tenant: str, resource: str, **more: Any) -> Any:  # noqa: ANN401 - as the port
        handle = self.inner.acquire(tenant, resource, **more)
        return None if handle is None else _Handle(handle, self._current)


class _Impatient(Delegate):
    """Takes every lock for one that is over."""

    def acquire(self, tenant: str, resource: str, *, now: datetime | None = None, **more: Any) -> Any:  # noqa: ANN401 - as the port
        later = None if now is None else now + timedelta(hours=1)
        return self.inner.acquire(tenant, resource, now=later, **more)


def generous(store: Store) -> Store:
    """Let anybody release a lock."""
    return _with(store, locks=_Generous(store.locks))


def impatient(store: Store) -> Store:
    """Clear locks whose holders are alive."""
    return _with(store, locks=_Impatient(store.locks))


class SelfAppointed(Leadership):
    """Leads whether it was elected or not."""

    def stand(self) -> int | None:
        """Return the term, or one of its own making."""
        return super().stand() or 1


class Undeposed(Leadership):
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


class FiresOnResume(Scheduler):
    """Fires at once when resumed."""

    def resume(self, schedule_id: UUID, *, by: str = "api", now: datetime | None = None) -> Job:
        """Resume, due now."""
        return _pushed(self, super().resume(schedule_id, by=by, now=now), now or self.store.now(), now)


class PushesOnUpdate(Scheduler):
    """Plans anew at every change."""

    def update(
        self, schedule_id: UUID, *, by: str = "api", now: datetime | None = None, **changes: Unpack[Changes]
    ) -> Job:
        """Change, and begin the wait anew."""
        at = (now or self.store.now()) + timedelta(minutes=30)
        return _pushed(self, super().update(schedule_id, by=by, now=now, **changes), at, now)


class NeverOff(Scheduler):
    """Says that a schedule is disabled, and leaves it on."""

    def toggle(self, schedule_id: UUID, *, enabled: bool, by: str = "api", now: datetime | None = None) -> Job:
        """Answer, and do nothing."""
        del by
        job = self.get(schedule_id, now=now)
        assert job is not None  # noqa: S101 - the scripts toggle what is there
        return msgspec.structs.replace(job, schedule=msgspec.structs.replace(job.schedule, enabled=enabled))


class OneShort(Scheduler):
    """Leaves out the last schedule of every page."""

    def list(self, query: ScheduleQuery | None = None, *, now: datetime | None = None) -> JobPage:
        """Return a page that is one short."""
        page = super().list(query, now=now)
        return msgspec.structs.replace(page, jobs=page.jobs[:-1])


class OpenDoor(Scheduler):
    """Shows a schedule of another tenant to a caller that knows its id."""

    def get(self, schedule_id: UUID, *, now: datetime | None = None) -> Job | None:
        """Return a schedule, whosever it is."""
        others = {name for name in self.store.queue.tenants() if name != self.tenant}
        found = super().get(schedule_id, now=now)
        for name in sorted(others) if found is None else ():
            found = found or Scheduler(self.store, name).get(schedule_id, now=now)
        return found


class AnotherRate(Scheduler):
    """Counts as success rate the share of all runs, in one of two places."""

    def metrics(self, *bounds: Any, **more: Any) -> Metrics:  # noqa: ANN401 - as the facade
        """Return statistics of another definition."""
        found = super().metrics(*bounds, **more)
        share = found.performance.completed_share
        return msgspec.structs.replace(
            found, performance=msgspec.structs.replace(found.performance, success_rate=share)
        )


class Restarting(Sweeper):
    """Plans every interval anew when a process begins."""

    def adopt(self) -> int:
        """Begin every wait anew."""
        now = self._now()
        for tenant in self._served():
            with self._store.session(tenant, now=now) as session:
                for schedule in session.schedules.list(ScheduleQuery(kinds=("interval",))):
                    for trigger in session.triggers.held(schedule.id):
                        wait = timedelta(milliseconds=trigger.interval_ms or 0)
                        session.triggers.move(trigger.id, trigger.next_fire_at, session.now + wait)
        return 0


def _no_change(copy: ScratchCopy) -> Undo | None:
    del copy
    return None


def _statements(*statements: str) -> Apply:
    """Change the scratch database; no row is counted."""

    def apply(copy: ScratchCopy) -> None:
        for statement in statements:
            copy.target.execute(statement.encode())

    return apply


def _mutation(
    name: str,
    components: Components,
    *caught_by: str,
    fault: str = "",
    apply: Apply = _no_change,
) -> Mutation:
    return Mutation(
        name=name,
        kind="behaviour",
        apply=apply,
        components=components,
        caught_by=caught_by,
        faults=(fault,) if fault else (),
        areas=tuple(dict.fromkeys(check.partition(".")[0] for check in caught_by)),
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
    _mutation("one extra fire", Components(store=once_more), "triggers.others", fault="max_executions+1"),
    _mutation(
        "a single fire is completed before it ran",
        Components(store=completed_at_once),
        "triggers.others",
        fault="one_time marked completed before running",
    ),
    _mutation(
        "what is resumed fires at once",
        Components(service=FiresOnResume),
        "triggers.steady",
        fault="resume fires immediately / resets phase unasked",
    ),
    _mutation(
        "a change of something else moves the next fire",
        Components(service=PushesOnUpdate),
        "triggers.steady",
        fault="next fire pushed by unrelated update",
    ),
    _mutation(
        "each start of a process puts intervals off",
        Components(sweeper=Restarting),
        "triggers.steady",
        fault="job starved by re-scheduling",
    ),
    _mutation(
        "what is disabled fires on",
        Components(service=NeverOff),
        "triggers.steady",
        "execution.after-cutover",
        fault="disabled job keeps firing",
    ),
    _mutation(
        "a late failure overwrites a cancelled run",
        Components(store=last_writer_wins),
        "execution.endings",
        fault="cancel overwritten by late failure",
    ),
    _mutation(
        "a repetition that nobody begins",
        Components(store=retry_never_available),
        "execution.endings",
        fault="retry never re-dispatched",
    ),
    _mutation(
        "a single fire that failed is not repeated",
        Components(store=no_retry_of_slots),
        "execution.endings",
        fault="one-off retry lost",
    ),
    _mutation(
        "a slot runs twice",
        Components(store=another_name),
        "execution.single",
        fault="duplicate (trigger, slot) run",
    ),
    _mutation(
        "numbers of runs begin anew after retention",
        Components(),
        "execution.single",
        fault="duplicate execution_number",
        apply=_statements(_FORGET, _FORGETFUL),
    ),
    _mutation(
        "a lock is released by who lost it",
        Components(store=generous),
        "locking.fences",
        fault="release of another owner's lock",
    ),
    _mutation(
        "a live holder's lock is cleared",
        Components(store=impatient),
        "locking.fences",
        fault="lock cleared under a live worker",
    ),
    _mutation(
        "two lead at once",
        Components(leadership=SelfAppointed),
        "locking.fences",
        "locking.processes",
        fault="two leaders",
    ),
    _mutation(
        "a leader writes on when its term is over",
        Components(leadership=Undeposed),
        "locking.fences",
        fault="reaped leader continues",
    ),
    _mutation(
        "success has two definitions",
        Components(service=AnotherRate),
        "crud.history",
        fault="success rate by two definitions",
    ),
    _mutation("a live worker is declared dead", Components(store=hasty), "workers.heartbeats"),
    _mutation(
        "a forbidden step is answered as done",
        Components(store=yielding),
        "transitions.schedule",
        "transitions.run",
        "transitions.jobs",
    ),
    _mutation("a page lacks its last schedule", Components(service=OneShort), "crud.schedules"),
    _mutation("a cron line fires an hour late", Components(store=an_hour_late), "triggers.cron"),
    _mutation("the log of a run is lost", Components(store=speechless), "execution.whole"),
    _mutation("another tenant's schedule is shown", Components(service=OpenDoor), "isolation.calls"),
    _mutation("a policy shows runs to every tenant", Components(), "isolation.rows", apply=_statements(_LEAK)),
)
