"""Wake-ups in MongoDB: a change stream of the runs, triggers and schedules.

Writers do nothing for it. Which changes are work is seen in the events, also of writers that are not this scheduler.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

from bson import Timestamp
from pymongo.errors import OperationFailure

from migrator.connections.mongo import UNAUTHORIZED, MongoDatabase, first_line, translate_errors
from migrator.errors import RefusedError
from migrator.sources.store_documents import names
from migrator.store.wakeups import ListenerThread, Subscription

WHAT: Final = "the change stream for wake-ups"

_NONE: Final = frozenset({40573, 59, 115, 303, UNAUTHORIZED})
"""Codes of a server without change streams (no replica set, no such stage, not supported), and of a missing right."""

_AFTER: Final = ("insert", "replace")
_PIPELINE: Final[Sequence[Mapping[str, Any]]] = [
    {
        "$match": {
            "$or": [
                {"ns.coll": names.RUNS, "operationType": {"$in": _AFTER}, "fullDocument.state": "queued"},
                {"ns.coll": names.RUNS, "updateDescription.updatedFields.state": "queued"},
                {"ns.coll": names.TRIGGERS, "operationType": {"$in": _AFTER}, "fullDocument.enabled": True},
                {"ns.coll": names.TRIGGERS, "updateDescription.updatedFields.nextFireAt": {"$exists": True}},
                {"ns.coll": names.TRIGGERS, "updateDescription.updatedFields.enabled": True},
                {
                    "ns.coll": names.SCHEDULES,
                    "operationType": {"$in": ["replace", "update"]},
                },  # it may have been paused
            ]
        }
    },
    {
        "$project": {
            "ns.coll": 1,
            "clusterTime": 1,
            "fullDocument.availableAt": 1,
            "fullDocument.nextFireAt": 1,
            "updateDescription.updatedFields.availableAt": 1,
            "updateDescription.updatedFields.nextFireAt": 1,
        }
    },
]


class MongoWakeups:
    """``wakeups.Wakeups``."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database

    def subscribe(self, ring: Callable[[], None], report: Callable[[str], None]) -> Subscription:
        def receive(began: Callable[[], None], stopped: Event) -> None:
            with translate_errors(WHAT):
                try:
                    self._receive(began, ring, stopped)
                except OperationFailure as error:
                    if error.code in _NONE:
                        raise RefusedError(f"{WHAT} cannot be opened: {first_line(error)}") from error
                    raise

        return ListenerThread(receive, ring, report)

    def _receive(self, began: Callable[[], None], ring: Callable[[], None], stopped: Event) -> None:
        with self._database.watch(_PIPELINE) as stream:
            began()
            while not stopped.is_set() and stream.alive:
                event = stream.try_next()
                if event is not None and is_work(event):
                    ring()

    def wake(self) -> None:
        """Do nothing: the change stream has the runs that were queued."""


def is_work(event: Mapping[str, Any]) -> bool:
    """Whether an event that the server let through is of something that can be done now."""
    written = event.get("fullDocument") or event.get("updateDescription", {}).get("updatedFields", {})
    at = written.get("nextFireAt" if event["ns"]["coll"] == names.TRIGGERS else "availableAt")
    if not isinstance(at, datetime):
        return event["ns"]["coll"] != names.TRIGGERS or "fullDocument" not in event
    happened: Timestamp = event["clusterTime"]
    # the cluster's time is in whole seconds
    return at.replace(tzinfo=UTC).timestamp() < happened.time + 1
