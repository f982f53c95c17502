"""The worker: it fires due triggers, claims runs, gives them to the executor, renews leases, and writes outcomes.

Every write of a run's state is a compare-and-set on worker and fence, so that an outcome that comes late, twice or out
of order changes nothing. A worker is driven by one thread (``process``); handlers report from theirs.

A worker states in its row of ``workers`` that it is of this scheduler, and for which schedules it works (``Scope``):
the queues in their column, the rest in ``metadata``. Rows that do not say so are another scheduler's, and nothing here
declares them dead or ends their runs. In PostgreSQL so are rows that were copied, until a cutover has moved the
scheduler there: before it their processes use MongoDB, and their heartbeats do not reach the copy.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from migrator.errors import StoreError, UnreachableError
from migrator.log import logger
from migrator.records import Schedule, WorkerRecord
from migrator.scheduler import lifecycle
from migrator.scheduler.completion import Outcome, finish_of, timeout_of, timeout_outcome
from migrator.scheduler.executor import Executor, RunReleasedError, failure_outcome
from migrator.scheduler.firing import plan
from migrator.scheduler.lifecycle import EventSink
from migrator.scheduler.recorder import EndedRun, LogLine, Recorder, end_line
from migrator.store.left_rows import is_of_one_row, reason_of
from migrator.store.protocols import Store
from migrator.store.queue import Claim, Finish, HandlerFilter, is_served
from migrator.store.wakeups import is_ready
from migrator.values import jsonb

SCHEDULER: Final = "migrator"
"""What ``metadata.scheduler`` says in the row of a process of this scheduler."""


@runtime_checkable
class EpochStore(Protocol):
    """A store whose backend knows the persistence epoch."""

    def epoch_backend(self) -> str | None:
        """Return the backend that the epoch names; None: there was never a cutover."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that a process works for."""

    queues: tuple[str, ...] | None = None
    """If omitted: of all queues, and of no queue."""
    handlers: HandlerFilter | None = None
    """If omitted: of all handlers."""

    def covers(self, schedule: Schedule) -> bool:
        """Whether a schedule is one of them."""
        return is_served(schedule, self.queues, self.handlers)


EVERYTHING: Final = Scope()
"""All schedules."""


def scope_metadata(scope: Scope) -> bytes:
    """Return the metadata of the row of a process with this scope, as JSON."""
    stated: dict[str, Any] = {"scheduler": SCHEDULER}
    if scope.handlers is not None:
        stated |= {"handlers": list(scope.handlers.names), "handlerTypes": list(scope.handlers.types)}
    return jsonb.encode(stated)


def is_own_worker(worker: WorkerRecord) -> bool:
    """Whether a row of ``workers`` is that of a process of this scheduler."""
    return _metadata(worker).get("scheduler") == SCHEDULER


def worker_scope(worker: WorkerRecord) -> Scope:
    """Return the scope that a process of this scheduler stated."""
    stated = _metadata(worker)
    names, types = stated.get("handlers"), stated.get("handlerTypes")
    handlers = None
    if isinstance(names, list) and isinstance(types, list):
        handlers = HandlerFilter(names=tuple(map(str, names)), types=tuple(map(str, types)))
    return Scope(queues=worker.queues or None, handlers=handlers)


def own_workers(store: Store) -> Sequence[WorkerRecord]:
    """Return the processes of this scheduler that were registered here, or came here with a cutover."""
    workers = [one for one in store.workers.list() if is_own_worker(one)]
    if store.backend == "postgres" and any(one.source is not None for one in workers):
        moved = isinstance(store, EpochStore) and store.epoch_backend() == store.backend
        workers = [one for one in workers if moved or one.source is None]
    return workers


def _metadata(worker: WorkerRecord) -> dict[str, Any]:
    stated: Any = None if worker.metadata is None else jsonb.decode(worker.metadata)
    return stated if isinstance(stated, dict) else {}


class CounterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the process started, all taken at one moment."""

    fired: int = 0
    """Runs queued by triggers."""
    skipped: int = 0
    """Runs recorded as skipped."""
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    retried: int = 0
    lost: int = 0
    """Runs that were cancelled or taken away while they were worked on."""
    delivered: int = 0
    """Runs that another system ended by itself (``Scheduler.complete``)."""
    ignored: int = 0
    """Outcomes that came too ignored, or twice, and were ignored."""
    given_back: int = 0
    reclaimed: int = 0
    """Runs of others that the sweep ended."""
    running: int = 0
    duration_ms: int = 0
    """Of the completed ones, together."""
    last_tick_at: datetime | None = None

    @property
    def success_rate(self) -> float | None:
        """Return completed by completed and failed (timed out ones failed); none before the first."""
        ended = self.completed + self.failed + self.timed_out
        return self.completed / ended if ended else None


class Counters:
    """The counters; adding and taking a snapshot never see each other half done."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._now = CounterSnapshot()

    def add(self, **counts: int) -> None:
        """Add to counters by name; those of one call are added together."""
        with self._lock:
            grown = {name: getattr(self._now, name) + by for name, by in counts.items()}
            self._now = msgspec.structs.replace(self._now, **grown)

    def ticked(self, at: datetime) -> None:
        """Note when triggers were last looked at."""
        with self._lock:
            self._now = msgspec.structs.replace(self._now, last_tick_at=at)

    def snapshot(self) -> CounterSnapshot:
        """Return the counters of this moment."""
        with self._lock:
            return self._now


MOST_SENT: Final = 1_000
"""Runs that a worker has handed to other systems at the same time; they take no room in this process."""

_MAX_LOG_LINES = 1_000
"""Log lines kept of one run; the rest is counted in the last one."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How much a worker claims, and of what."""

    worker_id: UUID
    batch: int = 100
    """Triggers fired, and runs claimed, in one transaction."""
    capacity: int = 10
    """Runs executed at the same time."""
    lease: timedelta = timedelta(minutes=5)
    scope: Scope = EVERYTHING
    """Fire and claim only for these schedules."""
    tenants: tuple[str, ...] | None = None
    """Only these; if omitted: all but scratch tenants."""


class _ActiveRun(msgspec.Struct):
    claim: Claim
    since: float
    """By the monotonic clock."""
    lines: list[LogLine]
    omitted: int = 0
    sent: bool = False
    """Another system executes it."""


