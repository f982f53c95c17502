"""The tail with one set of connections: the lock, the stream, and one step after the other."""

import time

from bson.timestamp import Timestamp

from migrator import fault_points
from migrator.connections.mongo import committed_time
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.derived import write_derived
from migrator.pipeline.executors import collector_paused
from migrator.pipeline.model import Plan
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import lock, positions, touched
from migrator.pipeline.tail.ahead import EventsAhead
from migrator.pipeline.tail.alarms import AlarmError, PositionBackwardsError, PositionLostError
from migrator.pipeline.tail.apply import Applied, Applier
from migrator.pipeline.tail.events import Batch, Stream
from migrator.pipeline.tail.figures import Figures
from migrator.pipeline.tail.lag import Rate, Watch
from migrator.pipeline.tail.lookups import ensure_indexes
from migrator.pipeline.tail.turn import followed, guard, turn
from migrator.store.postgres.epoch import require_forward

OWED_AT_A_TIME = 1_000
IDLE_SAVE_S = 1.0
"""How often a position that moved without events is written down."""
DERIVED_EVERY_S = 5.0


class TailSession:
    """Follows with one set of connections; when one of them fails, all of it is thrown away."""

    def __init__(self, sessions: Sessions, *, frozen_s: float) -> None:
        """Take the lock, find the position, open the stream.

        Raises ``RefusedError``, or ``AlarmError`` for a position that is lost, or was found useless before.
        """
        self.sessions = sessions
        self.reason = ""
        """Why rows are not brought up to date; empty when they are."""
        self._target = sessions.target
        self._profile = sessions.profile.name
        self._plan: Plan | None = None
        self._applier: Applier | None = None
        self._followed: tuple[str, ...] = ()
        self._guarded: set[str] = set()
        """Collections that the guard has seen."""
        self._rate = Rate()
        self._watch = Watch(frozen_s)
        self._saved_at = self._derived_at = self._watched_at = time.monotonic()
        self._exhausted = False
        self._wall_ms: float | None = None
        self.delay_ms: float | None = None
        """From the source's writing of the last event to the commit of its rows, by both clocks."""
        lock.take(self._target)
        self.position = self._found_position()
        standing = positions.standing(self._target, self._profile)
        self._derived_owed = standing is not None and standing.derived_owed
        self._events = EventsAhead(self._open_stream())

    def _found_position(self) -> positions.Position:
        """Return the saved position, or that of the first copy; write down an alarm where there is none."""
        identity = plans.source_identity(self.sessions.source)
        first = positions.first(self._target, self._profile, identity)
        standing = positions.standing(self._target, self._profile)
        if standing is not None and standing.alarm is not None:
            raise PositionLostError(standing.alarm)
        if standing is not None:
            return standing.position
        if first is None:
            positions.begin(self._target, self._profile, identity, positions.at(committed_time(self.sessions.source)))
            alarm = "no position was taken before the copy (--no-position)"
            self.raise_alarm(alarm)
            raise PositionLostError(alarm)
        positions.begin(self._target, self._profile, identity, first)
        return first

    def _open_stream(self) -> Stream:
        names = {self.sessions.name_of(one.name): one.name for one in self.sessions.profile.collections}
        try:
            return Stream(self.sessions.source, names, self.position)
        except AlarmError as alarm:
            self.raise_alarm(str(alarm))
            raise

    def close(self) -> None:
        """Close the stream and the connections, and with them the lock."""
        self._events.close()
        self.sessions.close()

    def raise_alarm(self, what: str) -> None:
        """Write down that the position cannot be trusted."""
        positions.raise_alarm(self._target, self._profile, what)

    def step(self, *, final: Timestamp | None = None) -> None:
        """Take what events there are, and bring what they name up to date; ``final`` is where the caller will stop."""
        batch = self._events.take()
        fault_points.reach(fault_points.TAIL_BATCH_TAKEN)
        if batch.position.behind(self.position):
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
        if batch.events or moved or ending or touched.any_left(self._target, self._followed or self._all()):
            self._commit(batch)
        if batch.ended:
            self._events.close()
            self._events = EventsAhead(self._open_stream())
        if self._derived_owed and batch.exhausted and (ending or now - self._derived_at >= DERIVED_EVERY_S):
            self._derive()

    def _commit(self, batch: Batch) -> None:
        with self._target.transaction():
            self._take_turn()
            done = Applied()
            applier = self._applier
            touched.add_whole(self._target, batch.whole)
            if applier is None or self.reason:
                touched.add(self._target, batch.touched)
            else:
                self._guard(batch)
                applier.reader.not_before(batch.position.time)
                applier.name_all(self._followed)
                with collector_paused():
                    done = applier.apply(self._chosen(batch))
                fault_points.reach(fault_points.TAIL_APPLIED)
            if done.documents and self.sessions.profile.closing:
                self._derived_owed = True
            self._rate.add(batch.events)
            positions.save(
                self._target,
                self._profile,
                positions.Advance(
                    position=batch.position,
                    last_event=batch.last_event,
                    events=batch.events,
                    documents=done.documents,
                    written=done.written,
                    removed=done.removed,
                    rate=self._rate.value,
                    derived_owed=self._derived_owed,
                ),
            )
            fault_points.reach(fault_points.TAIL_BEFORE_COMMIT)
        fault_points.reach(fault_points.TAIL_AFTER_COMMIT)
        self.position = batch.position
        self._saved_at = time.monotonic()
        if batch.wall_ms is not None and not self.reason:
            self.delay_ms = time.time() * 1000 - batch.wall_ms

    def _take_turn(self) -> None:
        """Find out whether rows may be written in this transaction, and with what.

        Raises ``BackendMovedError`` behind a cutover: rows are written by the application by then.
        """
        require_forward(self._target)
        answer = turn(self._target, self._plan)
        self.reason = answer.reason
        if answer.plan is None or answer.plan is self._plan:
            return
        guard(self.sessions, answer.plan)
        ensure_indexes(self._target, self.sessions.profile)
        self._plan = answer.plan
        self._followed = followed(self.sessions)
        self._guarded = set(answer.plan.context["collections"])
        self.sessions.forget()
        if self._applier is not None:
            self._applier.reader.close()
        self._applier = Applier(self.sessions, answer.plan)

    def _guard(self, batch: Batch) -> None:
        """Look at the conditions of the copy again where a collection was made, or went, since."""
        made = batch.touched.keys() - self._guarded
        if self._plan is not None and (made or batch.whole):
            guard(self.sessions, self._plan)
            self._guarded |= made

    def _chosen(self, batch: Batch) -> dict[str, dict[str, None]]:
        """Return what is to be read again: what was touched now, and some of what is owed."""
        chosen = touched.take(self._target, self._followed, OWED_AT_A_TIME)
        strange = {name: ids for name, ids in batch.touched.items() if name not in self._followed}
        touched.add(self._target, strange)
        for name, ids in batch.touched.items():
            if name not in strange:
                chosen.setdefault(name, {}).update(ids)
        return chosen

    def _derive(self) -> None:
        """Make the rows again that many documents make together."""
        with self._target.transaction():
            if turn(self._target, self._plan).plan is None:
                return
            write_derived(self.sessions)
            self._derived_owed = False
            positions.save(
                self._target, self._profile, positions.Advance(position=self.position, rate=self._rate.value)
            )
        self._derived_at = time.monotonic()

    def at(self, goal: Timestamp) -> bool:
        """Tell whether everything up to ``goal`` is seen and, where rows may be written, in the rows."""
        reached = self.position.time > goal or (self.position.time == goal and self._exhausted)
        if not reached or self.reason:
            return reached
        return not self._derived_owed and not touched.any_left(self._target, self._followed)

    def _all(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.sessions.profile.collections)

    def owed(self) -> int:
        """Return how many documents are still to be read again."""
        return touched.count(self._target)

    def quarantined(self) -> int:
        """Return how many documents are set aside now."""
        return ledger.quarantined(self._target, self._profile)

    def totals(self) -> tuple[int, int, int, int]:
        """Return events, documents, rows written and rows removed, since the tail's first call."""
        standing = positions.standing(self._target, self._profile)
        return (
            (0, 0, 0, 0)
            if standing is None
            else (standing.events, standing.documents, standing.written, standing.removed)
        )

    def figures(self) -> Figures:
        """Return what there is to measure."""
        return Figures(
            *self.totals(),
            lag_s=self._watch.seconds,
            delay_ms=self.delay_ms,
            rate=self._rate.value,
            owed=self.owed(),
            position_s=self.position.time.time,
            alarm=False,
        )

    def line(self) -> str:
        """Return where it stands as a line."""
        events, documents, written, removed = self.totals()
        return (
            f"tail: {events:,} events, {documents:,} documents brought up to date, {written:,} rows written,"
            f" {removed:,} removed; {self._rate.value:,.0f} events/s, {self._watch.seconds} s behind"
        )
