"""The loop of the tail: read events, apply the documents that they name, save the position, all in one transaction.

``TailSession`` holds one set of connections and makes one step after the other. ``Tail``, the interface for commands
and the cutover, replaces the set when a connection breaks.
"""

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self, TypeAlias

import msgspec
import psycopg
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from migrator import fault_points
from migrator.config import Settings
from migrator.connections.mongo import committed_time
from migrator.errors import UnreachableError
from migrator.pipeline import control, ledger, locks
from migrator.pipeline.completion import write_derived
from migrator.pipeline.executors import collector_paused
from migrator.pipeline.ledger import Plan
from migrator.pipeline.sessions import (
    Sessions,
    is_transient,
    reason_of,
    retry_transient,
    translate_server_errors,
)
from migrator.pipeline.tail import backlog, planned_fires, positions
from migrator.pipeline.tail.applier import Applier
from migrator.pipeline.tail.backlog import (
    BACKLOG_DOCUMENTS,
    OtherConditionsError,
    require_same_conditions,
    tailed_collections,
    write_permission,
)
from migrator.pipeline.tail.lookups import ensure_indexes
from migrator.pipeline.tail.metrics import LagHistory, TailMetrics, write_metrics
from migrator.pipeline.tail.plain import can_be_plain
from migrator.pipeline.tail.positions import (
    FROZEN_S,
    AlarmError,
    EventRate,
    LagMonitor,
    PositionBackwardsError,
    PositionLostError,
    TailTotals,
    totals_of,
)
from migrator.pipeline.tail.stream import ChangeStream, EventBatch, PrefetchedEvents
from migrator.pipeline.tail.workers import PlainTask, Workers
from migrator.telemetry import say, waiting

IDLE_SAVE_S = 1.0
"""How often a position that advanced without events is recorded."""
DERIVED_EVERY_S = 5.0


