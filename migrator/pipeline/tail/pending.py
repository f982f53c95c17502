"""The dry run of the tail: the changes since its position, counted without applying any."""

from contextlib import closing
from datetime import datetime

import msgspec

from migrator.config import Settings
from migrator.connections.mongo import committed_time
from migrator.pipeline.sessions import open_sessions
from migrator.pipeline.tail import backlog, positions
from migrator.pipeline.tail.conditions import write_permission
from migrator.pipeline.tail.positions import NO_POSITION, PositionLostError
from migrator.pipeline.tail.stream import BATCH_EVENTS, BATCH_S, ChangeStream, EventBatch
from migrator.store.postgres.epoch import require_forward


class PendingChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of the tail would apply, up to what the source had committed when it was counted."""

    position_at: datetime
    """Cluster time up to which all events were read."""
    events: int
    documents: dict[str, int]
    """Collection → documents that the events name: each would be read again."""
    whole: tuple[str, ...]
    """Collections that were dropped, renamed or replaced: every document of them would be read again."""
    owed: int
    """Documents that earlier events name and that must still be read again."""
    reason: str
    """Why rows would not be updated now; empty if they would be."""


def pending_changes(settings: Settings) -> PendingChanges:
    """Read the changes since the position of the tail, and write nothing; a tail may run meanwhile.

    Raises ``RefusedError`` and ``AlarmError`` as the tail does, and ``BackendMovedError`` after a cutover.
    """
    with open_sessions(settings) as sessions:
        target, profile = sessions.target, sessions.profile.name
        require_forward(target)
        begin = positions.next_position(target, profile, sessions.reader.identity())
        if begin is None:
            raise PositionLostError(NO_POSITION)
        goal = committed_time(sessions.source)
        names = {sessions.name_of(one.name): one.name for one in sessions.profile.collections}
        found, reached = EventBatch(begin), False
        while not reached:  # a dropped database ends a stream, and the next one goes on behind it
            with closing(ChangeStream(sessions.source, names, found.position)) as stream:
                found.ended = False
                while not (reached or found.ended):
                    found.add(stream.take(BATCH_EVENTS, BATCH_S))
                    at = found.position.time
                    reached = at > goal or (at == goal and found.exhausted)
        return PendingChanges(
            position_at=positions.as_datetime(begin.time),
            events=found.events,
            documents={name: len(ids) for name, ids in sorted(found.touched.items())},
            whole=tuple(sorted(found.whole)),
            owed=backlog.count(target),
            reason=write_permission(target, None).reason,
        )
