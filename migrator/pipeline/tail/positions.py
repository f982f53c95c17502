"""Positions in the change stream: the tail's row in the ledger, its lag, and what makes a position useless.

A useless position raises an ``AlarmError``. It calls for a parity check with repair, never for a silent restart.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import bson
import msgspec
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from migrator.connections.mongo import MongoDatabase
from migrator.connections.postgres import Connection, fetch_structs
from migrator.errors import MigratorError, RefusedError


class AlarmError(MigratorError):
    """The position in the change stream cannot be trusted; a parity check must find what was missed."""


class PositionLostError(AlarmError):
    """The source's oplog does not reach back to the position any more, or no position was taken."""


class PositionBackwardsError(AlarmError):
    """The source returned a position before the saved one: it was restored from a backup, or is another source."""


class PositionFrozenError(AlarmError):
    """The source advances, and the position does not."""


Start: TypeAlias = Literal["start_at_operation_time", "resume_after", "start_after"]
"""How the driver opens a change stream at a position; ``start_after`` continues after the end of a dropped database."""

TOKEN = "_data"  # noqa: S105 - a field of resume tokens, no password
"""A resume token is a sortable key in hexadecimal that begins with the cluster time (MongoDB manual, resume tokens)."""


class Position(msgspec.Struct, frozen=True):
    """A point in the source's history: all events before it were read."""

    start: Start
    value: Any
    """The cluster time, or the resume token."""

    @property
    def time(self) -> Timestamp:
        """The cluster time that the position has reached."""
        if isinstance(self.value, Timestamp):
            return self.value
        data = str(self.value[TOKEN])
        return Timestamp(int(data[2:10], 16), int(data[10:18], 16))

    def is_before(self, other: "Position") -> bool:
        """Return whether this position is before another one, as no later one may be."""
        if isinstance(self.value, Timestamp) or isinstance(other.value, Timestamp):
            return self.time < other.time
        return str(self.value[TOKEN]) < str(other.value[TOKEN])

    def encode(self) -> bytes:
        """Return the stored form."""
        return bson.encode({self.start: self.value})


def decode_position(stored: bytes) -> Position:
    """Return a stored position."""
    ((start, value),) = bson.decode(stored).items()
    return Position(msgspec.convert(start, Start), value)


def position_after(token: Any, *, ended: bool = False) -> Position:  # noqa: ANN401 - a resume token is the server's own
    """Return the position after an event; ``ended`` for the event that ends a stream."""
    return Position("start_after" if ended else "resume_after", dict(token))


def position_at_time(time: Timestamp) -> Position:
    """Return the position of a cluster time."""
    return Position("start_at_operation_time", time)


def as_datetime(time: Timestamp) -> datetime:
    """Return a cluster time as an instant, to the second."""
    return datetime.fromtimestamp(time.time, UTC)


class TailTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What was done: by the tail since its first call, by one call of it, or by one of its transactions."""

    events: int = 0
    documents: int = 0
    """Documents read again, or found to be deleted."""
    written: int = 0
    removed: int = 0


def totals_of(found: TailTotals) -> dict[str, int]:
    """Return the totals of a struct that has them among other fields."""
    return {name: getattr(found, name) for name in TailTotals.__struct_fields__}


class TailCounts(TailTotals, frozen=True, kw_only=True):
    """What the ledger shows of the tail."""

    position_at: datetime
    """Cluster time up to which all events were read."""
    last_event_at: datetime | None
    updated_at: datetime
    rate: float
    """Events per second, averaged over the last batches."""
    alarm: str | None
    alarm_at: datetime | None


class TailState(TailCounts, frozen=True, kw_only=True):
    """The tail's row in the ledger."""

    stored: bytes
    derived_pending: bool

    @property
    def position(self) -> Position:
        """The position up to which all events were read."""
        return decode_position(self.stored)


def tail_state(target: Connection, profile: str) -> TailState | None:
    """Return the state of the tail; None before its first call."""
    states = fetch_structs(
        target,
        TailState,
        "SELECT position AS stored, position_at, last_event_at, updated_at, events, documents, written, removed, rate,"
        " derived_pending, alarm, alarm_at FROM migration.tail WHERE profile = %s",
        (profile,),
    )
    return states[0] if states else None


def start_from(target: Connection, profile: str, identity: str, position: Position) -> None:
    """Record a position to start from; an alarm stays until a parity check with repair ends it."""
    target.execute(
        "INSERT INTO migration.tail (profile, source_identity, position, position_at, derived_pending)"
        " VALUES (%s, %s, %s, %s, true) ON CONFLICT (profile) DO UPDATE SET source_identity = EXCLUDED.source_identity,"
        " position = EXCLUDED.position, position_at = EXCLUDED.position_at, updated_at = clock_timestamp(),"
        " derived_pending = true",
        (profile, identity, position.encode(), as_datetime(position.time)),
    )


def save_progress(
    target: Connection,
    profile: str,
    position: Position,
    done: TailTotals,
    *,
    rate: float,
    last_event: Timestamp | None = None,
    derived_pending: bool = False,
) -> None:
    """Record the progress of the tail; part of the transaction of the rows."""
    target.execute(
        "UPDATE migration.tail SET position = %(position)s, position_at = %(at)s,"
        " last_event_at = coalesce(%(last_event_at)s, last_event_at), updated_at = clock_timestamp(),"
        " events = events + %(events)s, documents = documents + %(documents)s, written = written + %(written)s,"
        " removed = removed + %(removed)s, rate = %(rate)s, derived_pending = %(derived)s WHERE profile = %(profile)s",
        msgspec.structs.asdict(done)
        | {"position": position.encode(), "at": as_datetime(position.time), "profile": profile, "rate": rate}
        | {"last_event_at": None if last_event is None else as_datetime(last_event), "derived": derived_pending},
    )