class TailSession:
    """Runs the tail with one set of connections; when one of them fails, the whole set is discarded."""

    def __init__(self, sessions: Sessions, *, frozen_s: float) -> None:
        """Take the lock, find the position, open the stream.

        Raises ``RefusedError``, or ``AlarmError`` for a position that is lost, or has an alarm already.
        """
        self.sessions = sessions
        self.reason = ""
        """Why rows are not updated; empty if they are."""
        self._target = sessions.target
        self._profile = sessions.profile.name
        self._plan: Plan | None = None
        self._applier: Applier | None = None
        self._followed: tuple[str, ...] = ()
        self._guarded: set[str] = set()
        """Collections whose conditions were evaluated."""
        self._rate = EventRate()
        self._watch = LagMonitor(frozen_s)
        self._saved_at = self._derived_at = self._watched_at = time.monotonic()
        self._exhausted = False
        self.delay_ms: float | None = None
        """Seconds from the source's write of the last event to the commit of its rows, by both clocks."""
        self._workers = Workers(sessions.settings)
        locks.take_tail_lock(self._target)
        self.position = self._found_position()
        state = positions.tail_state(self._target, self._profile)
        self._derived_pending = state is not None and state.derived_pending
        self._events = PrefetchedEvents(self._open_stream())

    def _found_position(self) -> positions.Position:
        """Return the saved position, or that of the first copy; record an alarm if there is none."""
        identity = self.sessions.reader.identity()
        position = positions.next_position(self._target, self._profile, identity)
        if positions.tail_state(self._target, self._profile) is None:
            begin = position or positions.position_at_time(committed_time(self.sessions.source))
            positions.start_from(self._target, self._profile, identity, begin)
        if position is None:
            self.raise_alarm(positions.NO_POSITION)
            raise PositionLostError(positions.NO_POSITION)
        return position

    def _open_stream(self) -> ChangeStream:
        names = {self.sessions.name_of(one.name): one.name for one in self.sessions.profile.collections}
        try:
            return ChangeStream(self.sessions.source, names, self.position, self.sessions.profile)
        except AlarmError as alarm:
            self.raise_alarm(str(alarm))
            raise

    def close(self) -> None:
        """Close the stream and the connections, and with them the lock."""
        self._workers.close()
        self._events.close()
        self.sessions.close()

    def raise_alarm(self, what: str) -> None:
        """Record that the position cannot be trusted."""
        positions.raise_alarm(self._target, self._profile, what)

    def step(self, *, final: Timestamp | None = None) -> None:
        """Read events, and update the documents that they name; ``final`` is where the caller will stop."""
        batch = self._events.take()
        fault_points.reach(fault_points.TAIL_BATCH_TAKEN)
        if batch.position.is_before(self.position):
            raise PositionBackwardsError(
                f"the source is at {positions.as_datetime(batch.position.time):%Y-%m-%d %H:%M:%S} UTC, before the saved"
                f" position of {positions.as_datetime(self.position.time):%Y-%m-%d %H:%M:%S} UTC"
            )
        self._exhausted = batch.exhausted
        now = time.monotonic()
        if now - self._watched_at >= IDLE_SAVE_S:
            self._watched_at = now
            self._watch.observe(batch.position, committed_time(self.sessions.source))
        ending = final is not None and batch.position.time >= final
        moved = batch.position != self.position and (ending or now - self._saved_at >= IDLE_SAVE_S)
        if batch.events or moved or ending or backlog.any_left(self._target, self._followed or self._all()):
            self._commit(batch)
        if batch.ended:
            self._events.close()
            self._events = PrefetchedEvents(self._open_stream())
        if self._derived_pending and batch.exhausted and (ending or now - self._derived_at >= DERIVED_EVERY_S):
            self._derive()

    def _commit(self, batch: EventBatch) -> None:
        ahead = self._apply_ahead(batch)
        with self._target.transaction():
            self._take_turn()
            done = TailTotals()
            applier = self._applier
            backlog.add_whole(self._target, batch.whole)
            planned_fires.record(self._target, batch.planned)
            if applier is None or self.reason:
                backlog.add(self._target, batch.touched)
            else:
                self._guard(batch)
                applier.reader.not_before(batch.position.time)
                applier.name_all(self._followed)
                with collector_paused():
                    done = applier.apply(self._chosen(batch))
                fault_points.reach(fault_points.TAIL_APPLIED)
            done = _sum(ahead, done)
            if done.documents and self.sessions.profile.closing:
                self._derived_pending = True
            self._rate.add(batch.events)
            positions.save_progress(
                self._target,
                self._profile,
                batch.position,
                msgspec.structs.replace(done, events=batch.events),
                rate=self._rate.value,
                last_event=batch.last_event,
                derived_pending=self._derived_pending,
            )
            fault_points.reach(fault_points.TAIL_BEFORE_COMMIT)
        fault_points.reach(fault_points.TAIL_AFTER_COMMIT)
        self.position = batch.position
        self._saved_at = time.monotonic()
        if batch.wall_ms is not None and not self.reason:
            self.delay_ms = time.time() * 1000 - batch.wall_ms

    def _apply_ahead(self, batch: EventBatch) -> TailTotals:
        """Let workers apply plain changes of one collection, and remove these from the batch.

        What the collection refers to is applied before, and committed. Nothing is lost if the process ends before the
        position is saved, because the events are read again then. The workers are asked only if the last transaction
        of this process held the lock of the rows: no transaction of a lost worker can be open.
        """
        chosen = self._shared(batch)
        if chosen is None or self._plan is None:
            return TailTotals()
        done = self._apply_parents(chosen, batch)
        if self.reason or self._applier is None or chosen in self._applier.contested():
            return done  # a change of a row may free a key that another document waits for
        ids = batch.touched.pop(chosen)
        answer = self._workers.apply(
            PlainTask(
                plan=self._plan,
                profile_version=self.sessions.profile.version,
                collection=chosen,
                source_ids=sorted(ids),
                not_before=batch.position.time,
                holder=self._target.info.backend_pid,
            )
        )
        batch.touched[chosen] = dict.fromkeys(answer.left)
        fault_points.reach(fault_points.WORKERS_ANSWERED)
        return _sum(done, TailTotals(documents=answer.applied, written=answer.written))

    def _shared(self, batch: EventBatch) -> str | None:
        """Return the collection of which workers can apply changes: that with the most documents in the batch."""
        if self._applier is None or self.reason or batch.whole or batch.touched.keys() - self._guarded:
            return None
        by_name = self.sessions.profile.by_name()
        able = [name for name in batch.touched if name in self._followed and can_be_plain(by_name[name])]
        chosen = max(able, key=lambda name: len(batch.touched[name]), default=None)
        return chosen if chosen is not None and self._workers.ready(len(batch.touched[chosen])) else None

    def _apply_parents(self, chosen: str, batch: EventBatch) -> TailTotals:
        """Apply what a batch names of the collections that are loaded before one, and remove it from the batch."""
        order = self._all()
        before = [name for name in order[: order.index(chosen)] if name in batch.touched and name in self._followed]
        if not before:
            return TailTotals()
        with self._target.transaction():
            self._take_turn()
            if self._applier is None or self.reason:
                return TailTotals()
            self._applier.reader.not_before(batch.position.time)
            with collector_paused():
                done = self._applier.apply({name: batch.touched[name] for name in before})
        for name in before:
            del batch.touched[name]
        return done

    def _take_turn(self) -> None:
        """Find out whether rows may be written in this transaction, and under which plan.

        Raises ``BackendMovedError`` after a cutover, because the application writes the rows then.
        """
        self.sessions.target_tables.require_forward(self._target)
        answer = write_permission(self._target, self._plan)
        self.reason = answer.reason
        if answer.plan is None or answer.plan is self._plan:
            return
        require_same_conditions(self.sessions, answer.plan)
        ensure_indexes(self._target, self.sessions.profile)
        self._plan = answer.plan
        self._followed = tailed_collections(self.sessions)
        self._guarded = set(answer.plan.context["collections"])
        self.sessions.forget()
        if self._applier is not None:
            self._applier.reader.close()
        self._applier = Applier(self.sessions, answer.plan)

    def _guard(self, batch: EventBatch) -> None:
        """Evaluate the conditions of the copy again if a collection was created or dropped since."""
        made = batch.touched.keys() - self._guarded
        if self._plan is not None and (made or batch.whole):
            require_same_conditions(self.sessions, self._plan)
            self._guarded |= made

    def _chosen(self, batch: EventBatch) -> dict[str, dict[str, None]]:
        """Return the documents that must be read again: those of this batch, and some of the backlog."""
        chosen = backlog.take(self._target, self._followed, BACKLOG_DOCUMENTS)
        not_followed = {name: ids for name, ids in batch.touched.items() if name not in self._followed}
        backlog.add(self._target, not_followed)
        for name, ids in batch.touched.items():
            if name not in not_followed:
                chosen.setdefault(name, {}).update(ids)
        return chosen

    def _derive(self) -> None:
        """Make the rows again that are made from many documents."""
        with self._target.transaction():
            if write_permission(self._target, self._plan).plan is None:
                return
            write_derived(self.sessions)
            self._derived_pending = False
            positions.save_progress(self._target, self._profile, self.position, TailTotals(), rate=self._rate.value)
        self._derived_at = time.monotonic()

    def at(self, goal: Timestamp) -> bool:
        """Return whether everything up to ``goal`` was read and, if rows may be written, is in the rows."""
        reached = self.position.time > goal or (self.position.time == goal and self._exhausted)
        if not reached or self.reason:
            return reached
        return not self._derived_pending and not backlog.any_left(self._target, self._followed)

    def _all(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.sessions.profile.collections)

    def totals(self) -> TailTotals:
        """Return the totals since the tail's first call."""
        return positions.tail_state(self._target, self._profile) or TailTotals()

    def record_lag(self, history: LagHistory) -> None:
        """Store the lag in the history, if the last sample is old enough."""
        history.observe(self._target, self._watch.seconds)

    def metrics(self) -> TailMetrics:
        """Return the metrics."""
        return TailMetrics(
            **totals_of(self.totals()),
            lag_s=self._watch.seconds,
            delay_ms=self.delay_ms,
            rate=self._rate.value,
            owed=backlog.count(self._target),
            position_s=self.position.time.time,
            alarm=False,
        )

    def line(self) -> str:
        """Return the state as a line of text."""
        now = self.totals()
        return (
            f"tail: {now.events:,} events, {now.documents:,} documents applied, {now.written:,} rows written,"
            f" {now.removed:,} removed; {self._rate.value:,.0f} events/s, lag {self._watch.seconds} s"
        )

    def oplog_words(self) -> str:
        """Return for how long the source keeps the changes after the position."""
        history = positions.oplog_history(self.sessions.source)
        if history is None:
            return "the tool may not read the oplog, so nobody knows how long it keeps the changes from here"
        if not history.full:
            return "the oplog keeps all changes from here until it is full"
        hours = max(0, self.position.time.time - history.oldest.time) / 3600
        return f"the oplog keeps the changes from here for about {hours:.1f} h more"

    def result(self, before: TailTotals, *, reached: bool) -> "TailResult":
        """Return the totals of the work since ``before``."""
        now = totals_of(self.totals())
        return TailResult(
            **{name: total - getattr(before, name) for name, total in now.items()},
            reached=reached,
            applied=not self.reason,
            reason=self.reason,
            position=self.position.time,
            owed=backlog.count(self._target),
            quarantined=ledger.quarantined_count(self._target, self._profile),
        )