class WorkerCore:
    """Claims and executes runs; the ``RunListener`` of its executor."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        options: WorkerOptions,
        *,
        audit: bool = True,
        sink: EventSink = lifecycle.ignore,
        clock: Callable[[], datetime] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """``clock`` (none: the database's) and ``monotonic`` are for tests; ``wake`` is called when a run ended."""
        self._store, self._executor, self._options = store, executor, options
        self._clock, self._monotonic, self._wake = clock, monotonic, wake
        self._recorder = Recorder(store, sink=sink, audit=audit, clock=clock)
        self._active: dict[UUID, _ActiveRun] = {}
        self._lock = Lock()
        self._outcomes: SimpleQueue[tuple[Claim, Outcome]] = SimpleQueue()
        self._unfired: str | None = None
        """Why the last call could fire nothing; it is said once."""
        self.counters = Counters()

    @property
    def active(self) -> tuple[UUID, ...]:
        """Ids of the runs that are being executed."""
        return tuple(self._active)

    @property
    def executes(self) -> bool:
        """Whether this process executes runs; those of other systems go on without it."""
        return any(not active.sent for active in self._active.values())

    def move(self, store: Store) -> None:
        """Use another store from now on, to which a cutover has moved the runs."""
        self._store = store
        self._recorder.move(store)

    @property
    def room(self) -> int:
        """How many more runs this process can execute, or hand to another system, at most one batch."""
        options = self._options
        sent = sum(active.sent for active in self._active.values())
        return max(0, min(options.capacity - (len(self._active) - sent), MOST_SENT - sent, options.batch))

    def fire(self, most: int | None = None) -> int:
        """Fire what is due, at most so many triggers (one batch if omitted); return how many runs that made."""
        options = self._options
        try:
            runs = self._store.queue.fire_due(
                plan,
                options.batch if most is None else most,
                self._now(),
                options.tenants,
                queues=options.scope.queues,
                handlers=options.scope.handlers,
            )
        except Exception as error:
            if not is_of_one_row(error):
                raise
            if self._unfired != (reason := reason_of(error)):
                logger().warning("no trigger that is due can be fired", reason=reason)
            self._unfired, runs = reason, ()
        else:
            self._unfired = None
        self.counters.ticked(self._time())
        skipped = [run for run in runs if run.state == "skipped"]
        self.counters.add(fired=len(runs) - len(skipped), skipped=len(skipped))
        self._recorder.skipped(skipped)
        return len(runs)

    def claim(self) -> int:
        """Claim as much as there is room for, at most one batch, and hand it over; return how many that were."""
        options, room = self._options, self.room
        if room < 1:
            return 0
        claims = self._store.queue.claim(
            str(options.worker_id),
            room,
            options.lease,
            self._now(),
            queues=options.scope.queues,
            handlers=options.scope.handlers,
            tenants=options.tenants,
        )
        since = self._monotonic()
        duplicates: list[Claim] = []
        with self._lock:
            for claim in claims:
                held = self._active.get(claim.run.id)
                if held is not None and held.claim.run.tenant_id != claim.run.tenant_id:
                    duplicates.append(claim)
                else:
                    self._active[claim.run.id] = _ActiveRun(claim, since, [])
        if duplicates:
            # A run is found by its id, which is unique in its tenant only: of two runs with one id, one at a time.
            self._store.queue.release(duplicates, self._now())
            claims = [claim for claim in claims if claim not in duplicates]
        self.counters.add(claimed=len(claims), running=len(claims))
        self._recorder.dispatched(claims)
        for claim in claims:
            self._submit(claim)
        return len(claims)

    def collect(self) -> int:
        """Write the outcomes that came in; return how many runs ended by them."""
        self._executor.collect()
        arrived: dict[UUID, tuple[Claim, Outcome]] = {}
        while True:
            try:
                claim, outcome = self._outcomes.get_nowait()
            except Empty:
                break
            held = self._active.get(claim.run.id)
            if held is None or held.claim.fence != claim.fence or claim.run.id in arrived:
                self.counters.add(ignored=1)
            else:
                arrived[claim.run.id] = (claim, outcome)
        if not arrived:
            return 0
        try:
            now = self._time()
            ends = [finish_of(claim, outcome, now) for claim, outcome in arrived.values()]
            written = self._finish(ends)
        except (StoreError, UnreachableError):
            for claim, outcome in arrived.values():  # they are not lost while the lease holds, here or where it moves
                self._outcomes.put((claim, outcome))
            raise
        self._record_ends(ends, set(written))
        if any(end.retry is not None and is_ready(end.retry, now) for end in ends):
            self._store.wakeups.wake()
        return len(written)

    def renew(self) -> None:
        """Extend the leases; cancel runs that this worker no longer holds."""
        claims = [active.claim for active in self._active.values()]
        if not claims:
            return
        kept = set(self._store.queue.heartbeat(claims, self._options.lease, self._now()))
        for claim in claims:
            if claim.run.id not in kept:
                self._drop(claim)

    def time_out(self) -> None:
        """End the runs that take longer than their schedules allow, where the database's clock agrees."""
        over = []
        for active in self._active.values():
            limit = timeout_of(active.claim)
            if limit is not None and self._monotonic() - active.since >= limit.total_seconds():
                over.append(active.claim)
        if not over:
            return
        now = self._time()
        ends = [finish_of(claim, timeout_outcome(claim), now) for claim in over]
        written = set(self._store.queue.expire(ends, self._now()))
        for claim in over:
            if claim.run.id in written:
                self._executor.cancel(claim.run.id)
        self._record_ends([end for end in ends if end.run_id in written], written)

    def release(self) -> int:
        """Release the runs that have not ended, so that other workers can claim them; return how many.

        What another system executes stays as it is, or it would be executed twice: until its lease ends, a process
        there may renew it and end it (``Scheduler.heartbeat``, ``Scheduler.complete``).
        """
        for active in [active for active in self._active.values() if active.sent]:
            self._executor.forget(active.claim.run.id)
            self._remove(active.claim)
        claims = [active.claim for active in self._active.values()]
        if not claims:
            return 0
        for claim in claims:
            self._executor.cancel(claim.run.id)
        given = self._store.queue.release(claims, self._now())
        if given:
            self._store.wakeups.wake()
        self.counters.add(given_back=len(given))
        for claim in claims:
            self._remove(claim)
        return len(given)

    def abandon(self) -> None:
        """Stop all work without writing anything: the runs belong to other workers."""
        self._executor.close()
        for active in list(self._active.values()):
            self._remove(active.claim, write=False)

    def ended(self, claim: Claim, outcome: Outcome) -> None:
        """Take an outcome, from any thread."""
        self._outcomes.put((claim, outcome))
        self._wake()

    def said(self, claim: Claim, level: str, message: str) -> None:
        """Take a line of a run's log, from any thread."""
        with self._lock:
            active = self._active.get(claim.run.id)
            if active is None or active.claim.fence != claim.fence:
                return
            if len(active.lines) >= _MAX_LOG_LINES:
                active.omitted += 1
                return
            active.lines.append(self._line(active, level, message))

    def _submit(self, claim: Claim) -> None:
        self.said(claim, "info", f"attempt {claim.run.attempt or 1} began")
        try:
            task_id = self._executor.submit(claim, self)
        except RunReleasedError:
            self._store.queue.release([claim], self._now())
            self._remove(claim, write=False)
            return
        except Exception as error:  # noqa: BLE001 - whatever keeps a run from being executed is its error
            self.ended(claim, failure_outcome(error))
            return
        if task_id is not None:
            self._recorder.external(claim, task_id)
            active = self._active.get(claim.run.id)
            if active is not None:
                active.sent = True

    def _finish(self, ends: Sequence[Finish]) -> Sequence[UUID]:
        """Write ends together, or, where one of them is refused, one by one: it ends its own run, and no other."""
        try:
            return self._store.queue.finish(ends, self._now())
        except Exception as refused:  # whatever a driver raises for one outcome must not keep the others
            if not is_of_one_row(refused):
                raise
            if len(ends) > 1:
                return [written for end in ends for written in self._finish([end])]
            return self._finish_plainly(ends[0], refused)

    def _finish_plainly(self, end: Finish, refused: Exception) -> Sequence[UUID]:
        """End a run whose outcome cannot be stored as an error, without its retry if that is refused as well.

        A run that cannot be ended at all is left to the sweep, which finds it when its lease is over.
        """
        reason = reason_of(refused)
        logger().warning("an outcome cannot be stored", run=str(end.run_id), tenant=end.tenant_id, reason=reason)
        plain = msgspec.structs.replace(
            end, state="error", result=None, error=f"the outcome cannot be stored: {reason}", error_detail=None
        )
        for shorter in (plain, msgspec.structs.replace(plain, retry=None)):
            try:
                return self._store.queue.finish([shorter], self._now())
            except Exception as error:
                if not is_of_one_row(error):
                    raise
                reason = reason_of(error)
        logger().error("a run cannot be ended", run=str(end.run_id), tenant=end.tenant_id, reason=reason)
        return []

    def _record_ends(self, ends: Sequence[Finish], written: set[UUID]) -> None:
        done = []
        for end in ends:
            active = self._active[end.run_id]
            if end.run_id not in written:
                self._drop(active.claim)
                continue
            done.append(EndedRun(claim=active.claim, finish=end, lines=self._log_lines(active, end)))
            self._count(end, active)
            self._remove(active.claim, write=False)
        self._recorder.ended(done)

    def _log_lines(self, active: _ActiveRun, end: Finish) -> Sequence[LogLine]:
        with self._lock:
            lines = list(active.lines)
        if active.omitted:
            lines.append(self._line(active, "warn", f"{active.omitted} more lines were left out"))
        return [*lines, end_line(end, self._time_of(active))]

    def _line(self, active: _ActiveRun, level: str, message: str) -> LogLine:
        return LogLine(at=self._time_of(active), level=level, message=message)

    def _time_of(self, active: _ActiveRun) -> datetime:
        """Return this moment, counted from the start of the run that the database wrote."""
        began = active.claim.run.started_at or active.claim.run.created_at
        return began + timedelta(seconds=self._monotonic() - active.since)

    def _count(self, end: Finish, active: _ActiveRun) -> None:
        lasted = int((self._monotonic() - active.since) * 1000)
        retried = 0 if end.retry is None else 1
        if end.state == "completed":
            self.counters.add(completed=1, duration_ms=lasted)
        elif end.state == "timeout":
            self.counters.add(timed_out=1, retried=retried)
        else:
            self.counters.add(failed=1, retried=retried)

    def _drop(self, claim: Claim) -> None:
        """Stop executing a run that this worker no longer holds."""
        active = self._active.get(claim.run.id)
        if active is not None and active.sent and self._is_completed_elsewhere(claim):
            self._executor.forget(claim.run.id)
            self.counters.add(delivered=1)
        else:
            self._executor.cancel(claim.run.id)
            self.counters.add(lost=1)
        self._remove(claim)

    def _is_completed_elsewhere(self, claim: Claim) -> bool:
        """Whether a process of another system has ended the run under this claim (``Scheduler.complete``)."""
        with self._store.session(claim.run.tenant_id) as session:
            run = session.runs.get(claim.run.id)
        return run is not None and run.fence == claim.fence and run.state in ("completed", "error")

    def _remove(self, claim: Claim, *, write: bool = True) -> None:
        with self._lock:
            active = self._active.pop(claim.run.id, None)
        if active is None:
            return
        self.counters.add(running=-1)
        if write:
            self._recorder.lines(claim, active.lines)

    def _now(self) -> datetime | None:
        """Return the time to give to the store: None in production, where the database's clock counts."""
        return None if self._clock is None else self._clock()

    def _time(self) -> datetime:
        return self._store.now() if self._clock is None else self._clock()
