"""The sweep of the leader: runs whose lease or time is over, dead processes, schedules and triggers left undone.

All of it is of this scheduler alone (``worker.Scope``): runs that its processes hold, its processes, and schedules that
one of its processes works for. What another scheduler has left in the same database stays as it is.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from migrator.errors import ConflictError, LostLockError
from migrator.log import logger
from migrator.records import Schedule, WorkerRecord
from migrator.scheduler import completion, firing, worker
from migrator.scheduler.completion import expired_outcome, finish_of
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.parallel_run import source_writes
from migrator.scheduler.recorder import EndedRun, Recorder, end_line
from migrator.scheduler.worker import Scope
from migrator.states import SCHEDULE_FIRING, WORKER_LIVE
from migrator.store.left_rows import LeftRows, is_of_one_row, reason_of
from migrator.store.protocols import ScheduleQuery, Session, Store
from migrator.store.queue import Finish, served_tenants

_BEFORE_ALL: Final = datetime(1, 1, 1, tzinfo=UTC)
_PAGE: Final = 1_000


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep did."""

    dead: int = 0
    """Processes that were declared dead."""
    ended: int = 0
    """Runs whose lease or time was over."""
    retried: int = 0
    completed: int = 0
    """Schedules that ended."""


class Sweeper:
    """Repairs what processes left undone. Each step is a compare-and-set of its own: if interrupted, it is repeated."""

    def __init__(
        self,
        store: Store,
        leadership: Leadership,
        *,
        dead_after: timedelta,
        scope: Scope | None,
        batch: int = 100,
        tenants: Sequence[str] | None = None,
        executors: Sequence[str] = (),
        recorder: Recorder | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """``dead_after``: for how long a process may be silent. ``clock`` is for tests: else the database's.

        ``scope``: the schedules that the leader works for itself, and those of the other processes that are alive;
        none: all that is there is this scheduler's, as in a scratch tenant. ``executors``: ids by which applications
        claim runs that they execute themselves; their lost runs are ended too.
        """
        self._scope = scope
        self._left_schedules, self._left_runs = LeftRows("schedules"), LeftRows("runs")
        self.interrupted = False
        """Whether the last pass over the tenants left one out, which another session or leader was writing."""
        self._store, self._leadership = store, leadership
        self._executors = executors
        self._dead_after, self._batch, self._tenants, self._clock = dead_after, batch, tenants, clock
        self._recorder = Recorder(store, clock=clock) if recorder is None else recorder

    def move(self, store: Store) -> None:
        """Use another store from now on."""
        self._store = store
        self._recorder.move(store)

    def sweep(self) -> Swept:
        """Do all of it but adoption; stops in the middle where this process leads no longer."""
        if self._leadership.term is None:
            return Swept()
        own = self._own()
        among = None if own is None else [worker.id for worker in own]
        dead = self._store.workers.declare_dead(self._dead_after, self._now(), among)
        if dead:
            logger().warning("declared dead", workers=[str(worker) for worker in dead])
        ended, retried = self._reclaim(own)
        completed = self._each_tenant(partial(self._end_schedules, covered=self._covered(own, changed=True)))
        return Swept(dead=len(dead), ended=ended, retried=retried, completed=completed)

    def reclaim(self) -> tuple[int, int]:
        """End runs whose lease or time is over; return how many, and how many of them run again."""
        return self._reclaim(self._own())

    def _reclaim(self, own: Sequence[WorkerRecord] | None) -> tuple[int, int]:
        # Who has stopped has given everything back.
        holders = (
            None
            if own is None
            else [*self._executors, *(str(worker.id) for worker in own if worker.status != "stopped")]
        )
        ended = retried = 0
        while self._leadership.term is not None:
            expired = self._store.queue.expired(self._batch, self._now(), self._tenants, workers=holders)
            # A run is found by its id, which is unique in its tenant only: of two with one id, one at a time.
            claims = list({claim.run.id: claim for claim in reversed(expired)}.values())[::-1]
            now = self._time()
            ends = [finish_of(claim, expired_outcome(claim, now), now) for claim in claims]
            written = self._expire(ends)
            done = [
                EndedRun(claim=claim, finish=end, lines=[end_line(end, now)])
                for claim, end in zip(claims, ends, strict=True)
                if end.run_id in written
            ]
            self._recorder.ended(done)
            ended += len(done)
            retried += sum(one.finish.retry is not None for one in done)
            if len(expired) < self._batch or not written:
                break
        return ended, retried

    def _expire(self, ends: Sequence[Finish]) -> set[UUID]:
        """Write ends together, or, where one of them is refused, one by one; return the ids of those written."""
        if not ends:
            return set()
        try:
            return set(self._store.queue.expire(ends, self._now()))
        except Exception as error:
            if not is_of_one_row(error):
                raise
            if len(ends) == 1:
                self._left_runs.add(ends[0].run_id, ends[0].tenant_id, error)
                return set()
        return {written for end in ends for written in self._expire([end])}

    def give_missing_fires(self) -> int:
        """Give triggers a next fire that should have one and have none; return how many.

        Once a term is enough, unless it was ``interrupted``: no process of this scheduler makes such a trigger.
        """
        return self._each_tenant(partial(self._adopt, covered=self._covered(self._own())))

    def _own(self) -> Sequence[WorkerRecord] | None:
        """Return this scheduler's processes, or None for all that exist."""
        return None if self._scope is None else worker.own_workers(self._store)

    def _covered(self, own: Sequence[WorkerRecord] | None, *, changed: bool = False) -> Callable[[Schedule], bool]:
        """Return the function that tells whether the leader, or another process that is alive, works for a schedule.

        ``changed``: its row is changed, which another scheduler writes as well in a parallel run if it has a source.
        """
        leave = changed and source_writes(self._store)
        scopes = None
        if own is not None and self._scope is not None:
            scopes = [self._scope, *(worker.worker_scope(one) for one in own if one.status in WORKER_LIVE)]
        return lambda schedule: (
            not (leave and schedule.source is not None)
            and (scopes is None or any(scope.covers(schedule) for scope in scopes))
        )

    def _each_tenant(self, step: Callable[[Session], int]) -> int:
        done, self.interrupted = 0, False
        for tenant in self._served():
            if self._leadership.term is None:
                self.interrupted = True
                break
            try:
                with self._store.session(tenant, now=self._now()) as session:
                    changed = step(session)
                    if changed:
                        self._leadership.guard(session)
                done += changed
            except (ConflictError, LostLockError) as error:
                self.interrupted = True
                logger().info("a tenant is swept next time", reason=str(error))
            except Exception as error:
                if not is_of_one_row(error):
                    raise
                logger().warning("a tenant cannot be swept", tenant=tenant, reason=reason_of(error))
        return done

    def _served(self) -> Sequence[str]:
        if self._tenants is not None:
            return self._tenants
        return served_tenants(self._store.queue)

    def _end_schedules(self, session: Session, covered: Callable[[Schedule], bool]) -> int:
        running: list[Schedule] = []
        query = ScheduleQuery(statuses=("running",), limit=_PAGE)
        while page := session.schedules.list(msgspec.structs.replace(query, offset=len(running))):
            running += page
            if len(page) < _PAGE:
                break
        return sum(
            self._of_each(session, schedule, lambda one: int(completion.end_schedule(session, one.id) is not None))
            for schedule in running
            if covered(schedule)
        )

    def _adopt(self, session: Session, covered: Callable[[Schedule], bool]) -> int:
        """Look at the schedules that would be listed last by next fire: those that have none."""
        query = ScheduleQuery(
            statuses=SCHEDULE_FIRING, enabled=True, kinds=("cron", "interval", "one_time"), sort_by="next_fire_at"
        )
        planned = session.schedules.count(msgspec.structs.replace(query, next_fire_after=_BEFORE_ALL))
        bare = session.schedules.count(query) - planned
        if bare < 1:
            return 0
        schedules = session.schedules.list(msgspec.structs.replace(query, offset=planned, limit=bare))
        return sum(
            self._of_each(session, schedule, lambda one: _give_next_fires(session, one))
            for schedule in schedules
            if covered(schedule)
        )

    def _of_each(self, session: Session, schedule: Schedule, act: Callable[[Schedule], int]) -> int:
        """Return the answer of ``act`` for a schedule; one that fails is left as it is, and named in the log."""
        try:
            return act(schedule)
        except Exception as error:
            if not is_of_one_row(error) or isinstance(error, ConflictError):
                raise
            self._left_schedules.add(schedule.id, session.tenant, error)
            return 0

    def _now(self) -> datetime | None:
        return None if self._clock is None else self._clock()

    def _time(self) -> datetime:
        return self._store.now() if self._clock is None else self._clock()


def _give_next_fires(session: Session, schedule: Schedule) -> int:
    moved = 0
    for trigger in session.triggers.of_schedule(schedule.id):
        given = firing.with_next_fire(trigger, session.now)
        if given.next_fire_at is not None and given is not trigger:
            moved += session.triggers.move(trigger.id, None, given.next_fire_at)
    return moved