def _sum(one: TailTotals, other: TailTotals) -> TailTotals:
    return TailTotals(**{name: value + getattr(other, name) for name, value in totals_of(one).items()})


Until: TypeAlias = Timestamp | Literal["caught-up"] | None
"""A cluster time; everything that the source has committed by now; or never."""

REPORT_EVERY_S = 10.0
METRICS_EVERY_S = 1.0
WARN_EVERY_S = 600.0
"""How often a tail that is paused says how long the oplog keeps what it has not applied."""


class TailResult(TailTotals, frozen=True, kw_only=True):
    """The result of a call of the tail."""

    reached: bool
    """Whether it reached its goal; false if it was stopped."""
    applied: bool
    """Whether rows are up to date with the position; false while a copy is unfinished."""
    reason: str
    """Why rows are not; empty if they are."""
    position: Timestamp
    owed: int
    """Documents that must still be read again."""
    quarantined: int


class Tail:
    """Tails the source from the saved position; a second tail of the same target is refused.

    ``run`` may be called again on one object, which keeps its connections and the lock between calls.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        metrics_file: Path | None = None,
        frozen_s: float = FROZEN_S,
        can_be_paused: bool = False,
    ) -> None:
        """``can_be_paused``: wait while ``migrator control pause`` is in force; a cutover does not."""
        self._settings = settings
        self._can_be_paused = can_be_paused
        self._looked = float("-inf")
        self._metrics_file = metrics_file
        self._frozen_s = frozen_s
        self._session: TailSession | None = None
        self._said = self._measured = time.monotonic()
        self._waits_for = ""
        self._history = LagHistory()

    def __enter__(self) -> Self:
        """Open nothing yet: ``run`` does that."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections, and with them the lock."""
        self.close()

    def close(self) -> None:
        """Close the connections, and with them the lock."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def run(self, until: Until = None, stop: threading.Event | None = None) -> TailResult:
        """Run until a goal is reached, or until ``stop`` is set; what is done is stored at any moment.

        Transient failures of either server are retried for ``copy.patience``. Raises ``RefusedError`` (nothing
        copied, no replica set, another tail, other conditions), ``AlarmError`` if the position cannot be trusted
        (recorded; ``parity --repair apply`` ends it), ``UnreachableError`` if a server stays unreachable.
        """
        stop = threading.Event() if stop is None else stop
        with translate_server_errors(self._settings):
            session = self._opened()  # a failure at the start is not retried
            goal = committed_time(session.sessions.source) if until == "caught-up" else until
            begun = session.totals()
            while True:  # the patience begins again each time that it has advanced
                done = retry_transient(self._settings, lambda: self._attempt(goal, stop))
                if done is not None:
                    session = self._opened()
                    if self._metrics_file is not None:
                        write_metrics(self._metrics_file, session.metrics())
                    return session.result(begun, reached=done)

    @property
    def following(self) -> bool:
        """Whether this object holds the lock of the tail."""
        return self._session is not None

    def _opened(self) -> TailSession:
        if self._session is None:
            with ExitStack() as on_error:
                sessions = Sessions(self._settings)
                on_error.callback(sessions.close)
                self._session = TailSession(sessions, frozen_s=self._frozen_s)
                on_error.pop_all()
        return self._session

    def _attempt(self, goal: Timestamp | None, stop: threading.Event) -> bool | None:
        """Run with one set of connections; None if it broke after the tail had advanced, so that another is opened."""
        session = self._opened()
        moved = False
        try:
            while not stop.is_set():
                if self._can_be_paused and self._wait_while_paused(session, stop):
                    break
                session.step(final=goal)
                moved = True
                self._tell(session)
                session.record_lag(self._history)
                if goal is not None and session.at(goal):
                    return True
        except AlarmError as alarm:
            session.raise_alarm(str(alarm))
            self.close()
            raise
        except OtherConditionsError:
            self.close()
            if moved:  # a copy was made meanwhile: perhaps by the mapping file as it is now
                say("tail: the copy was made anew with other settings; the mapping is read again")
                return None
            raise
        except (psycopg.Error, PyMongoError, UnreachableError) as error:
            self.close()
            if moved and is_transient(error):
                waiting(reason_of(error))
                return None
            raise
        except BaseException:
            self.close()
            raise
        return False

    def _wait_while_paused(self, session: TailSession, stop: threading.Event) -> bool:
        """Wait while the migration is paused; return whether ``stop`` was set meanwhile."""
        if time.monotonic() - self._looked < control.READ_EVERY_S:
            return False
        warned = float("-inf")
        while (pause := control.read(session.sessions.target).pause) is not None:
            now = time.monotonic()
            if now - warned >= WARN_EVERY_S:
                warned = now
                waiting(f"paused {pause.words}; {session.oplog_words()}: migrator control resume")
            fault_points.reach(fault_points.PAUSED)
            if stop.wait(control.READ_EVERY_S):
                return True
        self._looked = time.monotonic()
        return False

    def _tell(self, session: TailSession) -> None:
        """Log the state from time to time, and at once why rows are not updated."""
        if session.reason != self._waits_for:
            self._waits_for = session.reason
            if session.reason:
                waiting(session.reason)
        now = time.monotonic()
        if now - self._said >= REPORT_EVERY_S:
            self._said = now
            say(session.line())
        if self._metrics_file is not None and now - self._measured >= METRICS_EVERY_S:
            self._measured = now
            write_metrics(self._metrics_file, session.metrics())