def raise_alarm(target: Connection, profile: str, what: str) -> None:
    """Record that the position cannot be trusted; the first alarm stays until a parity check with repair ends it."""
    target.execute(
        "UPDATE migration.tail SET alarm = coalesce(alarm, %s), alarm_at = coalesce(alarm_at, clock_timestamp())"
        " WHERE profile = %s",
        (what, profile),
    )


def settle_alarm(target: Connection, profile: str) -> None:
    """Record that a parity check with repair has corrected what may have been missed."""
    target.execute("UPDATE migration.tail SET alarm = NULL, alarm_at = NULL WHERE profile = %s", (profile,))


def first_position(target: Connection, profile: str, identity: str) -> Position | None:
    """Return the position of the first copy, after which nothing was missed; None if it was not taken.

    The first copy's, not the newest's: rows of the first may belong to documents that were deleted before the second.
    Raises ``RefusedError`` if nothing was copied, or if another source was.
    """
    rows = target.execute(
        "SELECT source_identity, stream_position FROM migration.plans WHERE profile = %s ORDER BY created_at, id",
        (profile,),
    ).fetchall()
    if not rows:
        raise RefusedError("nothing was copied into this target yet: call migrator backfill; tail may run during it")
    strangers = sorted({name for name, position in rows if position is not None and name != identity})
    if strangers:
        raise RefusedError(f"this target was copied from {', '.join(strangers)}, and the source is {identity}")
    if any(position is None for _, position in rows):
        return None
    return position_at_time(bson.decode(bytes(rows[0][1]))["operationTime"])


NO_POSITION: Final = "no position was taken before the copy (--no-position)"


def next_position(target: Connection, profile: str, identity: str) -> Position | None:
    """Return where the tail continues: the saved position, else that of the first copy; None if none was taken.

    Raises ``RefusedError`` as ``first_position`` does, and ``PositionLostError`` while an alarm is recorded.
    """
    first = first_position(target, profile, identity)
    state = tail_state(target, profile)
    if state is None:
        return first
    if state.alarm is not None:
        raise PositionLostError(state.alarm)
    return state.position


FROZEN_S = 60.0
"""A position that does not change for so long, while the source advances by as much, is frozen.

Even an idle source writes a note into its oplog every 10 s.
"""
RATE_WINDOW_S = 2.0


class EventRate:
    """Events per second, averaged over the last batches."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._events = 0
        self.value = 0.0

    def add(self, events: int) -> None:
        """Count events."""
        self._events += events
        now = self._clock()
        if now - self._since >= RATE_WINDOW_S:
            self.value = self._events / (now - self._since)
            self._since, self._events = now, 0


class LagMonitor:
    """Compares the position with the source's own clock."""

    def __init__(self, frozen_s: float = FROZEN_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._frozen_s = frozen_s
        self._clock = clock
        self._position: Position | None = None
        self._since = clock()
        self.seconds = 0
        """Lag of the position, in seconds of the source's clock."""

    def observe(self, position: Position, committed: Timestamp) -> None:
        """Record where the tail and the source are; raise ``PositionFrozenError`` if only the source advances."""
        now = self._clock()
        if position != self._position:
            self._position, self._since = position, now
        self.seconds = max(0, committed.time - position.time.time)
        if now - self._since > self._frozen_s < self.seconds:
            raise PositionFrozenError(
                f"the source is at {as_datetime(committed):%Y-%m-%d %H:%M:%S} UTC, and the position is still at"
                f" {as_datetime(position.time):%Y-%m-%d %H:%M:%S} UTC for {now - self._since:.0f} s"
            )


OPLOG: Final = "oplog.rs"
FULL_SHARE: Final = 0.8
"""Share of its size at which an oplog counts as full: the server drops from it in steps."""


class OplogHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history that the source has kept."""

    oldest: Timestamp
    seconds: int
    """From the oldest entry to the newest."""
    full: bool
    """Whether old entries are dropped for new ones; otherwise its age says nothing about how far it can reach."""


CAPPED_POSITION_LOST: Final = 136
ATTEMPTS: Final = 10


def _entry(local: MongoDatabase, direction: Literal[1, -1]) -> dict[str, Any] | None:
    """Return the oldest (1) or the newest entry of the oplog; reads again if the server drops it meanwhile."""
    for attempt in range(ATTEMPTS):
        try:
            return local[OPLOG].find_one({}, {"ts": 1}, sort=[("$natural", direction)])
        except OperationFailure as error:
            if error.code != CAPPED_POSITION_LOST or attempt == ATTEMPTS - 1:
                raise
    return None


def oplog_history(source: MongoDatabase) -> OplogHistory | None:
    """Return how far back the oplog reaches; None: there is none, or the tool's user may not read it."""
    local = source.client.local
    try:
        first, last = _entry(local, 1), _entry(local, -1)
        if first is None or last is None:
            return None
        size = local.command("collStats", OPLOG)
    except OperationFailure:
        return None
    kept = last["ts"].time - first["ts"].time
    return OplogHistory(oldest=first["ts"], seconds=kept, full=size["size"] >= FULL_SHARE * size["maxSize"])
