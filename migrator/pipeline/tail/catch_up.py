"""Waiting until the tail of another process has caught up."""

import time

from bson.timestamp import Timestamp

from migrator.pipeline.locks import is_tail_running
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import backlog
from migrator.pipeline.tail.conditions import tailed_collections
from migrator.pipeline.tail.positions import tail_state
from migrator.telemetry import waiting

POLL_S = 0.02
SILENT_S = 1.0
"""How long a wait is not logged."""


def wait_for_tail(sessions: Sessions, goal: Timestamp, seconds: float, *, derived: bool = False) -> bool:
    """Wait until every change up to a cluster time is in the target; return whether the tail has reached it.

    ``derived``: also the rows that are made from many documents. It returns false if no tail runs any more, or after
    ``seconds``.
    """
    began = time.monotonic()
    said = False
    while not _has_caught_up(sessions, goal, derived=derived):
        waited = time.monotonic() - began
        if waited > seconds or not is_tail_running(sessions.target):
            return False
        if not said and waited > SILENT_S:
            said = True
            waiting("for the tail to catch up with the source")
        time.sleep(POLL_S)
    return True


def _has_caught_up(sessions: Sessions, goal: Timestamp, *, derived: bool) -> bool:
    found = tail_state(sessions.target, sessions.profile.name)
    return (
        found is not None
        and found.position.time >= goal
        and not (derived and found.derived_pending)
        and not backlog.any_left(sessions.target, tailed_collections(sessions))
    )
