"""What changed between two cluster times, by the source's own history."""

from bson.timestamp import Timestamp

from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.alarms import AlarmError
from migrator.pipeline.tail.events import Stream

EVENTS = 10_000
TAKEN_S = 0.5
"""Taken at a time: so many, or those of so long; a source that is written to never has no more."""


def changed_since(sessions: Sessions, start: Timestamp, end: Timestamp) -> dict[str, list[str]] | None:
    """Return the source ids of what changed between two cluster times, by collection; None: it cannot be told."""
    names = {sessions.name_of(one.name): one.name for one in sessions.profile.collections}
    touched: dict[str, dict[str, None]] = {}
    try:
        stream = Stream(sessions.source, names, positions.at(start))
    except AlarmError:
        return None
    try:
        while True:
            batch = stream.take(EVENTS, TAKEN_S)
            if batch.whole or batch.ended:
                return None
            for name, ids in batch.touched.items():
                touched.setdefault(name, {}).update(ids)
            if batch.position.time > end or (batch.exhausted and batch.position.time == end):
                return {name: list(ids) for name, ids in touched.items()}
    except AlarmError:
        return None
    finally:
        stream.close()
